"""The scheduler: which requests run together, when, and which will not run at all.

The scheduler is arithmetic. It owns no clock, no socket, no task and no array: whoever drives it says what
happened and what time it is, asks for the next action, and does the waiting.

    add(request, now)            a request arrived; None, or a Refusal when the queue is at its bound
    cancel(id)                   its caller is gone
    next_action(now)             RunBatch | WaitUntil | WaitForRequest
    expire(now)                  requests whose deadline has passed; also asked while a batch runs
    completed(batch, seconds)    the batch that RunBatch ordered is done

One scheduler stands for one device, which computes one batch at a time, whichever model it is for. Requests
that may share a batch stand in the same lane. Examples of different lengths share a lane: a batch is padded
to the smallest warm bucket that holds it, so that one long example never sends the others off early.

The rules, in the order in which they apply:

1. *A deadline is a promise.* A request whose deadline has passed is never run; it is reported once, by the
   next `expire` or `next_action`, whether it waits in the queue or is part of the batch that is running now.
   (Timers that fire only when a batch ends would answer seconds too late.)
2. *The queue is bounded*, in examples and in bytes, over all lanes. Beyond the bound a request is refused
   at once; the refusal says how long the queue would take, by the measured time of batches.
3. *No idle device.* When nothing runs and a lane is due, its batch goes now. A lane is due as soon as it has
   a request, unless it was given a delay; then it waits for company until the batch is full, the delay is
   over, a deadline would be missed, or the queue is being drained.
4. *Oldest first.* Of the lanes that are due, the one with the highest priority waiting goes, and among
   equals the one whose first request arrived first; so no model can starve another.
5. *First in, first out* within a lane and a priority. A request of several examples may be cut at any row;
   the rest stays at the front.

A cancelled or expired request leaves the queue at once as far as counting goes; its entry in the queue is
skipped when its turn comes. Deadlines are kept in a heap with the same kind of lazy removal, which is rebuilt
when most of it is stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from math import inf

from server.core.lane import Entry, Lane
from server.core.records import (
    Action,
    Batch,
    LaneSettings,
    Reason,
    Refusal,
    Request,
    RunBatch,
    WaitForRequest,
    WaitUntil,
)

_STALE_DEADLINES_KEPT = 1024
"""The heap of deadlines is rebuilt when it has this many entries more than twice the live requests."""


class Scheduler:
    """One device; `queue_limit_examples` and `queue_limit_bytes` bound what waits in all lanes."""

    def __init__(self, queue_limit_examples: int, queue_limit_bytes: int) -> None:
        self.queue_limit_examples = queue_limit_examples
        self.queue_limit_bytes = queue_limit_bytes
        self.rows_queued = 0
        self.bytes_queued = 0
        self.draining = False
        self.running: Batch | None = None
        self._lanes: dict[Hashable, Lane] = {}
        self._live: dict[int, Entry] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._batches_sent = 0

    def open_lane(self, lane: Hashable, settings: LaneSettings) -> None:
        """Makes a lane known. Raises ValueError if it is open already."""
        if lane in self._lanes:
            raise ValueError(f"lane {lane!r} is open already")
        self._lanes[lane] = Lane(lane, settings)

    def close_lane(self, lane: Hashable) -> tuple[int, ...]:
        """Forgets a lane; returns the ids of its requests, queued or running, oldest first."""
        closed = self._lanes.pop(lane)
        ids = tuple(id for id, entry in self._live.items() if entry.request.lane == lane)
        for id in ids:
            self._leave(self._live.pop(id), closed)
        return ids

    def rows_queued_in(self, lane: Hashable) -> int:
        """Examples that wait in one lane."""
        return self._lanes[lane].rows_queued

    def add(self, request: Request, now: float) -> Refusal | None:
        """Queues a request; returns a Refusal, and queues nothing, when it must not wait here."""
        lane = self._lanes[request.lane]
        if refusal := self._refusal(request):
            return refusal
        entry = Entry(request, now)
        self._live[request.id] = entry
        lane.append(entry)
        self.rows_queued += request.n
        self.bytes_queued += request.bytes
        if request.deadline < inf:
            heapq.heappush(self._deadlines, (request.deadline, request.id))
            self._drop_stale_deadlines()
        return None

    def cancel(self, id: int) -> bool:
        """Forgets a request whose caller is gone; False if it is not known (any more)."""
        entry = self._live.pop(id, None)
        if entry is None:
            return False
        self._leave(entry, self._lanes[entry.request.lane])
        return True

    def expire(self, now: float) -> tuple[int, ...]:
        """Forgets the requests whose deadline is not after `now`; returns their ids, earliest first."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, id = heapq.heappop(self._deadlines)
            if self.cancel(id):
                expired.append(id)
        return tuple(expired)

    def next_action(self, now: float) -> Action:
        """Says what to do now. After a RunBatch it only ever says wait, until `completed`."""
        expired = self.expire(now)
        if self.running is None and (due := self._lane_due(now)):
            lane, reason = due
            return RunBatch(self._send(lane), reason, expired)
        wake_at = min(self._next_deadline(), self._next_lane_due_at())
        return WaitUntil(wake_at, expired) if wake_at < inf else WaitForRequest(expired)

    def completed(self, batch: Batch, seconds: float) -> None:
        """Takes note that the running batch is done after `seconds` of computing, or ValueError."""
        if self.running is not batch:
            raise ValueError(f"batch {batch.id} is not the one that is running")
        self.running = None
        if lane := self._lanes.get(batch.lane):
            lane.learn(seconds)
        for part in batch.parts:
            entry = self._live.get(part.request_id)
            if entry is not None and not entry.rows_left:
                del self._live[part.request_id]

    def drain(self) -> None:
        """Refuses new requests from now on, and sends what is queued without waiting for company."""
        self.draining = True

    def predicted_wait_s(self) -> float:
        """Seconds of computing that are queued, by the measured time of batches."""
        return sum(lane.predicted_wait_s() for lane in self._lanes.values())

    def _refusal(self, request: Request) -> Refusal | None:
        if self.draining:
            return Refusal("draining", self.rows_queued, self.queue_limit_examples, self.predicted_wait_s())
        if self.rows_queued + request.n > self.queue_limit_examples:
            return Refusal("examples", self.rows_queued, self.queue_limit_examples, self.predicted_wait_s())
        if self.bytes_queued + request.bytes > self.queue_limit_bytes:
            return Refusal("bytes", self.bytes_queued, self.queue_limit_bytes, self.predicted_wait_s())
        return None

    def _leave(self, entry: Entry, lane: Lane) -> None:
        """Takes what has not run of an entry out of the counts and out of its lane."""
        if entry.rows_left:
            self.rows_queued -= entry.rows_left
            self.bytes_queued -= entry.request.bytes
        lane.remove(entry)

    def _send(self, lane: Lane) -> Batch:
        self._batches_sent += 1
        batch = lane.take(self._batches_sent)
        self.rows_queued -= batch.rows
        for part in batch.parts:
            entry = self._live[part.request_id]
            if not entry.rows_left:
                self.bytes_queued -= entry.request.bytes
        self.running = batch
        return batch

    def _lane_due(self, now: float) -> tuple[Lane, Reason] | None:
        """The lane to send from now, and why."""
        chosen: tuple[tuple[int, float], Lane, Reason] | None = None
        for lane in self._lanes.values():
            head = lane.head()
            if head is None or (reason := self._reason_to_send(lane, now)) is None:
                continue
            rank = (-head.request.priority, head.arrived_at)
            if chosen is None or rank < chosen[0]:
                chosen = (rank, lane, reason)
        return chosen and (chosen[1], chosen[2])

    def _reason_to_send(self, lane: Lane, now: float) -> Reason | None:
        if lane.is_full():
            return "full"
        if self.draining:
            return "drain"
        if not lane.settings.delay_s:
            return "idle"
        if lane.must_start_by() <= now:
            return "deadline"
        return "delay" if lane.delay_ends_at() <= now else None

    def _next_deadline(self) -> float:
        while self._deadlines and self._deadlines[0][1] not in self._live:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else inf

    def _next_lane_due_at(self) -> float:
        """When the next lane will be due; a busy device is asked again when it completes."""
        if self.running is not None:
            return inf
        waiting = (lane for lane in self._lanes.values() if lane.head() is not None)
        return min((min(lane.delay_ends_at(), lane.must_start_by()) for lane in waiting), default=inf)

    def _drop_stale_deadlines(self) -> None:
        if len(self._deadlines) > 2 * len(self._live) + _STALE_DEADLINES_KEPT:
            self._deadlines = [(time, id) for time, id in self._deadlines if id in self._live]
            heapq.heapify(self._deadlines)
