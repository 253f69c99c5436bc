"""The Tree-LSTM in JAX: leaves at once, then a loop over the padded inner nodes.

Node k of every tree is written to the same place, behind the padded leaves, so that `vmap` makes the write a slice
and not a scatter, and no tree needs a mask: what padding writes is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from loadtest.workloads.tree_lstm.data import (
    CLASS_KERNEL,
    EMBEDDINGS,
    LEAF_BIAS,
    LEAF_KERNEL,
    NODE_BIAS,
    NODE_KERNEL,
    STATE,
)

_EMBEDDINGS = jnp.asarray(EMBEDDINGS)


def answer(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """One example's scores [5] from a tree padded to [P], [P - 1] and [P - 1], and its number of leaves."""
    (words, left, right), (leaves, *_) = inputs, lengths
    room, inner = len(words), len(left)
    enter, leave, update = jnp.split(_EMBEDDINGS[words] @ LEAF_KERNEL + LEAF_BIAS, 3, axis=1)
    leaf_c = jax.nn.sigmoid(enter) * jnp.tanh(update)
    leaf_h = jax.nn.sigmoid(leave) * jnp.tanh(leaf_c)
    space = jnp.zeros((inner, STATE))
    left, right = (jnp.where(child < leaves, child, child + room - leaves) for child in (left, right))

    def step(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        h, c = state
        a, b = left[k], right[k]
        gates = jnp.concatenate([h[a], h[b]]) @ NODE_KERNEL + NODE_BIAS
        enter, leave, update, keep_left, keep_right = jnp.split(gates, 5)
        kept = jax.nn.sigmoid(keep_left) * c[a] + jax.nn.sigmoid(keep_right) * c[b]
        node_c = jax.nn.sigmoid(enter) * jnp.tanh(update) + kept
        node_h = jax.nn.sigmoid(leave) * jnp.tanh(node_c)
        return h.at[room + k].set(node_h), c.at[room + k].set(node_c)

    start = jnp.concatenate([leaf_h, space]), jnp.concatenate([leaf_c, space])
    h, _ = jax.lax.fori_loop(0, inner, step, start)
    return [h[room + leaves - 2] @ CLASS_KERNEL]
