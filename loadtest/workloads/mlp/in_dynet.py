"""The classifier in DyNet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dynet as dy

from loadtest.workloads.mlp.data import LAYERS
from server.engines.batch_result import Example, Outputs


def build(collection: Any) -> Callable[[Sequence[Example]], list[Outputs]]:
    """A function that answers a batch: one new graph, an expression for each example, one call to run them.

    collection: a `dy.ParameterCollection`, which must live as long as the function.
    """
    layers = [
        (collection.parameters_from_numpy(kernel.T), collection.parameters_from_numpy(offset))
        for kernel, offset in LAYERS
    ]

    def answer(examples: Sequence[Example]) -> list[Outputs]:
        dy.renew_cg()
        results = []
        for (x,) in examples:
            h = dy.inputTensor(x)
            for kernel, offset in layers[:-1]:
                h = dy.rectify(dy.affine_transform([offset, kernel, h]))
            kernel, offset = layers[-1]
            results.append(dy.affine_transform([offset, kernel, h]))
        dy.forward(results)
        return [(result.npvalue(),) for result in results]

    return answer
