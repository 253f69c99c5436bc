"""The LSTM in DyNet, with its own LSTM builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dynet as dy

from loadtest.workloads.lstm.data import BIAS, INPUT_KERNEL, STATE_KERNEL
from server.engines.batch_result import Array, Example, Outputs


def lstm_builder(collection: Any, input_kernel: Array, state_kernel: Array, offset: Array) -> Any:
    """DyNet's LSTM of one layer with these weights."""
    builder = dy.VanillaLSTMBuilder(1, len(input_kernel), len(state_kernel), collection)
    (for_input, for_state, for_bias), *_ = builder.get_parameters()
    for_input.set_value(input_kernel.T)
    for_state.set_value(state_kernel.T)
    for_bias.set_value(offset)
    return builder


def build(collection: Any) -> Callable[[Sequence[Example]], list[Outputs]]:
    """A function that answers a batch: one new graph, an expression for each example, one call to run them.

    collection: a `dy.ParameterCollection`, which must live as long as the function.
    """
    builder = lstm_builder(collection, INPUT_KERNEL, STATE_KERNEL, BIAS)

    def answer(examples: Sequence[Example]) -> list[Outputs]:
        dy.renew_cg()
        start = builder.initial_state()
        results = [start.transduce([dy.inputTensor(step) for step in x])[-1] for (x,) in examples]
        dy.forward(results)
        return [(result.npvalue(),) for result in results]

    return answer
