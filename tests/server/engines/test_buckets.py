import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.engines.buckets import MAX_LEVELS, length_levels, make_buckets, row_ladder
from server.engines.measure import Measure, longest, smallest_bucket
from server.model_description import BoundDescription, Bucket, TensorDescription


@pytest.mark.parametrize(
    ("most", "ladder"),
    [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8]), (64, [1, 2, 4, 8, 16, 32, 64])],
)
def test_rows_come_in_powers_of_two_up_to_the_maximum(most, ladder):
    assert row_ladder(most) == ladder


@pytest.mark.parametrize(
    ("sizes", "levels"),
    [
        ([()], [()]),
        ([], [()]),
        ([(0,)], [(1,)]),
        ([(n,) for n in range(5, 41)], [(8,), (32,), (64,)]),
        ([(n,) for n in range(30, 61)], [(64,)]),
        ([(n,) for n in (1, 4, 16, 64, 256, 900)], [(1,), (32,), (1024,)]),
        ([(n, 2 * n) for n in range(4, 17)], [(8, 16), (16, 32)]),
        ([(n, 3) for n in range(4, 17)], [(8, 4), (16, 4)]),
    ],
)
def test_levels_follow_the_samples(sizes, levels):
    assert length_levels(sizes) == levels


@given(st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 5000)] * n), min_size=1)))
def test_levels_are_few_hold_every_sample_and_each_holds_one(sizes):
    levels = length_levels(sizes)
    assert 1 <= len(levels) <= MAX_LEVELS
    assert all(size <= limit for size, limit in zip(longest(sizes), levels[-1], strict=True))
    for level in levels:
        assert any(all(s <= limit for s, limit in zip(sample, level, strict=True)) for sample in sizes)


def test_buckets_are_rows_by_levels():
    assert make_buckets(2, [(4,), (8,)]) == [
        Bucket(1, (4,)),
        Bucket(1, (8,)),
        Bucket(2, (4,)),
        Bucket(2, (8,)),
    ]


def test_the_smallest_bucket_that_holds():
    buckets = make_buckets(4, [(4,), (8,)])
    assert smallest_bucket(buckets, 3, (5,)) == Bucket(4, (8,))
    assert smallest_bucket(buckets, 1, (0,)) == Bucket(1, (4,))
    assert smallest_bucket(buckets, 1, (9,)) is None
    assert smallest_bucket(buckets, 5, (1,)) is None


def test_measuring_dimensions_and_bytes():
    inputs = [TensorDescription("x", "float32", [None, 3]), TensorDescription("words", "string", [None])]
    bounds = [BoundDescription("words", 0), BoundDescription("words", None), BoundDescription("x", 0)]
    measure = Measure(inputs, bounds)
    words = np.array(["é".encode(), b"abc", b""], object)
    assert measure((np.zeros((7, 3), np.float32), words)) == (3, 3, 7)
    assert measure((np.zeros((0, 3), np.float32), words[:0])) == (0, 0, 0)
