"""Whatever arrives, leaves, expires and completes in whatever order: the scheduler's promises hold."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from server.core.records import Batch, LaneSettings, Request, RunBatch
from server.core.scheduler import HEAD_START_S, Scheduler

LANES = ("a", "b")
MAX_BATCH_SIZE = 4
LIMIT = 12
LIMIT_BYTES = 20
LEVELS = (8, 32)


@dataclass(frozen=True)
class Shape:
    rows: int
    lengths: tuple[int, ...]


SHAPES = [Shape(rows, (length,)) for rows in (1, 2, 4) for length in LEVELS]
lengths = st.sampled_from([3, 8, 20, 100, 120])
add = st.tuples(
    st.just("add"),
    st.sampled_from(LANES),
    st.lists(lengths, min_size=1, max_size=6),
    st.sampled_from([3.0, 10.0, inf, inf]),
    st.sampled_from([0, 0, 1, -1]),
    st.integers(0, 4),
)
cancel = st.tuples(st.just("cancel"), st.integers(0, 40))
step = st.tuples(st.sampled_from(["tick", "act", "complete", "act", "complete"]))
events = st.lists(st.one_of(add, add, cancel, step), max_size=120)
times = st.lists(st.sampled_from([0.0, 0.3, 1.0, 4.0]), min_size=len(SHAPES), max_size=len(SHAPES))


class Witness:
    """Sees everything that happens to a scheduler, and checks the promises as it goes."""

    def __init__(self, seconds: list[float]) -> None:
        self.core = Scheduler(LIMIT, LIMIT_BYTES)
        for lane in LANES:
            self.core.open_lane(lane, LaneSettings(MAX_BATCH_SIZE, SHAPES, seconds))
        self.now = 0.0
        self.accepted: dict[int, tuple[Request, float]] = {}
        self.ended: set[int] = set()
        self.ran: dict[int, set[int]] = defaultdict(set)
        self.order: dict[object, list[tuple[float, int, int]]] = defaultdict(list)
        self.running: Batch | None = None

    def add(self, id: int, lane: str, sizes: list[int], patience: float, priority: int, size_bytes: int) -> None:
        each = [(size,) for size in sizes]
        request = Request(id, lane, len(sizes), each, self.now + patience, priority, size_bytes)
        rows, held = self.core.rows_queued, self.core.bytes_queued
        refusal = self.core.add(request, self.now)
        if refusal is None:
            self.accepted[id] = (request, self.now)
            assert self.core.rows_queued == rows + request.n <= LIMIT
            assert self.core.bytes_queued == held + request.bytes <= LIMIT_BYTES
            return
        assert self.core.rows_queued == rows
        if refusal.reason == "deadline":
            assert rows or self.running, "an idle device refused"
            assert self.now + refusal.predicted_wait_s > request.deadline
        else:
            assert rows + request.n > LIMIT or held + request.bytes > LIMIT_BYTES
        assert refusal.retry_after_s >= 0

    def cancel(self, id: int) -> None:
        if self.core.cancel(id):
            assert id in self.accepted
            assert id not in self.ended
            self.ended.add(id)

    def act(self) -> None:
        action = self.core.next_action(self.now)
        self.expire(action.expired)
        if not isinstance(action, RunBatch):
            assert self.running or not self.core.rows_queued, "idle with queued work"
            return
        assert self.running is None
        self.running = batch = action.batch
        assert 1 <= batch.rows <= MAX_BATCH_SIZE
        assert batch.rows == sum(len(part.rows) for part in batch.parts)
        sizes = [size for part in batch.parts for row in part.rows for size in self.row(part.request_id, row)]
        assert batch.lengths == (max(sizes),)
        if batch.bucket is None:
            assert min(sizes) > LEVELS[-1], "a row that fits a warm bucket ran cold"
            assert max(sizes) < 2 * min(sizes), "more padding than content"
        else:
            assert batch.bucket.rows >= batch.rows
            assert batch.bucket.lengths >= batch.lengths
        for part in batch.parts:
            self.run(part.request_id, part.rows)

    def row(self, id: int, row: int) -> tuple[int, ...]:
        return self.accepted[id][0].lengths[row]

    def run(self, id: int, rows: list[int]) -> None:
        request, arrived_at = self.accepted[id]
        assert id not in self.ended, "ran for a caller who is gone"
        assert self.now < request.deadline, "ran too late"
        assert self.ran[id].isdisjoint(rows), "a row ran twice"
        self.ran[id].update(rows)
        if request.deadline == inf:
            for row in rows:
                level = next((level for level in LEVELS if level >= self.row(id, row)[0]), None)
                place = (arrived_at - request.priority * HEAD_START_S, id, row)
                self.order[request.lane, request.priority, level].append(place)

    def expire(self, ids: tuple[int, ...]) -> None:
        for id in ids:
            assert id not in self.ended, "expired twice, or after its caller left"
            assert self.accepted[id][0].deadline <= self.now
            self.ended.add(id)

    def complete(self) -> None:
        if self.running:
            self.core.completed(self.running, 1.0)
            self.running = None

    def finish(self) -> None:
        while self.running or self.core.rows_queued:
            self.complete()
            self.act()
        for id, (request, _) in self.accepted.items():
            assert id in self.ended or len(self.ran[id]) == request.n, "a row was lost"
        for places in self.order.values():
            assert places == sorted(places), "not first in, first out"
        assert self.core.bytes_queued == 0


@settings(max_examples=300, deadline=None)
@given(times, events)
def test_promises(seconds, events):
    witness = Witness(seconds)
    for id, event in enumerate(events):
        match event:
            case ("add", lane, sizes, patience, priority, size_bytes):
                witness.add(id, lane, sizes, patience, priority, size_bytes)
            case ("cancel", target):
                witness.cancel(target)
            case ("tick",):
                witness.now += 1.0
                witness.expire(witness.core.expire(witness.now))
            case ("act",):
                witness.act()
            case ("complete",):
                witness.complete()
    witness.finish()
