"""The classifier in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from loadtest.workloads.mlp.data import LAYERS

_LAYERS = [(jnp.asarray(kernel), jnp.asarray(offset)) for kernel, offset in LAYERS]


def answer(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """One example's logits [10]."""
    (x,) = inputs
    for kernel, offset in _LAYERS[:-1]:
        x = jax.nn.relu(x @ kernel + offset)
    kernel, offset = _LAYERS[-1]
    return [x @ kernel + offset]
