"""The LSTM in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from loadtest.workloads.lstm.data import BIAS, HIDDEN, INPUT, INPUT_KERNEL, PROBLEM, STATE_KERNEL
from loadtest.workloads.problem import Workload

_INPUT_KERNEL, _STATE_KERNEL, _BIAS = tf.constant(INPUT_KERNEL), tf.constant(STATE_KERNEL), tf.constant(BIAS)


def cell(gates: Any, c: Any) -> tuple[Any, Any]:
    """Output and memory after one step, from the gates' [..., 4 * hidden] inputs and the memory [..., hidden]."""
    enter, forget, leave, update = tf.split(gates, 4, axis=-1)
    c = tf.sigmoid(forget + 1) * c + tf.sigmoid(enter) * tf.tanh(update)
    return tf.sigmoid(leave) * tf.tanh(c), c


def _last_output(x: Any, steps: Any) -> Any:
    def step(t: Any, h: Any, c: Any) -> Any:
        gates = tf.tensordot(x[t], _INPUT_KERNEL, 1) + tf.tensordot(h, _STATE_KERNEL, 1) + _BIAS
        return t + 1, *cell(gates, c)

    zero = tf.zeros([HIDDEN])
    return tf.while_loop(lambda t, h, c: t < steps, step, (tf.constant(0), zero, zero))[1]


def lstm(x: Any) -> Any:
    """The output [128] after the last step of x [n, 64]."""
    return _last_output(x, tf.shape(x)[0])


def padded(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """The same with x [P, 64] and its length n."""
    return [_last_output(inputs[0], lengths[0])]


def hand_batched(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """All rows step together; a row that is through keeps its state."""
    (x,), (n,) = inputs, lengths
    steps = tf.transpose(x, [1, 0, 2])

    def step(t: Any, h: Any, c: Any) -> Any:
        gates = tf.matmul(steps[t], _INPUT_KERNEL) + tf.matmul(h, _STATE_KERNEL) + _BIAS
        new_h, new_c = cell(gates, c)
        active = (t < n)[:, tf.newaxis]
        return t + 1, tf.where(active, new_h, h), tf.where(active, new_c, c)

    zero = tf.zeros([tf.shape(x)[0], HIDDEN])
    longest = tf.reduce_max(n)
    return [tf.while_loop(lambda t, h, c: t < longest, step, (tf.constant(0), zero, zero))[1]]


WORKLOAD = Workload(
    PROBLEM,
    lstm,
    {"x": tf.TensorSpec([None, INPUT], tf.float32)},
    hand_batched=hand_batched,
    padded=padded,
)
