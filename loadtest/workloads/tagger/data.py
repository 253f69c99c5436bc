"""A tagger in the sizes of DyNet's own benchmark: embeddings of 128, an LSTM of 50 units each way, a layer of 32.

Sentences have 5 to 40 words; each word gets a score for each of 9 tags.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.workloads.problem import WEIGHTS_SEED, Problem, bias, dense, sigmoid
from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

VOCABULARY, EMBEDDING, HIDDEN, LAYER, TAGS = 5000, 128, 50, 32, 9
SHORTEST, LONGEST = 5, 40

_generator = np.random.default_rng(WEIGHTS_SEED)
EMBEDDINGS = _generator.normal(size=(VOCABULARY, EMBEDDING)).astype(np.float32)
FORWARD, BACKWARD = (
    (
        dense(_generator, EMBEDDING, 4 * HIDDEN),  # gates: input, forget, output, update
        dense(_generator, HIDDEN, 4 * HIDDEN),
        bias(_generator, 4 * HIDDEN),
    )
    for _ in range(2)
)
LAYER_KERNEL = dense(_generator, 2 * HIDDEN, LAYER)
TAG_KERNEL = dense(_generator, LAYER, TAGS)


def examples(generator: np.random.Generator, count: int) -> list[Example]:
    lengths = generator.integers(SHORTEST, LONGEST + 1, count)
    return [(generator.integers(0, VOCABULARY, int(length)).astype(np.int32),) for length in lengths]


def _outputs(steps: NDArray[Any], weights: tuple[Array, Array, Array]) -> NDArray[Any]:
    input_kernel, state_kernel, offset = weights
    h = c = np.zeros(HIDDEN)
    outputs = []
    for step in steps:
        enter, forget, leave, update = np.split(step @ input_kernel + h @ state_kernel + offset, 4)
        c = sigmoid(forget + 1) * c + sigmoid(enter) * np.tanh(update)
        h = sigmoid(leave) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def reference(words: Array) -> Outputs:
    steps = EMBEDDINGS[words].astype(np.float64)
    both = np.concatenate([_outputs(steps, FORWARD), _outputs(steps[::-1], BACKWARD)[::-1]], axis=1)
    return ((np.tanh(both @ LAYER_KERNEL) @ TAG_KERNEL).astype(np.float32),)


PROBLEM = Problem(
    name="tagger",
    about="bidirectional LSTM tagger 128/50/32, 5 to 40 words",
    inputs=(TensorDescription("words", "int32", [None]),),
    outputs=(TensorDescription("output", "float32", [None, TAGS]),),
    examples=examples,
    reference=reference,
    output_lengths={(0, 0): (0, 0)},
)
