"""The scheduler: which requests run together, when, and which will not run at all.

The scheduler is arithmetic. It owns no clock, no socket, no task and no array: whoever drives it says what
happened and what time it is, asks for the next action, and does the waiting.

    add(request, now)            a request arrived; None, or a Refusal when it must not wait here
    cancel(id)                   its caller is gone
    next_action(now)             RunBatch | WaitUntil | WaitForRequest
    expire(now)                  requests whose deadline has passed; also asked while a batch runs
    completed(batch, seconds, between_s)   the batch that RunBatch ordered is done

One scheduler stands for one device, which computes one batch at a time, whichever model it is for. Requests
that may share a batch stand in the same lane. It decides with the time that batches were measured to take:
at warm-up, and corrected by every batch since (`curve.py`), by the time of computing only, never of waiting; and
with what is lost between batches (`learned.py`).

The rules, in the order in which they apply:

1. *A deadline is a promise.* A request whose deadline has passed is never run; it is reported once, by the
   next `expire` or `next_action`, whether it waits in the queue or is part of the batch that is running now.
   (Timers that fire only when a batch ends would answer seconds too late.)
2. *No vain waiting.* The queue is bounded, in examples and in bytes, over all lanes; and a request that, by
   the measured times, can't be answered before its deadline isn't queued either. Both are refused at once, and
   told when to come again: when the queue will have drained enough, at the rate of the last batches. Predictions are
   taken with as much caution as it took lately to keep the promises made by them (`learned.py`). An idle device
   refuses nobody, so that an estimate that has gone wrong gets the batch that will correct it.
3. *No idle device.* When nothing runs and a lane is due, its batch goes now. A lane is due as soon as it has
   a request, unless it was given a delay; then it waits for company until the batch is full, the delay is
   over, a deadline would be missed, or the queue is being drained.
4. *Fair between models, by device time.* Of the lanes that are due, the one that has used the device least
   goes, and among equals the one whose first request arrived first. A lane that was empty starts at what the
   others have come to: having been idle earns nothing. So whatever a lane has queued, another's request waits
   for one batch of it at most. Priorities say nothing across lanes.
5. *First in, first out* within a lane, a priority and a length. A priority is a head start: each level counts
   as having arrived `HEAD_START_S` earlier, so that a low one waits longer but not for ever.
6. *Padding by cost* (`lane.py`): which lengths share a batch, how many rows go at once and in which bucket is
   what clears the queue in the least measured time. The first in line is always part of the next batch.
7. *Requests are cut freely.* The rows of a request may run in different batches, those of one length in order.

A cancelled or expired request leaves the queue at once as far as counting goes; its entry in the queue is
skipped when its turn comes. Deadlines are kept in a heap with the same kind of lazy removal, which is rebuilt
when most of it is stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from math import inf

from server.core.lane import Lane
from server.core.learned import Between
from server.core.line import Entry
from server.core.records import (
    PRIORITY_LIMIT,
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

HEAD_START_S = 10.0
"""Seconds by which a request overtakes those of the priority below."""

_SHARES_OVER_S = 1.0
"""The time over which the lanes' shares of the device are taken."""

_RECENT = 0.9
"""What a batch counts for in the drain rate, with each batch that follows."""


class Scheduler:
    """One device; `queue_limit_examples` and `queue_limit_bytes` bound what waits in all lanes.

    `between_s`: what is lost between two batches, until it has been seen.
    """

    def __init__(self, queue_limit_examples: int, queue_limit_bytes: int, between_s: float = 0.0) -> None:
        self.queue_limit_examples = queue_limit_examples
        self.queue_limit_bytes = queue_limit_bytes
        self.rows_queued = 0
        self.bytes_queued = 0
        self.draining = False
        self.running: Batch | None = None
        self._between = Between(between_s)
        self._lanes: dict[Hashable, Lane] = {}
        self._live: dict[int, Entry] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._batches_sent = 0
        self._serial = 0
        self._ends_at = 0.0
        self._sent_at = 0.0
        self._sent: tuple[Hashable, float] = (None, 0.0)
        self._no_answer_before: dict[Hashable, float] = {}
        self._clear_at_most_s = 0.0
        self._device_s = 0.0
        self._drained_rows = 0.0
        self._drained_s = 0.0

    def open_lane(self, lane: Hashable, settings: LaneSettings) -> None:
        """Makes a lane known. Raises ValueError if it is open already."""
        if lane in self._lanes:
            raise ValueError(f"lane {lane!r} is open already")
        self._lanes[lane] = Lane(lane, settings, self._between)
        self._lanes[lane].device_s = self._device_s

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
        priority = max(-PRIORITY_LIMIT, min(PRIORITY_LIMIT, request.priority))
        self._serial += 1
        entry = Entry(request, now, priority, (now - priority * HEAD_START_S, self._serial), request.n)
        lane.divide(entry)
        if refusal := self._refusal(entry, lane, now):
            entry.pieces.clear()
            return refusal
        self._clear_at_most_s += entry.at_most_s
        self._live[request.id] = entry
        if not lane.rows_queued:
            lane.device_s = max(lane.device_s, self._device_s)
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
            if entry := self._live.get(id):
                if entry.promised is not None:
                    self._lanes[entry.request.lane].caution.broken(entry.promised)
                self.cancel(id)
                expired.append(id)
        return tuple(expired)

    def next_action(self, now: float) -> Action:
        """Says what to do now. After a RunBatch it only ever says wait, until `completed`."""
        expired = self.expire(now)
        if self.running is None and (due := self._lane_due(now)):
            lane, reason = due
            return RunBatch(self._send(lane, now), reason, expired)
        wake_at = min(self._next_deadline(), self._next_lane_due_at())
        return WaitUntil(wake_at, expired) if wake_at < inf else WaitForRequest(expired)

    def completed(self, batch: Batch, seconds: float, between_s: float = 0.0, *, representative: bool = True) -> None:
        """Takes note that the running batch is done after `seconds` of computing, or ValueError.

        `between_s`: what passed besides, from sending it to being done. `representative`: whether such a batch takes
        this long; not so where it failed or rows were run alone.
        """
        if self.running is not batch:
            raise ValueError(f"batch {batch.id} is not the one that is running")
        self.running = None
        self._no_answer_before.clear()
        if lane := self._lanes.get(batch.lane):
            lane.device_s += seconds - batch.expected_s
            self._sent = (batch.lane, seconds + between_s)
            if representative:
                lane.learn(seconds)
        if representative:
            self._between.learn(between_s)
        elif seconds > batch.expected_s:
            self._between.learn(between_s + seconds - batch.expected_s)
        if representative:
            self._drained_rows = self._drained_rows * _RECENT + batch.rows
            self._drained_s = self._drained_s * _RECENT + seconds + between_s
        for part in batch.parts:
            entry = self._live.get(part.request_id)
            if entry is not None and not entry.rows_left:
                if lane and entry.promised is not None:
                    lane.caution.kept(entry.promised)
                entry.pieces.clear()
                del self._live[part.request_id]

    def drain(self) -> None:
        """Refuses new requests from now on, and sends what is queued without waiting for company."""
        self.draining = True

    def predicted_wait_s(self) -> float:
        """Seconds of computing that are queued, by the measured time of batches."""
        return sum(lane.clear_s() for lane in self._lanes.values() if lane.rows_queued)

    def _refusal(self, entry: Entry, lane: Lane, now: float) -> Refusal | None:
        request = entry.request
        queued, limit = self.rows_queued, self.queue_limit_examples
        if self.draining:
            wait_s = self.predicted_wait_s()
            return Refusal("draining", queued, limit, wait_s, wait_s)
        if queued + request.n > limit:
            return Refusal(
                "examples", queued, limit, self.predicted_wait_s(), self._drain_s(queued + request.n - limit)
            )
        if self.bytes_queued + request.bytes > self.queue_limit_bytes:
            queued_bytes, limit_bytes = self.bytes_queued, self.queue_limit_bytes
            share = min(1.0, (queued_bytes + request.bytes - limit_bytes) / max(1, queued_bytes))
            return Refusal("bytes", queued_bytes, limit_bytes, self.predicted_wait_s(), self._drain_s(share * queued))
        if request.deadline == inf or (self.running is None and not queued):
            return None
        caution = lane.caution.at(now)
        entry.promised = lane.caution.version
        at_most_s = self._running_s(now) + self._clear_at_most_s + entry.at_most_s
        if now + caution * at_most_s <= request.deadline:
            return None
        # Until the next batch is sent the queue grows; who comes after its like that was refused needs no new sum.
        kind = (lane.key, entry.priority, *(piece.line for piece in entry.pieces))
        answered_at = self._no_answer_before.get(kind, -inf) if request.n == 1 else -inf
        if request.deadline >= answered_at:
            answered_at = now + caution * self._predicted_answer_s(entry, lane, now)
            if request.deadline >= answered_at:
                return None
            if request.n == 1:
                self._no_answer_before[kind] = answered_at
        vain = now + lane.alone_s(entry) > request.deadline
        retry_s = inf if vain else answered_at - request.deadline
        return Refusal("deadline", queued, limit, answered_at - now, retry_s)

    def _predicted_answer_s(self, entry: Entry, lane: Lane, now: float) -> float:
        """Seconds until a request that isn't queued yet would be answered: no fewer, by the measured times.

        The others get as much of the device as this lane until it is, or all that they ask for: what they have queued,
        and what will arrive, if it is as much as of late.
        """
        own_s = lane.clear_with_s(entry)
        others = [(other.clear_s(), other.share) for other in self._lanes.values() if other is not lane]
        until_s = own_s + sum(min(own_s, queued_s) for queued_s, _ in others)
        others_s = sum(min(own_s, queued_s + share * until_s) for queued_s, share in others)
        return self._running_s(now) + own_s + others_s

    def _running_s(self, now: float) -> float:
        """Seconds until the device is free."""
        return max(0.0, self._ends_at - now) if self.running is not None else 0.0

    def _drain_s(self, rows: float) -> float:
        """Seconds until so many rows fewer will wait, at the rate of the last batches."""
        if not self._drained_rows:
            return self.predicted_wait_s()
        return rows * self._drained_s / self._drained_rows

    def _leave(self, entry: Entry, lane: Lane) -> None:
        """Takes what has not run of an entry out of the counts and out of its lane."""
        if entry.rows_left:
            self.rows_queued -= entry.rows_left
            self.bytes_queued -= entry.request.bytes
        lane.remove(entry)
        entry.pieces.clear()

    def _note_shares(self, now: float) -> None:
        """Takes note of how the device was shared since the last batch was sent."""
        elapsed_s = max(1e-9, now - self._sent_at)
        weight = elapsed_s / (elapsed_s + _SHARES_OVER_S)
        user, seconds = self._sent
        for lane in self._lanes.values():
            used = min(1.0, seconds / elapsed_s) if lane.key == user else 0.0
            lane.share += (used - lane.share) * weight
        self._sent_at, self._sent = now, (None, 0.0)

    def _send(self, lane: Lane, now: float) -> Batch:
        self._note_shares(now)
        self._no_answer_before.clear()
        self._batches_sent += 1
        self._device_s = max(self._device_s, lane.device_s)
        batch = lane.take(self._batches_sent, now)
        lane.device_s += batch.expected_s
        self._ends_at = now + batch.expected_s + self._between.planned_s
        self._clear_at_most_s = self.predicted_wait_s()
        self.rows_queued -= batch.rows
        for part in batch.parts:
            entry = self._live[part.request_id]
            if not entry.rows_left:
                self.bytes_queued -= entry.request.bytes
        self.running = batch
        return batch

    def _lane_due(self, now: float) -> tuple[Lane, Reason] | None:
        """The lane to send from now, and why."""
        chosen: tuple[tuple[bool, float, float], Lane, Reason] | None = None
        for lane in self._lanes.values():
            only_late = lane.only_late
            head = lane.head()
            if head is None or (reason := self._reason_to_send(lane, now)) is None:
                continue
            rank = (only_late, lane.device_s, head.entry.arrived_at)
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
        if lane.rows_due:
            return "delay"
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
