"""The search for the rate that is carried within a latency objective, as arithmetic."""

from __future__ import annotations

import pytest

from loadtest.results import Record
from loadtest.slo import FIRST_OF_SATURATED, MOST_ATTEMPTS, STEP, RateSearch, met


def records(within: int, late: int = 0, shed: int = 0) -> list[Record]:
    """Replies after 50 ms, replies after 500 ms, and refusals."""
    kinds = [("ok", 200, 0.05)] * within + [("ok", 200, 0.5)] * late + [("shed", 503, 0.01)] * shed
    return [Record(i, 0, 1.0, 1.0, 1.0 + s, status, outcome) for i, (outcome, status, s) in enumerate(kinds)]


@pytest.mark.parametrize(
    ("within", "late", "shed", "expected"),
    [(100, 0, 0, True), (99, 1, 0, True), (99, 0, 1, True), (98, 2, 0, False), (98, 1, 1, False), (0, 0, 9, False)],
)
def test_met_counts_every_request_that_was_offered(within: int, late: int, shed: int, expected: bool) -> None:
    assert met(records(within, late, shed), slo_ms=100) is expected


def test_it_goes_down_until_a_rate_holds() -> None:
    search = RateSearch(1000)
    tried = []
    while not search.done:
        tried.append(search.rate_per_s)
        search.tried(records(100) if search.rate_per_s < 900 else records(90, late=10), slo_ms=100)
    assert tried == [pytest.approx(1000 * FIRST_OF_SATURATED * STEP**k) for k in (0, 0, 1, 1, 2)]
    assert search.carried_per_s == tried[-1]


def test_it_gives_up() -> None:
    search = RateSearch(50)
    while not search.done:
        assert search.requests >= 100
        search.tried(records(0, late=10), slo_ms=100)
    assert search.attempts == MOST_ATTEMPTS
    assert search.carried_per_s == 0
    assert RateSearch(0).done
