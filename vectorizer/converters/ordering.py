"""Sorting, searching, and results whose size depends on the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.reductions import lowest
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, fill_padding, size_mask


@converts("TopKV2", checks="fewer than k elements")
def convert_top_k(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The k largest along the last axis, in order."""
    value = inputs[0]
    if not value.batched and not inputs[-1].batched:
        return [Value(tensor, False) for tensor in replay(op, [item.tensor for item in inputs])]
    last = value.rank - 1
    size = value.sizes.get(last)
    if inputs[1].size is not None and inputs[1].size is size and size is not None:
        count, kept = size.padded, size  # a whole row in order: tf.sort
    else:
        count = int(require_static(inputs[1], "k"))
        kept = None
    tensor = fill_padding(value, [last], tf.constant(lowest(value.dtype), value.dtype))
    if kept is None:
        batch.check((size.lengths if size is not None else tf.shape(tensor)[-1]) >= count)
        tensor = _at_least(tensor, count, value.dtype)
    values, indices = tf.math.top_k(tensor, k=count, sorted=bool(op.attrs.get("sorted", True)))
    sizes = {axis: own for axis, own in value.sizes.items() if axis != last}
    if kept is not None:
        sizes[last] = kept
    return [batched(values, sizes), batched(tf.cast(indices, op.outputs[1].dtype), sizes)]


def _at_least(tensor: Any, count: int, dtype: Any) -> Any:
    """With room for `count` elements along the last axis: what is missing is the least there can be."""
    size = dimension(tensor, tensor.shape.rank - 1)
    if isinstance(size, int) and size >= count:
        return tensor
    missing = count - size if isinstance(size, int) else tf.maximum(count - size, 0)
    pads: list[Any] = [[0, 0] for _ in range(tensor.shape.rank - 1)]
    return tf.pad(tensor, [*pads, [0, missing]], constant_values=tf.constant(lowest(dtype), dtype))


@converts("LowerBound UpperBound", checks="the table has another number of rows")
def convert_bound(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.searchsorted` on matrices: the batch joins the rows."""
    table, keys = inputs
    if not any(item.batched for item in inputs):
        return run_unchanged(op, inputs)
    if table.sizes:
        raise NotConvertible("a search in a ragged table")
    if 0 in keys.sizes:
        table, keys = align_pair(table, 0, keys, 0, batch)
    left, right = batch.rows(table), batch.rows(keys)
    shape = tf.shape(right)
    (found,) = replay(op, [tf.reshape(left, [-1, tf.shape(left)[-1]]), tf.reshape(right, [-1, shape[-1]])])
    return [batched(tf.reshape(found, shape), keys.sizes)]


@converts("InvertPermutation", checks="it isn't a permutation")
def convert_invert_permutation(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Positions of 0, 1, ... in a permutation."""
    (value,) = inputs
    tensor = fill_padding(value, [0], value.dtype.max)
    order = tf.argsort(tensor, axis=-1, stable=True)
    axis = 1 if value.batched else 0
    ranks = tf.range(tf.shape(tensor)[-1])
    ranks = tf.cast(ranks[None] if value.batched else ranks, tensor.dtype)
    good = tf.gather(tensor, order, axis=axis, batch_dims=axis) == ranks
    if value.sizes:
        good = tf.logical_or(good, tf.logical_not(size_mask(value.sizes[0], 1, 0)))
    batch.check(tf.reduce_all(good, axis=-1))
    return [Value(tf.cast(order, op.outputs[0].dtype), value.batched, value.sizes)]


@converts("Where")
def convert_where(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Coordinates of the true elements, in order: a stable sort moves them to the front."""
    (value,) = inputs
    if value.rank != 1:
        raise NotConvertible("coordinates in more than one dimension")
    flags = value.tensor if value.dtype == tf.bool else value.tensor != tf.zeros([], value.dtype)
    flags = fill_padding(Value(flags, True, value.sizes), [0], tf.constant(False))
    padded = value.sizes[0].padded if value.sizes else dimension(flags, 1)
    count = tf.reduce_sum(tf.cast(flags, tf.int32), axis=1)
    order = tf.argsort(tf.cast(tf.logical_not(flags), tf.int32), axis=1, stable=True)
    size = Size(count, max(padded, 1) if isinstance(padded, int) else tf.maximum(padded, 1))
    return [batched(tf.cast(order, tf.int64)[..., None], {0: size})]
