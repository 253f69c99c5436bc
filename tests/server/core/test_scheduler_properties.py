"""Whatever arrives, leaves, expires and completes in whatever order: the scheduler's promises hold."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from server.core.records import LaneSettings, Request, RunBatch
from server.core.scheduler import Scheduler

LANES = ("a", "b")
MAX_BATCH_SIZE = 4
LIMIT = 12

add = st.tuples(st.just("add"), st.sampled_from(LANES), st.integers(1, 6), st.sampled_from([3.0, 10.0, float("inf")]))
cancel = st.tuples(st.just("cancel"), st.integers(0, 40))
step = st.tuples(st.sampled_from(["tick", "act", "complete", "act", "complete"]))
events = st.lists(st.one_of(add, add, cancel, step), max_size=120)


@settings(max_examples=300, deadline=None)
@given(events)
def test_promises(events):
    core = Scheduler(LIMIT, queue_limit_bytes=10**9)
    for lane in LANES:
        core.open_lane(lane, LaneSettings(MAX_BATCH_SIZE))
    now, accepted, ended, refused = 0.0, {}, set(), set()
    rows_run: Counter[int] = Counter()
    order: dict[str, list[int]] = defaultdict(list)
    running = None

    def report(expired):
        for id in expired:
            assert id not in ended, "expired twice, or after its caller left"
            assert accepted[id].deadline <= now
            ended.add(id)

    def act():
        nonlocal running
        action = core.next_action(now)
        report(action.expired)
        if not isinstance(action, RunBatch):
            assert running or not core.rows_queued, "idle with queued work"
            return
        assert running is None
        running = action.batch
        assert 1 <= running.rows <= MAX_BATCH_SIZE
        assert running.rows == sum(len(part.rows) for part in running.parts)
        for part in running.parts:
            assert part.request_id not in ended, "ran for a caller who is gone"
            assert part.rows[0] == rows_run[part.request_id], "a row was lost or ran twice"
            rows_run[part.request_id] = part.rows[-1] + 1
            order[running.lane].append(part.request_id)

    def complete():
        nonlocal running
        if running:
            core.completed(running, 1.0)
            running = None

    for id, event in enumerate(events):
        match event:
            case ("add", lane, n, patience):
                request = Request(id, lane, n, deadline=now + patience)
                queued = core.rows_queued
                if core.add(request, now) is None:
                    accepted[id] = request
                    assert core.rows_queued == queued + n <= LIMIT
                else:
                    refused.add(id)
                    assert queued + n > LIMIT
            case ("cancel", target):
                if core.cancel(target):
                    assert target in accepted
                    assert target not in ended
                    ended.add(target)
            case ("tick",):
                now += 1.0
                report(core.expire(now))
            case ("act",):
                act()
            case ("complete",):
                complete()

    while running or core.rows_queued:
        complete()
        act()
    for id, request in accepted.items():
        assert id in ended or rows_run[id] == request.n, "a request was lost"
    for lane in LANES:
        assert order[lane] == sorted(order[lane]), "not first in, first out"
    assert core.bytes_queued == 0
    assert not refused & set(rows_run)
