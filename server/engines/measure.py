"""Sizes of examples, and the buckets that hold them. No TensorFlow: the HTTP process measures too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from server.engines.batch_result import Array, Example
from server.model_description import BoundDescription, Bucket, TensorDescription

Lengths: TypeAlias = tuple[int, ...]
"""One size for each bound of a signature."""


class Measure:
    """Measures examples of one signature: `measure(example)` gives the size that each bound bounds."""

    def __init__(self, inputs: Sequence[TensorDescription], bounds: Sequence[BoundDescription]) -> None:
        position = {tensor.name: index for index, tensor in enumerate(inputs)}
        self._measured = [(position[bound.input], bound.axis) for bound in bounds]

    def __call__(self, example: Example) -> Lengths:
        return tuple(
            longest_string(example[index]) if axis is None else int(example[index].shape[axis])
            for index, axis in self._measured
        )


def longest_string(array: Array) -> int:
    """Returns the bytes of the longest element of an object array of bytes; 0 where it has none."""
    return len(array.item()) if array.ndim == 0 else max(map(len, array.ravel()), default=0)


def fits(lengths: Lengths, bucket: Bucket) -> bool:
    """Whether an example of these sizes fits into the bucket."""
    return all(length <= limit for length, limit in zip(lengths, bucket.lengths, strict=True))


def longest(measured: Iterable[Lengths]) -> Lengths:
    """Returns the largest of each size."""
    return tuple(max(sizes) for sizes in zip(*measured, strict=True))


def smallest_bucket(buckets: Iterable[Bucket], rows: int, lengths: Lengths) -> Bucket | None:
    """Returns the smallest bucket that holds `rows` rows of these sizes, or None."""
    holding = (bucket for bucket in buckets if rows <= bucket.rows and fits(lengths, bucket))
    return min(holding, default=None)
