"""Counting in each row of a ragged tensor that one example holds: what `TextVectorization` does for bags of words."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.elementwise import fail_where
from vectorizer.program import Op
from vectorizer.registry import converts
from vectorizer.values import NotConvertible, Value, batched, dimension, shared, size_mask


@converts("RaggedBincount", checks="a value is negative")
def convert_ragged_bincount(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """How often each of 0, 1, ... occurs in each row, or the sum of its weights."""
    splits, values, count, weights = inputs
    if not any(value.batched for value in inputs):
        one = Batch(1)  # the kernel itself knows no XLA
        (result,) = convert_ragged_bincount(op, [splits, batched(values.tensor[None]), count, weights], one)
        batch.check(one.ok[0])
        return [shared(result.tensor[0])]
    if count.batched or splits.shape[0] is None:
        raise NotConvertible("counting up to a number that differs between examples, or in a varying number of rows")
    weighted = weights.shape != [0] and not op.attrs["binary_output"]
    values = Value(batch.rows(values), True, values.sizes)
    if weighted and (0 in values.sizes or 0 in weights.sizes):
        values, weights = align_pair(values, 0, weights, 0, batch)
    fail_where(values.tensor < 0, values, batch)
    room, ends = tf.cast(count.tensor, tf.int32), tf.cast(batch.rows(splits), tf.int32)
    batch.check(room >= 0)
    room = tf.maximum(room, 0)
    length = values.sizes[0].lengths if 0 in values.sizes else dimension(values.tensor, 1)
    rising = tf.reduce_all(ends[:, 1:] >= ends[:, :-1], 1)
    batch.check(tf.logical_and(rising, tf.logical_and(ends[:, 0] == 0, ends[:, -1] == length)))
    places = tf.range(dimension(values.tensor, 1))[None, :, None]
    rows = tf.reduce_sum(tf.cast(places >= ends[:, None, 1:], tf.int32), -1)
    kinds, known = tf.cast(values.tensor, tf.int32), splits.shape[0] - 1
    counted = tf.logical_and(values.tensor >= 0, values.tensor < tf.cast(count.tensor, values.dtype))
    counted = tf.logical_and(counted, rows < known)
    if 0 in values.sizes:
        counted = tf.logical_and(counted, size_mask(values.sizes[0], 1, 0))
    bins = (tf.range(batch.size)[:, None] * known + rows) * room + kinds
    bins = tf.where(counted, bins, -1)  # summed nowhere
    amounts = batch.rows(weights) if weighted else tf.ones_like(kinds, weights.dtype)
    sums = tf.math.unsorted_segment_sum(amounts, bins, batch.size * known * room)
    if op.attrs["binary_output"]:
        sums = tf.cast(sums > 0, weights.dtype)
    result = tf.reshape(sums, tf.stack([batch.size, known, room]))
    fixed = count.static()
    rows_known = batch.size if isinstance(batch.size, int) else None
    result.set_shape([rows_known, known, None if fixed is None else int(fixed)])
    return [batched(result)]
