"""Values as flat tensors, and back: what crosses into and out of loops, branches and compiled regions.

A `Carry` knows how one value travels: which tensors it needs (`pack`) and how to rebuild it from them (`unpack`).
Padded sizes that are static stay static; a Size whose lengths don't change travels as the same object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.lists import ListValue, OptionalValue
from vectorizer.values import NotConvertible, Size, Value, at_axis, dimension, number, pad_axis


class Carry(Protocol):
    """How one value crosses a boundary."""

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        """The value's tensors."""

    def unpack(self, tensors: Sequence[Any]) -> Any:
        """The value that they stand for."""

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        """Static shapes that hold for these tensors at every crossing."""

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        """`new` for active rows, `old` for the others."""


class KindRaised(Exception):
    """A body handed back a batched value where analysis had expected a shared one; the loop is emitted again."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class SharedCarry:
    """One tensor, the same for all rows that count."""

    position: int
    upper: Any = None
    dynamic: bool = False

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        if value.batched:
            raise KindRaised(self.position)
        return [value.tensor]

    def unpack(self, tensors: Sequence[Any]) -> Value:
        return Value(tensors[0], False, upper=self.upper)

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        shape = tensors[0].shape
        return [tf.TensorShape([None] * shape.rank) if self.dynamic else shape]

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        return new


@dataclass(frozen=True)
class BatchedCarry:
    """`[B, ...]`; `stable` axes keep their Size, `changing` ones carry their lengths along, `free` ones have none."""

    stable: Mapping[int, Size] = field(default_factory=dict)
    changing: tuple[int, ...] = ()
    size: Size | None = None
    free: tuple[int, ...] = ()

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        tensor = batch.rows(value)
        for axis, size in self.stable.items():
            if axis not in value.sizes:
                batch.check(size.lengths == dimension(tensor, axis + 1))
            elif value.sizes[axis] is not size:
                batch.check(value.sizes[axis].lengths == size.lengths)
            tensor = pad_axis(tensor, axis + 1, size.padded)
        lengths = []
        for axis in self.changing:
            if axis in value.sizes:
                lengths.append(value.sizes[axis].lengths)
            else:
                room = dimension(tensor, axis + 1)
                lengths.append(tf.fill([batch.size], room))
                tensor = pad_axis(tensor, axis + 1, max(room, 1) if isinstance(room, int) else tf.maximum(room, 1))
        return [tensor, *lengths]

    def unpack(self, tensors: Sequence[Any]) -> Value:
        tensor = tensors[0]
        sizes = dict(self.stable)
        for axis, lengths in zip(self.changing, tensors[1:], strict=True):
            sizes[axis] = Size(lengths, dimension(tensor, axis + 1))
        return Value(tensor, True, sizes, size=self.size)

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        shape = tensors[0].shape.as_list()
        for axis in (*self.changing, *self.free):
            shape[axis + 1] = None
        return [tf.TensorShape(shape), *(tensor.shape for tensor in tensors[1:])]

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        if new is old or getattr(new, "frozen_from", None) is old:
            return new
        return select(active, new, old, batch)


@dataclass(frozen=True)
class ListCarry:
    """A list's buffer, with what doesn't change of the list.

    `growing`: elements are appended inside, so the number of slots changes; `uneven`: by some rows only, so each row's
    own length travels along. A roomy list keeps its slots, and its length travels along.
    """

    template: ListValue
    growing: bool = False
    uneven: bool = False

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        if self.template.batched:
            value = value.promoted(batch)
        elif value.batched:
            raise KindRaised(-1)
        if self.uneven:
            return [value.buffer, tf.cast(batch.rows(value.length), tf.int32)]
        return (
            [value.buffer, tf.cast(value.length.tensor, tf.int32)]
            if self.growing and self.template.roomy
            else [value.buffer]
        )

    def unpack(self, tensors: Sequence[Any]) -> ListValue:
        return replace(self._unpack(tensors), origin=object())

    def _unpack(self, tensors: Sequence[Any]) -> ListValue:
        buffer = tensors[0]
        if not self.growing:
            return self.template.with_buffer(buffer)
        slots = self.template.slots if self.template.roomy else tf.shape(buffer)[0]
        if not self.uneven:
            length = tensors[1] if self.template.roomy else slots
            return replace(self.template, buffer=buffer, slots=slots, length=Value(length, False), size=None)
        size = Size(tensors[1], slots)
        return replace(self.template, buffer=buffer, slots=slots, length=number(tensors[1], size), size=size)

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        shape = tensors[0].shape.as_list()
        return [
            tf.TensorShape([None, *shape[1:]] if self.growing else shape),
            *(item.shape for item in tensors[1:]),
        ]

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        return new if new.origin is old.origin else select(active, new, old, batch)


def _of_size(tensor: Any, like: Any, ragged: Collection[int], batch: Batch) -> Any:
    """The tensor in the size of another, which it has, or its rows fail."""
    for axis, sizes in enumerate(zip(tensor.shape[1:], like.shape[1:], strict=True)):
        if axis not in ragged and None in sizes:
            room = dimension(like, axis + 1)
            batch.check(dimension(tensor, axis + 1) == room)
            tensor = pad_axis(tensor, axis + 1, room)
    return tensor


def select(rows: Any, left: Any, right: Any, batch: Batch) -> Any:
    """`left` in the rows (bool [B]) that are true, else `right`; sizes too. Both Values or both ListValues."""
    if left is right:
        return left
    if isinstance(left, ListValue):
        return _select_list(rows, left, right, batch)
    if isinstance(left, OptionalValue):
        return _select_optional(rows, left, right, batch)
    first, second = batch.rows(left), batch.rows(right)
    if batch.even:
        second = _of_size(second, first, {*left.sizes, *right.sizes}, batch)
    sizes: dict[int, Size] = {}
    for axis in set(left.sizes) | set(right.sizes):
        one, other = left.sizes.get(axis), right.sizes.get(axis)
        if one is not None and one is other:
            sizes[axis] = one
            continue
        lengths = [
            size.lengths if size is not None else tf.fill([batch.size], dimension(tensor, axis + 1))
            for size, tensor in ((one, first), (other, second))
        ]
        rooms = [dimension(first, axis + 1), dimension(second, axis + 1)]
        padded = max(rooms) if all(isinstance(room, int) for room in rooms) else tf.maximum(rooms[0], rooms[1])
        sizes[axis] = Size(tf.where(rows, lengths[0], lengths[1]), padded)
        first, second = pad_axis(first, axis + 1, padded), pad_axis(second, axis + 1, padded)
    tensor = tf.where(batch.against(rows, first.shape.rank - 1), first, second)
    uppers = [left.upper, right.upper]
    upper = max(uppers) if all(isinstance(item, int) for item in uppers) else None
    same_size = left.size if left.size is right.size else None
    return Value(tensor, True, sizes, size=same_size, upper=upper)


def _select_optional(rows: Any, left: OptionalValue, right: OptionalValue, batch: Batch) -> OptionalValue:
    """An optional that only one side has is read only by rows that took that side."""
    if left.components is None or right.components is None:
        return left if right.components is None else right
    pairs = zip(left.components, right.components, strict=True)
    return OptionalValue(tuple(select(rows, one, other, batch) for one, other in pairs))


def _select_list(rows: Any, left: ListValue, right: ListValue, batch: Batch) -> ListValue:
    if left.buffer is None and right.buffer is None:
        return left
    known = left if left.buffer is not None else right
    element = known.buffer.shape[2 if known.batched else 1 :]
    left = left.materialised(element, batch, batched=True)
    right = right.materialised(element, batch, batched=True)
    if not _alike(left, right):
        raise NotConvertible("a choice between lists of different lengths, or of elements that differ in shape")
    mask = at_axis(rows, left.buffer.shape.rank - 2)[None]
    origin = left.origin if left.origin is right.origin else object()
    return replace(left, buffer=tf.where(mask, left.buffer, right.buffer), origin=origin)


def _alike(left: ListValue, right: ListValue) -> bool:
    """Whether both are known to have as many slots, and elements of one shape."""
    lengths = [left.length.static(), right.length.static()]
    same = left.length is right.length or (lengths[0] is not None and lengths[0] == lengths[1])
    if not same or left.size is not right.size or set(left.element_sizes) != set(right.element_sizes):
        return False
    return all(right.element_sizes[axis] is size for axis, size in left.element_sizes.items())


def pack_all(carries: Sequence[Carry], values: Sequence[Any], batch: Batch) -> list[Any]:
    """All tensors of all values, in order."""
    return [tensor for carry, value in zip(carries, values, strict=True) for tensor in carry.pack(value, batch)]


def width(carry: Carry) -> int:
    """How many tensors a carry takes."""
    if isinstance(carry, ListCarry):
        return 2 if carry.uneven or (carry.growing and carry.template.roomy) else 1
    return 1 + len(carry.changing) if isinstance(carry, BatchedCarry) else 1


def unpack_all(carries: Sequence[Carry], tensors: Sequence[Any]) -> list[Any]:
    """The inverse of `pack_all`."""
    values, position = [], 0
    for carry in carries:
        count = width(carry)
        values.append(carry.unpack(tensors[position : position + count]))
        position += count
    return values
