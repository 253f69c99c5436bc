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
    NotConvertible,
    Size,
    Value,
    batched,
    dimension,
    fill_padding,
    pad_axis,
    shared,
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
        parts = [int(size) for size in require_static(parts_value, "the sizes of a split")]
    axis = int(require_static(axis_value, "the axis of a split")) % value.rank
    if value.parts is not None:
        bounds = np.cumsum([0, *parts]) if isinstance(parts, list) else np.linspace(0, value.shape[0] or 0, parts + 1)
        elements = value.elements()
        return [vector(elements[int(low) : int(high)], value.dtype) for low, high in pairwise(bounds)]
    if axis in value.sizes:
        return _split_ragged(value, axis, parts, batch)
    tensors = tf.split(value.tensor, parts, axis=axis + 1, num=len(op.outputs))
    return [batched(tensor, value.sizes) for tensor in tensors]


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


@converts("Pad PadV2")
def convert_pad(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Pads with a constant; a ragged axis grows for each row at its own end."""
    value, amounts = inputs[0], inputs[1]
    constant = inputs[2] if len(inputs) > 2 else shared(_zero(value.dtype))
    if constant.batched or amounts.batched:
        raise NotConvertible("padding that differs between examples")
    rows = Value(batch.rows(value), True, value.sizes)
    known = amounts.static()
    if known is None:
        if value.sizes:
            raise NotConvertible("padding of a ragged tensor by amounts that aren't known when the program is built")
        pads = tf.concat([tf.zeros([1, 2], amounts.dtype), amounts.tensor], 0)
        return [batched(tf.pad(rows.tensor, pads, constant_values=constant.tensor))]
    grown = [axis for axis in value.sizes if known[axis].any()]
    tensor = fill_padding(rows, grown, constant.tensor)
    pads = [[0, 0], *([int(low), int(high)] for low, high in known)]
    sizes = dict(value.sizes)
    for axis in grown:
        extra = int(known[axis].sum())
        sizes[axis] = Size(value.sizes[axis].lengths + extra, value.sizes[axis].padded + extra)
    return [batched(tf.pad(tensor, pads, constant_values=constant.tensor), sizes)]


def _zero(dtype: Any) -> Any:
    return tf.constant("") if dtype == tf.string else tf.zeros([], dtype)


@converts("MirrorPad", checks="more padding than there is to reflect")
def convert_mirror_pad(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Pads by reflection, a ragged axis at each row's own end. (TF 2.21's kernel refuses an empty batch.)"""
    value, amounts = inputs
    if not value.batched and not amounts.batched:
        return run_unchanged(op, inputs)
    known = require_static(amounts, "the amount of padding")
    tensor, sizes = value.tensor, dict(value.sizes)
    for axis, (low, high) in enumerate(known):
        if not low and not high:
            continue
        extra = int(low + high)
        own = sizes.get(axis)
        length = own.lengths[:, None] if own is not None else dimension(tensor, axis + 1)
        room = own.padded if own is not None else length
        batch.check(_reflects(op, int(max(low, high)), own.lengths if own is not None else length))
        positions = _reflected(op, tf.range(room + extra) - int(low), length)
        positions = tf.clip_by_value(positions, 0, room - 1)
        if own is not None:
            tensor, sizes[axis] = take_along(tensor, axis, positions), Size(own.lengths + extra, room + extra)
        else:
            tensor = tf.gather(tensor, positions, axis=axis + 1)
    return [batched(tensor, sizes)]


def _reflects(op: Op, amount: int, length: Any) -> Any:
    good = amount < length if op.attrs["mode"] == b"REFLECT" else amount <= length
    return tf.constant(good) if isinstance(good, bool) else good


def _reflected(op: Op, positions: Any, length: Any) -> Any:
    if op.attrs["mode"] == b"REFLECT":
        return length - 1 - tf.abs(length - 1 - tf.abs(positions))
    positions = tf.where(positions < 0, -positions - 1, positions)
    return tf.where(positions >= length, 2 * length - 1 - positions, positions)
