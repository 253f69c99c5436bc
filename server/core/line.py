"""One line of a lane: the rows of about the same length, first in, first out within a priority."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from server.core.curve import Curve
from server.core.lengths import Lengths
from server.core.records import Request

_STALE_KEPT = 256
"""A queue is cleared of what has left it when that is most of it, and at least this many."""


@dataclass(slots=True, eq=False)
class Entry:
    """A request that is queued, running, or (when split) both.

    `priority`: the request's, within bounds. `order`: its place among all requests of the lane, smaller first.
    `rows_left`: rows that have not been sent. `at_most_s`: seconds to clear it row by row, which is more than it
    adds to any queue. `pieces`: until it has left; they refer to it, and circles wait for the collector of garbage.
    `promised`: let in because a prediction said that it would be on time; the version of
    the caution that this was said with, else None.
    """

    request: Request
    arrived_at: float
    priority: int
    order: tuple[float, int]
    rows_left: int
    pieces: list[Piece] = field(default_factory=list)
    at_most_s: float = 0.0
    gone: bool = False
    promised: int | None = None


@dataclass(slots=True, eq=False)
class Piece:
    """The rows of a request that stand in one line; `next` counts those that have been sent.

    `late`: set aside, since by the measured times it can't make its deadline. `tried`: was set aside before.
    """

    entry: Entry
    line: Line
    rows: Sequence[int]
    next: int = 0
    late: bool = False
    tried: bool = False

    @property
    def left(self) -> int:
        return len(self.rows) - self.next


class Line:
    """`lengths`: what its batches are padded to. `warm`: whether programs of that size are.

    `rows` counts what is queued; pieces of requests that are gone are skipped when they are met.
    """

    def __init__(self, lengths: Lengths, curve: Curve, warm: bool) -> None:
        self.lengths = lengths
        self.curve = curve
        self.warm = warm
        self.rows = 0
        self._queues: dict[int, deque[Piece]] = {}
        self._stale = 0

    def append(self, piece: Piece) -> None:
        """Puts a piece at the end of its priority."""
        priority = piece.entry.priority
        queue = self._queues.get(priority)
        if queue is None:
            queue = self._queues[priority] = deque()
        queue.append(piece)
        self.rows += piece.left

    def leave(self, piece: Piece) -> None:
        """Takes note that the request of a piece is gone."""
        self.rows -= piece.left
        self._stale += 1
        if self._stale > _STALE_KEPT and 2 * self._stale > sum(map(len, self._queues.values())):
            self._sweep()

    def head(self) -> Piece | None:
        """Returns the piece that goes first, or None when nothing is queued."""
        first: Piece | None = None
        emptied: int | None = None
        for priority, queue in self._queues.items():
            while queue and ((piece := queue[0]).entry.gone or piece.next == len(piece.rows)):
                self._stale -= queue.popleft().entry.gone
            if not queue:
                emptied = priority
            elif first is None or queue[0].entry.order < first.entry.order:
                first = queue[0]
        if emptied is not None:
            del self._queues[emptied]
        return first

    def rows_below(self, priority: int) -> int:
        """Rows of lower priorities, as if every request had one."""
        return sum(len(queue) for each, queue in self._queues.items() if each < priority)

    def pieces(self) -> Iterator[Piece]:
        """Yields what is queued, in order within each priority."""
        for queue in self._queues.values():
            yield from (piece for piece in queue if piece.left and not piece.entry.gone)

    def set_aside(self, piece: Piece) -> None:
        """Takes the piece that goes first out of the queue, unsent."""
        piece.late = piece.tried = True
        self._queues[piece.entry.priority].popleft()
        self.rows -= piece.left

    def _sweep(self) -> None:
        for priority, queue in list(self._queues.items()):
            kept = deque(piece for piece in queue if piece.left and not piece.entry.gone)
            self._queues[priority] = kept
        self._stale = 0
