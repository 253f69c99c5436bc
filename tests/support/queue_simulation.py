"""A device and its queue, simulated: the same arrivals under our scheduler, and under a fixed batch size and wait.

Goodput counts examples answered by their deadline. The fixed policy is given the same bounds as ours, and never
starts an example whose deadline has passed; what it doesn't have is the measured curve.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from server.core.records import Batch, LaneSettings, Request, RunBatch, WaitUntil
from server.core.scheduler import Scheduler

QUEUE_LIMIT = 4096


@dataclass(frozen=True)
class Shape:
    """A bucket."""

    rows: int
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Arrival:
    """One example of `length`, wanted within `slo_s`."""

    at: float
    slo_s: float
    length: int = 0
    lane: str = "a"


@dataclass(frozen=True)
class Model:
    """A device's true times: `seconds(rows, length)` of each bucket; a batch takes up to a tenth more or less."""

    seconds: Callable[[int, int], float]
    lengths: Sequence[int] = (0,)
    max_rows: int = 64

    def shapes(self) -> list[Shape]:
        rows = [2**power for power in range(self.max_rows.bit_length())]
        return [Shape(count, (length,) if length else ()) for count in rows for length in self.lengths]

    def smallest(self, rows: int, length: int) -> Shape:
        return min(
            (shape for shape in self.shapes() if shape.rows >= rows and (not length or shape.lengths[0] >= length)),
            key=lambda shape: (shape.rows, shape.lengths),
        )

    def settings(self) -> LaneSettings:
        shapes = self.shapes()
        return LaneSettings(self.max_rows, shapes, [self.expected_s(shape) for shape in shapes])

    def expected_s(self, shape: Shape) -> float:
        return self.seconds(shape.rows, shape.lengths[0] if shape.lengths else 0)


@dataclass(frozen=True)
class Machine:
    """How a machine differs from the quiet one that the times were measured on.

    `slower`: every batch takes so many times as long. `between_s`: what passes after each batch before the next
    begins, on the mean; exponentially distributed, as on a machine with other things to do.
    """

    slower: float = 1.0
    between_s: float = 0.0


@dataclass
class Outcome:
    """What became of the arrivals, in examples. `waits`: seconds from arrival to answer, by lane; `batches`: each
    one's rows and bucket."""

    good: int = 0
    late: int = 0
    expired: int = 0
    refused: int = 0
    batches: list[tuple[int, Shape]] = field(default_factory=list)
    waits: dict[str, list[float]] = field(default_factory=dict)

    def answered(self, arrival: Arrival, at: float) -> None:
        """Counts an answer."""
        self.waits.setdefault(arrival.lane, []).append(at - arrival.at)
        good = at <= arrival.at + arrival.slo_s
        self.good += good
        self.late += not good

    def expire(self, ids: Sequence[int], ended: set[int]) -> None:
        """Counts requests that the scheduler gave up."""
        ended.update(ids)
        self.expired += len(ids)

    @property
    def total(self) -> int:
        return self.good + self.late + self.expired + self.refused


def ours(models: dict[str, Model], arrivals: Sequence[Arrival], seed: int = 0, machine: Machine = Machine()) -> Outcome:
    """Plays the arrivals to our scheduler."""
    core = Scheduler(QUEUE_LIMIT, 10**9)
    for lane, model in models.items():
        core.open_lane(lane, model.settings())
    noise, outcome = random.Random(seed), Outcome()
    running: Batch | None = None
    seconds = between_s = ends_at = timer = inf
    ended: set[int] = set()
    upcoming = 0
    while True:
        arrives_at = arrivals[upcoming].at if upcoming < len(arrivals) else inf
        now = min(arrives_at, ends_at, timer)
        if now == inf:
            return outcome
        if running and ends_at <= now:
            for part in running.parts:
                if part.request_id not in ended:
                    outcome.answered(arrivals[part.request_id], now)
            core.completed(running, seconds, between_s)
            running, ends_at = None, inf
        if arrives_at <= now:
            arrival = arrivals[upcoming]
            lengths = ((arrival.length,),) if arrival.length else ()
            request = Request(upcoming, arrival.lane, 1, lengths, now + arrival.slo_s)
            outcome.refused += core.add(request, now) is not None
            upcoming += 1
        action = core.next_action(now)
        if isinstance(action, RunBatch):
            running = action.batch
            assert running.bucket is not None
            shape = Shape(running.bucket.rows, running.bucket.lengths)
            seconds = models[str(running.lane)].expected_s(shape) * machine.slower * noise.uniform(0.9, 1.1)
            between_s = noise.expovariate(1 / machine.between_s) if machine.between_s else 0.0
            ends_at = now + seconds + between_s
            outcome.batches.append((running.rows, shape))
            outcome.expire(action.expired, ended)
            action = core.next_action(now)
        outcome.expire(action.expired, ended)
        timer = action.time if isinstance(action, WaitUntil) else inf


def fixed(model: Model, arrivals: Sequence[Arrival], max_batch: int, max_wait_s: float, seed: int = 0) -> Outcome:
    """Plays the arrivals to a queue that sends `max_batch` at once, or what it has after `max_wait_s`."""
    noise, outcome, queue = random.Random(seed), Outcome(), deque[Arrival]()
    free_at, next_arrival = 0.0, 0
    while queue or next_arrival < len(arrivals):
        if not queue:
            queue.append(arrivals[next_arrival])
            next_arrival += 1
        starts_at = max(free_at, queue[0].at)
        due_at = max(starts_at, queue[0].at + max_wait_s)
        while next_arrival < len(arrivals) and arrivals[next_arrival].at <= due_at:
            arrival = arrivals[next_arrival]
            if len(queue) >= max_batch and arrival.at > starts_at:
                break
            next_arrival += 1
            if len(queue) < QUEUE_LIMIT:
                queue.append(arrival)
            else:
                outcome.refused += 1
        now = max(starts_at, queue[max_batch - 1].at) if len(queue) >= max_batch else due_at
        batch: list[Arrival] = []
        while queue and len(batch) < max_batch:
            arrival = queue.popleft()
            if arrival.at + arrival.slo_s <= now:
                outcome.expired += 1
            else:
                batch.append(arrival)
        if batch:
            shape = model.smallest(len(batch), max(arrival.length for arrival in batch))
            free_at = now + model.expected_s(shape) * noise.uniform(0.9, 1.1)
            outcome.batches.append((len(batch), shape))
            for arrival in batch:
                outcome.answered(arrival, free_at)
    return outcome
