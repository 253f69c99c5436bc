"""A classifier of two hidden layers, 128 -> 256 -> 256 -> 10: nothing differs between examples."""

from __future__ import annotations

import numpy as np

from loadtest.workloads.problem import WEIGHTS_SEED, Problem, bias, dense
from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

INPUT, HIDDEN, CLASSES = 128, 256, 10

_generator = np.random.default_rng(WEIGHTS_SEED)
LAYERS = [
    (dense(_generator, inputs, outputs), bias(_generator, outputs))
    for inputs, outputs in ((INPUT, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))
]


def examples(generator: np.random.Generator, count: int) -> list[Example]:
    return [(generator.normal(size=INPUT).astype(np.float32),) for _ in range(count)]


def reference(x: Array) -> Outputs:
    h = x.astype(np.float64)
    for kernel, offset in LAYERS[:-1]:
        h = np.maximum(h @ kernel + offset, 0)
    kernel, offset = LAYERS[-1]
    return ((h @ kernel + offset).astype(np.float32),)


PROBLEM = Problem(
    name="mlp",
    about="two hidden layers, 128 -> 256 -> 256 -> 10",
    inputs=(TensorDescription("x", "float32", [INPUT]),),
    outputs=(TensorDescription("output", "float32", [CLASSES]),),
    examples=examples,
    reference=reference,
)
