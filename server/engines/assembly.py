"""From rows to the dense arrays that a batched program takes, and back.

Rows of different sizes are padded to a common one; rows beyond the real ones repeat row 0, whose values are
known to be harmless where zeros might raise or loop for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

Dim = tuple[int, int]
"""A variable dimension: which input or output, and which axis of one example."""

PADDING_LIMIT_BYTES = 256 * 1024 * 1024
"""A batch that would need more padding than this isn't stacked: a tall row beside a wide one pads both to
their product, which can be all the memory there is."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A padded batch: dense `[B, ...]` inputs, int32 `[B]` lengths by variable dimension, and its padding."""

    inputs: list[Array]
    lengths: list[Array]
    rows: int
    rows_padded: int
    padding_ratio: float


class Assembly:
    """Pads and stacks the rows of one signature, and splits its outputs."""

    def __init__(
        self,
        inputs: Sequence[TensorDescription],
        outputs: Sequence[TensorDescription],
        output_dims: Sequence[Dim] = (),
    ) -> None:
        self.input_dims: list[Dim] = [
            (index, axis)
            for index, tensor in enumerate(inputs)
            for axis, size in enumerate(tensor.shape)
            if size is None
        ]
        self._dtypes = [_numpy_dtype(tensor.dtype) for tensor in inputs]
        self._output_dtypes = [_numpy_dtype(tensor.dtype) for tensor in outputs]
        self._ragged_outputs = _by_tensor(output_dims, len(outputs))
        self._ragged_inputs = _by_tensor(self.input_dims, len(inputs))

    def stack(self, rows: Sequence[Example], size: int, limits: Sequence[int] | None) -> Assembled:
        """Pads to `size` rows and, for each variable input dimension, to `limits` (None: the longest row)."""
        missing = size - len(rows)
        lengths = [np.array([row[i].shape[axis] for row in rows], np.int32) for i, axis in self.input_dims]
        if limits is None:
            limits = [int(sizes.max()) for sizes in lengths]
        stacked = [
            self._stack_input(index, [row[index] for row in rows], size, limits) for index in range(len(self._dtypes))
        ]
        if missing:
            lengths = [np.concatenate([sizes, np.full(missing, sizes[0])]) for sizes in lengths]
        sent = sum(array.size for array in stacked)
        real = sum(array.size for row in rows for array in row)
        return Assembled(stacked, lengths, len(rows), missing, 1 - real / sent if sent else 0.0)

    def padding_bytes(self, rows: Sequence[Example]) -> int:
        """Returns how much padding `stack` would add to pad the rows to the longest."""
        padding = 0
        for index, dtype in enumerate(self._dtypes):
            shapes = [row[index].shape for row in rows]
            largest = prod(map(max, zip(*shapes, strict=True)))
            padding += (len(rows) * largest - sum(map(prod, shapes))) * dtype.itemsize
        return padding

    def split(self, outputs: Sequence[Array], lengths: Sequence[Array], rows: int) -> list[Outputs]:
        """Cuts batched outputs into `rows` answers, each output to its own length."""
        columns = [
            _cut(np.asarray(output), dtype, [(axis, lengths[position]) for position, axis in ragged], rows)
            for output, dtype, ragged in zip(outputs, self._output_dtypes, self._ragged_outputs, strict=True)
        ]
        return list(zip(*columns, strict=True))

    def _stack_input(self, index: int, arrays: list[Array], size: int, limits: Sequence[int]) -> Array:
        ragged = self._ragged_inputs[index]
        dtype = self._dtypes[index]
        shape = list(arrays[0].shape)
        for position, axis in ragged:
            shape[axis] = limits[position]
        whole = np.empty((size, *shape), dtype)
        if ragged:
            whole[:] = b"" if dtype.kind == "O" else 0
            for row, array in enumerate(arrays):
                whole[row][tuple(map(slice, array.shape))] = array
        elif dtype.kind == "O" and not shape:
            whole[: len(arrays)] = [array.item() for array in arrays]
        else:
            np.stack(arrays, out=whole[: len(arrays)])
        whole[len(arrays) :] = whole[0]
        return whole


def _cut(output: Array, dtype: np.dtype[np.generic], ragged: list[tuple[int, Array]], rows: int) -> list[Array]:
    if output.dtype != dtype:
        output = output.astype(dtype)
    if not ragged:
        return [output[row, ...] for row in range(rows)]
    cuts = [[slice(None)] * (output.ndim - 1) for _ in range(rows)]
    for axis, sizes in ragged:
        for row, size in enumerate(np.asarray(sizes)[:rows].tolist()):
            cuts[row][axis] = slice(size)
    return [output[row][tuple(cuts[row])] for row in range(rows)]


def _by_tensor(dims: Sequence[Dim], tensors: int) -> list[list[tuple[int, int]]]:
    """Groups dimensions by tensor: for each, the (position in `dims`, axis) pairs that are its own."""
    return [
        [(position, axis) for position, (owner, axis) in enumerate(dims) if owner == index] for index in range(tensors)
    ]


def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    return np.dtype(object) if name == "string" else np.dtype(name)
