"""The scheduler as tables: what happens at which microsecond, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from server.core.records import LaneSettings, Request, RunBatch, WaitForRequest, WaitUntil
from server.core.scheduler import Scheduler

US = 1e-6


@dataclass(frozen=True)
class Shape:
    rows: int
    lengths: tuple[int, ...] = ()


def scheduler(*lanes: str, max_batch_size: int = 4, limit: int = 100, **settings) -> Scheduler:
    core = Scheduler(queue_limit_examples=limit, queue_limit_bytes=1000)
    for lane in lanes or ("a",):
        core.open_lane(lane, LaneSettings(max_batch_size, **settings))
    return core


def add(core: Scheduler, *ids: int, lane: str = "a", now: float = 0.0, **fields) -> None:
    for id in ids:
        assert core.add(Request(id, lane, **fields), now) is None


def ids(action: RunBatch) -> list[int]:
    assert isinstance(action, RunBatch), action
    return [part.request_id for part in action.batch.parts]


def test_an_idle_device_runs_the_first_request_at_once():
    core = scheduler()
    add(core, 1, now=5 * US)
    action = core.next_action(5 * US)
    assert (ids(action), action.reason) == ([1], "idle")


def test_what_arrives_while_a_batch_runs_goes_together():
    core = scheduler()
    add(core, 1)
    first = core.next_action(0.0)
    add(core, 2, 3, 4)
    assert core.next_action(1 * US) == WaitForRequest()
    core.completed(first.batch, 10 * US)
    assert ids(core.next_action(10 * US)) == [2, 3, 4]


@pytest.mark.parametrize(
    ("queued", "expected", "reason"),
    [(1, 1, "idle"), (3, 3, "idle"), (4, 4, "full"), (9, 4, "full")],
)
def test_a_batch_takes_what_waits_up_to_the_maximum(queued, expected, reason):
    core = scheduler()
    add(core, *range(queued))
    action = core.next_action(0.0)
    assert (ids(action), action.reason) == (list(range(expected)), reason)


def test_nothing_queued_waits_for_a_request():
    assert scheduler().next_action(0.0) == WaitForRequest()


def test_between_lanes_the_oldest_request_decides():
    core = scheduler("a", "b", "c")
    add(core, 1, lane="b", now=1 * US)
    add(core, 2, 3, 4, 5, lane="a", now=2 * US)
    add(core, 6, lane="c", now=0 * US)
    order = []
    for _ in range(3):
        action = core.next_action(3 * US)
        order.append((action.batch.lane, action.reason))
        core.completed(action.batch, 1 * US)
    assert order == [("c", "idle"), ("b", "idle"), ("a", "full")]


def test_a_higher_priority_goes_first_and_is_first_in_first_out_itself():
    core = scheduler(max_batch_size=2)
    add(core, 1, 2)
    add(core, 3, 4, 5, priority=1)
    order = []
    for _ in range(3):
        action = core.next_action(0.0)
        order.append(ids(action))
        core.completed(action.batch, 1 * US)
    assert order == [[3, 4], [5, 1], [2]]


def test_an_expired_request_is_reported_once_and_never_run():
    core = scheduler()
    add(core, 1, deadline=10 * US)
    add(core, 2, deadline=30 * US)
    action = core.next_action(10 * US)
    assert action.expired == (1,)
    assert ids(action) == [2]
    assert core.expire(20 * US) == ()
    assert core.rows_queued == 0


def test_a_deadline_passes_while_the_batch_runs():
    core = scheduler()
    add(core, 1, deadline=10 * US)
    running = core.next_action(0.0)
    assert core.next_action(1 * US) == WaitUntil(10 * US)
    assert core.expire(10 * US) == (1,)
    core.completed(running.batch, 90 * US)
    assert core.next_action(90 * US) == WaitForRequest()


def test_a_busy_device_says_when_the_next_deadline_is():
    core = scheduler()
    add(core, 1)
    core.next_action(0.0)
    add(core, 2, deadline=50 * US)
    add(core, 3, deadline=40 * US)
    assert core.next_action(1 * US) == WaitUntil(40 * US)
    assert core.cancel(3)
    assert core.next_action(2 * US) == WaitUntil(50 * US)


def test_a_cancelled_request_is_not_run():
    core = scheduler()
    add(core, 1, 2, 3)
    assert core.cancel(2)
    assert not core.cancel(2)
    assert not core.cancel(99)
    assert ids(core.next_action(0.0)) == [1, 3]


def test_the_queue_is_bounded_in_examples_and_says_when_to_come_back():
    core = scheduler(limit=3, max_batch_size=2)
    add(core, 1)
    batch = core.next_action(0.0).batch
    add(core, 2, 3, 4)
    core.completed(batch, 0.5)
    refusal = core.add(Request(5, "a"), 0.5)
    assert refusal is not None
    assert (refusal.reason, refusal.queued, refusal.limit) == ("examples", 3, 3)
    assert refusal.predicted_wait_s == pytest.approx(2 * 0.5)
    core.next_action(0.5)
    add(core, 6)


def test_the_queue_is_bounded_in_bytes():
    core = scheduler()
    add(core, 1, bytes=600)
    refusal = core.add(Request(2, "a", bytes=401), 0.0)
    assert refusal is not None
    assert (refusal.reason, refusal.queued, refusal.limit) == ("bytes", 600, 1000)
    core.next_action(0.0)
    assert core.bytes_queued == 0
    add(core, 3, bytes=1000)


def test_draining_refuses_the_new_and_finishes_the_old():
    core = scheduler(delay_s=1.0)
    add(core, 1, 2)
    core.drain()
    refusal = core.add(Request(3, "a"), 0.0)
    assert refusal is not None
    assert refusal.reason == "draining"
    action = core.next_action(0.0)
    assert (ids(action), action.reason) == ([1, 2], "drain")


def test_a_lane_with_a_delay_waits_for_company():
    core = scheduler(delay_s=100 * US)
    add(core, 1, now=5 * US)
    assert core.next_action(5 * US) == WaitUntil(pytest.approx(105 * US))
    add(core, 2, now=50 * US)
    action = core.next_action(106 * US)
    assert (ids(action), action.reason) == ([1, 2], "delay")


def test_a_lane_with_a_delay_leaves_in_time_for_its_deadlines():
    core = scheduler(delay_s=100 * US, buckets=[Shape(4)], seconds=[30 * US])
    add(core, 1, now=0.0, deadline=80 * US)
    assert core.next_action(0.0) == WaitUntil(pytest.approx(50 * US))
    action = core.next_action(51 * US)
    assert (ids(action), action.reason) == ([1], "deadline")


def test_the_smallest_bucket_that_holds_the_batch():
    shapes = [Shape(rows, (length,)) for rows in (1, 2, 4) for length in (8, 32)]
    core = scheduler(buckets=shapes)
    for id, length in enumerate([3, 20, 8]):
        add(core, id, lengths=((length,),))
    batch = core.next_action(0.0).batch
    assert (batch.bucket, batch.lengths, batch.rows) == (Shape(4, (32,)), (20,), 3)


def test_a_shape_beyond_every_bucket_has_none():
    core = scheduler(buckets=[Shape(4, (8,))])
    add(core, 1, lengths=((9,),))
    batch = core.next_action(0.0).batch
    assert (batch.bucket, batch.lengths) == (None, (9,))


def test_a_large_request_is_cut_and_its_rest_stays_in_front():
    core = scheduler(max_batch_size=4)
    add(core, 1, n=6, bytes=60)
    add(core, 2, n=1)
    first = core.next_action(0.0)
    assert [(p.request_id, *p.rows) for p in first.batch.parts] == [(1, 0, 1, 2, 3)]
    assert (core.rows_queued, core.bytes_queued) == (3, 60)
    core.completed(first.batch, 1 * US)
    second = core.next_action(1 * US)
    assert [(p.request_id, *p.rows) for p in second.batch.parts] == [(1, 4, 5), (2, 0)]
    core.completed(second.batch, 1 * US)
    assert core.next_action(2 * US) == WaitForRequest()


def test_closing_a_lane_returns_its_requests_and_leaves_the_others():
    core = scheduler("a", "b")
    add(core, 1, lane="a", deadline=10 * US)
    running = core.next_action(0.0)
    add(core, 2, lane="a")
    add(core, 3, lane="b")
    assert core.close_lane("a") == (1, 2)
    core.completed(running.batch, 5 * US)
    assert core.expire(20 * US) == ()
    assert ids(core.next_action(20 * US)) == [3]


def test_only_the_running_batch_can_complete():
    core = scheduler()
    add(core, 1)
    batch = core.next_action(0.0).batch
    core.completed(batch, 1 * US)
    with pytest.raises(ValueError, match="not the one that is running"):
        core.completed(batch, 1 * US)
    with pytest.raises(ValueError, match="open already"):
        core.open_lane("a", LaneSettings(4))


def test_stale_deadlines_do_not_pile_up():
    core = scheduler()
    for id in range(5000):
        add(core, id, deadline=1e6)
        core.completed(core.next_action(0.0).batch, 1 * US)
    assert len(core._deadlines) < 1100


def test_lengths_apart_never_share_a_batch():
    buckets = [Shape(rows, (length,)) for length in (8, 16) for rows in (1, 4)]
    core = scheduler(buckets=buckets, seconds=[1e-3, 1e-3, 1e-3, 1e-3], lengths_apart=True)
    add(core, 1, 2, 3, lengths=((5,),))
    add(core, 4, 5, lengths=((12,),))
    add(core, 6, lengths=((7,),))
    sent = []
    for _ in range(2):
        action = core.next_action(0.0)
        sent.append((ids(action), action.batch.bucket.lengths))
        core.completed(action.batch, 1e-3)
    assert sent == [([1, 2, 3, 6], (8,)), ([4, 5], (16,))]
