"""Lists whose elements aren't tensors: lists of lists and of optionals, as TensorFlow's gradients of nested loops and
of branches in loops make them.

A compound element is taken apart into values, of which each goes into a list of its own. A list becomes its stacked
buffer (and the lengths of its elements), an optional the values that it wraps; `Pattern` says how to put them together
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.lists import ListValue, alike, list_from, select_lists, slots_first
from vectorizer.values import NotConvertible, Size, Value


@dataclass(frozen=True, eq=False)
class OptionalValue:
    """What a branch hands to its gradient (`converters/optionals.py`): the values that it wraps, by what they are.

    TensorFlow lets branches share an optional although each wraps something else; only that branch's gradient reads
    it. So there may be several `alternatives`; of a kind that two branches wrap, each row has its own. None at all: the
    branch wrapped nothing.
    """

    alternatives: Mapping[tuple[str, ...], tuple[Any, ...]]
    batched: bool = True

    parts = None
    size = None
    frozen_from = None

    @property
    def sizes(self) -> Mapping[int, Size]:
        return {}

    @property
    def tensor(self) -> Any:
        raise NotConvertible("an optional used as a tensor")


def wrap(values: Sequence[Any]) -> OptionalValue:
    """An optional of these values."""
    return OptionalValue({tuple(map(_kind_of, values)): tuple(values)})


def _kind_of(value: Any) -> str:
    if isinstance(value, ListValue):
        rank = "" if value.buffer is None else f"of rank {value.element_rank}"
        return f"list of {value.dtype.name} {rank}"
    if isinstance(value, CompoundList):
        return f"list of {value.pattern}"
    if isinstance(value, OptionalValue):
        return "optional"
    return f"{value.dtype.name} of rank {value.rank}"


def unwrap(optional: OptionalValue, types: Sequence[Any], ranks: Sequence[int | None]) -> tuple[Any, ...]:
    """The values of these types and ranks (None: not known) that an optional wraps."""
    fitting = [
        values
        for values in optional.alternatives.values()
        if len(values) == len(types) and all(map(_fits, values, types, ranks))
    ]
    if len(fitting) != 1:
        count = "no" if not fitting else "more than one"
        raise NotConvertible(f"an optional that has {count} value of the kind that is read, in any branch")
    return fitting[0]


def _fits(value: Any, dtype: Any, rank: int | None) -> bool:
    if is_compound(value):
        return bool(dtype == tf.variant)
    return bool(value.dtype == dtype) and rank in (None, value.rank)


@dataclass(frozen=True)
class Pattern:
    """How an element is made of values: one value, an optional of `parts`, a list, or a list of compound elements.

    `axes` are those axes of a list's elements that vary from element to element.
    """

    kind: str
    parts: tuple[Pattern, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()
    dtype: Any = None
    axes: tuple[int, ...] = ()
    element: Pattern | None = None


@dataclass(frozen=True, eq=False)
class CompoundList:
    """A list of compound elements: one list for each value that an element is made of, all of one length."""

    pattern: Pattern
    items: tuple[ListValue, ...]

    parts = None
    batched = True
    dtype = tf.variant

    @property
    def sizes(self) -> Mapping[int, Size]:
        return {}

    @property
    def tensor(self) -> Any:
        raise NotConvertible("a list of tensors used as a tensor")

    @property
    def length(self) -> Value:
        return self.items[0].length

    @property
    def size(self) -> Size | None:
        return self.items[0].size

    @property
    def slots(self) -> Any:
        return self.items[0].slots

    @property
    def roomy(self) -> bool:
        return self.items[0].roomy

    @property
    def origin(self) -> object:
        return self.items[0].origin

    def promoted(self, batch: Batch) -> CompoundList:
        """With a row for each example."""
        return self.each(lambda items: items.promoted(batch))

    def each(self, change: Callable[[ListValue], ListValue]) -> CompoundList:
        """The same change made to every list."""
        return CompoundList(self.pattern, tuple(change(items) for items in self.items))

    def trimmed(self) -> CompoundList:
        """Without slots that no row needs."""
        return self.each(lambda items: items.trimmed())

    def of_length(self, length: int) -> CompoundList:
        """Of that many elements, as is known."""
        return self.each(lambda items: items.of_length(length))

    def of_origin(self, other: Any) -> CompoundList:
        """Known to equal `other` in the rows that aren't active; None: known of no list."""
        if other is None:
            origin = object()
            return self.each(lambda items: replace(items, origin=origin))
        return self.each(lambda items: items.of_origin(other))


def is_compound(item: Any) -> bool:
    """Whether this element must be taken apart to be kept in a list."""
    return isinstance(item, ListValue | OptionalValue | CompoundList)


def take_apart(item: Any, batch: Batch) -> tuple[Pattern, list[Value]]:
    """The values that an element is made of."""
    if isinstance(item, OptionalValue):
        keys = tuple(sorted(item.alternatives))
        both = [take_apart(part, batch) for key in keys for part in item.alternatives[key]]
        if not both:
            raise NotConvertible("an optional that has no value in any branch is kept in a list")
        pattern = Pattern("optional", tuple(one for one, _ in both), keys)
        return pattern, [value for _, values in both for value in values]
    if isinstance(item, CompoundList):
        both = [take_apart(items, batch) for items in item.items]
        parts = tuple(one for one, _ in both)
        return Pattern("compound", parts, element=item.pattern), [value for _, values in both for value in values]
    if isinstance(item, ListValue):
        return _list_apart(item, batch)
    return Pattern("value"), [item]


def _list_apart(items: ListValue, batch: Batch) -> tuple[Pattern, list[Value]]:
    if items.buffer is None:
        raise NotConvertible("a list that nobody has written to is kept in a list")
    items = items.varying(items.element_sizes, batch).promoted(batch).exact(batch)
    own = {} if items.size is None else {0: items.size}
    axes = tuple(sorted(items.element_lengths))
    values = [Value(slots_first(items.buffer), True, own)]
    values += [Value(tf.transpose(items.element_lengths[axis]), True, own) for axis in axes]
    return Pattern("list", dtype=items.dtype, axes=axes), values


def put_together(pattern: Pattern, values: Iterator[Value], batch: Batch) -> Any:
    """The element that the values were taken from."""
    if pattern.kind == "optional":
        parts = iter(pattern.parts)
        return OptionalValue(
            {key: tuple(put_together(next(parts), values, batch) for _ in key) for key in pattern.alternatives}
        )
    if pattern.kind == "compound":
        assert pattern.element is not None
        return CompoundList(pattern.element, tuple(put_together(part, values, batch) for part in pattern.parts))
    if pattern.kind == "value":
        return next(values)
    content = next(values)
    sizes = {axis: size for axis, size in content.sizes.items() if axis - 1 not in pattern.axes}
    items = list_from(Value(content.tensor, True, sizes), batch)
    if items.size is None:
        items = items.of_lengths(tf.fill([batch.size], items.slots))
    lengths = {axis: tf.transpose(next(values).tensor) for axis in pattern.axes}
    return replace(items, element_lengths=lengths)


def as_compound(items: Any, pattern: Pattern, dtypes: Sequence[Any]) -> CompoundList:
    """A list nobody has written to as one of compound elements."""
    if isinstance(items, CompoundList):
        if items.pattern != pattern:
            raise NotConvertible("a list of lists, or of what branches hand to their gradients, that differ in kind")
        return items
    if items.buffer is not None:
        raise NotConvertible("a list of both tensors and lists")
    return CompoundList(pattern, tuple(replace(items, dtype=dtype) for dtype in dtypes))


def select_compounds(rows: Any, left: Any, right: Any, batch: Batch) -> CompoundList:
    """Each row's own of two lists of compound elements, of which one may be empty yet."""
    known = left if isinstance(left, CompoundList) else right
    dtypes = [items.dtype for items in known.items]
    left, right = (as_compound(items, known.pattern, dtypes) for items in (left, right))
    pairs = zip(left.items, right.items, strict=True)
    chosen = [select_lists(rows, one, other, batch) for one, other in pairs]
    return CompoundList(known.pattern, _of_one_size(chosen))


def _of_one_size(lists: Sequence[ListValue]) -> tuple[ListValue, ...]:
    """Lists chosen row by row in the same way have the same lengths."""
    first = lists[0]
    return tuple(
        items if alike(items, first) else replace(items, size=first.size, length=first.length) for items in lists
    )
