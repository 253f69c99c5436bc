"""Choosing the padded shape for a batch."""

from __future__ import annotations

from collections.abc import Sequence

from server.core.records import BucketShape


def choose_bucket(buckets: Sequence[BucketShape], rows: int, lengths: tuple[int, ...]) -> BucketShape | None:
    """Returns the bucket with the fewest rows, then the smallest lengths, that holds the batch, or None."""
    fitting = (bucket for bucket in buckets if bucket.rows >= rows and _holds(bucket.lengths, lengths))
    return min(fitting, key=lambda bucket: (bucket.rows, bucket.lengths), default=None)


def longest(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the larger of each pair of lengths; `()` stands for lengths not seen yet."""
    if not first or first == second:
        return second
    return tuple(map(max, first, second))


def _holds(bounds: tuple[int, ...], lengths: tuple[int, ...]) -> bool:
    return all(bound >= length for bound, length in zip(bounds, lengths, strict=True))
