"""Which padded shapes get a program of their own.

Rows come in powers of two up to the model's maximum. Lengths come in *levels*: one size for every bound
together, taken from the sizes of the samples, so two variable dimensions cost no more shapes than one. With
at most three levels a model of 64 rows has at most 21 shapes, which at 1.5 s each is what the budget of 30 s
of compiling allows. An example longer than the highest level runs in the plain program.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.engines.measure import Lengths
from server.model_description import Bucket

MAX_LEVELS = 3
_SHORT_QUANTILE = 0.1


def row_ladder(max_batch_size: int) -> list[int]:
    """Returns 1, 2, 4, ... and `max_batch_size` itself, ascending."""
    ladder = [1]
    while ladder[-1] * 2 < max_batch_size:
        ladder.append(ladder[-1] * 2)
    return ladder if max_batch_size == 1 else [*ladder, max_batch_size]


def length_levels(measured: Sequence[Lengths]) -> list[Lengths]:
    """Returns up to three levels of lengths for samples of these sizes, ascending.

    The highest holds the longest sample, rounded up to a power of two; the lowest a tenth of the samples; one
    between lies at their geometric mean. A level that holds no sample at all is left out: it couldn't be
    certified. Without bounds there is the one level `()`.
    """
    if not measured or not measured[0]:
        return [()]
    ladders = [_bound_ladder(sorted(sizes)) for sizes in zip(*measured, strict=True)]
    count = max(len(ladder) for ladder in ladders)
    levels = {
        tuple(ladder[max(0, len(ladder) - count + position)] for ladder in ladders)
        for position in range(count)
    }
    return sorted(level for level in levels if any(_within(sizes, level) for sizes in measured))


def make_buckets(max_batch_size: int, levels: Sequence[Lengths]) -> list[Bucket]:
    """Returns a bucket for every step of the row ladder and every level, ascending."""
    return [Bucket(rows, tuple(level)) for rows in row_ladder(max_batch_size) for level in levels]


def _within(sizes: Lengths, level: Lengths) -> bool:
    return all(size <= limit for size, limit in zip(sizes, level, strict=True))


def _bound_ladder(sizes: Sequence[int]) -> list[int]:
    high = _exponent(sizes[-1])
    low = min(high, _exponent(sizes[int(len(sizes) * _SHORT_QUANTILE)]))
    steps = {low, high, (low + high + 1) // 2} if high - low > MAX_LEVELS - 1 else set(range(low, high + 1))
    return [2**exponent for exponent in sorted(steps)]


def _exponent(size: int) -> int:
    return max(size - 1, 0).bit_length()
