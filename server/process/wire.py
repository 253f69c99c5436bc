"""Arrays in shared memory: how a batch crosses between the processes without a copy through a pipe.

One arena serves each direction. It is an anonymous memory file that both processes map: it has no name, so
nothing is left behind however they end, and it doesn't count against `/dev/shm`, which containers keep small.
The writer makes it larger when a batch needs more room; the reader maps it anew when a message points beyond
what it has mapped. A batch is read, and copied where it must last, before the next one is written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from math import prod

import numpy as np

from server.engines.batch_result import Array
from server.process.messages import Column, Tensors

_OWNER = "int64"
_ALIGNMENT = 64
_INITIAL_BYTES = 1 << 20


class Arena:
    """A growing piece of shared memory. `descriptor` is the file to hand to the other process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls) -> Arena:
        """Makes an arena of 1 MiB."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("batchd")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, _INITIAL_BYTES)
        return cls(descriptor)

    def view(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Returns the first `size` bytes or more, growing the file where it is smaller.

        Views of before stay valid: they map the same pages.
        """
        if self._map is None or len(self._map) < size:
            if os.fstat(self.descriptor).st_size < size:
                os.ftruncate(self.descriptor, max(size, 2 * os.fstat(self.descriptor).st_size))
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        return np.frombuffer(self._map, np.uint8)

    def close(self) -> None:
        """Lets go of the memory; it is freed when the other side has, too."""
        self._map = None
        os.close(self.descriptor)


def write_rows(arena: Arena, rows: Sequence[Sequence[Array]], dtypes: Sequence[str]) -> Tensors:
    """Writes rows of arrays, column by column; returns where they lie. Reads back as `read_rows`."""
    columns: list[Column] = []
    parts: list[list[Array]] = []
    end = 0
    for index, dtype in enumerate(dtypes):
        arrays = [row[index] for row in rows]
        shapes = _shapes(arrays)
        encoded = _encode_strings(arrays) if dtype == "string" else arrays
        size = sum(array.nbytes for array in encoded)
        columns.append(Column(dtype, end, size, shapes))
        parts.append(encoded)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    memory = arena.view(end)
    for column, arrays in zip(columns, parts, strict=True):
        _copy_into(memory[column.offset : column.offset + column.size], arrays)
    return Tensors(len(rows), columns)


def read_rows(arena: Arena, tensors: Tensors) -> list[tuple[Array, ...]]:
    """Returns the rows that `write_rows` wrote, as arrays that own their memory."""
    if not tensors.rows:
        return []
    end = max((column.offset + column.size for column in tensors.columns), default=0)
    memory = arena.view(end)
    columns = [
        _read_column(memory[column.offset : column.offset + column.size], column, tensors.rows)
        for column in tensors.columns
    ]
    return list(zip(*columns, strict=True))


def write_owned_rows(
    arena: Arena, rows: Sequence[Sequence[Array]], dtypes: Sequence[str], owners: Sequence[int]
) -> Tensors:
    """Writes rows and, beside each, the number of the request that it belongs to."""
    numbers = np.array(owners, np.int64)
    owned = [(*row, numbers[index, ...]) for index, row in enumerate(rows)]
    return write_rows(arena, owned, [*dtypes, _OWNER])


def read_owned_rows(arena: Arena, tensors: Tensors) -> tuple[list[tuple[Array, ...]], list[int]]:
    """Returns the rows that `write_owned_rows` wrote, and whose each is."""
    owned = read_rows(arena, tensors)
    return [row[:-1] for row in owned], [int(row[-1]) for row in owned]


def _shapes(arrays: Sequence[Array]) -> list[list[int]]:
    shapes = [array.shape for array in arrays]
    same = len(set(shapes)) <= 1
    return [list(shape) for shape in (shapes[:1] if same else shapes)]


def _copy_into(memory: Array, arrays: Sequence[Array]) -> None:
    if len({(array.shape, array.dtype) for array in arrays}) == 1:
        first = arrays[0]
        np.stack(arrays, out=memory.view(first.dtype).reshape(len(arrays), *first.shape))
        return
    offset = 0
    for array in arrays:
        memory[offset : offset + array.nbytes].view(array.dtype)[:] = array.ravel()
        offset += array.nbytes


def _read_column(memory: Array, column: Column, rows: int) -> list[Array]:
    flat = _decode_strings(memory, column, rows) if column.dtype == "string" else memory.copy().view(column.dtype)
    if len(column.shapes) == 1:
        whole = flat.reshape(rows, *column.shapes[0])
        return [whole[row, ...] for row in range(rows)]
    ends = np.cumsum([prod(shape) for shape in column.shapes]).tolist()
    return [flat[end - prod(shape) : end].reshape(shape) for shape, end in zip(column.shapes, ends, strict=True)]


def _encode_strings(arrays: Sequence[Array]) -> list[Array]:
    """Returns the uint32 lengths of all elements as bytes, then their bytes."""
    items = [item for array in arrays for item in ([array.item()] if array.ndim == 0 else array.ravel())]
    lengths = np.array([len(item) for item in items], np.uint32)
    return [lengths.view(np.uint8), np.frombuffer(b"".join(items), np.uint8)]


def _decode_strings(memory: Array, column: Column, rows: int) -> Array:
    shapes = column.shapes if len(column.shapes) > 1 else column.shapes * rows
    count = sum(prod(shape) for shape in shapes)
    ends = np.cumsum(memory[: 4 * count].view(np.uint32), dtype=np.int64).tolist()
    text = memory[4 * count :].tobytes()
    flat = np.empty(count, object)
    flat[:] = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return flat
