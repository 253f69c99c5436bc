"""What the measured times decide: splits, padding, company, deadlines, turns, and when to come again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

import pytest

from server.core.curve import Curve, Timings
from server.core.learned import Between
from server.core.records import LaneSettings, Request, RunBatch
from server.core.scheduler import HEAD_START_S, Scheduler

MS = 1e-3


@dataclass(frozen=True)
class Shape:
    rows: int
    lengths: tuple[int, ...] = ()


def scheduler(times_ms: dict[tuple[int, ...], float], max_batch_size: int = 16, **limits) -> Scheduler:
    """One lane "a" with these buckets: (rows, *lengths) -> milliseconds."""
    core = Scheduler(limits.get("examples", 10_000), limits.get("bytes", 10**9))
    core.open_lane("a", settings(times_ms, max_batch_size))
    return core


def settings(times_ms: dict[tuple[int, ...], float], max_batch_size: int = 16) -> LaneSettings:
    shapes = [Shape(rows, lengths) for rows, *lengths in times_ms for lengths in [tuple(lengths)]]
    return LaneSettings(max_batch_size, shapes, [each * MS for each in times_ms.values()])


def add(core: Scheduler, *ids: int, now: float = 0.0, length: int = 0, lane: str = "a", **fields) -> None:
    lengths = ((length,),) * fields.get("n", 1) if length else ()
    for id in ids:
        assert core.add(Request(id, lane, lengths=lengths, **fields), now) is None


def run(core: Scheduler, now: float = 0.0, seconds: float | None = None) -> list[int]:
    """Runs the next batch; returns whose rows it had."""
    action = core.next_action(now)
    assert isinstance(action, RunBatch), action
    core.completed(action.batch, action.batch.expected_s if seconds is None else seconds)
    return [part.request_id for part in action.batch.parts for _ in part.rows]


def batches(core: Scheduler) -> list[int]:
    sizes = []
    while isinstance(action := core.next_action(0.0), RunBatch):
        core.completed(action.batch, action.batch.expected_s)
        sizes.append(action.batch.rows)
    return sizes


STEEP = {(1,): 1, (2,): 1.2, (4,): 1.5, (8,): 2.0, (16,): 8.0}
FLAT = {(1,): 1, (2,): 1.2, (4,): 1.5, (8,): 2.0, (16,): 2.5}


@pytest.mark.parametrize(
    ("times_ms", "rows", "expected"),
    [
        (STEEP, 12, [8, 4]),
        (FLAT, 12, [12]),
        (FLAT, 9, [9]),
        (STEEP, 9, [8, 1]),
        (FLAT, 19, [16, 3]),
        (STEEP, 19, [8, 8, 3]),
        (STEEP, 16, [8, 8]),
        ({(16,): 1}, 5, [5]),
    ],
)
def test_rows_are_split_or_padded_whichever_is_measured_faster(times_ms, rows, expected):
    core = scheduler(times_ms)
    add(core, 1, n=rows)
    assert batches(core) == expected


def test_where_batching_gains_nothing_nobody_waits_for_a_large_batch():
    core = scheduler({(rows,): rows for rows in (1, 2, 4, 8, 16)})
    add(core, *range(16))
    assert batches(core) == [1] * 16


def test_batches_that_turn_out_slow_change_the_split():
    core = scheduler(FLAT)
    sizes = []
    for id in range(30):
        add(core, id, n=16)
        sizes.append([])
        while isinstance(action := core.next_action(0.0), RunBatch):
            sizes[-1].append(action.batch.rows)
            core.completed(action.batch, 9 * MS if action.batch.rows > 8 else action.batch.expected_s)
    assert sizes[0] == [16]
    assert sizes[-1] == [8, 8]


def test_one_slow_batch_changes_little_and_a_failed_one_nothing():
    timings = Timings()
    steps = [timings.add(rows, None, MS) for rows in (1, 2, 4)]
    curve = Curve(timings, steps, 4, Between())
    curve.learn(steps[2], 10.0)
    assert curve.plan(4).seconds < 1.5 * MS
    core = scheduler(FLAT)
    add(core, 1)
    batch = core.next_action(0.0).batch
    core.completed(batch, 60.0, representative=False)
    add(core, 2)
    assert core.next_action(0.0).batch.expected_s == 1 * MS


def test_a_bucket_that_one_bad_moment_drove_out_comes_back():
    timings = Timings()
    good, bad = timings.add(1, None, MS), timings.add(2, None, MS)
    for _ in range(5):
        timings.learn(bad, 1.0)
    assert bad.seconds > 2 * MS
    for _ in range(500):
        timings.learn(good, MS)
    assert bad.seconds == pytest.approx(MS, rel=0.05)


def test_times_that_were_never_measured_are_learnt():
    core = Scheduler(100, 100)
    core.open_lane("a", LaneSettings(4))
    add(core, 1, n=4)
    run(core, seconds=0.5)
    add(core, 2, n=8)
    assert core.predicted_wait_s() == pytest.approx(1.0)


LENGTHS = {(1, 8): 1, (8, 8): 2, (16, 8): 3, (1, 64): 4, (8, 64): 10, (16, 64): 18}


def test_a_long_row_doesnt_make_the_short_ones_pay():
    core = scheduler(LENGTHS)
    add(core, 0, length=60)
    add(core, *range(1, 9), length=5)
    assert run(core) == [0]
    assert run(core) == list(range(1, 9))


def test_short_rows_ride_with_a_long_one_where_that_is_faster():
    core = scheduler({(1, 8): 1, (8, 8): 4, (1, 64): 3, (8, 64): 5})
    add(core, 1, 2, 3, length=5)
    add(core, 4, length=60)
    add(core, 5, length=2)
    action = core.next_action(0.0)
    assert [part.request_id for part in action.batch.parts] == [1, 2, 3, 4, 5]
    assert (action.batch.bucket, action.batch.lengths) == (Shape(8, (64,)), (60,))


def test_rows_that_would_be_empty_are_given_to_shorter_examples():
    core = scheduler({(1, 8): 1, (8, 8): 1.1, (4, 64): 4, (8, 64): 8})
    add(core, 0, 1, length=60)
    add(core, *range(2, 8), length=5)
    assert run(core) == [0, 1, 2, 3]
    assert run(core) == [4, 5, 6, 7]


def test_the_rows_of_one_request_go_apart_by_length():
    core = scheduler(LENGTHS)
    lengths = [(60,), (5,), (6,), (61,), (7,), *[(3,)] * 5]
    assert core.add(Request(1, "a", len(lengths), lengths), 0.0) is None
    ran = []
    while isinstance(action := core.next_action(0.0), RunBatch):
        core.completed(action.batch, action.batch.expected_s)
        ran.append((action.batch.lengths, [row for part in action.batch.parts for row in part.rows]))
    assert ran == [((7,), [1, 2, 4, 5, 6, 7, 8, 9]), ((60,), [0]), ((61,), [3])]


def test_beyond_the_warm_buckets_a_row_is_padded_to_less_than_twice_its_size():
    core = scheduler({(1, 8): 1, (8, 8): 2})
    add(core, 1, length=100)
    add(core, 2, length=5000)
    add(core, 3, length=70)
    add(core, 4, length=7)
    shapes = []
    for _ in range(3):
        batch = core.next_action(0.0).batch
        core.completed(batch, MS)
        shapes.append((batch.rows, batch.lengths, batch.bucket))
    assert shapes == [(2, (100,), None), (1, (5000,), None), (1, (7,), Shape(1, (8,)))]


def test_alternating_lengths_still_make_full_batches():
    core = scheduler({(16, 8): 2, (16, 64): 8, (1, 8): 1, (1, 64): 4})
    for id in range(32):
        add(core, id, length=60 if id % 2 else 5)
    assert batches(core) == [16, 16]


def test_a_priority_is_a_head_start_not_a_right_to_starve():
    core = scheduler({(1,): 1}, max_batch_size=1)
    add(core, 1, now=0.0)
    add(core, 2, now=1.0, priority=1)
    add(core, 3, now=HEAD_START_S + 1, priority=1)
    add(core, 4, now=HEAD_START_S + 1, priority=-50)
    add(core, 5, now=HEAD_START_S + 1, priority=50)
    assert [run(core, HEAD_START_S + 2)[0] for _ in range(5)] == [5, 2, 1, 3, 4]


def test_lanes_share_the_device_by_time_not_by_batches():
    core = scheduler({(1,): 10}, max_batch_size=1)
    core.open_lane("b", settings({(1,): 1}, max_batch_size=1))
    add(core, *range(100), lane="a")
    add(core, *range(100, 200), lane="b")
    ran = [run(core)[0] for _ in range(44)]
    assert sum(id >= 100 for id in ran) == pytest.approx(40, abs=2)


def test_having_been_idle_earns_nothing():
    core = scheduler({(1,): 1}, max_batch_size=1)
    core.open_lane("b", settings({(1,): 1}, max_batch_size=1))
    add(core, *range(20), lane="a")
    for _ in range(10):
        run(core)
    add(core, *range(100, 110), lane="b")
    ran = [run(core)[0] for _ in range(8)]
    assert sum(id >= 100 for id in ran) in (4, 5)


def test_what_cant_make_its_deadline_is_refused_at_once():
    core = scheduler({(1,): 10, (2,): 10}, max_batch_size=2)
    add(core, 1, 2, deadline=0.5)
    core.next_action(0.0)
    add(core, 3, 4, deadline=20 * MS)
    refusal = core.add(Request(5, "a", deadline=25 * MS), 0.0)
    assert refusal is not None
    assert refusal.reason == "deadline"
    assert refusal.predicted_wait_s == pytest.approx(30 * MS)
    assert refusal.retry_after_s == pytest.approx(5 * MS)
    vain = core.add(Request(6, "a", deadline=5 * MS), 0.0)
    assert vain is not None
    assert vain.retry_after_s == inf
    add(core, 7, deadline=31 * MS)


def test_an_idle_device_refuses_nobody():
    core = scheduler({(1,): 1000})
    add(core, 1, deadline=10 * MS)
    assert run(core) == [1]


def test_other_lanes_count_only_as_far_as_their_share():
    core = scheduler({(1,): 10}, max_batch_size=1)
    core.open_lane("b", settings({(1,): 1}, max_batch_size=1))
    add(core, *range(50))
    core.next_action(0.0)
    add(core, 100, lane="b", deadline=13 * MS)
    assert core.add(Request(101, "b", deadline=13 * MS), 0.0) is not None


def test_who_would_be_late_gives_way_and_runs_when_nothing_else_waits():
    core = scheduler({(1,): 8, (2,): 10}, max_batch_size=2)
    add(core, 1, 2, deadline=1.0)
    add(core, 3, deadline=39 * MS)
    for id in (4, 5, 6):
        add(core, id, deadline=41 * MS)
    assert run(core, 30 * MS) == [1, 2]
    add(core, 7, now=30 * MS)
    assert run(core, 31 * MS) == [4, 5]
    assert core.rows_queued == 3
    assert run(core, 35 * MS) == [7]
    action = core.next_action(36 * MS)
    assert isinstance(action, RunBatch)
    assert {part.request_id for part in action.batch.parts} == {3, 6}


def test_the_first_gets_a_smaller_batch_where_the_others_can_afford_it():
    core = scheduler({(1,): 1, (2,): 1.5, (4,): 3, (8,): 5, (16,): 8})
    add(core, 1, deadline=2 * MS)
    add(core, *range(2, 17), deadline=50 * MS)
    assert run(core) == [1, 2]
    assert len(run(core, 2 * MS)) == 14


def test_a_full_queue_says_when_it_will_have_drained_enough():
    core = scheduler({(4,): 100}, max_batch_size=4, examples=8)
    add(core, 1, n=8)
    run(core, seconds=0.1)
    add(core, 2, n=4)
    refusal = core.add(Request(3, "a", n=2), 0.0)
    assert refusal is not None
    assert refusal.predicted_wait_s == pytest.approx(0.2)
    assert refusal.retry_after_s == pytest.approx(0.05)


def test_a_decision_takes_microseconds_with_ten_thousand_queued():
    core = scheduler({(rows, length): rows * length for rows in (1, 8, 64) for length in (8, 64, 512)}, 64)
    for id in range(10_000):
        add(core, id, length=(5, 60, 500)[id % 3], deadline=1e6, priority=id % 5)
    started = time.perf_counter()
    for _ in range(20):
        run(core)
    each_s = (time.perf_counter() - started) / 20
    assert each_s < 5 * MS, "a decision takes microseconds on an idle machine; this allows for a busy one"


def test_what_was_cut_from_a_full_batch_doesnt_wait_for_company_again():
    core = Scheduler(100, 100)
    given = settings({(1, 8): 1, (4, 8): 2}, max_batch_size=4)
    core.open_lane("a", LaneSettings(4, given.buckets, given.seconds, delay_s=10.0))
    add(core, 1, 2, 3, length=5)
    add(core, 4, length=60)
    assert run(core) == [1, 2, 3]
    assert run(core) == [4]
    add(core, 5, length=5)
    assert not isinstance(core.next_action(0.0), RunBatch)


def test_a_request_of_a_hundred_sizes_beyond_the_buckets_loses_no_row():
    core = Scheduler(1000, 100)
    core.open_lane("a", LaneSettings(4, [Shape(4, (1, 1))], [MS]))
    sizes = [(2 << i, 2 << j) for i in range(10) for j in range(10)]
    for id in range(3):
        assert core.add(Request(id, "a", 100, sizes), 0.0) is None
    assert sum(batches(core)) == 300


def test_a_batch_that_got_only_short_rows_runs_in_a_short_bucket():
    core = scheduler({(1, 8): 1, (4, 8): 2, (1, 64): 1.5, (4, 64): 2.05}, max_batch_size=4)
    add(core, 1, 2, 3, 4, length=5)
    add(core, 5, length=60)
    assert core.next_action(0.0).batch.bucket == Shape(4, (8,))


def test_rows_of_one_request_may_fill_the_bucket_that_others_of_it_began():
    core = scheduler({(1, 8): 5, (2, 8): 5, (4, 8): 9, (1, 64): 9, (2, 64): 9, (4, 64): 5}, max_batch_size=4)
    assert core.add(Request(1, "a", 4, [(3,), (3,), (3,), (20,)]), 0.0) is None
    ran = []
    while isinstance(action := core.next_action(0.0), RunBatch):
        core.completed(action.batch, action.batch.expected_s)
        ran += [row for part in action.batch.parts for row in part.rows]
    assert sorted(ran) == [0, 1, 2, 3]
