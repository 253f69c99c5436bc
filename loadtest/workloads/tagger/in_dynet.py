"""The tagger in DyNet, with its own LSTM builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dynet as dy

from loadtest.workloads.lstm.in_dynet import lstm_builder
from loadtest.workloads.tagger.data import BACKWARD, EMBEDDINGS, FORWARD, LAYER_KERNEL, TAG_KERNEL
from server.engines.batch_result import Example, Outputs


def build(collection: Any) -> Callable[[Sequence[Example]], list[Outputs]]:
    """A function that answers a batch: one new graph, an expression for each example, one call to run them.

    collection: a `dy.ParameterCollection`, which must live as long as the function.
    """
    embeddings = collection.lookup_parameters_from_numpy(EMBEDDINGS)
    forward = lstm_builder(collection, *FORWARD)
    backward = lstm_builder(collection, *BACKWARD)
    layer_kernel = collection.parameters_from_numpy(LAYER_KERNEL.T)
    tag_kernel = collection.parameters_from_numpy(TAG_KERNEL.T)

    def answer(examples: Sequence[Example]) -> list[Outputs]:
        dy.renew_cg()
        start, end = forward.initial_state(), backward.initial_state()

        def scores(words: Any) -> Any:
            steps = [embeddings[word] for word in words.tolist()]
            there = start.transduce(steps)
            back = reversed(end.transduce(reversed(steps)))
            both = [dy.concatenate([a, b]) for a, b in zip(there, back, strict=True)]
            return dy.concatenate_cols([tag_kernel * dy.tanh(layer_kernel * x) for x in both])

        results = [scores(words) for (words,) in examples]
        dy.forward(results)
        return [(result.npvalue().T,) for result in results]

    return answer
