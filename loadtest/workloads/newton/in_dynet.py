"""Newton's iteration in DyNet. All examples take their steps together, so that one call runs all residuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dynet as dy
import numpy as np

from loadtest.workloads.newton.data import ENOUGH, MOST_ITERATIONS, SIZE
from server.engines.batch_result import Example, Outputs


def build(collection: Any) -> Callable[[Sequence[Example]], list[Outputs]]:
    """A function that answers a batch: one new graph, run in as many calls as the slowest example iterates.

    collection: not needed, there are no weights.
    """

    def answer(examples: Sequence[Example]) -> list[Outputs]:
        dy.renew_cg()
        identity = dy.inputTensor(np.eye(SIZE, dtype=np.float32))
        matrices = [dy.inputTensor(a) for (a,) in examples]
        inverses = [dy.transpose(a) for a in matrices]
        residuals = [identity - a * x for a, x in zip(matrices, inverses, strict=True)]
        unfinished = list(range(len(examples)))
        for _ in range(MOST_ITERATIONS):
            dy.forward([residuals[row] for row in unfinished])
            unfinished = [row for row in unfinished if np.abs(residuals[row].npvalue()).max() > ENOUGH]
            if not unfinished:
                break
            for row in unfinished:
                inverses[row] = inverses[row] + inverses[row] * residuals[row]
                residuals[row] = identity - matrices[row] * inverses[row]
        results = [x + x * residual for x, residual in zip(inverses, residuals, strict=True)]
        dy.forward(results)
        return [(result.npvalue(),) for result in results]

    return answer
