"""What a value is while the graphs of all examples grow together: one `Column` for all that are at the same place.

A column's `kind` says what it is, in a form that can be looked up; its `data` has it for each of the E examples:

* `fixed`, `const`: numpy, the same for all examples; of `fixed` the content is part of the kind.
* `host`: numpy `[E, ...]`, known now: integers, booleans and text that no network has touched.
* `ragged`: the same, where the first size differs: (array `[E, P, ...]`, sizes [E]).
* `shared`: one `Shared` tensor, such as a weight.
* `value`: int64 [E], the numbers of values that nodes compute, or that lie ready.
* `seq`: `Seq`: values side by side along a first axis, put together only if somebody needs them as one tensor.
* `list`: `Seq` too: a TensorList. An element that was never written has number -1.
* `uneven`: a list of E entries, for what has another shape in each example; see `Entry`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

Shape = tuple[int, ...]
Indices = NDArray[np.int64]


class ExamplesFailed(Exception):
    """These examples of the batch can't go on: the function would raise for them. They are answered alone."""

    def __init__(self, examples: Any, reason: str) -> None:
        super().__init__(reason)
        self.examples = {int(example) for example in np.atleast_1d(examples)}
        self.reason = reason


class OpFailed(Exception):
    """An op raises for the example that is being computed on the host."""


class Shared:
    """A tensor that is the same for every example; signatures tell shared operands apart by identity."""

    __slots__ = ("_array", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self._array: Any = None

    @property
    def array(self) -> Any:
        """As numpy; text as objects."""
        if self._array is None:
            array = self.tensor.numpy()
            self._array = np.asarray(array, object if self.tensor.dtype == tf.string else None)
        return self._array


class Seq(NamedTuple):
    """`ids` [E, P]: value numbers, of which the first `counts[e]` (an int where all have as many) are the example's.
    `arrays`: the same as E host arrays, where they are known. `before`: where all steps of a loop are expanded at once,
    the list before the loop and the first number of each step; a step sees what has a smaller one."""

    ids: Indices
    counts: Any
    arrays: Any = None
    before: Any = None

    def at(self, rows: Any, where: Any) -> Any:
        """Elements of rows, as whoever reads them sees them."""
        ids = self.ids[rows, where]
        if self.before is not None:
            old, firsts = self.before
            ahead = ids >= (firsts[:, None] if ids.ndim > 1 else firsts)
            if np.logical_or.reduce(ahead, axis=None):
                ids = np.where(ahead, old[rows, where], ids)
        return ids

    def sizes(self) -> Indices:
        """How many elements each example has, [E]."""
        sizes: Indices = np.broadcast_to(np.asarray(self.counts, np.int64), (len(self.ids),))
        return sizes


class Kind(NamedTuple):
    """`shape`: of one example's value; of one element for `ragged`, `seq` and `list` (None: not known). `extra`: the
    content of `fixed`, the Shared of `shared`, the number of elements of a `seq` where all have as many."""

    what: str
    shape: Any
    dtype: Any
    extra: Any = None


class Column(NamedTuple):
    kind: Kind
    data: Any


class Entry(NamedTuple):
    """One example's value: `number` of a value of `shape`, or (number is None) `array` on the host."""

    number: int | None
    shape: Shape
    array: Any = None


_LARGEST_FIXED = 64  # elements


def on_host(array: Any, dtype: Any) -> Column:
    """A column of what is known and the same for all."""
    array = np.asarray(array)
    if array.size <= _LARGEST_FIXED:
        content = tuple(array.ravel().tolist()) if array.dtype.kind == "O" else array.tobytes()
        return Column(Kind("fixed", array.shape, dtype, content), array)
    return Column(Kind("const", array.shape, dtype), array)


def loose(column: Column) -> Column:
    """The same column as one whose content may change, such as a loop's counter."""
    if column.kind.what == "fixed":
        return Column(Kind("const", column.kind.shape, column.kind.dtype), column.data)
    return column


def value_column(ids: Any, shape: Shape, dtype: Any) -> Column:
    return Column(Kind("value", shape, dtype), ids)


def seq_column(seq: Seq, shape: Any, dtype: Any) -> Column:
    count = seq.counts if isinstance(seq.counts, int) else None
    return Column(Kind("seq", shape, dtype, count), seq)


def is_readable(column: Column) -> bool:
    """Whether it is a sequence of values of one shape, which whoever reads them may put together."""
    kind, seq = column
    return kind.what == "seq" and kind.shape is not None and seq.arrays is None and seq.before is None


def taken(column: Column, rows: Any) -> Column:
    """The column for some of its examples (`rows`: positions, or bools)."""
    kind, data = column
    what = kind.what
    if what in ("fixed", "const", "shared"):
        return column
    if what in ("host", "value"):
        return Column(kind, data[rows])
    if what == "ragged":
        return Column(kind, (data[0][rows], data[1][rows]))
    positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    if what == "uneven":
        return Column(kind, [data[k] for k in positions.tolist()])
    counts = data.counts if isinstance(data.counts, int) else data.counts[rows]
    arrays = None if data.arrays is None else [data.arrays[k] for k in positions.tolist()]
    return Column(kind, Seq(data.ids[rows], counts, arrays))


def entries(column: Column, count: int) -> list[Entry]:
    """The column example by example; not for sequences and lists."""
    kind, data = column
    what = kind.what
    if what == "uneven":
        return list(data)
    if what == "value":
        return [Entry(number, kind.shape) for number in data.tolist()]
    if what == "host":
        return [Entry(None, kind.shape, np.asarray(row, _object(kind.dtype))) for row in data]
    if what == "ragged":
        array, sizes = data
        return [Entry(None, (size, *kind.shape), row[:size]) for row, size in zip(array, sizes.tolist(), strict=True)]
    array = data.array if what == "shared" else data
    return [Entry(None, array.shape, array)] * count


def _object(dtype: Any) -> Any:
    return object if dtype == tf.string else None


def collected(found: Sequence[Entry], dtype: Any) -> Column:
    """One column of entries that are all on the host, or none of them."""
    first = found[0]
    if first.number is not None:
        if all(entry.shape == first.shape for entry in found):
            return value_column(np.array([entry.number for entry in found], np.int64), first.shape, dtype)
        return Column(Kind("uneven", None, dtype, "value"), list(found))
    if all(entry.shape == first.shape for entry in found):
        return Column(Kind("host", first.shape, dtype), np.stack([np.asarray(entry.array) for entry in found]))
    if all(entry.shape and entry.shape[1:] == first.shape[1:] for entry in found):
        return ragged([entry.array for entry in found], dtype)
    return Column(Kind("uneven", None, dtype, "host"), list(found))


def ragged(arrays: Sequence[Any], dtype: Any) -> Column:
    """Host arrays that differ in their first size."""
    sizes = np.array([len(array) for array in arrays], np.int64)
    padded = np.zeros([len(arrays), int(sizes.max()), *arrays[0].shape[1:]], arrays[0].dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return Column(Kind("ragged", arrays[0].shape[1:], dtype), (padded, sizes))
