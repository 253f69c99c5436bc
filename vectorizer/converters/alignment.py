"""Broadcasting between operands of which some are batched and some dimensions are ragged.

Per-example broadcasting aligns from the right. A batched operand of lower rank therefore gets axes of size 1
*after* its batch axis. Along a ragged axis the operands' Sizes must be the same; where two Sizes differ, each
row is checked: its lengths must agree or one of them be 1, exactly as TensorFlow would demand of that example
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.values import Size, Value, dimension, pad_axis


def align(values: Sequence[Value], batch: Batch) -> tuple[list[Any], dict[int, Size]]:
    """Tensors that broadcast against each other, batch axis in front, and the Sizes of the result."""
    rank = max(value.rank for value in values)
    tensors = [_raise_rank(value, rank) for value in values]
    sizes: dict[int, Size] = {}
    for axis in range(rank):
        present = {}
        for position, value in enumerate(values):
            own = axis - (rank - value.rank)
            if own in value.sizes:
                present[position] = value.sizes[own]
        if present:
            sizes[axis] = align_axis(values, tensors, present, axis, rank, batch)
    return tensors, sizes


def _raise_rank(value: Value, rank: int) -> Any:
    tensor = value.tensor
    missing = rank - value.rank
    if not value.batched or missing == 0:
        return tensor
    if value.rank == 0 and not tf.executing_eagerly():
        return tf.reshape(tensor, [-1, *([1] * missing)])  # one op where a slice would be four
    return tensor[(slice(None), *([None] * missing), ...)]


def align_axis(
    values: Sequence[Value], tensors: list[Any], present: dict[int, Size], axis: int, rank: int, batch: Batch
) -> Size:
    """The Size of one axis, counted in the result's `rank`, where `present` (by position) are the operands'.

    Rows that don't broadcast fail. May rewrite `tensors`, the operands as `[B, ...]`.
    """
    candidates = dict(present)
    for position, value in enumerate(values):
        own = axis - (rank - value.rank)
        if position in present or own < 0:
            continue
        offset = 1 if value.batched else 0
        size = dimension(value.tensor, own + offset)
        if isinstance(size, int) and size == 1:
            continue
        candidates[position] = Size(tf.fill([batch.size], size), size)
    distinct = list({id(size): size for size in candidates.values()}.values())
    if len(distinct) == 1:
        return distinct[0]
    lengths = distinct[0].lengths
    for other in distinct[1:]:
        lengths = tf.where(lengths == 1, other.lengths, lengths)
    good: Any = tf.constant(True)
    for size in distinct:
        good = tf.logical_and(good, tf.logical_or(size.lengths == lengths, size.lengths == 1))
    batch.check(good)
    padded = _largest([size.padded for size in distinct])
    result = Size(tf.where(good, lengths, 0), padded)
    for position, size in candidates.items():
        tensors[position] = stretch(tensors[position], values[position].batched, size, result, axis, rank)
    return result


def stretch(tensor: Any, is_batched: bool, size: Size, result: Size, axis: int, rank: int) -> Any:
    """Pad to the result's size; rows of length 1 repeat their one element."""
    batch_axis = tensor.shape.rank - rank if is_batched else 0
    where = axis + batch_axis if is_batched else tensor.shape.rank - (rank - axis)
    first = tf.gather(pad_axis(tensor, where, _at_least_one(size.padded)), [0], axis=where)
    padded = pad_axis(tensor, where, result.padded)
    single = tf.reshape(size.lengths == 1, [-1] + [1] * rank)
    if not is_batched:
        static = size.padded
        if isinstance(static, int) and static != 1:
            return padded
        padded, first = padded[None], first[None]
    return tf.where(single, first, padded)


def _at_least_one(size: Any) -> Any:
    return max(size, 1) if isinstance(size, int) else tf.maximum(size, 1)


def _largest(sizes: Sequence[Any]) -> Any:
    if all(isinstance(size, int) for size in sizes):
        return max(sizes)
    largest = tf.cast(sizes[0], tf.int32)
    for size in sizes[1:]:
        largest = tf.maximum(largest, size)
    return largest


def align_pair(left: Value, left_axis: int, right: Value, right_axis: int, batch: Batch) -> tuple[Value, Value]:
    """Make one axis of each operand agree in size, where at least one is ragged; rows that differ fail.

    Both come back batched, with the same Size on that axis.
    """
    first, second = left.sizes.get(left_axis), right.sizes.get(right_axis)
    if first is not None and first is second:
        return left, right
    first = first or _fixed_size(left, left_axis, batch)
    second = second or _fixed_size(right, right_axis, batch)
    same = first.lengths == second.lengths
    batch.check(same)
    size = Size(tf.where(same, first.lengths, 0), _largest([first.padded, second.padded]))
    return _resized(left, left_axis, size, batch), _resized(right, right_axis, size, batch)


def agree(values: Sequence[Value], batch: Batch, *, except_axis: int | None = None) -> list[Value]:
    """Values of one shape but for `except_axis`: rows where they differ in a ragged axis fail."""
    values = list(values)
    for axis in range(values[0].rank):
        if axis == except_axis or not any(axis in value.sizes for value in values):
            continue
        for _ in range(2):  # a second sweep hands the last common Size back to the first operands
            for position in range(1, len(values)):
                left, right = values[position - 1], values[position]
                values[position - 1], values[position] = align_pair(left, axis, right, axis, batch)
            values.reverse()
    return values


def _fixed_size(value: Value, axis: int, batch: Batch) -> Size:
    size = dimension(value.tensor, axis + (1 if value.batched else 0))
    return Size(tf.fill([batch.size], size), size)


def _resized(value: Value, axis: int, size: Size, batch: Batch) -> Value:
    tensor = pad_axis(batch.rows(value), axis + 1, size.padded)
    return Value(tensor, True, {**value.sizes, axis: size})
