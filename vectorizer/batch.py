"""The batch being computed: how many rows, which of them still count, and which have failed so far."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer.effects import Randomness
from vectorizer.values import NotConvertible, Size, Value, as_rows, at_axis, number, size_mask

_LARGEST_SIZE = 2**24  # elements; a bound above that is one of a counter and says nothing of a size


class Batch:
    """`size` is an int where static, else a scalar tensor.

    `active` (bool [B], or None for all) marks rows whose values matter here: in a loop those that still run,
    in a branch those that took it. `check` records errors of active rows in `ok`; nothing raises.
    `bounded_by` is (id of the counter's tensor, id of the Size) in a loop `while counter < size`. `longest`
    bounds sizes born inside the program where all shapes must be static: a row that needs more fails. `even`:
    dimensions of unknown size that have no Size are as large in all rows; rows that would differ in them fail. `real`
    (an int or scalar tensor, or None for all) is how many rows, from the front, are examples; those behind only fill
    the batch up, and nothing that the outside sees may be done for them. `randomness` is how stateful ops draw.
    """

    def __init__(
        self,
        size: Any,
        *,
        active: Any = None,
        ok: Any = None,
        longest: int | None = None,
        bounded_by: Any = None,
        even: bool = False,
        real: Any = None,
        randomness: Randomness = "error",
    ) -> None:
        self.size = size
        self.active = active
        self.longest = longest
        self.bounded_by = bounded_by
        self.even = even
        self.real = real
        self.randomness = randomness
        self._ok = ok
        self._placed: dict[tuple[int, int], tuple[Any, Any]] = {}

    @property
    def ok(self) -> Any:
        """Bool [B]: false for rows that would have raised."""
        if self._ok is None:
            self._ok = tf.ones([self.size], tf.bool)
        return self._ok

    @property
    def checked(self) -> bool:
        """Whether any check was emitted."""
        return self._ok is not None

    def check(self, good: Any) -> None:
        """Fail the active rows where `good` (bool, [B] or scalar) is false."""
        if good.shape.rank == 0:
            good = tf.broadcast_to(good, [self.size])
        if self.active is not None:
            good = tf.logical_or(good, tf.logical_not(self.active))
        self._ok = good if self._ok is None else tf.logical_and(self._ok, good)

    def fail_where(self, bad: Any, value: Value) -> None:
        """Fail the rows where `bad`, one flag for each element of `value`, holds for any that isn't padding."""
        for axis, size in value.sizes.items():
            bad = tf.logical_and(bad, size_mask(size, value.rank, axis))
        self.check(tf.logical_not(any_per_row(bad, value.batched)))

    def replace_ok(self, ok: Any) -> None:
        """Take over `ok` from a loop or branch that carried it."""
        self._ok = ok

    def within(self, active: Any, ok: Any = None, bounded_by: Any = None) -> Batch:
        """The same rows inside a loop or branch, of which only `active` count. Starts with its own `ok`."""
        return Batch(
            self.size,
            active=active,
            ok=ok,
            longest=self.longest,
            bounded_by=bounded_by,
            even=self.even,
            real=self.real,
            randomness=self.randomness,
        )

    def counted(self) -> Any:
        """Bool [B]: the rows that are examples and active here."""
        real = self.size if self.real is None else self.real
        return self.and_active(tf.range(self.size) < real)

    def and_active(self, rows: Any) -> Any:
        """`rows` (bool [B]) of those that are active here."""
        return rows if self.active is None else tf.logical_and(rows, self.active)

    def against(self, rows: Any, rank: int) -> Any:
        """`rows` (bool [B]) to broadcast against `[B, ...]` of per-example `rank`; reshaped once for each rank."""
        key = (id(rows), rank)
        if key not in self._placed:
            self._placed[key] = (rows, at_axis(rows, rank))
        return self._placed[key][1]

    def rows(self, value: Value) -> Any:
        """The value as `[B, ...]`."""
        return as_rows(value, self.size)

    def new_size(self, length: Value) -> Size:
        """A variable dimension of per-example size `length` (an int scalar), which isn't below zero."""
        if length.size is not None:
            return length.size
        lengths = self.int32_rows(length)
        if self.active is not None:
            lengths = tf.where(self.active, lengths, 0)
        lengths = tf.maximum(lengths, 0)
        upper = length.upper
        if isinstance(upper, int) and upper > _LARGEST_SIZE:
            upper = None
        if upper is None and self.longest is not None:
            upper = self.longest
            self.check(lengths <= self.longest)
            lengths = tf.minimum(lengths, self.longest)
        if upper is None:
            upper = tf.reduce_max(tf.concat([lengths, [1]], 0))
        elif not isinstance(upper, int):
            static = tf.get_static_value(upper)
            upper = tf.maximum(tf.cast(upper, tf.int32), 1) if static is None else int(static)
        if isinstance(upper, int):
            upper = max(upper, 1)
        return Size(lengths, upper)

    def int32_rows(self, amount: Value) -> Any:
        """The rows of an integer as int32. Those that don't fit fail: cast, they could become small and look right."""
        rows = self.rows(amount)
        if rows.dtype not in (tf.int64, tf.uint32, tf.uint64) or amount.static() is not None:
            return tf.cast(rows, tf.int32)
        small = tf.cast(rows, tf.int32)
        fits = tf.cast(small, rows.dtype) == rows
        self.check(fits)
        return tf.where(fits, small, 0)

    def length_of(self, size: Size) -> Value:
        """The per-example number of elements along a variable dimension."""
        return number(size.lengths, size)


def require_static(value: Value, what: str) -> Any:
    """A shared value known at build time, or NotConvertible naming `what`."""
    known = value.static()
    if known is None:
        raise NotConvertible(f"{what} isn't known when the program is built")
    return known


def any_per_row(flags: Any, is_batched: bool) -> Any:
    """Reduce bool `[B, ...]` to `[B]`, or a shared one to a scalar."""
    rank = flags.shape.rank
    return tf.reduce_any(flags, axis=list(range(1 if is_batched else 0, rank)))
