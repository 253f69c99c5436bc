"""Counting in each row of a ragged tensor that one example holds: what `TextVectorization` does for bags of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.alignment import align_pair
from vectorizer.program import Op
from vectorizer.registry import converts
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, fill_padding, shared, size_mask


@converts("RaggedBincount", checks="a value is negative")
def convert_ragged_bincount(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """How often each of 0, 1, ... occurs in each row, or the sum of its weights."""
    splits, values, count, weights = inputs
    if not any(value.batched for value in inputs):
        one = Batch(1)  # the kernel itself knows no XLA
        (result,) = convert_ragged_bincount(op, [splits, batched(values.tensor[None]), count, weights], one)
        batch.check(one.ok[0])
        return [shared(result.tensor[0])]
    if count.batched:
        most = op.outputs[0].shape[-1]
        if most is None:
            raise NotConvertible("counting up to a number that differs between examples")
        batch.check(count.tensor == most)
        count = shared(tf.constant(most, count.dtype))
    weighted = weights.shape != [0] and not op.attrs["binary_output"]
    values = Value(batch.rows(values), True, values.sizes)
    if weighted and (0 in values.sizes or 0 in weights.sizes):
        values, weights = align_pair(values, 0, weights, 0, batch)
    batch.fail_where(values.tensor < 0, values)
    kinds = tf.cast(count.tensor, tf.int32)
    batch.check(kinds >= 0)
    kinds = tf.maximum(kinds, 0)
    rows, room, size = _rows_of_values(splits, values, batch)
    counted = tf.logical_and(values.tensor >= 0, values.tensor < tf.cast(count.tensor, values.dtype))
    counted = tf.logical_and(counted, rows < room)
    if 0 in values.sizes:
        counted = tf.logical_and(counted, size_mask(values.sizes[0], 1, 0))
    bins = (tf.range(batch.size)[:, None] * room + rows) * kinds + tf.cast(values.tensor, tf.int32)
    bins = tf.where(counted, bins, -1)  # summed nowhere
    amounts = batch.rows(weights) if weighted else tf.ones_like(bins, weights.dtype)
    sums = tf.math.unsorted_segment_sum(amounts, bins, batch.size * room * kinds)
    if op.attrs["binary_output"]:
        sums = tf.cast(sums > 0, weights.dtype)
    result = tf.reshape(sums, tf.stack([batch.size, room, kinds]))
    known = count.static()
    static = [item if isinstance(item, int) else None for item in (batch.size, room)]
    result.set_shape([*static, None if known is None else int(known)])
    return [batched(result, {0: size} if size is not None else {})]


def _rows_of_values(splits: Value, values: Value, batch: Batch) -> tuple[Any, Any, Size | None]:
    """The row that each value is in (int32 `[B, P]`), how many rows there can be, and their Size if that differs."""
    ends = Value(tf.cast(batch.rows(splits), tf.int32), True, splits.sizes)
    length = values.sizes[0].lengths if 0 in values.sizes else dimension(values.tensor, 1)
    own = splits.sizes.get(0)
    if own is None:
        tensor, room, size = ends.tensor, dimension(ends.tensor, 1) - 1, None
        last = tensor[:, -1]
    else:
        tensor, room = fill_padding(ends, [0], tf.int32.max), own.padded
        batch.check(own.lengths > 0)
        size = Size(tf.maximum(own.lengths - 1, 0), room)
        last = tf.gather(tensor, tf.maximum(own.lengths - 1, 0), batch_dims=1)
    rising = tf.reduce_all(tensor[:, 1:] >= tensor[:, :-1], 1)
    batch.check(tf.logical_and(rising, tf.logical_and(tensor[:, 0] == 0, last == length)))
    places = tf.range(dimension(values.tensor, 1))[None, :, None]
    return tf.reduce_sum(tf.cast(places >= tensor[:, None, 1:], tf.int32), -1), room, size
