"""Sorting, searching, and results whose size depends on the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer import xla_kernels
from vectorizer.batch import Batch, any_per_row, require_static
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.reductions import lowest
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, fill_padding, size_mask


@converts("TopKV2", checks="fewer than k elements; an element is NaN (compiled or ragged)")
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
    if value.dtype.is_floating and (size is not None or xla_kernels.compiling()):
        # TensorFlow's order of numbers with NaN is an accident of its way of sorting: only the function itself has it.
        batch.check(tf.logical_not(any_per_row(tf.math.is_nan(tensor), value.batched)))
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
    flags = value.tensor if value.dtype == tf.bool else value.tensor != tf.zeros([], value.dtype)
    flags = fill_padding(Value(flags, True, value.sizes), list(value.sizes), tf.constant(False))
    dims = [dimension(flags, axis) for axis in range(flags.shape.rank)]
    if value.rank != 1:
        flags = tf.reshape(
            flags, tf.stack([dims[0], tf.reduce_prod(dims[1:])]) if None in flags.shape else [dims[0], -1]
        )
    padded = value.sizes[0].padded if value.sizes and value.rank == 1 else dimension(flags, 1)
    count = tf.reduce_sum(tf.cast(flags, tf.int32), axis=1)
    order = tf.argsort(tf.cast(tf.logical_not(flags), tf.int32), axis=1, stable=True)
    size = Size(count, max(padded, 1) if isinstance(padded, int) else tf.maximum(padded, 1))
    columns: list[Any] = []
    for room in reversed(dims[1:]):
        columns.insert(0, order % tf.maximum(room, 1))
        order = order // tf.maximum(room, 1)
    places = tf.stack(columns, -1) if columns else tf.zeros([*dims[:1], 1, 0], tf.int32)
    return [batched(tf.cast(places, tf.int64), {0: size})]


@converts("NthElement", compilable=False)
def convert_nth_element(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The n-th smallest or largest element along the last axis."""
    value, place = inputs
    require_static(place, "which element of a sorted vector")
    if value.rank - 1 in value.sizes:
        raise NotConvertible("the n-th element of a ragged vector")
    (tensor,) = replay(op, [value.tensor, place.tensor])
    return [batched(tensor, value.sizes)]


@converts("InTopK InTopKV2", compilable=False)
def convert_in_top_k(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Whether targets are among the k most likely classes: the batch joins the rows."""
    if any(value.sizes for value in inputs) or any(value.batched for value in inputs[2:]):
        raise NotConvertible("targets of a variable number, or among numbers of classes that differ between examples")
    predictions, targets = (batch.rows(value) for value in inputs[:2])
    shape = tf.shape(targets)
    flat = tf.reshape(predictions, [-1, dimension(predictions, 2)])
    (tensor,) = replay(op, [flat, tf.reshape(targets, [-1]), *(value.tensor for value in inputs[2:])])
    return [batched(tf.reshape(tensor, shape))]
