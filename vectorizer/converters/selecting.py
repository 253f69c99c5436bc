"""Results whose size depends on the data: partitions, distinct elements, set differences.

Elements that stay are moved to the front of their row by a stable sort; how many they are is a Size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.segments import segment_counts
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, negated, shared, size_mask


def moved_to_front(flags: Any) -> tuple[Any, Size]:
    """Where the true ones of bool `[B, P]` are, in order, and how many: positions int32 `[B, P]`."""
    count = tf.reduce_sum(tf.cast(flags, tf.int32), axis=1)
    order = tf.argsort(tf.cast(negated(flags), tf.int32), axis=1, stable=True)
    room = dimension(flags, 1)
    return order, Size(count, max(room, 1) if isinstance(room, int) else tf.maximum(room, 1))


@converts("DynamicPartition", checks="a partition is out of range")
def convert_dynamic_partition(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The elements of each partition, in order."""
    data, partitions = inputs
    count = int(op.attrs["num_partitions"])
    good = tf.logical_and(partitions.tensor >= 0, partitions.tensor < count)
    batch.fail_where(tf.logical_not(good), partitions)
    if not any(value.batched for value in inputs):
        safe = tf.where(good, partitions.tensor, 0)
        return [shared(tensor) for tensor in replay(op, [data.tensor, safe])]
    if partitions.rank != 1:
        raise NotConvertible("partitions in more than one dimension")
    if 0 in data.sizes or 0 in partitions.sizes:
        data, partitions = align_pair(data, 0, partitions, 0, batch)
    chosen, values = batch.rows(partitions), batch.rows(data)
    if partitions.sizes:
        chosen = tf.where(size_mask(partitions.sizes[0], 1, 0), chosen, -1)
    sizes = {axis: size for axis, size in data.sizes.items() if axis}
    results = []
    for part in range(count):
        order, size = moved_to_front(chosen == part)
        results.append(batched(_padded_gather(values, order), {**sizes, 0: size}))
    return results


def _padded_gather(values: Any, order: Any) -> Any:
    """`values` `[B, P, ...]` in `order`, with one element of padding where P is 0."""
    if values.shape[1] == 0:
        return tf.zeros([dimension(values, 0), 1, *values.shape[2:]], values.dtype)
    return tf.gather(values, order, axis=1, batch_dims=1)


@converts("Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2")
def convert_unique(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Distinct elements in order of first occurrence, where each element went, and how often each occurs."""
    value = inputs[0]
    if value.rank != 1:
        raise NotConvertible("distinct slices of more than a vector")
    tensor = value.tensor
    present = size_mask(value.sizes[0], 1, 0) if value.sizes else tf.ones_like(tensor, tf.bool)
    first = _first_by_order(tensor, present) if value.dtype.is_integer else _first_by_pairs(tensor, present)
    places = tf.range(dimension(tensor, 1))[None, :]
    is_first = tf.logical_and(first == places, present)
    order, size = moved_to_front(is_first)
    rank = tf.cumsum(tf.cast(is_first, tf.int32), axis=1) - 1
    index = tf.gather(rank, tf.where(present, first, 0), axis=1, batch_dims=1) if tensor.shape[1] != 0 else rank
    results = [
        batched(_padded_gather(tensor, order), {0: size}),
        batched(tf.cast(index, op.outputs[1].dtype), value.sizes),
    ]
    if len(op.outputs) > 2:
        counts = segment_counts(tf.where(present, index, -1), size.padded)
        results.append(batched(tf.cast(counts, op.outputs[2].dtype), {0: size}))
    return results


def _first_by_pairs(tensor: Any, present: Any) -> Any:
    """For each element of `[B, P]` the place of the first that equals it; NaN equals nothing, so it stays its own."""
    if tensor.shape[1] == 0:
        return tf.zeros_like(tensor, tf.int32)
    places = tf.range(dimension(tensor, 1))
    same = tf.logical_and(tensor[:, :, None] == tensor[:, None, :], present[:, None, :])
    same = tf.logical_or(same, (places[:, None] == places[None, :])[None])
    return tf.argmax(tf.cast(same, tf.int8), axis=2, output_type=tf.int32)


def _first_by_order(tensor: Any, present: Any) -> Any:
    """As `_first_by_pairs`, by a stable sort."""
    if tensor.shape[1] == 0:
        return tf.zeros_like(tensor, tf.int32)
    filled = tf.where(present, tensor, tensor.dtype.max)
    order = tf.argsort(filled, axis=1, stable=True)
    ordered = tf.gather(filled, order, axis=1, batch_dims=1)
    starts = tf.concat([tf.ones_like(present[:, :1]), ordered[:, 1:] != ordered[:, :-1]], 1)
    # The place in `order` where the run began that each place belongs to: starts only grow.
    begun = tf.gather(moved_to_front(starts)[0], tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, axis=1, batch_dims=1)
    firsts = tf.gather(order, begun, axis=1, batch_dims=1)
    back = tf.argsort(order, axis=1, stable=True)
    return tf.gather(firsts, back, axis=1, batch_dims=1)


@converts("ListDiff")
def convert_list_difference(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Elements of one vector that another one hasn't, and where they were."""
    left, right = inputs
    values, others = batch.rows(left), batch.rows(right)
    same = values[:, :, None] == others[:, None, :]
    if right.sizes:
        same = tf.logical_and(same, size_mask(right.sizes[0], 1, 0)[:, None, :])
    kept = negated(tf.reduce_any(same, 2))
    if left.sizes:
        kept = tf.logical_and(kept, size_mask(left.sizes[0], 1, 0))
    order, size = moved_to_front(kept)
    return [
        batched(_padded_gather(values, order), {0: size}),
        batched(tf.cast(order, op.outputs[1].dtype), {0: size}),
    ]
