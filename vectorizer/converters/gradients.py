"""Ops that only gradients emit: those of slicing, broadcasting, convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import tf_internals
from vectorizer.batch import Batch, require_static
from vectorizer.converters.convolution import fold, unfold
from vectorizer.converters.shapes import dense_dims
from vectorizer.converters.slicing import convert_strided_slice
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import (
    NotConvertible,
    Value,
    batched,
    dimension,
    fill_padding,
    pad_axis,
    shared,
    size_mask,
    vector,
)


@converts("BroadcastGradientArgs", checks="the operands' sizes differ", always=True)
def convert_broadcast_gradient_args(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Over which axes the gradient of a broadcast operand is summed. A ragged size isn't taken to be stretched."""
    known = [value.static() for value in inputs]
    if all(item is not None for item in known):
        return [shared(tf.constant(tensor.numpy())) for tensor in _eagerly(op, known)]
    left, right = (list(value.elements()) for value in inputs)
    rank = max(len(left), len(right))
    axes: list[list[int]] = [[], []]
    for axis in range(rank):
        sides = [side[axis - rank + len(side)] if axis >= rank - len(side) else None for side in (left, right)]
        ones = [side is None or _is_one(side) for side in sides]
        first, second = sides
        if first is not None and second is not None and not any(ones) and not _same(first, second):
            # Rows in which one side was stretched after all are left to the function itself.
            batch.check(batch.rows(first) == batch.rows(second))
        for position in (0, 1):
            if ones[position] and (sides[position] is None or not all(ones)):
                axes[position].append(axis)
    return [shared(tf.constant(item, inputs[0].dtype, shape=[len(item)])) for item in axes]


def _eagerly(op: Op, arrays: Sequence[Any]) -> list[Any]:
    with tf.init_scope():
        return replay(op, [tf.constant(item) for item in arrays])


def _is_one(size: Value) -> bool:
    known = size.static()
    return known is not None and int(known) == 1


def _same(left: Value, right: Value) -> bool:
    if left.size is not None or right.size is not None:
        return left.size is right.size
    known = left.static(), right.static()
    return known[0] is None or known[1] is None or int(known[0]) == int(known[1])


@converts("StridedSliceGrad", always=True)
def convert_strided_slice_grad(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Zeros of the sliced tensor's shape with the gradient where the slice was: the slice is applied to positions."""
    shape, begin, end, strides, gradient = inputs
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    known = op.outputs[0].shape  # the operand may be a shape that was kept in a list, of which nothing is known
    elements = [
        element if known.rank is None or known[axis] is None else shared(tf.constant(known[axis]))
        for axis, element in enumerate(shape.elements())
    ]
    dims, sizes = dense_dims(elements, batch)
    total: Any = 1
    for size in dims:
        total = total * size
    positions = Value(tf.broadcast_to(tf.reshape(tf.range(total), dims)[None], [batch.size, *dims]), True, sizes)
    quiet = batch.within(batch.active)  # the forward slice has checked its indices
    forward = replace(op, type="StridedSlice", definition=tf_internals.definition("StridedSlice"))
    (chosen,) = convert_strided_slice(forward, [positions, begin, end, strides], quiet)
    index, content = chosen.tensor, batch.rows(gradient)
    for axis in chosen.sizes:
        content = pad_axis(content, axis + 1, dimension(index, axis + 1))
    padding = _padding(chosen)
    if padding is not None:
        content = tf.where(_spread(padding, content), content, tf.zeros([], content.dtype))
    count = tf.reduce_prod(tf.shape(index)[1:])
    index = tf.reshape(index, [batch.size, count])
    content = tf.reshape(content, [batch.size, count])
    rows = tf.broadcast_to(tf.range(batch.size)[:, None], tf.shape(index))
    flat = tf.scatter_nd(tf.stack([rows, index], -1), content, tf.stack([batch.size, total]))
    result = tf.reshape(flat, [batch.size, *dims])
    return [batched(result, sizes)]


def _padding(value: Value) -> Any:
    mask = None
    for axis, size in value.sizes.items():
        here = size_mask(size, value.rank, axis)
        mask = here if mask is None else tf.logical_and(mask, here)
    return mask


def _spread(mask: Any, content: Any) -> Any:
    return tf.broadcast_to(mask, tf.shape(content))


@converts("BiasAddGrad")
def convert_bias_add_grad(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Sums over all but the channel axis."""
    (gradient,) = inputs
    channels_first = op.attrs["data_format"] == b"NCHW" and gradient.rank > 2
    channel = 1 if channels_first else gradient.rank - 1
    axes = [axis for axis in range(gradient.rank) if axis != channel]
    tensor = fill_padding(gradient, axes, tf.zeros([], gradient.dtype))
    return [batched(tf.reduce_sum(tensor, [axis + 1 for axis in axes]))]


@converts("Conv2DBackpropFilter")
def convert_conv_filter_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A filter gradient for each example, by the patches that each filter position saw."""
    images, sizes, gradient = inputs
    if images.sizes or gradient.sizes or sizes.batched or op.attrs["data_format"] != b"NHWC":
        raise NotConvertible("the filter gradient of a convolution over ragged images")
    if op.attrs["padding"] == b"EXPLICIT":
        raise NotConvertible("the filter gradient of a convolution with explicit padding")
    height, width, depth, count = (int(size) for size in require_static(sizes, "the shape of a filter"))
    rows = batch.rows(images)
    if rows.shape[-1] != depth:
        raise NotConvertible("the filter gradient of a grouped convolution")
    patches = tf.image.extract_patches(
        fold(rows),
        [1, height, width, 1],
        list(op.attrs["strides"]),
        list(op.attrs["dilations"]),
        op.attrs["padding"].decode(),
    )
    by_row = unfold(patches, rows)
    product = tf.einsum("bnhwp,bnhwf->bpf", by_row, batch.rows(gradient))
    return [batched(tf.reshape(product, [batch.size, height, width, depth, count]))]


@converts("MaxPoolGrad AvgPoolGrad")
def convert_pool_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The batch joins the images' own leading axis."""
    if any(value.sizes for value in inputs):
        raise NotConvertible("the gradient of pooling over ragged images")
    if op.type == "MaxPoolGrad":
        like = batch.rows(inputs[0])
        (result,) = replay(op, [fold(batch.rows(value)) for value in inputs])
        return [batched(unfold(result, like))]
    shape = np.array(require_static(inputs[0], "the shape of pooled images"))
    gradient = batch.rows(inputs[1])
    folded = fold(gradient)
    (result,) = replay(op, [tf.concat([tf.shape(folded)[:1], tf.constant(shape[1:], tf.int32)], 0), folded])
    return [batched(tf.reshape(result, tf.concat([[batch.size], shape], 0)))]


@converts("DynamicStitch ParallelDynamicStitch")
def convert_dynamic_stitch(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A shape vector put together from others, as the gradient of a mean does it."""
    count = len(inputs) // 2
    places = [require_static(value, "the positions of a stitch") for value in inputs[:count]]
    if any(value.rank > 1 for value in inputs[count:]):
        raise NotConvertible("a stitch of more than vectors")
    parts: dict[int, Value] = {}
    for where, value in zip(places, inputs[count:], strict=True):
        elements = value.elements() if value.rank == 1 else (value,)
        parts.update(zip((int(place) for place in np.atleast_1d(where)), elements, strict=True))
    if sorted(parts) != list(range(len(parts))):
        raise NotConvertible("a stitch that leaves holes")
    return [vector([parts[place] for place in range(len(parts))], inputs[-1].dtype)]


@converts("ConcatOffset")
def convert_concat_offset(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Where each part of a concatenation begins."""
    axis, shapes = int(require_static(inputs[0], "the axis of a concatenation")), inputs[1:]
    zero = shared(tf.zeros([], shapes[0].dtype))
    begin, offsets = zero, []
    for shape in shapes:
        elements = shape.elements()
        offsets.append(vector([begin if place == axis else zero for place in range(len(elements))]))
        total = begin.tensor + elements[axis].tensor
        begin = Value(total, begin.batched or elements[axis].batched)
    return offsets
