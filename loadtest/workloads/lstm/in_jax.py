"""The LSTM in JAX: `scan` over the padded steps; past the end of a sequence its state stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from loadtest.workloads.lstm.data import BIAS, INPUT_KERNEL, STATE_KERNEL


def outputs_of(x: Any, n: Any, weights: Sequence[Any], *, reverse: bool = False) -> tuple[Any, Any]:
    """The state after the last step of x [P, inputs] that is real, and the outputs of all steps [P, hidden]."""
    input_kernel, state_kernel, offset = weights

    def step(state: tuple[Any, Any], item: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        (h, c), (t, row) = state, item
        enter, forget, leave, update = jnp.split(row @ input_kernel + h @ state_kernel + offset, 4)
        new_c = jax.nn.sigmoid(forget + 1) * c + jax.nn.sigmoid(enter) * jnp.tanh(update)
        new_h = jax.nn.sigmoid(leave) * jnp.tanh(new_c)
        h, c = jnp.where(t < n, new_h, h), jnp.where(t < n, new_c, c)
        return (h, c), h

    zero = jnp.zeros(state_kernel.shape[0])
    (h, _), outputs = jax.lax.scan(step, (zero, zero), (jnp.arange(len(x)), x), reverse=reverse)
    return h, outputs


_WEIGHTS = [jnp.asarray(array) for array in (INPUT_KERNEL, STATE_KERNEL, BIAS)]


def answer(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """One example's last output [128] from x padded to [P, 64] and its length."""
    return [outputs_of(inputs[0], lengths[0], _WEIGHTS)[0]]
