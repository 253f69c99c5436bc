"""Ops that reduce over axes. Ragged axes are first filled with the reduction's neutral element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import (
    NotConvertible,
    Size,
    Value,
    at_axis,
    batched,
    fill_padding,
    number,
    pad_axis,
    size_mask,
)


def lowest(dtype: Any) -> Any:
    """The least value of a dtype: minus infinity for floats."""
    return -np.inf if dtype.is_floating else dtype.min


def highest(dtype: Any) -> Any:
    """The greatest value of a dtype: infinity for floats."""
    return np.inf if dtype.is_floating else dtype.max


def example_axes(axes: Any, rank: int) -> list[int]:
    """Per-example axes as given (negative too, scalar or vector) -> non-negative, in ascending order."""
    return sorted({int(axis) % rank if rank else 0 for axis in np.atleast_1d(axes)}) if rank else []


def kept_sizes(value: Value, axes: Sequence[int], keep_dims: bool) -> dict[int, Size]:
    """Sizes of the result after reducing `axes`."""
    if keep_dims:
        return {axis: size for axis, size in value.sizes.items() if axis not in axes}
    removed = sorted(axes)
    return {
        axis - sum(other < axis for other in removed): size for axis, size in value.sizes.items() if axis not in removed
    }


_NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "Sum": lambda dtype: 0,
    "Prod": lambda dtype: 1,
    "Max": lowest,
    "Min": highest,
    "All": lambda dtype: True,
    "Any": lambda dtype: False,
    "EuclideanNorm": lambda dtype: 0,
    "Mean": lambda dtype: 0,
}


@converts("Sum Prod Max Min Mean All Any EuclideanNorm")
def convert_reduction(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Reduces over the given axes shifted by one."""
    value, axes_value = inputs
    keep_dims = bool(op.attrs["keep_dims"])
    if value.parts is not None and op.type == "Prod" and not keep_dims:
        return [_product(value, batch)]
    axes = example_axes(require_static(axes_value, "the axis of a reduction"), value.rank)
    tensor = fill_padding(value, axes, tf.constant(_NEUTRAL[op.type](value.dtype), value.dtype))
    shifted = tf.constant([axis + 1 for axis in axes], tf.int32)
    sizes = kept_sizes(value, axes, keep_dims)
    ragged = [axis for axis in axes if axis in value.sizes]
    if op.type == "EuclideanNorm" and tensor.dtype.is_floating:  # XLA has no kernel for it (TensorFlow 2.21)
        return [batched(tf.sqrt(tf.reduce_sum(tf.square(tensor), shifted, keepdims=keep_dims)), sizes)]
    if op.type != "Mean" or not ragged:
        (result,) = _reduce(op, tensor, shifted)
        return [batched(result, sizes)]
    total = tf.reduce_sum(tensor, axis=[axis + 1 for axis in axes], keepdims=keep_dims)
    count: Any = tf.ones([batch.size], tensor.dtype)
    for axis in axes:
        dim = value.sizes[axis].lengths if axis in value.sizes else tf.shape(tensor)[axis + 1]
        count = count * tf.cast(dim, tensor.dtype)
    count = at_axis(count, total.shape.rank - 1)
    if tensor.dtype.is_integer:
        return [batched(tf.truncatediv(total, tf.maximum(count, tf.ones([], count.dtype))), sizes)]
    if tensor.dtype.is_complex:
        return [batched(tf.math.divide_no_nan(total, count), sizes)]  # TensorFlow's mean of no complex number is zero
    return [batched(total / count, sizes)]


def _reduce(op: Op, tensor: Any, axes: Any) -> list[Any]:
    attrs = {**op.attrs, "Tidx": tf.int32}
    plain = Op(op.type, op.name, op.inputs, op.outputs, attrs, op.definition)
    return replay(plain, [tensor, axes])


def _product(value: Value, batch: Batch) -> Value:
    """Number of elements from a shape vector: keeps a bound, and the Size if the rest is one."""
    result: Any = None
    upper: Any = 1
    size = None
    constant = True
    for part in value.elements():
        tensor = part.tensor
        result = tensor if result is None else result * tensor
        if part.batched:
            size = part.size if constant and size is None else None
            constant = False
            lengths = part.size is not None  # never negative: the product of two that are would be above the bound
            upper = None if upper is None or part.upper is None or not lengths else upper * part.upper
        else:
            known = part.static()
            upper = None if upper is None or known is None or known < 0 else upper * int(known)
            if known is None or int(known) != 1:
                size = None
                constant = False
    return Value(result, True, size=size, upper=upper)


@converts("ArgMax ArgMin", checks="no element to choose from")
def convert_arg_extreme(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Index of the first extreme element along one axis; padding is never chosen."""
    value, axis_value = inputs
    (axis,) = example_axes(require_static(axis_value, "the axis of an argmax"), value.rank)
    fill = lowest(value.dtype) if op.type == "ArgMax" else highest(value.dtype)
    where = axis + (1 if value.batched else 0)
    if axis in value.sizes:
        batch.check(value.sizes[axis].lengths > 0)
    elif not value.shape[axis]:
        size = tf.shape(value.tensor)[where]
        batch.check(size > 0)
        value = Value(pad_axis(value.tensor, where, tf.maximum(size, 1)), value.batched, value.sizes)
    tensor = fill_padding(value, [axis], tf.constant(fill, value.dtype))
    (result,) = replay(op, [tensor, tf.constant(where, op.inputs[1].dtype)])
    return [Value(result, value.batched, kept_sizes(value, [axis], False))]


@converts("Softmax LogSoftmax")
def convert_softmax(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Over the last axis; padding gets weight zero."""
    (value,) = inputs
    last = value.rank - 1
    tensor = value.tensor
    if last in value.sizes:
        # A row without any element keeps zeros: filled with -inf it would give NaN and poison gradients.
        empty = at_axis(value.sizes[last].lengths == 0, value.rank)
        fill = tf.where(empty, tf.zeros([], value.dtype), tf.constant(-np.inf, value.dtype))
        tensor = tf.where(size_mask(value.sizes[last], value.rank, last), tensor, fill)
    (result,) = replay(op, [tensor])
    return [batched(result, value.sizes)]


@converts("L2Loss")
def convert_l2_loss(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Half the sum of squares of everything."""
    (value,) = inputs
    tensor = fill_padding(value, list(range(value.rank)), tf.constant(0, value.dtype))
    return [batched(tf.reduce_sum(tensor * tensor, axis=list(range(1, value.rank + 1))) / 2)]


@converts("Cumsum Cumprod CumulativeLogsumexp")
def convert_cumulative(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Running sums; padding is filled with the neutral element: reverse sums start at the row's own end."""
    value, axis_value = inputs
    (axis,) = example_axes(require_static(axis_value, "the axis of a running sum"), value.rank)
    neutral = {"Cumsum": 0, "Cumprod": 1, "CumulativeLogsumexp": -np.inf}[op.type]
    tensor = fill_padding(value, [axis], tf.constant(neutral, value.dtype))
    (result,) = replay(op, [tensor, tf.constant(axis + 1, op.inputs[1].dtype)])
    return [batched(result, value.sizes)]


@converts("Size")
def convert_size(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Number of elements of one example."""
    (value,) = inputs
    count: Any = tf.ones([], op.outputs[0].dtype)
    for axis in range(value.rank):
        dim = value.sizes[axis].lengths if axis in value.sizes else tf.shape(value.tensor)[axis + 1]
        count = count * tf.cast(dim, op.outputs[0].dtype)
    if not value.sizes:
        return [Value(count, False)]
    if value.rank == 1:
        return [number(count, value.sizes[0])]
    return [batched(count)]


@converts("SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits")
def convert_cross_entropy(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Loss and its gradient per row of a matrix: the batch joins the rows."""
    logits, labels = inputs
    if logits.sizes or labels.sizes:
        raise NotConvertible("cross entropy of ragged operands")
    left, right = batch.rows(logits), batch.rows(labels)
    shape = tf.shape(left)
    flat_left = tf.reshape(left, [-1, shape[-1]])
    flat_right = tf.reshape(right, tf.concat([[-1], tf.shape(right)[2:]], 0))
    loss, gradient = replay(op, [flat_left, flat_right])
    return [batched(tf.reshape(loss, shape[:-1])), batched(tf.reshape(gradient, shape))]
