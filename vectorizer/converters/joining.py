"""Stacking, concatenating, splitting and padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import agree
from vectorizer.converters.indexing import take_along
from vectorizer.program import Op
from vectorizer.registry import converts, run_unchanged
from vectorizer.values import (
    Size,
    Value,
    batched,
    dimension,
    number,
    pad_axis,
    vector,
)


@converts("Pack", checks="the shapes differ")
def convert_pack(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.stack`; scalars become a vector tracked element by element."""
    if inputs[0].rank == 0 and inputs[0].dtype.is_integer:
        return [vector(inputs)]
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    axis = int(op.attrs["axis"]) % (inputs[0].rank + 1)
    rows = [Value(batch.rows(value), True, value.sizes) for value in inputs]
    rows = agree(rows, batch)
    tensor, sizes = tf.stack([value.tensor for value in rows], axis=axis + 1), rows[0].sizes
    tracked = tuple(inputs) if axis == 0 and any(value.parts is not None for value in inputs) else None
    sizes = {own + (own >= axis): size for own, size in sizes.items()}
    return [Value(tensor, True, sizes, vectors=tracked)]


@converts("Unpack", checks="the axis has another size")
def convert_unpack(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.unstack`."""
    (value,) = inputs
    axis, count = int(op.attrs["axis"]) % value.rank, int(op.attrs["num"])
    if value.parts is not None:
        return list(value.elements())
    tensor = value.tensor
    where = axis + (1 if value.batched else 0)
    if axis in value.sizes:
        batch.check(value.sizes[axis].lengths == count)
        tensor = pad_axis(tensor, where, count)
    elif value.shape[axis] != count:
        batch.check(tf.shape(tensor)[where] == count)
        tensor = pad_axis(tensor, where, count)
    sizes = {own - (own > axis): size for own, size in value.sizes.items() if own != axis}
    return [Value(item, value.batched, sizes) for item in tf.unstack(tensor, num=count, axis=where)]


@converts("ConcatV2")
def convert_concat(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Concatenates; along a ragged axis each row's parts are moved together."""
    values = list(inputs[:-1])
    axis = int(require_static(inputs[-1], "the axis of a concatenation")) % max(values[0].rank, 1)
    if values[0].rank == 1 and values[0].dtype.is_integer and any(value.parts is not None for value in values):
        return [vector([part for value in values for part in value.elements()], values[0].dtype)]
    rows = [Value(batch.rows(value), True, value.sizes) for value in values]
    rows = agree(rows, batch, except_axis=axis)
    sizes = {own: size for value in rows for own, size in value.sizes.items() if own != axis}
    if not any(axis in value.sizes for value in rows):
        return [batched(tf.concat([value.tensor for value in rows], axis + 1), sizes)]
    return [_concat_ragged(rows, axis, sizes, batch)]


def _concat_ragged(rows: Sequence[Value], axis: int, sizes: dict[int, Size], batch: Batch) -> Value:
    lengths, padded = [], []
    for value in rows:
        size = value.sizes.get(axis)
        dim = dimension(value.tensor, axis + 1)
        lengths.append(size.lengths if size is not None else tf.fill([batch.size], dim))
        padded.append(size.padded if size is not None else dim)
    total = lengths[0]
    room: Any = padded[0]
    for length, pad in zip(lengths[1:], padded[1:], strict=True):
        total, room = total + length, room + pad
    size = Size(total, room)
    slots = tf.range(room)[None, :]
    positions = tf.broadcast_to(slots, [batch.size, room])
    starts, base = lengths[0], padded[0]
    for length, pad in zip(lengths[1:], padded[1:], strict=True):
        positions = tf.where(slots >= starts[:, None], slots - starts[:, None] + base, positions)
        starts, base = starts + length, base + pad
    positions = tf.clip_by_value(positions, 0, tf.maximum(room - 1, 0))
    tensor = tf.concat([value.tensor for value in rows], axis + 1)
    return batched(take_along(tensor, axis, positions), {**sizes, axis: size})


@converts("Split SplitV", checks="the parts don't add up")
def convert_split(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Cuts an axis into parts."""
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    if op.type == "Split":
        axis_value, value = inputs
        parts: Any = int(op.attrs["num_split"])
    else:
        value, parts_value, axis_value = inputs
        known = parts_value.static()
        parts = None if known is None else [int(size) for size in known]
    axis = int(require_static(axis_value, "the axis of a split")) % value.rank
    if parts is None:
        return _split_per_row(value, axis, parts_value.elements(), batch)
    if value.parts is not None:
        bounds = np.cumsum([0, *parts]) if isinstance(parts, list) else np.linspace(0, value.shape[0] or 0, parts + 1)
        elements = value.elements()
        return [vector(elements[int(low) : int(high)], value.dtype) for low, high in pairwise(bounds)]
    if axis in value.sizes:
        return _split_ragged(value, axis, parts, batch)
    tensors = tf.split(value.tensor, parts, axis=axis + 1, num=len(op.outputs))
    return [batched(tensor, value.sizes) for tensor in tensors]


def _split_per_row(value: Value, axis: int, parts: Sequence[Value], batch: Batch) -> list[Value]:
    """Parts whose sizes differ between rows."""
    tensor, own = batch.rows(value), value.sizes.get(axis)
    room = own.padded if own is not None else dimension(tensor, axis + 1)
    length = own.lengths if own is not None else tf.fill([batch.size], room)
    asked = [tf.cast(batch.rows(part), tf.int32) for part in parts]
    rest = length - tf.add_n([tf.maximum(size, 0) for size in asked])
    takes_rest = [size == -1 for size in asked]
    several = tf.add_n([tf.cast(flag, tf.int32) for flag in takes_rest])
    good = tf.logical_or(tf.logical_and(several == 0, rest == 0), tf.logical_and(several == 1, rest >= 0))
    for size in asked:
        good = tf.logical_and(good, size >= -1)
    batch.check(good)
    sizes = {other: size for other, size in value.sizes.items() if other != axis}
    start, pieces = tf.zeros([batch.size], tf.int32), []
    for size, flag in zip(asked, takes_rest, strict=True):
        width = batch.new_size(number(tf.clip_by_value(tf.where(flag, rest, size), 0, room), upper=room))
        positions = start[:, None] + tf.range(width.padded)[None, :]
        positions = tf.clip_by_value(positions, 0, tf.maximum(room - 1, 0))
        filled = pad_axis(tensor, axis + 1, tf.maximum(room, 1)) if not isinstance(room, int) or room < 1 else tensor
        pieces.append(batched(take_along(filled, axis, positions), {**sizes, axis: width}))
        start = start + width.lengths
    return pieces


def _split_ragged(value: Value, axis: int, parts: int | list[int], batch: Batch) -> list[Value]:
    """Equal parts differ in size between rows; of given parts only the one that takes the rest does."""
    size = value.sizes[axis]
    if isinstance(parts, int):
        batch.check(size.lengths % parts == 0)
        widths: list[Any] = [Size(size.lengths // parts, _up(size.padded, parts))] * parts
    else:
        rest = size.lengths - sum(part for part in parts if part >= 0)
        batch.check(rest >= 0 if -1 in parts else rest == 0)
        remainder = Size(tf.maximum(rest, 0), size.padded)
        widths = [remainder if part < 0 else Size(tf.fill([batch.size], part), part) for part in parts]
    sizes = {own: other for own, other in value.sizes.items() if own != axis}
    start, pieces = tf.zeros([batch.size], tf.int32), []
    for position, width in enumerate(widths):
        positions = tf.clip_by_value(start[:, None] + tf.range(width.padded)[None, :], 0, size.padded - 1)
        ragged = isinstance(parts, int) or parts[position] < 0
        pieces.append(batched(take_along(value.tensor, axis, positions), {**sizes, axis: width} if ragged else sizes))
        start = start + width.lengths
    return pieces


def _up(size: Any, parts: int) -> Any:
    return (size + parts - 1) // parts
