"""Derivatives as transforms of per-example functions: derive first, then vectorize, then compile.

vectorize(grad(loss), specs)            # one gradient for each example
vectorize(jacobian(fn, argnums=1), specs)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The gradient of a scalar per-example function with respect to the arguments `argnums`.

    Returns a function of the same arguments giving tensors of those arguments' shapes (zeros where `fn` doesn't depend
    on one); a tuple where `argnums` is a sequence.
    """

    def gradient(*arguments: Any) -> Any:
        with tf.GradientTape() as tape:
            watched = _watched(tape, arguments, argnums)
            value = fn(*arguments)
        return _shaped(tape.gradient(value, watched, unconnected_gradients="zero"), argnums)

    return gradient


def jacobian(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """All first derivatives of a per-example function with one output: `[*output, *argument]` for each argument."""

    def derivative(*arguments: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            watched = _watched(tape, arguments, argnums)
            value = fn(*arguments)
        if value.shape.is_fully_defined():
            found = tape.jacobian(value, watched, unconnected_gradients="zero")
        else:
            found = _row_by_row(tape, value, watched)
        return _shaped(found, argnums)

    return derivative


def hessian(fn: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """All second derivatives of a scalar per-example function in one argument: `[*argument, *argument]`."""
    return jacobian(grad(fn, argnums), argnums)


def _row_by_row(tape: Any, value: Any, watched: Sequence[Any]) -> list[Any]:
    """The jacobians of a result of open size, one element of it at a time.

    TensorFlow's own ways hide how large the results are, or refuse a result without elements.
    """
    count = tf.size(value)

    def step(k: Any, *rows: Any) -> Any:
        direction = tf.reshape(tf.one_hot(k, count, dtype=value.dtype), tf.shape(value))
        slopes = tape.gradient(value, watched, output_gradients=direction, unconnected_gradients="zero")
        return k + 1, *(
            tf.tensor_scatter_nd_update(old, [[k]], [tf.reshape(slope, [-1])])
            for old, slope in zip(rows, slopes, strict=True)
        )

    start = [tf.zeros([count, tf.size(argument)], argument.dtype) for argument in watched]
    _, *rows = tf.while_loop(lambda k, *_: k < count, step, (0, *start))
    return [
        tf.reshape(row, tf.concat([tf.shape(value), tf.shape(argument)], 0))
        for row, argument in zip(rows, watched, strict=True)
    ]


def _watched(tape: Any, arguments: Sequence[Any], argnums: int | Sequence[int]) -> list[Any]:
    positions = [argnums] if isinstance(argnums, int) else list(argnums)
    chosen = [arguments[position] for position in positions]
    tape.watch(chosen)
    return chosen


def _shaped(found: list[Any], argnums: int | Sequence[int]) -> Any:
    return found[0] if isinstance(argnums, int) else tuple(found)
