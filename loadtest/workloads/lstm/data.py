"""An LSTM over sequences of different lengths, 5 to 40 steps of 64 numbers, 128 units; its last output.

The equations are those of DyNet's VanillaLSTMBuilder (gates in its order, 1 added to the forget gate).
"""

from __future__ import annotations

import numpy as np

from loadtest.workloads.problem import WEIGHTS_SEED, Problem, bias, dense, sigmoid
from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

INPUT, HIDDEN = 64, 128
SHORTEST, LONGEST = 5, 40

_generator = np.random.default_rng(WEIGHTS_SEED)
INPUT_KERNEL = dense(_generator, INPUT, 4 * HIDDEN)  # gates: input, forget, output, update
STATE_KERNEL = dense(_generator, HIDDEN, 4 * HIDDEN)
BIAS = bias(_generator, 4 * HIDDEN)


def examples(generator: np.random.Generator, count: int) -> list[Example]:
    lengths = generator.integers(SHORTEST, LONGEST + 1, count)
    return [(generator.normal(size=(int(length), INPUT)).astype(np.float32),) for length in lengths]


def reference(x: Array) -> Outputs:
    h = c = np.zeros(HIDDEN)
    for step in x.astype(np.float64):
        enter, forget, leave, update = np.split(step @ INPUT_KERNEL + h @ STATE_KERNEL + BIAS, 4)
        c = sigmoid(forget + 1) * c + sigmoid(enter) * np.tanh(update)
        h = sigmoid(leave) * np.tanh(c)
    return (h.astype(np.float32),)


PROBLEM = Problem(
    name="lstm",
    about="LSTM of 128 units over 5 to 40 steps of 64 numbers",
    inputs=(TensorDescription("x", "float32", [None, INPUT]),),
    outputs=(TensorDescription("output", "float32", [HIDDEN]),),
    examples=examples,
    reference=reference,
)
