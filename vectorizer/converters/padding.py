"""Padding: by a constant, by reflection, and the gradient of the latter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.indexing import take_along
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, fill_padding, number, pad_axis, shared


@converts("Pad PadV2", checks="an amount is negative")
def convert_pad(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Pads with a constant; a ragged axis grows for each row at its own end."""
    value, amounts = inputs[0], inputs[1]
    constant = inputs[2] if len(inputs) > 2 else shared(_zero(value.dtype))
    known = amounts.static()
    if not any(item.batched for item in inputs):
        return _padded_for_all(op, inputs, batch)
    if known is None or constant.batched:
        return [_padded_per_row(value, _pairs(amounts, value.rank), constant, batch)]
    if (known < 0).any():
        batch.check(tf.constant(False))
        known = np.maximum(known, 0)
    rows = Value(batch.rows(value), True, value.sizes)
    grown = [axis for axis in value.sizes if known[axis].any()]
    tensor = fill_padding(rows, grown, constant.tensor)
    pads = [[0, 0], *([int(low), int(high)] for low, high in known)]
    sizes = dict(value.sizes)
    for axis in grown:
        extra = int(known[axis].sum())
        sizes[axis] = Size(value.sizes[axis].lengths + extra, value.sizes[axis].padded + extra)
    return [batched(tf.pad(tensor, pads, constant_values=constant.tensor), sizes)]


def _padded_for_all(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Operands that all rows share; an amount may be negative where none of them is active."""
    amounts = inputs[1].tensor
    known = inputs[1].static()
    if known is None or (known < 0).any():
        batch.check(tf.reduce_all(amounts >= 0))
    others = [item.tensor for item in inputs[2:]]
    return [shared(replay(op, [inputs[0].tensor, tf.maximum(amounts, tf.zeros([], amounts.dtype)), *others])[0])]


def _pairs(amounts: Value, count: int) -> list[tuple[Value, Value]]:
    """(before, after) of each axis as numbers."""
    if amounts.vectors is not None:
        rows = [vector.elements() for vector in amounts.vectors]
        return [(row[0], row[1]) for row in rows]
    tensor = amounts.tensor
    return [
        (Value(tensor[..., axis, 0], amounts.batched), Value(tensor[..., axis, 1], amounts.batched))
        for axis in range(count)
    ]


def _padded_per_row(value: Value, pairs: Sequence[tuple[Value, Value]], constant: Value, batch: Batch) -> Value:
    """By amounts, or with constants, that may differ between rows."""
    tensor, sizes = batch.rows(value), dict(value.sizes)
    fill = batch.rows(constant)
    for axis, (before, after) in enumerate(pairs):
        if before.static() == 0 and after.static() == 0:
            continue
        low, high = (batch.int32_rows(item) for item in (before, after))
        batch.check(tf.logical_and(low >= 0, high >= 0))
        low, high = tf.maximum(low, 0), tf.maximum(high, 0)
        own = sizes.get(axis)
        room = own.padded if own is not None else dimension(tensor, axis + 1)
        length = own.lengths if own is not None else tf.fill([batch.size], room)
        uppers = [_upper(item) for item in (before, after)]
        upper = None if None in uppers else room + uppers[0] + uppers[1]
        total = sum(tf.cast(part, tf.int64) for part in (length, low, high))
        size = batch.new_size(number(total, upper=upper))
        positions = tf.range(size.padded)[None, :] - low[:, None]
        present = tf.logical_and(positions >= 0, positions < length[:, None])
        last = max(room, 1) if isinstance(room, int) else tf.maximum(room, 1)
        moved = take_along(pad_axis(tensor, axis + 1, last), axis, tf.clip_by_value(positions, 0, last - 1))
        shape = [1] * moved.shape.rank
        shape[0], shape[axis + 1] = -1, size.padded
        around = tf.reshape(fill, [-1] + [1] * (moved.shape.rank - 1))
        tensor, sizes[axis] = tf.where(tf.reshape(present, shape), moved, around), size
    return batched(tensor, sizes)


def _upper(amount: Value) -> Any:
    known = amount.static()
    if known is not None:
        return max(int(known), 0)
    if amount.upper is None:
        return None
    return max(amount.upper, 0) if isinstance(amount.upper, int) else tf.maximum(amount.upper, 0)


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


@converts("MirrorPadGrad")
def convert_mirror_pad_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """What mirrored elements add to those they mirror."""
    value, amounts = inputs
    if value.sizes or amounts.batched or value.rank > 4:
        raise NotConvertible("the gradient of mirrored padding of a ragged tensor, or one of five dimensions")
    pads = tf.concat([tf.zeros([1, 2], amounts.dtype), amounts.tensor], 0)
    (tensor,) = replay(op, [value.tensor, pads])
    tensor.set_shape([value.tensor.shape[0], *op.outputs[0].shape.as_list()])
    return [batched(tensor)]
