"""TensorList ops over `ListValue`s; see `vectorizer/lists.py` for how a list lies in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.compounds import CompoundList, OptionalValue, as_compound, is_compound, put_together, take_apart
from vectorizer.converters.indexing import check_index
from vectorizer.lists import (
    ListValue,
    element_rows,
    list_from,
    list_of_zeros,
    slots_first,
    stacked,
    sum_of_lists,
    with_element,
)
from vectorizer.program import Op
from vectorizer.registry import converts
from vectorizer.values import NotConvertible, Size, Value, at_axis, batched, dimension, number, shared


def _element_shape(op: Op, given: Value | None) -> Any:
    """Static element shape, from the op's operand or its result."""
    if given is not None:
        known = given.static()
        if known is not None and known.ndim == 1:
            return tf.TensorShape([None if size < 0 else int(size) for size in known])
    return tf.TensorShape(None)


@converts("TensorListReserve EmptyTensorList", always=True)
def convert_list_reserve(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Any]:
    """A list of zeros; the number of elements may differ between rows."""
    dtype = op.attrs["element_dtype"]
    shape = _element_shape(op, inputs[0])
    if op.type == "EmptyTensorList":
        items = ListValue(None, False, shared(tf.constant(0)), 0, dtype)
    elif inputs[1].batched:
        size = batch.new_size(inputs[1])
        items = ListValue(None, False, number(size.lengths, size), size.padded, dtype, size)
    else:
        known = inputs[1].static()
        slots = int(known) if known is not None else tf.cast(inputs[1].tensor, tf.int32)
        items = ListValue(None, False, shared(tf.cast(slots, tf.int32)), slots, dtype)
    if dtype != tf.variant and shape.rank is not None and shape.is_fully_defined():
        items = items.materialised(shape, batch, batched=items.size is not None)
    return [items]


@converts("TensorListFromTensor", always=True)
def convert_list_from_tensor(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Any]:
    """`ta.unstack`."""
    return [list_from(inputs[0], batch)]


@converts("TensorListLength", always=True)
def convert_list_length(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Value]:
    """Number of elements."""
    return [inputs[0].length]


@converts("TensorListElementShape", always=True)
def convert_list_element_shape(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Value]:
    """Static shape of the elements."""
    items = _plain(inputs[0])
    if items.buffer is None or items.element_sizes or items.element_lengths:
        raise NotConvertible("the element shape of a list that isn't known")
    return [shared(tf.shape(items.buffer)[2 if items.batched else 1 :])]


def _plain(items: Any) -> ListValue:
    if isinstance(items, CompoundList):
        raise NotConvertible("a list of lists, or of what branches hand to their gradients, used as one of tensors")
    if isinstance(items, OptionalValue):
        raise NotConvertible("what a branch hands to its gradient, used as a list")
    assert isinstance(items, ListValue)
    return items


@converts("TensorListGetItem", checks="the index is out of range", always=True)
def convert_list_get(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """`ta.read`: a slice if the index is the same for all rows, else a gather."""
    items, index, given = inputs
    if isinstance(items, CompoundList):
        return [_read_compound(items, index, batch)]
    return [read_slot(items.materialised(_known_shape(op, given), batch, batched=False), index, batch)]


def _read_compound(items: CompoundList, index: Value, batch: Batch) -> Any:
    return put_together(items.pattern, (read_slot(part, index, batch) for part in items.items), batch)


def read_slot(items: ListValue, index: Value, batch: Batch) -> Value:
    """One element, the same slot for all rows or each row's own."""
    items = items.never_empty()
    position = _checked(items, index, batch)
    if position.shape.rank == 0 and not items.element_lengths:
        return Value(tf.gather(items.buffer, position), items.batched, items.element_sizes)
    if position.shape.rank == 0:
        position = tf.fill([batch.size], position)
    items = items.promoted(batch)
    coordinates = tf.stack([position, tf.range(tf.shape(position)[0])], axis=-1)
    sizes = dict(items.element_sizes)
    for axis, lengths in items.element_lengths.items():
        sizes[axis] = Size(tf.gather_nd(lengths, coordinates), dimension(items.buffer, axis + 2))
    return batched(tf.gather_nd(items.buffer, coordinates), sizes)


def _known_shape(op: Op, given: Value) -> Any:
    shape = _element_shape(op, given)
    return shape if shape.rank is not None and shape.is_fully_defined() else op.outputs[0].shape


def _checked(items: ListValue, index: Value, batch: Batch) -> Any:
    """The index, in range for the buffer; rows whose own list is shorter fail."""
    if items.roomy and items.size is None:
        batch.check(tf.reduce_all(index.tensor < tf.cast(items.length.tensor, index.dtype), _all_but_rows(index)))
    return check_index(index, items.slots, batch, own_size=items.size)


@converts("TensorListSetItem", checks="the index is out of range", always=True)
def convert_list_set(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """`ta.write`: rows that aren't active keep what is in the slot."""
    items, index, item = inputs
    return [_write(op, items, index, item, batch)]


def _write(op: Op, items: Any, index: Value, item: Any, batch: Batch) -> Any:
    if not is_compound(item):
        return write_slot(op, _plain(items), index, _as_traced(op, item), batch)
    pattern, values = take_apart(item, batch)
    compound = as_compound(items, pattern, [value.dtype for value in values])
    pairs = zip(compound.items, values, strict=True)
    return CompoundList(pattern, tuple(write_slot(op, part, index, value, batch) for part, value in pairs))


def _as_traced(op: Op, item: Value) -> Value:
    """With what TensorFlow knows of the item's shape."""
    known = op.inputs[-1].shape
    if known.rank is not None and item.dense is not None:
        item.dense.set_shape(([None] if item.batched else []) + known.as_list() if not item.sizes else None)
    return item


def write_slot(op: Op, items: ListValue, index: Value, item: Value, batch: Batch) -> ListValue:
    """A list of tensors with `item` in one slot."""
    needs_rows = items.batched or item.batched or index.batched or batch.active is not None or items.size is not None
    items = with_element(items, item, batch, batched=needs_rows)
    grows = op.attrs.get("resize_if_index_out_of_bounds")
    items = _with_room(items, index, batch) if grows else items.never_empty()
    position = _checked(items, index, batch)
    if not items.batched:
        return items.with_buffer(tf.tensor_scatter_nd_update(items.buffer, [[position]], item.tensor[None]))
    tensor, lengths = element_rows(items, item, batch)
    one_slot = position.shape.rank == 0
    masked = batch.active is not None and not (one_slot and _past_the_end_is_padding(items, index, batch))
    slots = [[position]] if one_slot else tf.stack([position, tf.range(tf.shape(position)[0])], axis=-1)

    def written(buffer: Any, value: Any) -> Any:
        if masked:
            old = tf.gather(buffer, position) if one_slot else tf.gather_nd(buffer, slots)
            value = tf.where(at_axis(batch.active, value.shape.rank - 1), value, old)
        return tf.tensor_scatter_nd_update(buffer, slots, value[None] if one_slot else value)

    own = {axis: written(items.element_lengths[axis], length) for axis, length in lengths.items()}
    return replace(items, buffer=written(items.buffer, tensor), element_lengths=own)


def _with_room(items: ListValue, index: Value, batch: Batch) -> ListValue:
    """Grown so that the index is in range: in the rows that write, where not all do."""
    needed = tf.cast(index.tensor, tf.int32) + 1
    if items.roomy:
        batch.check(needed <= items.slots)
    if not index.batched and batch.active is None and items.size is None:
        length = tf.maximum(needed, tf.cast(items.length.tensor, tf.int32))
        return replace(items if items.roomy else items.grown(length), length=shared(length))
    rows = tf.broadcast_to(needed, [batch.size])
    if batch.active is not None:
        rows = tf.where(batch.active, rows, 0)
    lengths = tf.maximum(tf.cast(batch.rows(items.length), tf.int32), rows)
    if items.roomy:
        return items.of_lengths(tf.minimum(lengths, items.slots))
    slots = tf.maximum(tf.reduce_max(tf.concat([lengths, [1]], 0)), items.slots)
    return items.grown(slots).of_lengths(lengths)


def _all_but_rows(index: Value) -> list[int]:
    return list(range(int(index.batched), index.tensor.shape.rank))


def _past_the_end_is_padding(items: ListValue, index: Value, batch: Batch) -> bool:
    """In a loop `while t < n` that writes slot t of a list of n: a finished row's slot is its padding."""
    bound = batch.bounded_by
    return bound is not None and items.size is not None and bound == (id(index.tensor), id(items.size))


@converts("TensorListStack", checks="elements differ in shape, or there is none and none is known", always=True)
def convert_list_stack(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Value]:
    """`ta.stack`."""
    items = _plain(inputs[0])
    known, result = inputs[1].static(), op.outputs[0].shape
    if known is not None and (known < 0).any() and not (result.rank and result[1:].is_fully_defined()):
        batch.check(items.length.tensor > 0)  # TensorFlow stacks nothing only if it knows the elements' shape
    items = items.materialised(_stack_shape(op, inputs[1]), batch, batched=items.size is not None)
    return [stacked(items, batch)]


@converts("TensorListConcatV2", always=True)
def convert_list_concat(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Value]:
    """`ta.concat`: elements joined along their first axis, and how long each of them is."""
    result = op.outputs[0].shape
    given = inputs[1].static()
    known = tf.TensorShape(None) if given is None or given.ndim == 0 else tf.TensorShape([None, *given[1:]])
    items = _plain(inputs[0])
    if items.buffer is None:
        items = items.materialised(known.merge_with(result), batch, batched=items.size is not None)
    value = stacked(items, batch)
    if set(value.sizes) - {0} or value.rank < 2:
        raise NotConvertible("elements of ragged shape joined")
    each = value.shape[1]
    if each is None:
        raise NotConvertible("elements of unknown size joined")
    dims = [dimension(value.tensor, axis) for axis in range(value.tensor.shape.rank)]
    lead = dims[:1] if value.batched else []
    count = dims[len(lead)]
    joined = tf.reshape(value.tensor, [*lead, count * each, *dims[len(lead) + 2 :]])
    size = value.sizes.get(0)
    if size is None:
        lengths = shared(tf.fill([count], tf.constant(each, tf.int64)))
        return [Value(joined, value.batched), lengths]
    lengths = batched(tf.fill([batch.size, count], tf.constant(each, tf.int64)), {0: size})
    return [batched(joined, {0: Size(size.lengths * each, size.padded * each)}), lengths]


def _stack_shape(op: Op, given: Value) -> Any:
    shape = _element_shape(op, given)
    if shape.rank is not None and shape.is_fully_defined():
        return shape
    result = op.outputs[0].shape
    return result[1:] if result.rank else shape


@converts("TensorListGather", checks="an index is out of range", always=True)
def convert_list_gather(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Value]:
    """`ta.gather`: elements by a vector of indices."""
    items, indices, given = _plain(inputs[0]), inputs[1], inputs[2]
    if items.element_lengths:
        raise NotConvertible("elements gathered from a list whose elements differ in shape")
    items = items.materialised(_stack_shape(op, given), batch, batched=False).never_empty()
    positions = _checked(items, indices, batch)
    sizes = {axis + 1: size for axis, size in items.element_sizes.items()}
    if not items.batched and positions.shape.rank == 1:
        return [shared(tf.gather(items.buffer, positions))]
    items = items.promoted(batch)
    sizes |= indices.sizes
    if positions.shape.rank == 1:
        tensor = tf.gather(items.buffer, positions)
        return [batched(slots_first(tensor), sizes)]
    rows = tf.broadcast_to(tf.range(tf.shape(positions)[0])[:, None], tf.shape(positions))
    return [batched(tf.gather_nd(items.buffer, tf.stack([positions, rows], axis=-1)), sizes)]


@converts("TensorListPushBack", always=True)
def convert_list_push(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """Appends: a write at each row's own end."""
    items, item = inputs
    write = Op(
        "TensorListSetItem", op.name, op.inputs, op.outputs, {"resize_if_index_out_of_bounds": True}, op.definition
    )
    return [_write(write, items, items.length, item, batch)]


@converts("TensorListPopBack", checks="the list is empty", always=True)
def convert_list_pop(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """Takes the last element off: each row's own last, where rows have pushed unequally often."""
    items = inputs[0]
    last = Value(tf.cast(items.length.tensor, tf.int32) - 1, items.length.batched)
    if isinstance(items, CompoundList):
        element = _read_compound(items, last, batch)
        return [items.each(lambda part: _without_last(part, last, batch)), element]
    if items.buffer is None:
        raise NotConvertible("an element taken off a list that nobody has written to")
    return [_without_last(items, last, batch), read_slot(items, last, batch)]


def _without_last(items: ListValue, last: Value, batch: Batch) -> ListValue:
    if not last.batched and batch.active is None:
        items = items if items.roomy else items.grown(items.slots - 1)
        return replace(items, length=shared(last.tensor))
    before = tf.cast(batch.rows(items.length), tf.int32)
    left = tf.maximum(before - 1, 0)
    if batch.active is not None:
        left = tf.where(batch.active, left, before)
    return items.of_lengths(left)


@converts("TensorListScatterIntoExistingList TensorListScatterV2", checks="an index is out of range", always=True)
def convert_list_scatter(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """`ta.scatter`: the elements of a tensor to the given slots."""
    if op.type == "TensorListScatterV2":
        values, indices, _, count = inputs
        known = count.static()
        if known is None or known < 0:
            raise NotConvertible("a scatter into a list of unknown length")
        items = ListValue(None, False, shared(tf.constant(int(known))), int(known), op.attrs["element_dtype"])
    else:
        items, values, indices = _plain(inputs[0]), inputs[1], inputs[2]
    if values.sizes or indices.batched or items.element_lengths:
        raise NotConvertible("a scatter into a list at positions that differ between examples")
    element = Value(values.tensor[:, 0] if values.batched else values.tensor[0], values.batched)
    items = with_element(items, element, batch, batched=items.batched or values.batched or batch.active is not None)
    positions = _checked(items, indices, batch)
    content = values.tensor
    if items.batched:
        content = batch.rows(values)
        content = slots_first(content)
        if batch.active is not None:
            old = tf.gather(items.buffer, positions)
            content = tf.where(at_axis(batch.active, content.shape.rank - 2)[None], content, old)
    return [items.with_buffer(tf.tensor_scatter_nd_update(items.buffer, positions[:, None], content))]


def convert_list_arithmetic(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any] | None:
    """What gradients do with lists as if they were tensors; None for any other op."""
    if op.type == "ZerosLike":
        return [_zeros_like(inputs[0])]
    if op.type == "AddN":
        return [reduce(lambda left, right: sum_of_lists(_plain(left), _plain(right), batch), inputs)]
    return None


def _zeros_like(value: Any) -> Any:
    if isinstance(value, OptionalValue):
        zeros = {kind: tuple(map(_zeros_like, values)) for kind, values in value.alternatives.items()}
        return OptionalValue(zeros, value.batched)
    if isinstance(value, CompoundList):
        return value.each(list_of_zeros)
    if isinstance(value, ListValue):
        return list_of_zeros(value)
    return Value(tf.zeros_like(value.tensor), value.batched, value.sizes)
