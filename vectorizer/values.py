"""What a value of the per-example program is once there is a whole batch.

* *shared*: one tensor, the same for every row. (Inside a loop whose rows stop at different times a *uniform*
  value, such as the counter, is held the same way: equal for all rows that still run.)
* *batched*: a tensor `[B, ...]`, row i first.
* *ragged*: batched, and some per-example axes have a `Size`: lengths `[B]` and a common padded size.
  Content beyond a row's length is unspecified; whoever reads across such an axis masks it.
* *list*: a TensorList, as one dense buffer `[n, B, ...]` (see `lists.py`).

Vectors such as `tf.shape(x)` are tracked element by element (`parts`), so that `tf.shape(x)[0]` is a per-
example number that knows which Size it came from and `tf.zeros([tf.shape(x)[0], 3])` is as ragged as x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf


class NotConvertible(Exception):
    """Raised by a converter for a combination of operands that it has no rule for; the op is looped over
    rows.
    """


@dataclass(frozen=True, eq=False)
class Size:
    """One variable dimension across the batch: `lengths` int32 [B], and the size (>= 1) all rows are padded
    to.

    Tensors whose axes share one Size object are known to agree in that axis, row by row, padding included.
    """

    lengths: Any
    padded: Any  # int where static, else an int32 scalar tensor


@dataclass(frozen=True, eq=False)
class Value:
    """A shared or batched tensor. `tensor` has a leading batch axis exactly if `batched`.

    `sizes` maps per-example axes to Sizes. `size` is set on a per-example number that equals a Size's
    lengths; `upper` is a bound on a per-example integer (int or scalar tensor), where one is known.
    `frozen_from` is the Value that this one equals in every row that isn't active (a loop needs no mask for
    it). `vectors` has the rows of a matrix that was stacked from vectors tracked element by element. `known` is the
    array that a constant holds, and its dtype: it becomes a tensor only where one is asked for.
    `inserted` is (axis, the Value without that axis) where an axis of size 1 was inserted: who removes it again, such
    as a matrix times one vector, gets that Value, and nothing is computed.
    """

    dense: Any
    batched: bool
    sizes: Mapping[int, Size] = field(default_factory=dict)
    parts: tuple[Value, ...] | None = None
    size: Size | None = None
    upper: Any = None
    frozen_from: Any = None
    vectors: tuple[Value, ...] | None = None
    known: tuple[np.ndarray[Any, Any], Any] | None = None
    inserted: tuple[int, Value] | None = None
    _stacked: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def tensor(self) -> Any:
        """The tensor; what is a constant, or a vector tracked by its parts, is made here, once in each graph."""
        if self.dense is not None:
            return self.dense
        place = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if place not in self._stacked:
            self._stacked[place] = self._stack() if self.known is None else tf.constant(*self.known)
        return self._stacked[place]

    def _stack(self) -> Any:
        parts = self.parts or ()
        if not self.batched:
            known = self.static()
            dtype = parts[0].tensor.dtype
            return tf.constant(known, dtype) if known is not None else tf.stack([part.tensor for part in parts])
        count = next(tf.shape(part.tensor)[0] for part in parts if part.batched)
        return tf.stack([as_rows(part, count) for part in parts], axis=1)

    @property
    def dtype(self) -> Any:
        if self.known is not None:
            return self.known[1]
        return self.parts[0].dtype if self.dense is None and self.parts else self.tensor.dtype

    @property
    def shape(self) -> list[int | None]:
        """Static per-example shape; None where unknown or ragged."""
        if self.known is not None:
            return list(self.known[0].shape)
        if self.dense is None and self.parts is not None:
            return [len(self.parts)]
        full = self.tensor.shape
        if full.rank is None:
            raise NotConvertible("an operand's rank isn't known")
        shape = full.as_list()[1:] if self.batched else full.as_list()
        return [None if axis in self.sizes else size for axis, size in enumerate(shape)]

    @property
    def rank(self) -> int:
        """Per-example rank."""
        return len(self.shape)

    @property
    def ragged(self) -> bool:
        return bool(self.sizes)

    def static(self) -> np.ndarray[Any, Any] | None:
        """The value as numpy where it is known while the graph is being built, else None."""
        if self.batched:
            return None
        if self.known is not None:
            return self.known[0]
        if self.dense is None:
            known = [part.static() for part in self.parts or ()]
            return None if any(item is None for item in known) else np.array(known)
        if self.dense.dtype in (tf.resource, tf.variant):
            return None
        value: np.ndarray[Any, Any] | None = tf.get_static_value(self.dense)
        return value

    def elements(self) -> tuple[Value, ...]:
        """A vector of static length as its scalars. Shared parts stay shared."""
        if self.parts is not None:
            return self.parts
        count = self.shape[0]
        if self.rank != 1 or count is None:
            raise NotConvertible("a shape vector of unknown length")
        known = self.static()
        if known is not None:
            return tuple(constant(item, self.dtype) for item in known)
        if self.batched:
            return tuple(batched(item) for item in tf.unstack(self.tensor, num=count, axis=1))
        return tuple(shared(item) for item in tf.unstack(self.tensor, num=count))


def shared(tensor: Any) -> Value:
    """A value that is the same for every row."""
    return Value(tensor, False)


def constant(known: Any, dtype: Any) -> Value:
    """A shared value that is known when the program is built."""
    return Value(None, False, known=(np.asarray(known), dtype))


def batched(tensor: Any, sizes: Mapping[int, Size] | None = None) -> Value:
    """A value `[B, ...]`; `sizes` are keyed by per-example axis."""
    return Value(tensor, True, dict(sizes or {}))


def number(lengths: Any, size: Size | None = None, upper: Any = None) -> Value:
    """A per-example integer; `size` where it equals the lengths of a variable dimension."""
    return Value(lengths, True, size=size, upper=size.padded if size is not None and upper is None else upper)


def insert_axis(value: Value, axis: int) -> Value:
    """An axis of size 1 at per-example `axis`."""
    tensor = tf.expand_dims(value.tensor, axis + value.batched)
    sizes = {own + (own >= axis): size for own, size in value.sizes.items()}
    return Value(tensor, value.batched, sizes, inserted=(axis, value))


def remove_axis(value: Value, axis: int) -> Value:
    """Without per-example `axis`, which is of size 1."""
    if value.inserted is not None and value.inserted[0] == axis:
        return value.inserted[1]
    tensor = tf.squeeze(value.tensor, [axis + value.batched])
    return Value(tensor, value.batched, {own - (own > axis): size for own, size in value.sizes.items()})


def vector(parts: Sequence[Value], dtype: Any = None) -> Value:
    """A vector given by its scalars: shared if all are, else tracked one by one. `dtype` is for none."""
    if not parts:
        return shared(tf.zeros([0], dtype))
    if any(part.batched for part in parts):
        return Value(None, True, parts=tuple(parts))
    return Value(None, False, parts=tuple(parts))


def as_rows(value: Value, count: Any) -> Any:
    """The tensor `[B, ...]` of a value; a shared one is repeated for `count` rows."""
    if value.batched:
        return value.tensor
    tensor = value.tensor
    if tensor.shape.rank is None:
        raise NotConvertible("an operand's rank isn't known")
    return (
        tf.broadcast_to(tensor, tf.concat([[count], tf.shape(tensor)], 0))
        if _dynamic(tensor, count)
        else (tf.broadcast_to(tensor, [count, *tensor.shape.as_list()]))
    )


def _dynamic(tensor: Any, count: Any) -> bool:
    return not isinstance(count, int) or not tensor.shape.is_fully_defined()


def dimension(tensor: Any, axis: int) -> Any:
    """Size of an axis: int where static, else a scalar tensor."""
    static = tensor.shape[axis]
    return static if static is not None else tf.shape(tensor)[axis]


def negated(flags: Any) -> Any:
    """Logical not, as a comparison: TensorFlow's graph optimizer makes `x <= y` of `not x > y`, wrong for NaN."""
    return tf.equal(flags, False)


def at_axis(row: Any, rank: int, axis: int = 0) -> Any:
    """Reshape `[B]` (or `[B, P]` put at per-example `axis`) to broadcast against `[B, ...]` of per-example
    `rank`.
    """
    trailing = rank - axis - (row.shape.rank - 1)
    if axis == 0 and row.shape.rank == 1 and not tf.executing_eagerly():
        return row if trailing == 0 else tf.reshape(row, [-1, *([1] * trailing)])
    index = (slice(None), *([None] * axis), *([slice(None)] * (row.shape.rank - 1)), *([None] * trailing))
    return row[index]


def size_mask(size: Size, rank: int, axis: int) -> Any:
    """Bool mask, true within each row's length along `axis`, broadcastable to `[B, ...]` of per-example
    `rank`.
    """
    mask = tf.range(size.padded)[None, :] < size.lengths[:, None]
    return at_axis(mask, rank, axis)


def fill_padding(value: Value, axes: Sequence[int], fill: Any) -> Any:
    """The batched tensor with its padding along the given ragged axes set to `fill`."""
    tensor = value.tensor
    for axis in axes:
        if axis in value.sizes:
            mask = size_mask(value.sizes[axis], value.rank, axis)
            tensor = tf.where(mask, tensor, tf.cast(fill, tensor.dtype) if not isinstance(fill, str) else fill)
    return tensor


def pad_axis(tensor: Any, axis: int, padded: Any) -> Any:
    """Bring an axis of a dense tensor (batch axis included in the count) to size `padded`: cut or repeat the
    end.
    """
    current = dimension(tensor, axis)
    if isinstance(current, int) and isinstance(padded, int) and current == padded:
        return tensor
    if current is padded:
        return tensor
    if isinstance(current, int) and isinstance(padded, int):
        if current > padded:
            index = [slice(None)] * axis + [slice(0, padded)]
            return tensor[tuple(index)]
        pads = [[0, 0]] * tensor.shape.rank
        pads[axis] = [0, padded - current]
        return tf.pad(tensor, pads, constant_values=_neutral(tensor))
    kept = tf.minimum(current, padded)
    index = [slice(None)] * axis + [slice(0, kept)]
    rank = tensor.shape.rank
    pads = tf.scatter_nd([[axis, 1]], [padded - kept], [rank, 2])
    padded_tensor = tf.pad(tensor[tuple(index)], pads, constant_values=_neutral(tensor))
    shape = tensor.shape.as_list()
    shape[axis] = padded if isinstance(padded, int) else None
    padded_tensor.set_shape(shape)
    return padded_tensor


def _neutral(tensor: Any) -> Any:
    if tensor.dtype == tf.string:
        return ""
    return False if tensor.dtype == tf.bool else tf.zeros([], tensor.dtype)
