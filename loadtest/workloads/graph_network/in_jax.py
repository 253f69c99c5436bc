"""The graph network in JAX: padding edges lead to a spare node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from loadtest.workloads.graph_network.data import (
    CLASS_KERNEL,
    ENTRY_KERNEL,
    MESSAGE_BIAS,
    MESSAGE_KERNEL,
    ROUNDS,
    UPDATE_BIAS,
    UPDATE_KERNEL,
)


def answer(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """One example's scores [4] from a padded graph and its numbers of nodes and edges."""
    (features, senders, receivers), (nodes, edges, _) = inputs, lengths
    room = len(features)
    receivers = jnp.where(jnp.arange(len(senders)) < edges, receivers, room)
    states = jnp.tanh(features @ ENTRY_KERNEL)
    for _ in range(ROUNDS):
        ends = jnp.concatenate([states[senders], states[receivers]], axis=1)
        messages = jax.nn.relu(ends @ MESSAGE_KERNEL + MESSAGE_BIAS)
        received = jax.ops.segment_sum(messages, receivers, room + 1)[:-1]
        states = jnp.tanh(jnp.concatenate([states, received], axis=1) @ UPDATE_KERNEL + UPDATE_BIAS)
    is_node = (jnp.arange(room) < nodes)[:, None]
    return [jnp.where(is_node, states, 0).sum(axis=0) / nodes @ CLASS_KERNEL]
