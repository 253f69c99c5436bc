"""Company for an example under test: rows that traffic might bring, the worst included, and junk as padding.

A row of junk has NaNs, infinities, ids out of range, bytes that are no text. Integers stay small enough to count to,
since a loop might. Where a loop may run until a row's own values end it, junk might never: there the company is other
samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from server.engines.assembly import Assembled
from server.engines.batch_result import Array, Example
from server.engines.measure import Lengths
from server.model_description import BoundDescription, TensorDescription

_COUNTABLE = 10_000
_FURTHER = 1_000
_LONGEST_JUNK_TEXT = 16


class Company:
    """Makes junk for one signature. `largest`: of each integer input, the largest value that samples have."""

    def __init__(
        self,
        inputs: Sequence[TensorDescription],
        bounds: Sequence[BoundDescription],
        samples: Sequence[Example],
        input_dims: Sequence[tuple[int, int]],
        *,
        may_be_junk: bool,
    ) -> None:
        self.may_be_junk = may_be_junk
        self._inputs = inputs
        self._bounds = list(bounds)
        self._input_dims = input_dims
        self._largest = [
            max((int(sample[k].max()) for sample in samples if sample[k].size), default=0) if _is_integer(tensor) else 0
            for k, tensor in enumerate(inputs)
        ]

    def stranger(self, rng: np.random.Generator, lengths: Lengths) -> Example:
        """Returns an example of junk that fits these lengths."""
        example = []
        for k, tensor in enumerate(self._inputs):
            shape = [
                size if size is not None else int(rng.integers(0, lengths[self._bound(tensor.name, axis)] + 1))
                for axis, size in enumerate(tensor.shape)
            ]
            example.append(self._junk(rng, k, shape, lengths))
        return tuple(example)

    def with_junk(self, rng: np.random.Generator, batch: Assembled, lengths: Lengths) -> Assembled:
        """Returns the batch with junk beyond the rows' own lengths and, where allowed, in the rows that fill it."""
        inputs = []
        for k, array in enumerate(batch.inputs):
            mine = np.ones(array.shape, bool)
            if self.may_be_junk:
                mine[batch.rows :] = False
            for (owner, axis), sizes in zip(self._input_dims, batch.lengths, strict=True):
                if owner == k:
                    place = [None] * array.ndim
                    within = np.arange(array.shape[axis + 1]) < sizes[:, None]
                    index = tuple(slice(None) if d in (0, axis + 1) else p for d, p in enumerate(place))
                    mine = mine & within[index]
            inputs.append(np.where(mine, array, self._junk(rng, k, array.shape, lengths)).astype(array.dtype))
        return replace(batch, inputs=inputs)

    def _bound(self, name: str, axis: int | None) -> int:
        return self._bounds.index(BoundDescription(name, axis))

    def _junk(self, rng: np.random.Generator, k: int, shape: Sequence[int], lengths: Lengths) -> Array:
        tensor = self._inputs[k]
        if tensor.dtype == "string":
            most = min(lengths[self._bound(tensor.name, None)], _LONGEST_JUNK_TEXT)
            texts = [rng.bytes(int(rng.integers(0, most + 1))) for _ in range(int(np.prod(shape)))]
            return np.array([*texts, None], object)[:-1].reshape(shape)
        if tensor.dtype == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if tensor.dtype.startswith("float"):
            return _junk_floats(rng, shape, np.dtype(tensor.dtype))
        return self._junk_integers(rng, shape, np.dtype(tensor.dtype), self._largest[k])

    def _junk_integers(
        self, rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any], largest: int
    ) -> Array:
        limits = np.iinfo(dtype)
        beyond = largest + _FURTHER if largest < _COUNTABLE else largest
        odd = [min(max(value, int(limits.min)), int(limits.max)) for value in (-1, largest + 1, beyond, 0, largest)]
        return np.asarray(rng.choice(np.array(odd, dtype), shape), dtype)


def _junk_floats(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    limits = np.finfo(dtype)
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, limits.max / 2, limits.tiny / 4])
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape)
    return np.asarray(np.where(rng.random(shape) < 0.1, rng.choice(odd, shape), values)).astype(dtype)


def _is_integer(tensor: TensorDescription) -> bool:
    return tensor.dtype.startswith(("int", "uint"))
