"""What goes into the scheduler and what comes out: plain records. Times are seconds of the caller's clock."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol, TypeAlias

Reason: TypeAlias = Literal["full", "idle", "deadline", "delay", "drain"]
"""Why a batch was sent: it could not grow; the engine was idle and the lane doesn't wait; a deadline would
have been missed by waiting longer; the lane's delay was over, or this is the rest of a batch that was cut; the
queue is being emptied for good."""

PRIORITY_LIMIT = 10
"""Priorities beyond this, either way, count as this."""


class BucketShape(Protocol):
    """A padded shape: rows, and one length for each measured size of an example."""

    @property
    def rows(self) -> int: ...
    @property
    def lengths(self) -> tuple[int, ...]: ...


@dataclass(slots=True)
class Request:
    """What one caller sent, as far as scheduling goes.

    `n`: examples. `lengths`: the measured sizes of each, one for each bound of the lane; empty where nothing is
    measured. `deadline`: when the caller stops waiting. `priority`: higher goes first, within
    -`PRIORITY_LIMIT` .. `PRIORITY_LIMIT`. `bytes`: of its arrays.
    """

    id: int
    lane: Hashable
    n: int = 1
    lengths: Sequence[tuple[int, ...]] = ()
    deadline: float = inf
    priority: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How the requests of one lane share batches.

    `max_batch_size`: rows. `buckets`: the warm shapes; empty means that every shape is as good as another.
    `seconds`: the measured time of a full batch of each bucket, which `completed` corrects; 0, or missing: not
    known yet. `delay_s`: how long a lane waits for company; 0 means never. `lengths_apart`: examples share batches
    only with those whose smallest lengths that hold them are the same.
    """

    max_batch_size: int
    buckets: Sequence[BucketShape] = ()
    seconds: Sequence[float] = ()
    delay_s: float = 0.0
    lengths_apart: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """These rows of a request, ascending."""

    request_id: int
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """What runs together: the rows of `parts`, in that order; one part for each request.

    `lengths`: the largest of every measured size. `bucket`: the warm shape that holds them and takes the least
    time, or None. `expected_s`: its measured time, 0 when not known.
    """

    id: int
    lane: Hashable
    parts: tuple[Part, ...]
    rows: int
    lengths: tuple[int, ...]
    bucket: BucketShape | None
    expected_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Run this batch now, and report it with `completed`. `expired`: requests to be answered as too late."""

    batch: Batch
    reason: Reason
    expired: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before `time`, unless a request arrives or a batch completes."""

    time: float
    expired: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitForRequest:
    """Nothing to do until a request arrives or a batch completes."""

    expired: tuple[int, ...] = ()


Action: TypeAlias = RunBatch | WaitUntil | WaitForRequest


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not queued: `queued` of `limit` examples (or bytes) were waiting.

    `predicted_wait_s`: when the request would have been answered, or, where the queue is full or draining, when
    the queue of this moment will have been worked off. `retry_after_s`: when the same request would be let in; infinite
    where its deadline is too near for any queue.
    """

    reason: Literal["examples", "bytes", "draining", "deadline"]
    queued: int
    limit: int
    predicted_wait_s: float
    retry_after_s: float
