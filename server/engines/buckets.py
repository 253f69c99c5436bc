"""Which padded shapes get a program of their own.

Rows come in powers of two up to the model's maximum. Lengths come in *levels*: one size for every bound
together, so two variable dimensions cost no more shapes than one. With at most three levels a model of 64
rows has at most 21 shapes, which at 1.5 s each is what the budget of 30 s of compiling allows. An example
longer than the highest level runs in the plain program.

The levels are powers of two, chosen for the samples: those that pad the samples least, measured along the
bound that varies most. A level is spent only where it saves a tenth of the padded length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from server.engines.measure import Lengths, longest
from server.model_description import Bucket

MAX_LEVELS = 3
_WORTH_A_LEVEL = 1.1


def row_ladder(max_batch_size: int) -> list[int]:
    """Returns 1, 2, 4, ... and `max_batch_size` itself, ascending."""
    ladder = [1]
    while ladder[-1] * 2 < max_batch_size:
        ladder.append(ladder[-1] * 2)
    return ladder if max_batch_size == 1 else [*ladder, max_batch_size]


def length_levels(measured: Sequence[Lengths]) -> list[Lengths]:
    """Returns up to three levels of lengths for samples of these sizes, ascending.

    The highest holds every sample; each holds at least one. Without bounds there is the one level `()`.
    """
    if not measured or not measured[0]:
        return [()]
    rounded = [tuple(_power_above(size) for size in sizes) for sizes in measured]
    leading = _widest_bound(rounded)
    return [
        longest(sizes for sizes in rounded if sizes[leading] <= cut)
        for cut in _cuts([sizes[leading] for sizes in rounded])
    ]


def make_buckets(max_batch_size: int, levels: Sequence[Lengths]) -> list[Bucket]:
    """Returns a bucket for every step of the row ladder and every level, ascending."""
    return [Bucket(rows, tuple(level)) for rows in row_ladder(max_batch_size) for level in levels]


def _widest_bound(rounded: Sequence[Lengths]) -> int:
    """Returns the position of the bound whose largest size is the largest multiple of its smallest."""
    ranges = [max(sizes) / min(sizes) for sizes in zip(*rounded, strict=True)]
    return ranges.index(max(ranges))


def _cuts(sizes: Sequence[int]) -> list[int]:
    """Returns the fewest sizes, the largest among them, that pad nearly as little as the best three."""
    *lower, top = sorted(set(sizes))
    best_by_count = [
        min((_padded(sizes, (*cuts, top)), (*cuts, top)) for cuts in combinations(lower, count))
        for count in range(min(MAX_LEVELS, len(lower) + 1))
    ]
    least = min(padded for padded, _ in best_by_count)
    return next(list(cuts) for padded, cuts in best_by_count if padded <= _WORTH_A_LEVEL * least)


def _padded(sizes: Sequence[int], cuts: Sequence[int]) -> int:
    """Returns the sum of the sizes when each is padded to the smallest cut that holds it."""
    return sum(next(cut for cut in cuts if size <= cut) for size in sizes)


def _power_above(size: int) -> int:
    """Returns the smallest power of two that is at least `size`, and at least 1."""
    return 1 << max(size - 1, 0).bit_length()
