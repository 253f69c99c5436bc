"""The tagger in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from loadtest.workloads.lstm.in_jax import outputs_of
from loadtest.workloads.tagger.data import BACKWARD, EMBEDDINGS, FORWARD, LAYER_KERNEL, TAG_KERNEL

_EMBEDDINGS = jnp.asarray(EMBEDDINGS)
_FORWARD, _BACKWARD = ([jnp.asarray(array) for array in weights] for weights in (FORWARD, BACKWARD))


def answer(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """One example's scores [P, 9] from words padded to [P] and their number; backwards the padding comes first."""
    x = _EMBEDDINGS[inputs[0]]
    _, forward = outputs_of(x, lengths[0], _FORWARD)
    _, backward = outputs_of(x, lengths[0], _BACKWARD, reverse=True)
    layer = jnp.tanh(jnp.concatenate([forward, backward], axis=1) @ LAYER_KERNEL)
    return [layer @ TAG_KERNEL]
