"""The Tree-LSTM in DyNet, written as in its own benchmark: an expression for each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dynet as dy

from loadtest.workloads.tree_lstm.data import (
    CLASS_KERNEL,
    EMBEDDINGS,
    LEAF_BIAS,
    LEAF_KERNEL,
    NODE_BIAS,
    NODE_KERNEL,
    STATE,
)
from server.engines.batch_result import Example, Outputs


def build(collection: Any) -> Callable[[Sequence[Example]], list[Outputs]]:
    """A function that answers a batch: one new graph, an expression for each example, one call to run them.

    collection: a `dy.ParameterCollection`, which must live as long as the function.
    """
    embeddings = collection.lookup_parameters_from_numpy(EMBEDDINGS)
    leaf_kernel, leaf_bias = (collection.parameters_from_numpy(array) for array in (LEAF_KERNEL.T, LEAF_BIAS))
    for_left, for_right, node_bias, class_kernel = (
        collection.parameters_from_numpy(array)
        for array in (NODE_KERNEL[:STATE].T, NODE_KERNEL[STATE:].T, NODE_BIAS, CLASS_KERNEL.T)
    )

    def leaf(word: int) -> tuple[Any, Any]:
        enter, leave, update = _split(dy.affine_transform([leaf_bias, leaf_kernel, embeddings[word]]), 3)
        c = dy.cmult(dy.logistic(enter), dy.tanh(update))
        return dy.cmult(dy.logistic(leave), dy.tanh(c)), c

    def node(left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
        gates = dy.affine_transform([node_bias, for_left, left[0], for_right, right[0]])
        enter, leave, update, keep_left, keep_right = _split(gates, 5)
        kept = dy.cmult(dy.logistic(keep_left), left[1]) + dy.cmult(dy.logistic(keep_right), right[1])
        c = dy.cmult(dy.logistic(enter), dy.tanh(update)) + kept
        return dy.cmult(dy.logistic(leave), dy.tanh(c)), c

    def answer(examples: Sequence[Example]) -> list[Outputs]:
        dy.renew_cg()
        results = []
        for words, left, right in examples:
            states = [leaf(word) for word in words.tolist()]
            for a, b in zip(left.tolist(), right.tolist(), strict=True):
                states.append(node(states[a], states[b]))
            results.append(class_kernel * states[-1][0])
        dy.forward(results)
        return [(result.npvalue(),) for result in results]

    return answer


def _split(gates: Any, parts: int) -> list[Any]:
    return [dy.pick_range(gates, part * STATE, (part + 1) * STATE) for part in range(parts)]
