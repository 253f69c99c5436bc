"""The experts in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from loadtest.workloads.branchy.data import EXPERT_KERNELS, GATE, INPUT, PROBLEM, SECOND_KERNELS
from loadtest.workloads.problem import Workload

_EXPERTS = [(tf.constant(into), tf.constant(out)) for into, out in EXPERT_KERNELS]
_GATE = tf.constant(GATE)
_SECOND = [tf.constant(kernel) for kernel in SECOND_KERNELS]


def branchy(x: Any, expert: Any) -> Any:
    """What the expert of that number (int32, 0 to 15) makes of x [128], and, if the gate opens, a second layer."""

    def answer_of(into: Any, out: Any) -> Callable[[], Any]:
        return lambda: tf.tensordot(tf.tanh(tf.tensordot(x, into, 1)), out, 1)

    y = tf.switch_case(expert, [answer_of(into, out) for into, out in _EXPERTS])

    def second_layer() -> Any:
        return y + tf.tensordot(tf.tanh(tf.tensordot(y, _SECOND[0], 1)), _SECOND[1], 1)

    return tf.cond(tf.tensordot(y, _GATE, 1) > 0, second_layer, lambda: y)


WORKLOAD = Workload(
    PROBLEM,
    branchy,
    {"x": tf.TensorSpec([INPUT], tf.float32), "expert": tf.TensorSpec([], tf.int32)},
)
