"""TensorLists (what TensorArrays are made of) across the batch, as one dense buffer.

The buffer is `[n, B, ...]` if batched, else `[n, ...]`: slot first, so that reading or writing one slot for all
rows is one contiguous slice, while a slot that differs between rows is a gather or a scatter. `n` is the longest
row's number of slots; `length` is each row's own. Whoever writes masks the slot that it writes, never the whole
buffer, so a list carried by a loop needs no mask. A list nobody has written yet and whose element shape isn't known
has no buffer.

An element's axis that differs in size between rows is either the same for all elements (`element_sizes`) or differs
between elements too: then the list has a second buffer `[n, B]` of lengths for that axis (`element_lengths`).

Lists of lists and of optionals are in `compounds.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.values import NotConvertible, Size, Value, at_axis, dimension, number, pad_axis, shared
from vectorizer.xla_kernels import compiling


@dataclass(frozen=True, eq=False)
class ListValue:
    """A TensorList. `length` is a per-example or shared int scalar; `size` its Size where it differs between rows.

    `roomy`: the buffer has slots beyond `length`, as many as its loop can need, and doesn't grow. Lists of one `origin`
    are equal in the rows that aren't active: they came of the same list by writes, which mask themselves.
    """

    buffer: Any
    batched: bool
    length: Value
    slots: Any  # int or scalar tensor: first dimension of the buffer
    dtype: Any
    size: Size | None = None
    element_sizes: Mapping[int, Size] = field(default_factory=dict)
    element_lengths: Mapping[int, Any] = field(default_factory=dict)
    roomy: bool = False
    origin: object = field(default_factory=object)

    parts = None

    @property
    def sizes(self) -> Mapping[int, Size]:
        return {}

    @property
    def tensor(self) -> Any:
        raise NotConvertible("a list of tensors used as a tensor")

    @property
    def element_rank(self) -> int:
        """Rank of one element; the buffer must be there."""
        return int(self.buffer.shape.rank) - (2 if self.batched else 1)

    def with_buffer(self, buffer: Any) -> ListValue:
        """The same list with other content."""
        return replace(self, buffer=buffer)

    def promoted(self, batch: Batch) -> ListValue:
        """With a row for each example."""
        if self.batched or self.buffer is None:
            return replace(self, batched=True) if self.buffer is None else self
        inner = tf.shape(self.buffer)
        shape = tf.concat([inner[:1], [batch.size], inner[1:]], 0)
        buffer = tf.broadcast_to(tf.expand_dims(self.buffer, 1), shape)
        static = [
            self.buffer.shape[0],
            batch.size if isinstance(batch.size, int) else None,
            *self.buffer.shape[1:],
        ]
        buffer.set_shape(static)
        return replace(self, buffer=buffer, batched=True)

    def materialised(self, element_shape: Any, batch: Batch, *, batched: bool) -> ListValue:
        """With a buffer of zeros for elements of that static shape, if it has none yet."""
        if self.buffer is not None:
            return self.promoted(batch) if batched and not self.batched else self
        shape = tf.TensorShape(element_shape)
        if shape.rank is None or not shape.is_fully_defined():
            raise NotConvertible("a list whose elements have no static shape")
        return self._of_zeros(shape.as_list(), batch, batched=batched or self.batched)

    def open(self, shape: Sequence[Any], axes: Iterable[int], batch: Batch, sizes: Mapping[int, Size]) -> ListValue:
        """As `materialised`, for elements `shape` (ints or scalar tensors) of which some axes differ between rows.

        Those in `sizes` have that Size in every element, the other `axes` carry a length for each element.
        """
        items = self._of_zeros(shape, batch, batched=True)
        count = [items.slots, batch.size]
        lengths = {axis: tf.zeros(count, tf.int32) for axis in axes}
        return replace(items, element_sizes=dict(sizes), element_lengths=lengths)

    def _of_zeros(self, shape: Sequence[Any], batch: Batch, *, batched: bool) -> ListValue:
        rows = [batch.size] if batched else []
        buffer = tf.zeros([self.slots, *rows, *shape], self.dtype)
        buffer.set_shape([size if isinstance(size, int) else None for size in (self.slots, *rows, *shape)])
        return replace(self, buffer=buffer, batched=batched)

    def varying(self, axes: Iterable[int], batch: Batch) -> ListValue:
        """With a length for each element along the given axes of the elements."""
        missing = [axis for axis in axes if axis not in self.element_lengths]
        if not missing:
            return self
        items = self.promoted(batch)
        sizes, lengths = dict(items.element_sizes), dict(items.element_lengths)
        for axis in missing:
            stable = sizes.pop(axis, None)
            own = dimension(items.buffer, axis + 2) if stable is None else stable.lengths
            lengths[axis] = tf.broadcast_to(own, [items.slots, batch.size])
        return replace(items, element_sizes=sizes, element_lengths=lengths)

    def padded(self, axis: int, room: Any) -> ListValue:
        """With elements of that size along one of their axes; shorter ones must have lengths."""
        return replace(self, buffer=pad_axis(self.buffer, axis + (2 if self.batched else 1), room))

    def grown(self, slots: Any) -> ListValue:
        """With room for `slots` elements, and no more."""
        if slots is self.slots or (isinstance(slots, int) and slots == self.slots):
            return self
        items = replace(self, slots=slots)
        if self.size is not None:
            items = items.of_lengths(self.size.lengths)
        if self.buffer is None:
            return items
        lengths = {axis: pad_axis(own, 0, slots) for axis, own in self.element_lengths.items()}
        return replace(items, buffer=pad_axis(self.buffer, 0, slots), element_lengths=lengths)

    def of_lengths(self, lengths: Any) -> ListValue:
        """With a length [B] for each row, none above the number of slots."""
        size = Size(lengths, self.slots)
        return replace(self, size=size, length=number(lengths, size))

    def never_empty(self) -> ListValue:
        """With a slot that can be read and written, whatever is in it, even if the list has no element."""
        if self.size is not None or self.roomy or (isinstance(self.slots, int) and self.slots > 0):
            return self
        return replace(self.grown(1 if isinstance(self.slots, int) else tf.maximum(self.slots, 1)), roomy=True)

    def of_length(self, length: int) -> ListValue:
        """Of that many elements, as is known."""
        known = replace(self, size=None, roomy=False).grown(length)
        return replace(known, length=shared(tf.constant(length)))

    def trimmed(self) -> ListValue:
        """Without slots that no row needs."""
        if not self.roomy:
            return self
        length = self.length.tensor
        slots = length if self.size is None else tf.reduce_max(tf.concat([length, [1]], 0))
        return replace(self.grown(tf.cast(slots, tf.int32)), roomy=False)

    def exact(self, batch: Batch) -> ListValue:
        """With no more slots than elements, unless each row has its own length."""
        if not self.roomy or self.size is not None:
            return self
        if not compiling():
            return self.trimmed()
        return self.promoted(batch).of_lengths(tf.broadcast_to(tf.cast(self.length.tensor, tf.int32), [batch.size]))

    def of_origin(self, other: Any) -> ListValue:
        """Known to equal `other` in the rows that aren't active; None: known of no list."""
        return replace(self, origin=object() if other is None else other.origin)


def list_from(value: Value, batch: Batch) -> ListValue:
    """The list of a tensor's slices along its first axis."""
    size = value.sizes.get(0)
    buffer = value.tensor
    if value.batched:
        buffer = slots_first(buffer)
    slots = size.padded if size is not None else dimension(buffer, 0)
    length = number(size.lengths, size) if size is not None else shared(tf.cast(slots, tf.int32))
    elements = {axis - 1: own for axis, own in value.sizes.items() if axis > 0}
    return ListValue(buffer, value.batched, length, slots, value.dtype, size, elements)


def stacked(items: ListValue, batch: Batch) -> Value:
    """The list as one tensor `[n, ...]` per example; a row whose elements differ in shape fails."""
    items = items.exact(batch)
    if not items.batched:
        return Value(items.buffer, False)
    sizes = {axis + 1: size for axis, size in items.element_sizes.items()}
    for axis, lengths in items.element_lengths.items():
        sizes[axis + 1] = Size(_common_length(items, lengths, batch), dimension(items.buffer, axis + 2))
    if items.size is not None:
        sizes[0] = items.size
    return Value(slots_first(items.buffer), True, sizes)


def _common_length(items: ListValue, lengths: Any, batch: Batch) -> Any:
    """The one length [B] that a row's elements `[n, B]` share."""
    present = tf.range(items.slots)[:, None] < tf.cast(items.length.tensor, tf.int32)
    longest = tf.reduce_max(tf.concat([tf.where(present, lengths, 0), tf.zeros([1, batch.size], tf.int32)], 0), 0)
    batch.check(tf.reduce_all(tf.logical_or(lengths == longest, tf.logical_not(present)), 0))
    return longest


def slots_first(tensor: Any) -> Any:
    """`[B, n, ...]` as `[n, B, ...]`, and back."""
    return tf.transpose(tensor, [1, 0, *range(2, tensor.shape.rank)])


def with_element(items: ListValue, item: Value, batch: Batch, *, batched: bool) -> ListValue:
    """The list such that `item` fits into a slot; `batched` if it needs a row for each example."""
    open_axes = {axis for axis, size in enumerate(item.shape) if size is None}
    if items.buffer is None:
        if not open_axes:
            return items.materialised(item.shape, batch, batched=batched)
        shape = [dimension(item.tensor, axis + int(item.batched)) for axis in range(item.rank)]
        return items.open(shape, open_axes - set(item.sizes), batch, item.sizes)
    if items.element_rank != item.rank:
        raise NotConvertible("a list whose elements differ in rank")
    items = items.promoted(batch) if batched or open_axes else items
    first = 2 if items.batched else 1
    for axis in range(item.rank):
        room, own = items.buffer.shape[axis + first], item.tensor.shape[axis + int(item.batched)]
        if axis in items.element_sizes and items.element_sizes[axis] is item.sizes.get(axis):
            continue
        if axis in items.element_lengths or axis in items.element_sizes or axis in open_axes or room != own:
            items = items.varying([axis], batch)
            items = items.padded(axis, _larger(items.buffer, axis + 2, item.tensor, axis + int(item.batched)))
    return items


def _larger(one: Any, axis: int, other: Any, other_axis: int) -> Any:
    sizes = [dimension(one, axis), dimension(other, other_axis)]
    return max(sizes) if all(isinstance(size, int) for size in sizes) else tf.maximum(*sizes)


def element_rows(items: ListValue, item: Value, batch: Batch) -> tuple[Any, dict[int, Any]]:
    """An item `[B, ...]` as large as the list's elements, and its lengths [B] along the axes that vary."""
    tensor = batch.rows(item)
    lengths = {}
    for axis in items.element_lengths:
        own = item.sizes.get(axis)
        lengths[axis] = own.lengths if own is not None else tf.fill([batch.size], dimension(tensor, axis + 1))
        tensor = pad_axis(tensor, axis + 1, dimension(items.buffer, axis + 2))
    return tensor, lengths


def alike(left: ListValue, right: ListValue) -> bool:
    """Whether both are known to have as many slots."""
    lengths = [left.length.static(), right.length.static()]
    same = left.length is right.length or (lengths[0] is not None and lengths[0] == lengths[1])
    return same and left.size is right.size


def select_lists(rows: Any, left: ListValue, right: ListValue, batch: Batch) -> ListValue:
    """Each row's own of two lists, which may differ in length and in the sizes of their elements."""
    origin = left.origin if left.origin is right.origin else object()
    if not alike(left, right):
        left, right = _of_one_length(rows, left, right, batch)
    if left.buffer is None and right.buffer is None:
        return replace(left, origin=origin)
    left, right = _of_one_shape(left, right, batch)
    mask = at_axis(rows, left.element_rank)[None]
    lengths = {
        axis: tf.where(rows[None], own, right.element_lengths[axis]) for axis, own in left.element_lengths.items()
    }
    buffer = tf.where(mask, left.buffer, right.buffer)
    return replace(left, buffer=buffer, element_lengths=lengths, origin=origin)


def list_of_zeros(items: ListValue) -> ListValue:
    """As long, and of elements as large."""
    buffer = None if items.buffer is None else tf.zeros_like(items.buffer)
    return replace(items, buffer=buffer, origin=object())


def sum_of_lists(left: ListValue, right: ListValue, batch: Batch) -> ListValue:
    """Element by element; a list nobody has written to is one of zeros."""
    if not alike(left, right):
        lengths = [batch.rows(items.length) for items in (left, right)]
        batch.check(tf.equal(*(tf.cast(length, tf.int32) for length in lengths)))
        left, right = _of_one_length(tf.ones([batch.size], tf.bool), left, right, batch)
    if left.buffer is None or right.buffer is None:
        return right if left.buffer is None else left
    left, right = _of_one_shape(left, right, batch)
    return replace(left, buffer=left.buffer + right.buffer, origin=object())


def _of_one_length(rows: Any, left: ListValue, right: ListValue, batch: Batch) -> tuple[ListValue, ListValue]:
    left, right = left.never_empty(), right.never_empty()
    if left.slots is right.slots:
        slots = left.slots
    elif isinstance(left.slots, int) and isinstance(right.slots, int):
        slots = max(left.slots, right.slots)
    else:
        slots = tf.maximum(left.slots, right.slots)
    lengths = [tf.cast(batch.rows(items.length), tf.int32) for items in (left, right)]
    chosen = tf.where(rows, *lengths)
    left, right = (
        replace(items.grown(slots), roomy=left.roomy or right.roomy).of_lengths(chosen) for items in (left, right)
    )
    return left, right


def _of_one_shape(left: ListValue, right: ListValue, batch: Batch) -> tuple[ListValue, ListValue]:
    left, right = _materialised_like(left, right, batch), _materialised_like(right, left, batch)
    left, right = left.promoted(batch), right.promoted(batch)
    if left.element_rank != right.element_rank:
        raise NotConvertible("a choice between lists of elements that differ in rank")
    for axis in range(left.element_rank):
        stable = axis in left.element_sizes and left.element_sizes.get(axis) is right.element_sizes.get(axis)
        known = left.buffer.shape[axis + 2], right.buffer.shape[axis + 2]
        plain = all(axis not in items.element_sizes and axis not in items.element_lengths for items in (left, right))
        if stable or (plain and known[0] is not None and known[0] == known[1]):
            continue
        left, right = left.varying([axis], batch), right.varying([axis], batch)
        room = _larger(left.buffer, axis + 2, right.buffer, axis + 2)
        left, right = left.padded(axis, room), right.padded(axis, room)
    return left, right


def _materialised_like(items: ListValue, other: ListValue, batch: Batch) -> ListValue:
    if items.buffer is not None:
        return items
    first = 2 if other.batched else 1
    shape = [dimension(other.buffer, axis + first) for axis in range(other.element_rank)]
    if not (other.element_sizes or other.element_lengths):
        return items.materialised(other.buffer.shape[first:], batch, batched=True)
    return items.open(shape, other.element_lengths, batch, other.element_sizes)
