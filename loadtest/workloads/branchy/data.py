"""One of 16 experts for each example, by its number; a second layer for those that a gate lets through.

What static batching likes least: it computes every expert for every row.
"""

from __future__ import annotations

import numpy as np

from loadtest.workloads.problem import WEIGHTS_SEED, Problem, dense
from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

INPUT, HIDDEN, EXPERTS = 128, 1024, 16

_generator = np.random.default_rng(WEIGHTS_SEED)
EXPERT_KERNELS = [(dense(_generator, INPUT, HIDDEN), dense(_generator, HIDDEN, INPUT)) for _ in range(EXPERTS)]
GATE = dense(_generator, INPUT, 1)[:, 0]
SECOND_KERNELS = dense(_generator, INPUT, HIDDEN), dense(_generator, HIDDEN, INPUT)


def examples(generator: np.random.Generator, count: int) -> list[Example]:
    experts = generator.integers(0, EXPERTS, count)
    return [(generator.normal(size=INPUT).astype(np.float32), np.array(expert, np.int32)) for expert in experts]


def reference(x: Array, expert: Array) -> Outputs:
    into, out = EXPERT_KERNELS[int(expert)]
    y = np.tanh(x.astype(np.float64) @ into) @ out
    if y @ GATE > 0:
        y = y + np.tanh(y @ SECOND_KERNELS[0]) @ SECOND_KERNELS[1]
    return (y.astype(np.float32),)


PROBLEM = Problem(
    name="branchy",
    about="one of 16 experts 128 -> 1024 -> 128 by number, then another layer or not",
    inputs=(TensorDescription("x", "float32", [INPUT]), TensorDescription("expert", "int32", [])),
    outputs=(TensorDescription("output", "float32", [INPUT]),),
    examples=examples,
    reference=reference,
)
