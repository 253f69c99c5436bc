"""The graph network in DyNet: a matrix of states [state, nodes] for each graph, edges as matrices of ones and zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dynet as dy
import numpy as np

from loadtest.workloads.graph_network.data import (
    CLASS_KERNEL,
    ENTRY_KERNEL,
    MESSAGE_BIAS,
    MESSAGE_KERNEL,
    ROUNDS,
    UPDATE_BIAS,
    UPDATE_KERNEL,
)
from server.engines.batch_result import Example, Outputs


def build(collection: Any) -> Callable[[Sequence[Example]], list[Outputs]]:
    """A function that answers a batch: one new graph, an expression for each example, one call to run them.

    collection: a `dy.ParameterCollection`, which must live as long as the function.
    """
    entry, message, message_bias, update, update_bias, classes = (
        collection.parameters_from_numpy(array)
        for array in (
            *(ENTRY_KERNEL.T, MESSAGE_KERNEL.T, MESSAGE_BIAS[:, None]),
            *(UPDATE_KERNEL.T, UPDATE_BIAS[:, None], CLASS_KERNEL.T),
        )
    )

    def answer(examples: Sequence[Example]) -> list[Outputs]:
        dy.renew_cg()
        results = []
        for features, senders, receivers in examples:
            nodes = len(features)
            to_receivers = dy.inputTensor(np.eye(nodes, dtype=np.float32)[receivers])
            states = dy.tanh(entry * dy.inputTensor(features.T))
            for _ in range(ROUNDS):
                ends = dy.concatenate([dy.select_cols(states, senders), dy.select_cols(states, receivers)])
                messages = dy.rectify(dy.colwise_add(message * ends, message_bias))
                both = dy.concatenate([states, messages * to_receivers])
                states = dy.tanh(dy.colwise_add(update * both, update_bias))
            results.append(classes * dy.mean_dim(states, [1], False))
        dy.forward(results)
        return [(result.npvalue(),) for result in results]

    return answer
