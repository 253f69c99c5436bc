"""The inverse of a 16 by 16 matrix by Newton's iteration (Schulz 1933); how long it takes depends on the matrix.

Condition numbers are 1 to 100, which takes 2 to 17 iterations. After the test one more makes the answer exact to
float32's digits, so that a row whose residual meets the limit only just is right either way.
"""

from __future__ import annotations

import numpy as np

from loadtest.workloads.problem import Problem
from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

SIZE = 16
LARGEST_CONDITION = 100.0
ENOUGH = 1e-3
MOST_ITERATIONS = 50


def examples(generator: np.random.Generator, count: int) -> list[Example]:
    """Symmetric matrices with eigenvalues between 1 / condition and 1."""
    found: list[Example] = []
    for _ in range(count):
        smallest = LARGEST_CONDITION ** -generator.uniform()
        basis, _ = np.linalg.qr(generator.normal(size=(SIZE, SIZE)))
        found.append(((basis * np.geomspace(smallest, 1, SIZE) @ basis.T).astype(np.float32),))
    return found


def reference(a: Array) -> Outputs:
    exact = a.astype(np.float64)
    x, identity = exact.T, np.eye(SIZE)
    for _ in range(MOST_ITERATIONS):
        residual = identity - exact @ x
        if np.abs(residual).max() <= ENOUGH:
            break
        x = x + x @ residual
    return ((x + x @ (identity - exact @ x)).astype(np.float32),)


PROBLEM = Problem(
    name="newton",
    about="inverse of a 16 by 16 matrix by Newton's iteration, until it converges",
    inputs=(TensorDescription("a", "float32", [SIZE, SIZE]),),
    outputs=(TensorDescription("output", "float32", [SIZE, SIZE]),),
    examples=examples,
    reference=reference,
    rtol=1e-4,
    atol=1e-4,
)
