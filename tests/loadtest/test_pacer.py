"""Arrival tables are arithmetic: same arguments, same table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.pacer import ARRIVALS, ClosedLoop, OpenLoop, burst, constant, open_loop


@pytest.mark.parametrize(
    ("elapsed_s", "sent", "wait_s"),
    [(0.0, 0, 0.0), (0.0, 1, 0.5), (0.4, 1, 0.1), (0.5, 1, 0.0), (3.0, 1, 0.0), (0.0, 2, 2.0)],
)
def test_open_loop_waits_for_the_due_time(elapsed_s: float, sent: int, wait_s: float) -> None:
    pacer = OpenLoop(np.array([0.0, 0.5, 2.0]))
    assert pacer.wait_s(elapsed_s, sent) == pytest.approx(wait_s)
    assert pacer.count == 3


def test_closed_loop_never_waits() -> None:
    assert ClosedLoop(count=5, concurrency=2).wait_s(0.0, 4) == 0


def test_constant() -> None:
    np.testing.assert_allclose(constant(4, 3), [0, 0.25, 0.5])


@settings(deadline=None)
@given(st.sampled_from(sorted(ARRIVALS)), st.integers(1, 10_000), st.integers(0, 200), st.integers(0, 2**32))
def test_tables_ascend_and_repeat(arrivals: str, rate: int, count: int, seed: int) -> None:
    table = open_loop(arrivals, rate, count, seed).table_s
    assert len(table) == count
    assert (np.diff(table) >= 0).all()
    assert (table >= 0).all()
    np.testing.assert_array_equal(table, open_loop(arrivals, rate, count, seed).table_s)


@pytest.mark.parametrize("arrivals", sorted(ARRIVALS))
def test_the_mean_rate_is_the_rate(arrivals: str) -> None:
    table = open_loop(arrivals, 100, 20_000, seed=3).table_s
    assert len(table) / table[-1] == pytest.approx(100, rel=0.03)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(open_loop("poisson", 50, 20_000, seed=1).table_s)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert (gaps > 1 / 50).mean() == pytest.approx(np.exp(-1), abs=0.02)


def test_seeds_differ() -> None:
    assert not np.array_equal(open_loop("poisson", 9, 9, 1).table_s, open_loop("poisson", 9, 9, 2).table_s)


def test_bursts_fall_into_the_first_fifth_of_each_second() -> None:
    assert (burst(200, 2000, seed=2) % 1.0 <= 0.2 + 1e-9).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("poisson", 0, 10, 0), "rate must be above 0"),
        (("constant", 5, -1, 0), "count at least 0"),
        (("steady", 5, 1, 0), "no arrivals 'steady'; there are constant, poisson, burst"),
    ],
)
def test_mistakes_get_a_sentence(arguments: tuple[str, float, int, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        open_loop(*arguments)
