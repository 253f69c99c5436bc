"""Ops that only gradients emit: those of slicing, broadcasting and joining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import tf_internals
from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.segments import present_ids, reduce_segments
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
    number,
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


@converts("DynamicStitch ParallelDynamicStitch", checks="an index is negative")
def convert_dynamic_stitch(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Slices put where indices say, of two that go to the same place the later one.

    A shape vector put together from others, as the gradient of a mean does it, stays a vector of numbers.
    """
    if not any(value.batched for value in inputs) and all(value.static() is not None for value in inputs[::2]):
        return run_unchanged(op, inputs)
    count = len(inputs) // 2
    places, data = inputs[:count], inputs[count:]
    parts = _stitched_vector(places, data)
    if parts is not None:
        return [vector(parts, data[-1].dtype)]
    return [_stitched(places, data, batch)]


def _stitched_vector(places: Sequence[Value], data: Sequence[Value]) -> list[Value] | None:
    if any(value.rank > 1 or None in value.shape for value in data) or any(p.static() is None for p in places):
        return None
    parts: dict[int, Value] = {}
    for where, value in zip(places, data, strict=True):
        elements = value.elements() if value.rank == 1 else (value,)
        numbers = np.atleast_1d(require_static(where, "the positions of a stitch"))
        if len(numbers) != len(elements):
            return None
        parts.update(zip((int(place) for place in numbers), elements, strict=True))
    return [parts[place] for place in range(len(parts))] if sorted(parts) == list(range(len(parts))) else None


def _stitched(places: Sequence[Value], data: Sequence[Value], batch: Batch) -> Value:
    """All slices one after the other; of each place the last that goes there is taken. Places left out are zeros."""
    numbers, contents = [], []
    for where, value in zip(places, data, strict=True):
        for axis in range(where.rank):
            if axis in where.sizes or axis in value.sizes:
                where, value = align_pair(where, axis, value, axis, batch)
        if any(axis >= where.rank for axis in value.sizes):
            raise NotConvertible("a stitch of slices of ragged shape")
        ids, content = present_ids(where, batch.rows(where)), batch.rows(value)
        elements = tf.reduce_prod(tf.shape(ids)[1:])
        if where.sizes:
            bad = tf.reduce_any(tf.logical_and(ids < 0, _present(where)), list(range(1, ids.shape.rank)))
        else:
            bad = tf.reduce_any(ids < 0, list(range(1, ids.shape.rank)))
        batch.check(tf.logical_not(bad))
        numbers.append(tf.reshape(ids, tf.stack([batch.size, elements])))
        inner = tf.concat([tf.stack([batch.size, elements]), tf.shape(content)[1 + where.rank :]], 0)
        flat = tf.reshape(content, inner)
        flat.set_shape([None, None, *content.shape.as_list()[1 + where.rank :]])
        contents.append(flat)
    every, content = tf.concat(numbers, 1), tf.concat(contents, 1)
    longest = tf.reduce_max(tf.concat([tf.fill([batch.size, 1], -1), every], 1), 1)
    size = batch.new_size(number(longest + 1))
    kept = tf.where(every < size.padded, every, -1)
    turn = tf.broadcast_to(tf.range(tf.shape(kept)[1])[None, :], tf.shape(kept))
    last = reduce_segments("Max", turn, kept, size.padded)
    written = last >= 0
    if content.shape[1] == 0:
        return batched(tf.zeros([batch.size, size.padded, *content.shape[2:]], content.dtype), {0: size})
    taken = tf.gather(content, tf.maximum(last, 0), axis=1, batch_dims=1)
    written = written[(..., *([None] * (taken.shape.rank - 2)))]
    return batched(tf.where(written, taken, tf.zeros_like(taken)), {0: size})


def _present(value: Value) -> Any:
    mask: Any = True
    for axis, size in value.sizes.items():
        mask = tf.logical_and(mask, size_mask(size, value.rank, axis))
    return mask


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
