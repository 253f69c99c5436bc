"""What is learned besides the times of buckets: what is lost between batches, and how much caution predictions need."""

from __future__ import annotations

import pytest

from server.core.learned import Between, Caution
from server.core.records import LaneSettings, Request, RunBatch
from server.core.scheduler import Scheduler


def promise(caution: Caution, kept: int, broken: int) -> None:
    version = caution.version
    for _ in range(broken):
        caution.broken(version)
    for _ in range(kept):
        caution.kept(version)


def test_caution_grows_by_what_was_missing_and_eases_while_it_is_enough():
    caution = Caution()
    promise(caution, kept=90, broken=10)
    assert caution.factor == pytest.approx(1.1 / 0.9)
    for _ in range(1000):
        promise(caution, kept=100, broken=0)
    assert caution.factor == 1.0


def test_caution_is_bounded_and_what_was_promised_with_another_does_not_count():
    caution = Caution()
    for _ in range(20):
        promise(caution, kept=0, broken=100)
    assert caution.factor == 4.0
    old = caution.version - 1
    for _ in range(500):
        caution.broken(old)
    assert caution.version == old + 1


def test_caution_by_which_nobody_is_let_in_eases_with_time():
    caution = Caution()
    for _ in range(20):
        promise(caution, kept=0, broken=100)
    assert caution.at(100.0) == caution.at(104.0) == 4.0
    seen = [caution.at(100.0 + second) for second in range(5, 120)]
    assert seen[-1] == 1.0
    assert sorted(seen, reverse=True) == seen


def test_what_failed_rows_take_counts_between_batches_and_not_in_the_curve():
    scheduler = Scheduler(100, 10**6)
    scheduler.open_lane("a", LaneSettings(max_batch_size=4))
    now = 0.0
    for id in range(200):
        scheduler.add(Request(id, "a"), now)
        action = scheduler.next_action(now)
        assert isinstance(action, RunBatch)
        is_isolated = bool(id) and id % 2 == 0
        scheduler.completed(action.batch, 0.03 if is_isolated else 0.01, representative=not is_isolated)
        now += 0.05
    for id in (200, 201):
        scheduler.add(Request(id, "a"), now)
    assert 0.01 < scheduler.predicted_wait_s() < 0.03


def test_between_follows_what_is_lost_and_one_pause_counts_little():
    between = Between(0.001)
    between.learn(10.0)
    assert between.planned_s < 0.002
    for _ in range(100):
        between.learn(0.005)
    assert between.planned_s == pytest.approx(0.005, rel=0.1)
