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
from vectorizer.compounds import CompoundList, OptionalValue, select_compounds
from vectorizer.lists import ListValue, alike, select_lists
from vectorizer.values import NotConvertible, Size, Value, dimension, number, pad_axis
from vectorizer.xla_kernels import compiling


class Carry(Protocol):
    """How one value crosses a boundary."""

    @property
    def width(self) -> int:
        """How many tensors it takes."""

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        """The value's tensors."""

    def unpack(self, tensors: Sequence[Any]) -> Any:
        """The value that they stand for."""

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        """Static shapes that hold for these tensors at every crossing."""

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        """`new` for active rows, `old` for the others."""


class KindRaised(Exception):
    """A body handed back a batched value where analysis had expected a shared one; the loop is emitted again.

    `position`: of the variable; None for the loop's predicate.
    """

    def __init__(self, position: int | None) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class ListFacts:
    """What a loop does to a list: `growing`: elements are appended or taken off; `uneven`: by some rows only.

    `varying`: axes of the elements whose size differs from element to element.
    """

    growing: bool = False
    uneven: bool = False
    varying: frozenset[int] = frozenset()

    def join(self, other: ListFacts) -> ListFacts:
        """What covers both."""
        return ListFacts(self.growing or other.growing, self.uneven or other.uneven, self.varying | other.varying)


class ListWidened(Exception):
    """A body did more to a list than was planned; the loop is emitted again."""

    def __init__(self, position: int, facts: ListFacts) -> None:
        super().__init__(position, facts)
        self.position = position
        self.facts = facts


@dataclass(frozen=True)
class SharedCarry:
    """One tensor, the same for all rows that count."""

    position: int
    upper: Any = None
    dynamic: bool = False
    width = 1

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
    """`[B, ...]`; `stable` axes keep their Size, `changing` ones carry their lengths along, `free` ones have none.

    `rooms`: the padded sizes of changing axes where all shapes must be static; a row that needs more fails.
    """

    stable: Mapping[int, Size] = field(default_factory=dict)
    changing: tuple[int, ...] = ()
    size: Size | None = None
    free: tuple[int, ...] = ()
    rooms: Mapping[int, int] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return 1 + len(self.changing)

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
            room: Any = dimension(tensor, axis + 1)
            own = value.sizes[axis].lengths if axis in value.sizes else tf.fill([batch.size], room)
            if axis in self.rooms:
                batch.check(own <= self.rooms[axis])
                own = tf.minimum(own, self.rooms[axis])
                tensor = pad_axis(tensor, axis + 1, self.rooms[axis])
            elif axis not in value.sizes:
                tensor = pad_axis(tensor, axis + 1, max(room, 1) if isinstance(room, int) else tf.maximum(room, 1))
            lengths.append(own)
        return [tensor, *lengths]

    def unpack(self, tensors: Sequence[Any]) -> Value:
        tensor = tensors[0]
        sizes = dict(self.stable)
        for axis, lengths in zip(self.changing, tensors[1:], strict=True):
            sizes[axis] = Size(lengths, dimension(tensor, axis + 1))
        return Value(tensor, True, sizes, size=self.size)

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        shape = tensors[0].shape.as_list()
        for axis in self.changing:
            shape[axis + 1] = self.rooms.get(axis)
        for axis in self.free:
            shape[axis + 1] = None
        return [tf.TensorShape(shape), *(tensor.shape for tensor in tensors[1:])]

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        if new is old or getattr(new, "frozen_from", None) is old:
            return new
        return select(active, new, old, batch)


def carry_changing(
    value: Any,
    axes: Sequence[int],
    batch: Batch,
    stable: Mapping[int, Size] | None = None,
    free: Sequence[int] = (),
) -> BatchedCarry:
    """The carry of a batched value whose size along `axes` isn't the same at every crossing."""
    rooms = {}
    if batch.longest is not None and axes and compiling():
        shape = batch.rows(value).shape
        rooms = {axis: max(batch.longest, shape[axis + 1] or 1) for axis in axes}
    return BatchedCarry(stable or {}, tuple(axes), free=tuple(free), rooms=rooms)


@dataclass(frozen=True)
class ListCarry:
    """A list's buffer and the lengths of its elements where they vary, with what doesn't change of the list.

    `growing`: the number of elements changes; `uneven`: by some rows only, so each row's own length travels along. A
    roomy list keeps its slots, and its length travels along. `fixed`: shapes must stay as they are.
    """

    position: int
    template: ListValue
    growing: bool = False
    uneven: bool = False
    fixed: bool = False

    @property
    def _axes(self) -> list[int]:
        return sorted(self.template.element_lengths)

    @property
    def width(self) -> int:
        return 1 + int(self.uneven or (self.growing and self.template.roomy)) + len(self.template.element_lengths)

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        if self.template.batched:
            value = value.promoted(batch)
        elif value.batched:
            raise KindRaised(self.position)
        self._require_planned(value)
        if self.growing and self.template.roomy:
            batch.check(tf.cast(value.length.tensor, tf.int32) <= self.template.slots)
        elif self.growing and not self.uneven:
            value = value.trimmed()
        if not self.growing or self.template.roomy:
            value = value.grown(self.template.slots)
        value = value.varying(self._axes, batch)
        for axis in self._axes if self.fixed else ():
            room = dimension(self.template.buffer, axis + 2)
            batch.check(tf.reduce_all(value.element_lengths[axis] <= room, 0))
            value = value.padded(axis, room)
        lengths = [value.element_lengths[axis] for axis in self._axes]
        if self.uneven:
            return [value.buffer, tf.cast(batch.rows(value.length), tf.int32), *lengths]
        count = [tf.cast(value.length.tensor, tf.int32)] if self.growing and self.template.roomy else []
        return [value.buffer, *count, *lengths]

    def _require_planned(self, value: ListValue) -> None:
        growing = self.growing or not alike(value, self.template)
        uneven = self.uneven or (growing and value.size is not None)
        same = all(value.element_sizes.get(axis) is size for axis, size in self.template.element_sizes.items())
        varying = set(value.element_lengths) | (set() if same else set(self.template.element_sizes))
        if (growing, uneven) != (self.growing, self.uneven) or not varying <= set(self._axes):
            raise ListWidened(self.position, ListFacts(growing, uneven, frozenset(varying)))

    def unpack(self, tensors: Sequence[Any]) -> ListValue:
        items = replace(self.template, buffer=tensors[0], origin=object())
        lengths = tensors[self.width - len(self._axes) :]
        items = replace(items, element_lengths=dict(zip(self._axes, lengths, strict=True)))
        if not self.growing:
            return items
        slots = self.template.slots if self.template.roomy else tf.shape(tensors[0])[0]
        if not self.uneven:
            return replace(items, slots=slots, length=Value(tensors[1] if self.template.roomy else slots, False))
        size = Size(tensors[1], slots)
        return replace(items, slots=slots, length=number(tensors[1], size), size=size)

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        shape = tensors[0].shape.as_list()
        open_slots = self.growing and not self.template.roomy
        if open_slots:
            shape[0] = None
        for axis in self._axes if not self.fixed else ():
            shape[axis + 2] = None
        own = [[None, *item.shape[1:]] if open_slots and item.shape.rank == 2 else item.shape for item in tensors[1:]]
        return [tf.TensorShape(shape), *map(tf.TensorShape, own)]

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        return new if new.origin is old.origin else select(active, new, old, batch)


@dataclass(frozen=True)
class CompoundCarry:
    """A list of lists or of optionals: each of the lists that it is made of."""

    template: CompoundList
    carries: tuple[ListCarry, ...]

    @property
    def width(self) -> int:
        return sum(carry.width for carry in self.carries)

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        if not isinstance(value, CompoundList) or value.pattern != self.template.pattern:
            raise NotConvertible("a list of lists that differ in kind from step to step")
        return pack_all(self.carries, value.items, batch)

    def unpack(self, tensors: Sequence[Any]) -> CompoundList:
        items = tuple(unpack_all(self.carries, tensors))
        return CompoundList(self.template.pattern, items).of_origin(None)

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        return [shape for carry, part in by_carry(self.carries, tensors) for shape in carry.shapes(part)]

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        return new if new.origin is old.origin else select(active, new, old, batch)


@dataclass(frozen=True)
class UnknownListCarry:
    """A list that nobody has written to, of which nothing but the length is known. It can't be written to inside."""

    template: ListValue
    width = 0

    def pack(self, value: Any, batch: Batch) -> list[Any]:
        if not isinstance(value, ListValue) or value.buffer is not None or not alike(value, self.template):
            raise NotConvertible("a list that a loop makes, whose elements have no shape before it")
        return []

    def unpack(self, tensors: Sequence[Any]) -> ListValue:
        return replace(self.template, origin=object())

    def shapes(self, tensors: Sequence[Any]) -> list[Any]:
        return []

    def mask(self, active: Any, new: Any, old: Any, batch: Batch) -> Any:
        return old


def by_carry(carries: Sequence[Carry], flat: Sequence[Any]) -> list[tuple[Carry, Sequence[Any]]]:
    """Each carry with the tensors that it takes."""
    parts, position = [], 0
    for carry in carries:
        parts.append((carry, flat[position : position + carry.width]))
        position += carry.width
    return parts


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
    if isinstance(left, CompoundList) or isinstance(right, CompoundList):
        return select_compounds(rows, left, right, batch)
    if isinstance(left, ListValue):
        return select_lists(rows, left, right, batch)
    if isinstance(left, OptionalValue):
        return _select_optional(rows, left, right, batch)
    first, second = batch.rows(left), batch.rows(right)
    if first.shape.rank != second.shape.rank:
        raise NotConvertible("a choice between values that differ in rank")
    if batch.even:
        second = _of_size(second, first, {*left.sizes, *right.sizes}, batch)
    sizes: dict[int, Size] = {}
    unequal = [] if batch.even else _unequal(first, second)
    for axis in sorted({*left.sizes, *right.sizes, *unequal}):
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


def _unequal(left: Any, right: Any) -> list[int]:
    """Per-example axes along which two tensors `[B, ...]` aren't known to agree: choosing must not stretch either."""
    pairs = enumerate(zip(left.shape[1:], right.shape[1:], strict=True))
    return [axis for axis, (one, other) in pairs if one is None or one != other]


def _select_optional(rows: Any, left: OptionalValue, right: OptionalValue, batch: Batch) -> OptionalValue:
    """What only one side wraps is read only by rows that took that side."""
    chosen = {**right.alternatives, **left.alternatives}
    for key in left.alternatives.keys() & right.alternatives.keys():
        pairs = zip(left.alternatives[key], right.alternatives[key], strict=True)
        chosen[key] = tuple(select(rows, one, other, batch) for one, other in pairs)
    return OptionalValue(chosen)


def pack_all(carries: Sequence[Carry], values: Sequence[Any], batch: Batch) -> list[Any]:
    """All tensors of all values, in order."""
    return [tensor for carry, value in zip(carries, values, strict=True) for tensor in carry.pack(value, batch)]


def unpack_all(carries: Sequence[Carry], tensors: Sequence[Any]) -> list[Any]:
    """The inverse of `pack_all`."""
    return [carry.unpack(part) for carry, part in by_carry(carries, tensors)]
