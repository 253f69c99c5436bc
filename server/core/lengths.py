"""Lengths: the measured sizes of an example, and the sizes that a padded shape has room for."""

from __future__ import annotations

from typing import TypeAlias

Lengths: TypeAlias = tuple[int, ...]
"""One size for each bound of a lane."""


def holds(bounds: Lengths, lengths: Lengths) -> bool:
    """Whether a shape of these lengths has room for an example of those."""
    return all(bound >= length for bound, length in zip(bounds, lengths, strict=True))


def longest(first: Lengths, second: Lengths) -> Lengths:
    """Returns the larger of each pair of lengths; `()` stands for lengths not seen yet."""
    if not first or first == second:
        return second
    return tuple(map(max, first, second)) if second else first


def doubled(lengths: Lengths) -> Lengths:
    """Returns each length rounded up to a power of two, so that padding to it at most doubles it."""
    return tuple(1 << max(length - 1, 0).bit_length() for length in lengths)
