"""The classifier in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from loadtest.workloads.mlp.data import INPUT, LAYERS, PROBLEM
from loadtest.workloads.problem import Workload

_LAYERS = [(tf.constant(kernel), tf.constant(offset)) for kernel, offset in LAYERS]


def mlp(x: Any) -> Any:
    """Logits [10] of x [128]."""
    for kernel, offset in _LAYERS[:-1]:
        x = tf.nn.relu(tf.tensordot(x, kernel, 1) + offset)
    kernel, offset = _LAYERS[-1]
    return tf.tensordot(x, kernel, 1) + offset


def hand_batched(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """Logits [B, 10] of x [B, 128]."""
    (x,) = inputs
    for kernel, offset in _LAYERS[:-1]:
        x = tf.nn.relu(tf.matmul(x, kernel) + offset)
    kernel, offset = _LAYERS[-1]
    return [tf.matmul(x, kernel) + offset]


WORKLOAD = Workload(PROBLEM, mlp, {"x": tf.TensorSpec([INPUT], tf.float32)}, hand_batched=hand_batched)
