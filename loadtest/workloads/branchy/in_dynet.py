"""The experts in DyNet. The gates of all examples are run before the second layers are written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dynet as dy

from loadtest.workloads.branchy.data import EXPERT_KERNELS, GATE, SECOND_KERNELS
from server.engines.batch_result import Example, Outputs


def build(collection: Any) -> Callable[[Sequence[Example]], list[Outputs]]:
    """A function that answers a batch: one new graph, run in two calls.

    collection: a `dy.ParameterCollection`, which must live as long as the function.
    """
    experts = [
        (collection.parameters_from_numpy(into.T), collection.parameters_from_numpy(out.T))
        for into, out in EXPERT_KERNELS
    ]
    second_into, second_out = (collection.parameters_from_numpy(kernel.T) for kernel in SECOND_KERNELS)
    gate = collection.parameters_from_numpy(GATE)

    def answer(examples: Sequence[Example]) -> list[Outputs]:
        dy.renew_cg()
        results = []
        for x, expert in examples:
            into, out = experts[int(expert)]
            results.append(out * dy.tanh(into * dy.inputTensor(x)))
        gates = [dy.dot_product(gate, y) for y in results]
        dy.forward(gates)
        for row, (y, opening) in enumerate(zip(results, gates, strict=True)):
            if opening.value() > 0:
                results[row] = y + second_out * dy.tanh(second_into * y)
        dy.forward(results)
        return [(result.npvalue(),) for result in results]

    return answer
