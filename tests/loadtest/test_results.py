"""Figures from records: counts that add up, quantiles that have the samples, files that come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.results import (
    OUTCOMES,
    Record,
    mean_batch_size,
    quantiles_ms,
    read_jsonl,
    samples_needed,
    summarise,
    write_jsonl,
)


def record(index: int = 0, outcome: str = "ok", **changes: object) -> Record:
    status = {"ok": 200, "wrong": 200, "shed": 503, "timeout": 504, "error": 500}.get(outcome)
    due_s = index / 10
    made = Record(index, 0, due_s, sent_s=due_s + 0.001, done_s=due_s + 0.021, status=status, outcome=outcome)
    return replace(made, **changes)  # type: ignore[arg-type]  # by name


@settings(deadline=None)
@given(st.lists(st.sampled_from(OUTCOMES)))
def test_nothing_vanishes(outcomes: list[str]) -> None:
    summary = summarise([[record(index, outcome) for index, outcome in enumerate(outcomes)]])
    counted = (summary.ok, summary.wrong, summary.shed, summary.timeout, summary.left, summary.error)
    assert summary.offered == len(outcomes) == sum(counted)
    assert counted == tuple(outcomes.count(outcome) for outcome in OUTCOMES)


def test_an_outcome_that_is_not_counted_is_refused() -> None:
    with pytest.raises(AssertionError, match="offered 2 requests"):
        summarise([[record(0), record(1, "unfinished")]])


def test_latency_counts_from_when_a_request_was_due() -> None:
    late = [record(index, sent_s=index / 10 + 1, done_s=index / 10 + 1.02) for index in range(500)]
    summary = summarise([late])
    assert summary.latency_ms["p50"] == pytest.approx(1020, rel=0.01)
    assert summary.uncorrected_ms["p50"] == pytest.approx(20, rel=0.01)
    assert summary.send_lag_p99_ms == pytest.approx(1000, rel=0.01)


def test_throughput_is_of_right_answers_over_the_span_of_each_attack() -> None:
    attack = [record(index, done_s=1.0) for index in range(8)] + [record(8, "shed", done_s=2.0)]
    assert summarise([attack]).throughput_per_s == pytest.approx(4)
    assert summarise([attack, attack]).throughput_per_s == pytest.approx(4)


def test_lost_requests_are_those_without_a_reply() -> None:
    records = [record(0), record(1, "error", status=None, detail="the server closed the connection")]
    summary = summarise([records])
    assert (summary.lost, summary.error) == (1, 1)
    assert summary.examples_of_failure == ("request 1: error: the server closed the connection",)


@pytest.mark.parametrize(("quantile", "samples"), [(0.5, 7), (0.9, 44), (0.99, 459), (0.999, 4603)])
def test_a_quantile_needs_samples(quantile: float, samples: int) -> None:
    assert samples_needed(quantile) == samples
    name = f"p{quantile * 100:g}"
    assert quantiles_ms([0.001] * (samples - 1))[name] is None
    assert quantiles_ms([0.001] * samples)[name] == pytest.approx(1, rel=0.01)


def test_quantiles_agree_with_numpy() -> None:
    latencies_s = np.random.default_rng(0).gamma(2, 0.005, 5000)
    for quantile, milliseconds in quantiles_ms(latencies_s.tolist()).items():
        assert milliseconds == pytest.approx(1e3 * np.percentile(latencies_s, float(quantile[1:])), rel=0.02)


def test_mean_batch_size_weighs_batches_not_requests() -> None:
    records = [record(index, batch_size=9) for index in range(9)] + [record(9, batch_size=1)]
    assert mean_batch_size(records) == pytest.approx(5)
    assert mean_batch_size([record()]) is None


def test_an_empty_run_has_no_figures() -> None:
    summary = summarise([[]])
    assert (summary.offered, summary.throughput_per_s, summary.latency_max_ms) == (0, 0, None)


def test_records_come_back_from_their_file(tmp_path: Path) -> None:
    records = [record(0, batch_size=3, queue_ms=0.5), record(1, "error", status=None, detail="broke")]
    write_jsonl(records, tmp_path / "raw.jsonl")
    assert read_jsonl(tmp_path / "raw.jsonl") == records
