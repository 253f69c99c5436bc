"""StridedSlice and Slice: the one place that knows TensorFlow's slicing masks.

A slice is read into one entry per axis (`_Entry`), then each axis is cut on its own. What the fast path can't
do, a position or an end that differs between rows, or a ragged axis, is a gather at positions computed per
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.indexing import check_index, is_counter, take_along
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import Size, Value, batched, dimension, insert_axis, remove_axis, shared, vector


@dataclass(frozen=True)
class _Entry:
    """What happens to one axis: `new` inserts one, `index` removes it, else `[begin:end:stride]` cuts it."""

    new: bool = False
    index: Value | None = None
    begin: Value | None = None
    end: Value | None = None
    stride: int = 1

    @property
    def whole(self) -> bool:
        return not self.new and self.index is None and self.begin is None and self.end is None and self.stride == 1


@converts("StridedSlice", checks="a single index is out of range")
def convert_strided_slice(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`x[...]` with all of TensorFlow's masks."""
    value = inputs[0]
    entries = _entries(op, value, inputs[1:])
    if value.parts is not None and len(entries) == 1:
        return [_slice_parts(value, entries[0])]
    if value.vectors is not None and all(_known(item) for item in (entries[0].index, entries[0].begin, entries[0].end)):
        tracked = _slice_vectors(value, entries)
        if tracked is not None:
            return [tracked]
    if not any(item.batched for item in inputs) and all(_known(entry.index) for entry in entries):
        return run_unchanged(op, inputs)
    if _only_ones(value, entries):
        return [_reshaped(value, entries)]
    if _plain(value, entries):
        return [_shifted(op, value, inputs[1:])]
    return [_by_axis(value, entries, batch)]


def _known(value: Value | None) -> bool:
    return value is None or value.static() is not None


def _plain(value: Value, entries: Sequence[_Entry]) -> bool:
    """Whether every cut is known now and no ragged axis is cut."""
    axis = 0
    for entry in entries:
        if entry.new:
            continue
        if not all(_known(item) for item in (entry.index, entry.begin, entry.end)):
            return False
        if axis in value.sizes and not entry.whole:
            return False
        axis += 1
    return True


def _only_ones(value: Value, entries: Sequence[_Entry]) -> bool:
    """Whether nothing but axes of size 1 come and go: no element is moved then, so none need be copied."""
    axis = 0
    for entry in entries:
        if entry.new:
            continue
        one = value.shape[axis] == 1 and entry.index is not None and entry.index.static() in (0, -1)
        if not (entry.whole or one):
            return False
        axis += 1
    return True


def _reshaped(value: Value, entries: Sequence[_Entry]) -> Value:
    gone = [axis for axis, entry in enumerate(entry for entry in entries if not entry.new) if entry.index is not None]
    for axis in reversed(gone):
        value = remove_axis(value, axis)
    target = 0
    for entry in entries:
        if entry.new:
            value = insert_axis(value, target)
        target += entry.index is None
    return value


def _entries(op: Op, value: Value, spec: Sequence[Value]) -> list[_Entry]:
    """One entry per axis of the operand (and per new axis), ellipsis expanded."""
    begins, ends = spec[0].elements(), spec[1].elements()
    strides = [int(item) for item in require_static(spec[2], "the stride of a slice")]
    masks = {name: int(op.attrs[f"{name}_mask"]) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    count = len(begins)
    flags = [{name: bool(mask >> position & 1) for name, mask in masks.items()} for position in range(count)]
    consumed = sum(not flag["ellipsis"] and not flag["new_axis"] for flag in flags)
    entries: list[_Entry] = []
    seen_ellipsis = False
    for position, flag in enumerate(flags):
        if flag["ellipsis"] and not seen_ellipsis:
            entries += [_Entry()] * (value.rank - consumed)
            seen_ellipsis = True
        elif flag["ellipsis"] or flag["new_axis"]:
            entries.append(_Entry(new=True) if flag["new_axis"] else _Entry())
        elif flag["shrink_axis"]:
            entries.append(_Entry(index=begins[position]))
        else:
            begin = None if flag["begin"] else begins[position]
            end = None if flag["end"] else ends[position]
            if strides[position] > 0 and begin is not None and begin.static() == 0:
                begin = None
            entries.append(_Entry(begin=begin, end=end, stride=strides[position]))
    return entries + [_Entry()] * (value.rank - sum(not entry.new for entry in entries))


def _slice_parts(value: Value, entry: _Entry) -> Value:
    """A slice of a shape vector, whose elements are tracked one by one."""
    parts = value.elements()
    if entry.index is not None:
        return parts[int(require_static(entry.index, "an index into a shape"))]
    bounds = [
        None if item is None else int(require_static(item, "a bound of a shape")) for item in (entry.begin, entry.end)
    ]
    picked = parts[slice(bounds[0], bounds[1], entry.stride)]
    return vector(picked, value.dtype)


def _slice_vectors(value: Value, entries: Sequence[_Entry]) -> Value | None:
    """Rows of a matrix that was stacked from shape vectors; None for any other slice."""
    vectors = value.vectors or ()
    if any(not entry.whole for entry in entries[1:]) or entries[0].new:
        return None
    first = entries[0]
    if first.index is not None:
        return vectors[int(require_static(first.index, "an index into a shape"))]
    bounds = [None if item is None else int(require_static(item, "a bound")) for item in (first.begin, first.end)]
    cut = slice(bounds[0], bounds[1], first.stride)
    return Value(value.tensor[:, cut], True, value.sizes, vectors=vectors[cut])


def _shifted(op: Op, value: Value, spec: Sequence[Value]) -> Value:
    """All cuts are the same for every row: the kernel does it, behind one more whole axis."""
    begin, end, stride = (_prefixed(item, first) for item, first in zip(spec, (0, 0, 1), strict=True))
    attrs = dict(op.attrs)
    for name in ("begin_mask", "end_mask"):
        attrs[name] = attrs[name] << 1 | 1
    for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
        attrs[name] <<= 1
    shifted = Op(op.type, op.name, op.inputs, op.outputs, attrs, op.definition, op.source)
    (tensor,) = replay(shifted, [value.tensor, begin, end, stride])
    sizes, source, target = {}, 0, 0
    for entry in _entries(op, value, spec):
        if entry.new:
            target += 1
            continue
        if source in value.sizes:
            sizes[target] = value.sizes[source]
        source += 1
        target += entry.index is None
    return batched(tensor, sizes)


def _prefixed(vector_value: Value, first: int) -> Any:
    """A vector with one more element in front."""
    known, dtype = vector_value.static(), vector_value.dtype
    if known is not None:
        return tf.constant([first, *known.tolist()], dtype)
    return tf.concat([tf.constant([first], dtype), vector_value.tensor], 0)


def _by_axis(value: Value, entries: Sequence[_Entry], batch: Batch) -> Value:
    """Cut ranges first, then take single indices from the last axis on, then insert new axes."""
    tensor, is_batched, sizes = value.tensor, value.batched, dict(value.sizes)
    cuts = [entry for entry in entries if not entry.new]
    for axis, entry in enumerate(cuts):
        if entry.index is None and not entry.whole:
            tensor, is_batched, sizes = _cut(Value(tensor, is_batched, sizes), axis, entry, batch)
    for axis in reversed(range(len(cuts))):
        index = cuts[axis].index
        if index is not None:
            picked = pick(Value(tensor, is_batched, sizes), axis, index, batch)
            tensor, is_batched, sizes = picked.tensor, picked.batched, dict(picked.sizes)
    offset = 1 if is_batched else 0
    target = 0
    for entry in entries:
        if entry.new:
            tensor = tf.expand_dims(tensor, target + offset)
            sizes = {axis + (axis >= target): size for axis, size in sizes.items()}
        target += entry.index is None
    return Value(tensor, is_batched, sizes)


def pick(value: Value, axis: int, index: Value, batch: Batch) -> Value:
    """`value[..., index, ...]` for one index (scalar, negative counts from the row's own end)."""
    own_size = value.sizes.get(axis)
    where = axis + (1 if value.batched else 0)
    size = own_size.padded if own_size is not None else dimension(value.tensor, where)
    known = index.static()
    if known is not None and known < 0:
        if own_size is not None:
            index = Value(own_size.lengths + int(known), True)
        else:
            index = shared(tf.cast(size + int(known), tf.int32))
    elif known is None and not is_counter(index):
        length = tf.cast(own_size.lengths if own_size is not None else size, index.dtype)
        is_batched = index.batched or own_size is not None
        index = Value(tf.where(index.tensor < 0, index.tensor + length, index.tensor), is_batched)
    position = check_index(index, size, batch, own_size=own_size)
    sizes = {own - (own > axis): other for own, other in value.sizes.items() if own != axis}
    per_row = position.shape.rank == 1
    if not per_row:
        return Value(tf.gather(value.tensor, position, axis=where), value.batched, sizes)
    if not value.batched:  # a table for all rows isn't copied for each
        front = [axis, *(other for other in range(value.rank) if other != axis)]
        picked = tf.gather(value.tensor, position, axis=axis)
        return batched(tf.transpose(picked, front) if axis else picked, sizes)
    tensor = batch.rows(value)
    if axis == 0:
        return batched(tf.gather(tensor, position, axis=1, batch_dims=1), sizes)
    return batched(tf.squeeze(take_along(tensor, axis, position[:, None]), axis + 1), sizes)


def _cut(value: Value, axis: int, entry: _Entry, batch: Batch) -> tuple[Any, bool, dict[int, Size]]:
    own_size = value.sizes.get(axis)
    where = axis + (1 if value.batched else 0)
    per_row = own_size is not None or any(item is not None and item.batched for item in (entry.begin, entry.end))
    if not per_row:
        index: list[Any] = [slice(None)] * where
        bounds = [None if item is None else item.tensor for item in (entry.begin, entry.end)]
        return (
            value.tensor[(*index, slice(bounds[0], bounds[1], entry.stride))],
            value.batched,
            dict(value.sizes),
        )
    tensor = batch.rows(value)
    padded = own_size.padded if own_size is not None else dimension(tensor, axis + 1)
    length = own_size.lengths if own_size is not None else tf.fill([batch.size], padded)
    stride = entry.stride
    low, high = (0, length) if stride > 0 else (-1, length - 1)
    begin = _bound(entry.begin, low if stride > 0 else high, length, low, high)
    end = _bound(entry.end, high if stride > 0 else low, length, low, high)
    span = end - begin if stride > 0 else begin - end
    lengths = tf.maximum((span + abs(stride) - 1) // abs(stride), 0)
    if stride == 1 and entry.begin is None:
        return tensor, True, {**value.sizes, axis: Size(lengths, padded)}
    room = (padded + abs(stride) - 1) // abs(stride)
    size = Size(lengths, room)
    begin = tf.broadcast_to(begin, [batch.size])
    positions = begin[:, None] + stride * tf.range(room)[None, :]
    positions = tf.clip_by_value(positions, 0, tf.maximum(padded - 1, 0))
    return take_along(tensor, axis, positions), True, {**value.sizes, axis: size}


def _bound(given: Value | None, default: Any, length: Any, low: Any, high: Any) -> Any:
    """One bound of a range as TensorFlow reads it: negative counts from the end, then clipped."""
    if given is None:
        return default
    position = _narrow(given.tensor)
    position = tf.where(position < 0, position + length, position)
    return tf.clip_by_value(position, low, high)


def _narrow(position: Any) -> Any:
    """As int32; what doesn't fit is beyond any end."""
    if position.dtype == tf.int64:
        position = tf.clip_by_value(position, tf.int32.min, tf.int32.max)
    return tf.cast(position, tf.int32)


@converts("Slice", checks="the slice reaches outside")
def convert_slice(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.slice(x, begin, size)`; a size of -1 goes to the end."""
    value, begin_value, size_value = inputs
    if not any(item.batched for item in inputs) and begin_value.static() is not None:
        return run_unchanged(op, inputs)
    begins, counts = begin_value.elements(), size_value.elements()
    if not any(item.batched for item in inputs):
        return [_slice_shared(value, begin_value, size_value, batch)]
    tensor, sizes = batch.rows(value), dict(value.sizes)
    for axis, (begin, count) in enumerate(zip(begins, counts, strict=True)):
        tensor, sizes = _slice_axis(Value(tensor, True, sizes), axis, begin, count, batch)
    return [batched(tensor, sizes)]


def _slice_shared(value: Value, begin: Value, count: Value, batch: Batch) -> Value:
    """A slice that is the same for all rows but known only at run time."""
    room = tf.cast(tf.shape(value.tensor), begin.dtype)
    span = tf.where(count.tensor < 0, room - begin.tensor, count.tensor)
    batch.check(tf.reduce_all(tf.logical_and(begin.tensor >= 0, begin.tensor + span <= room)))
    start = tf.clip_by_value(begin.tensor, 0, tf.maximum(room - span, 0))
    return shared(tf.slice(value.tensor, start, tf.minimum(count.tensor, room)))


def _slice_axis(value: Value, axis: int, begin: Value, count: Value, batch: Batch) -> tuple[Any, dict[int, Size]]:
    known_begin, known_count = begin.static(), count.static()
    own_size = value.sizes.get(axis)
    padded = own_size.padded if own_size is not None else dimension(value.tensor, axis + 1)
    whole = known_count == -1 or (own_size is None and isinstance(padded, int) and known_count == padded)
    whole = whole or (count.size is not None and count.size is own_size)
    if known_begin == 0 and whole:
        return value.tensor, dict(value.sizes)
    if own_size is None and known_begin is not None and known_count is not None:
        count_now = int(known_count) if known_count >= 0 else padded - int(known_begin)
        if not isinstance(padded, int):
            batch.check(tf.constant(int(known_begin)) + count_now <= padded)
        index = [slice(None)] * (axis + 1)
        return value.tensor[(*index, slice(int(known_begin), int(known_begin) + count_now))], dict(value.sizes)
    length = own_size.lengths if own_size is not None else padded
    start = _narrow(begin.tensor)
    if known_count is not None and known_count >= 0:
        batch.check(tf.logical_and(start >= 0, start <= length - int(known_count)))
        room, size = int(known_count), None
    else:
        rest = length - start
        asked = _narrow(count.tensor)
        wanted = rest if known_count == -1 else tf.where(asked == -1, rest, asked)
        batch.check(tf.logical_and(tf.logical_and(start >= 0, wanted >= 0), wanted <= length - start))
        if not count.batched and not begin.batched and own_size is None and known_count != -1:
            room, size = wanted, None
        else:
            room = padded
            size = Size(tf.broadcast_to(tf.clip_by_value(wanted, 0, padded), [batch.size]), padded)
    start = tf.broadcast_to(start, [batch.size])
    positions = start[:, None] + tf.range(room)[None, :]
    positions = tf.clip_by_value(positions, 0, tf.maximum(padded - 1, 0))
    sizes = {own: other for own, other in value.sizes.items() if own != axis}
    if size is not None:
        sizes[axis] = size
    return take_along(value.tensor, axis, positions), sizes
