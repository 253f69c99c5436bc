"""Elements moved or spaced along an axis: roll, evenly spaced numbers, a slice replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import tf_internals
from vectorizer.batch import Batch, require_static
from vectorizer.converters.indexing import take_along
from vectorizer.converters.joining import convert_concat
from vectorizer.converters.slicing import convert_strided_slice
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Value, batched, dimension, shared


@converts("Roll")
def convert_roll(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Moves along axes what falls out at the end to the front; a ragged axis at each row's own end."""
    value, shift, axis_value = inputs
    axes = [int(axis) % value.rank for axis in np.atleast_1d(require_static(axis_value, "the axis of a roll"))]
    tensor = batch.rows(value)
    for position, axis in enumerate(axes):
        amount = shift.tensor[..., position] if shift.rank else shift.tensor
        if axis not in value.sizes and not shift.batched:
            tensor = tf.roll(tensor, amount, axis + 1)
            continue
        amount = tf.cast(batch.rows(Value(amount, shift.batched)), tf.int32)
        own = value.sizes.get(axis)
        room = dimension(tensor, axis + 1)
        length = tf.maximum(own.lengths if own is not None else tf.fill([batch.size], room), 1)
        positions = (tf.range(room)[None, :] - amount[:, None]) % length[:, None]
        tensor = take_along(tensor, axis, positions)
    return [batched(tensor, value.sizes)]


@converts("LinSpace", checks="fewer than one number")
def convert_linspace(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Evenly spaced numbers; how many may differ between rows."""
    start, stop, count = inputs
    batch.check(count.tensor > 0)
    one = tf.ones([], count.dtype)
    if not any(value.batched for value in inputs):
        return [shared(replay(op, [start.tensor, stop.tensor, tf.maximum(count.tensor, one)])[0])]
    first, last = batch.rows(start)[:, None], batch.rows(stop)[:, None]
    known = count.static()
    size = batch.new_size(count) if count.batched else None
    room = size.padded if size is not None else int(known) if known is not None else tf.maximum(count.tensor, one)
    steps = tf.cast(batch.rows(count), first.dtype)[:, None] - 1
    numbers = tf.cast(tf.range(room), first.dtype)[None, :]
    width = (last - first) / tf.maximum(steps, tf.ones([], steps.dtype))
    at_end = tf.logical_and(numbers >= steps, steps > 0)
    result = tf.where(numbers == 0, first, tf.where(at_end, last, first + width * numbers))
    return [batched(result, {0: size} if size is not None else {})]


@converts("Concat")
def convert_concat_v1(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """As ConcatV2, with the axis first."""
    axis, *values = inputs
    return list(convert_concat(replace(op, type="ConcatV2"), [*values, axis], batch))


@converts("TensorStridedSliceUpdate")
def convert_strided_slice_update(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The tensor with a slice of it replaced: the slice is taken of the elements' numbers, which say where to write."""
    value, begin, end, strides, updates = inputs
    if not any(item.batched for item in inputs):
        return run_unchanged(op, inputs)
    if value.sizes or updates.sizes:
        raise NotConvertible("a slice of a ragged tensor replaced")
    rows = batch.rows(value)
    dims = [dimension(rows, axis) for axis in range(1, rows.shape.rank)]
    each: Any = 1
    for size in dims:
        each = each * size
    numbers = batched(tf.broadcast_to(tf.reshape(tf.range(each), dims)[None], tf.shape(rows)))
    forward = replace(op, type="StridedSlice", definition=tf_internals.definition("StridedSlice"))
    (chosen,) = convert_strided_slice(forward, [numbers, begin, end, strides], batch)
    if chosen.sizes:
        raise NotConvertible("a slice replaced whose extent differs between examples")
    places = tf.reshape(chosen.tensor, tf.stack([batch.size, tf.reduce_prod(tf.shape(chosen.tensor)[1:])]))
    content = tf.reshape(tf.broadcast_to(batch.rows(updates), tf.shape(chosen.tensor)), tf.shape(places))
    ranks = tf.broadcast_to(tf.range(batch.size)[:, None], tf.shape(places))
    flat = tf.reshape(rows, tf.stack([batch.size, each]))
    written = tf.tensor_scatter_nd_update(flat, tf.stack([ranks, places], -1), content)
    return [batched(tf.reshape(written, tf.shape(rows)))]
