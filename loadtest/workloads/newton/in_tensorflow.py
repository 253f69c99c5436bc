"""Newton's iteration in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from loadtest.workloads.newton.data import ENOUGH, MOST_ITERATIONS, PROBLEM, SIZE
from loadtest.workloads.problem import Workload


def newton(a: Any) -> Any:
    """The inverse [16, 16] of a [16, 16], whose eigenvalues must lie between 0 and 1."""
    identity = tf.eye(SIZE)

    def unfinished(iteration: Any, x: Any) -> Any:
        residual = identity - tf.matmul(a, x)
        return tf.logical_and(iteration < MOST_ITERATIONS, tf.reduce_max(tf.abs(residual)) > ENOUGH)

    def improve(iteration: Any, x: Any) -> Any:
        return iteration + 1, x + tf.matmul(x, identity - tf.matmul(a, x))

    iteration, x = tf.while_loop(unfinished, improve, (tf.constant(0), tf.transpose(a)))
    return improve(iteration, x)[1]


def hand_batched(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """All rows iterate until the last has converged; one that has keeps its value. A residual serves test and step."""
    (a,) = inputs
    identity = tf.eye(SIZE)

    def residual_of(x: Any) -> Any:
        return identity - tf.matmul(a, x)

    def is_rough(residual: Any) -> Any:
        return tf.reduce_max(tf.abs(residual), [1, 2], keepdims=True) > ENOUGH

    def unfinished(iteration: Any, x: Any, residual: Any) -> Any:
        return tf.logical_and(iteration < MOST_ITERATIONS, tf.reduce_any(is_rough(residual)))

    def improve(iteration: Any, x: Any, residual: Any) -> Any:
        x = tf.where(is_rough(residual), x + tf.matmul(x, residual), x)
        return iteration + 1, x, residual_of(x)

    start = tf.transpose(a, [0, 2, 1])
    _, x, residual = tf.while_loop(unfinished, improve, (tf.constant(0), start, residual_of(start)))
    return [x + tf.matmul(x, residual)]


WORKLOAD = Workload(PROBLEM, newton, {"a": tf.TensorSpec([SIZE, SIZE], tf.float32)}, hand_batched=hand_batched)
