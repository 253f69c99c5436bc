"""One lane: the queue of the requests that may share a batch, first in, first out within a priority."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import ceil, inf

from server.core.buckets import choose_bucket, longest
from server.core.records import Batch, LaneSettings, Part, Request

_SMOOTHING = 0.2
"""Weight of the newest batch in the moving average of batch times: the last ten or so decide."""


@dataclass(slots=True)
class Entry:
    """A request that is queued, running, or (when split) both."""

    request: Request
    arrived_at: float
    next_row: int = 0
    gone: bool = False

    @property
    def rows_left(self) -> int:
        return self.request.n - self.next_row


class Lane:
    """A queue and the measured time of its batches. Entries that are `gone` are skipped when they are met."""

    def __init__(self, key: Hashable, settings: LaneSettings) -> None:
        self.key = key
        self.settings = settings
        self.rows_queued = 0
        self.batch_s = settings.expected_batch_s
        self._queues: dict[int, deque[Entry]] = {}
        self._priorities: list[int] = []

    def append(self, entry: Entry) -> None:
        """Puts a new entry at the end of its priority."""
        priority = entry.request.priority
        queue = self._queues.get(priority)
        if queue is None:
            queue = self._queues[priority] = deque()
            self._priorities = sorted(self._queues, reverse=True)
        queue.append(entry)
        self.rows_queued += entry.rows_left

    def remove(self, entry: Entry) -> None:
        """Takes the rows of an entry that have not run yet out of the queue."""
        entry.gone = True
        self.rows_queued -= entry.rows_left
        self.head()

    def head(self) -> Entry | None:
        """Returns the entry that goes first, or None when nothing is queued."""
        for priority in self._priorities:
            queue = self._queues[priority]
            while queue and (queue[0].gone or not queue[0].rows_left):
                queue.popleft()
            if queue:
                return queue[0]
        return None

    def entries(self) -> Iterator[Entry]:
        """Yields what is queued, in the order in which it will run."""
        for priority in self._priorities:
            for entry in self._queues[priority]:
                if not entry.gone and entry.rows_left:
                    yield entry

    def take(self, batch_id: int) -> Batch:
        """Takes the first rows, at most `max_batch_size`, as a batch; a request may be cut at any row."""
        parts: list[Part] = []
        rows = 0
        lengths: tuple[int, ...] = ()
        limit = self.settings.max_batch_size
        while rows < limit and (entry := self.head()) is not None:
            count = min(entry.rows_left, limit - rows)
            parts.append(Part(entry.request.id, entry.next_row, entry.next_row + count))
            entry.next_row += count
            rows += count
            lengths = longest(lengths, entry.request.lengths)
        self.rows_queued -= rows
        bucket = choose_bucket(self.settings.buckets, rows, lengths)
        return Batch(batch_id, self.key, tuple(parts), rows, lengths, bucket)

    def is_full(self) -> bool:
        """Whether a batch taken now could not grow by waiting."""
        return self.rows_queued >= self.settings.max_batch_size

    def delay_ends_at(self) -> float:
        """When the lane has waited long enough for company: its oldest request, by the delay. Never empty."""
        head = self.head()
        assert head is not None
        return head.arrived_at + self.settings.delay_s

    def must_start_by(self) -> float:
        """The last moment at which a batch of the rows queued now would still meet every deadline in it."""
        deadline, rows = inf, 0
        for entry in self.entries():
            if rows >= self.settings.max_batch_size:
                break
            deadline = min(deadline, entry.request.deadline)
            rows += entry.rows_left
        return deadline - self.batch_s

    def learn(self, seconds: float) -> None:
        """Corrects the expected time of a batch by a measured one (execution only, never waiting)."""
        self.batch_s += (seconds - self.batch_s) * (_SMOOTHING if self.batch_s else 1.0)

    def predicted_wait_s(self) -> float:
        """Seconds of computing that are queued here."""
        return ceil(self.rows_queued / self.settings.max_batch_size) * self.batch_s
