"""TensorLists (what TensorArrays are made of) across the batch, as one dense buffer.

The buffer is `[n, B, ...]` if batched, else `[n, ...]`: slot first, so that reading or writing one slot for all
rows is one contiguous slice, while a slot that differs between rows is a gather or a scatter. `n` is the longest
row's number of slots; `length` is each row's own. Whoever writes masks the slot that it writes, never the whole
buffer, so a list carried by a loop needs no mask. A list nobody has written yet and whose element shape isn't known
has no buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.values import NotConvertible, Size, Value, dimension, number, pad_axis, shared


@dataclass(frozen=True, eq=False)
class ListValue:
    """A TensorList. `length` is a per-example or shared int scalar; `size` its Size where it differs between rows.

    `element_sizes` are the Sizes of ragged axes of all elements. `roomy`: the buffer has slots beyond `length`, as many
    as its loop can need, and doesn't grow. Lists of one `origin` are equal in the rows that aren't active: they came of
    the same list by writes, which mask themselves.
    """

    buffer: Any
    batched: bool
    length: Value
    slots: Any  # int or scalar tensor: first dimension of the buffer
    dtype: Any
    size: Size | None = None
    element_sizes: Mapping[int, Size] = field(default_factory=dict)
    roomy: bool = False
    origin: object = field(default_factory=object)

    parts = None

    @property
    def sizes(self) -> Mapping[int, Size]:
        return {}

    @property
    def tensor(self) -> Any:
        raise NotConvertible("a list of tensors used as a tensor")

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
        batched = batched or self.batched
        shape = tf.TensorShape(element_shape)
        if shape.rank is None or not shape.is_fully_defined():
            raise NotConvertible("a list whose elements have no static shape")
        rows = [batch.size] if batched else []
        buffer = tf.zeros([self.slots, *rows, *shape.as_list()], self.dtype)
        static = [self.slots if isinstance(self.slots, int) else None]
        static += [batch.size if isinstance(batch.size, int) else None] if batched else []
        buffer.set_shape([*static, *shape.as_list()])
        return replace(self, buffer=buffer, batched=batched)


def list_from(value: Value, batch: Batch) -> ListValue:
    """The list of a tensor's slices along its first axis."""
    size = value.sizes.get(0)
    buffer = value.tensor
    if value.batched:
        buffer = tf.transpose(buffer, [1, 0, *range(2, buffer.shape.rank)])
    slots = size.padded if size is not None else dimension(buffer, 0)
    length = number(size.lengths, size) if size is not None else shared(tf.cast(slots, tf.int32))
    elements = {axis - 1: own for axis, own in value.sizes.items() if axis > 0}
    return ListValue(buffer, value.batched, length, slots, value.dtype, size, elements)


def stacked(items: ListValue) -> Value:
    """The list as one tensor `[n, ...]` per example."""
    if items.roomy and items.size is None:
        items = replace(items, buffer=items.buffer[: items.length.tensor])
    if not items.batched:
        return Value(items.buffer, False)
    tensor = tf.transpose(items.buffer, [1, 0, *range(2, items.buffer.shape.rank)])
    sizes = {axis + 1: size for axis, size in items.element_sizes.items()}
    if items.size is not None:
        sizes[0] = items.size
    return Value(tensor, True, sizes)


def grown(items: ListValue, slots: Any) -> ListValue:
    """With room for `slots` elements."""
    return replace(items, buffer=pad_axis(items.buffer, 0, slots), slots=slots)


@dataclass(frozen=True, eq=False)
class OptionalValue:
    """What a branch hands to its gradient (`converters/optionals.py`): values, or None for the branch not taken."""

    components: tuple[Any, ...] | None
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
