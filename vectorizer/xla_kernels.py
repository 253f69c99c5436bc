"""Where XLA's kernels answer otherwise than TensorFlow's own: the same ops, spelt so that compiled programs agree.

The oracle is the per-example function run by TensorFlow. XLA's CPU kernels (TensorFlow 2.21) lose or prefer NaN in
comparisons; found by running every op of `docs/supported_ops.md` on NaN and infinities, with and without XLA
(`tests/vectorizer/test_nan_under_xla.py`, which also lists what TensorFlow itself leaves undefined).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

Kernel = Callable[[Sequence[Any]], list[Any]]
Respelt = Callable[[str, Kernel, Sequence[Any], Mapping[str, Any]], list[Any]]

_under_xla: ContextVar[bool] = ContextVar("under_xla", default=False)
_RESPELT: dict[str, Respelt] = {}


@contextmanager
def under_xla(compiled: bool = True) -> Iterator[None]:
    """What is emitted inside is compiled by XLA."""
    token = _under_xla.set(compiled)
    try:
        yield
    finally:
        _under_xla.reset(token)


def compiling() -> bool:
    """Whether what is emitted now is compiled by XLA."""
    return _under_xla.get()


def run(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    """The results of an op on `tensors`: by `kernel`, its own, or respelt if XLA's would differ."""
    respelt = _RESPELT.get(op_type) if _under_xla.get() and tensors[0].dtype.is_floating else None
    return respelt(op_type, kernel, tensors, attrs) if respelt else kernel(tensors)


def _respells(op_types: str) -> Callable[[Respelt], Respelt]:
    def register(function: Respelt) -> Respelt:
        _RESPELT.update(dict.fromkeys(op_types.split(), function))
        return function

    return register


@_respells("Maximum Minimum")
def _nan_of_either(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    for tensor in tensors:
        result = tf.where(tf.math.is_nan(tensor), tensor, result)
    return [result]


@_respells("Relu6")
def _nan_of_the_only_one(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    return [tf.where(tf.math.is_nan(tensors[0]), tensors[0], result)]


@_respells("Max Min")
def _nan_if_any_is(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    spoilt = tf.reduce_any(tf.math.is_nan(tensors[0]), tensors[1], keepdims=bool(attrs["keep_dims"]))
    return [tf.where(spoilt, tf.constant(np.nan, result.dtype), result)]


@_respells("ArgMax ArgMin")
def _pass_over_nan(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    worst = tf.constant(-np.inf if op_type == "ArgMax" else np.inf, tensors[0].dtype)
    return kernel([tf.where(tf.math.is_nan(tensors[0]), worst, tensors[0]), tensors[1]])


@_respells("MaxPool")
def _from_the_lowest_finite(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    # TensorFlow starts each window from the least finite number, and NaN is greater than nothing.
    lowest = tf.constant(tensors[0].dtype.min, tensors[0].dtype)
    return kernel([tf.where(tensors[0] > lowest, tensors[0], lowest)])


@_respells("Bucketize")
def _nan_in_the_last_bucket(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    (result,) = kernel(tensors)
    return [tf.where(tf.math.is_nan(tensors[0]), len(attrs["boundaries"]), result)]


@_respells("UpperBound")
def _nan_behind_all(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    return [tf.where(tf.math.is_nan(tensors[1]), tf.cast(tf.shape(tensors[0])[1], result.dtype), result)]


@_respells("ReluGrad Relu6Grad")
def _nothing_times_infinity(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    # TensorFlow multiplies by zero, which makes NaN of a gradient that isn't finite; XLA selects.
    gradients, features = tensors
    passed = features > 0 if op_type == "ReluGrad" else tf.logical_and(features > 0, features < 6)
    return [tf.where(passed, gradients, gradients * tf.zeros([], gradients.dtype))]


@_respells("EluGrad SeluGrad")
def _zero_and_nan_are_not_below(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    # XLA takes the curve's slope, not the line's, where the output is zero: for selu these are two values.
    gradients, outputs = tensors
    below = outputs < 0
    line = kernel([gradients, tf.ones_like(outputs)])
    return [tf.where(below, *kernel([gradients, tf.where(below, outputs, -tf.ones_like(outputs))]), *line)]
