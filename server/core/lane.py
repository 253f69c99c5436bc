"""One lane: the requests that may share a batch, and the choice of the next batch among them.

Rows stand in *lines* by length: one for each length of the warm buckets, and, for what exceeds them all, one
for each power of two. Whoever goes first of all lines (the *head*) is always part of the next batch, so no
length starves another. What else rides along is a matter of cost:

*   Lines are joined where the measured curve says that clearing them together takes less time than clearing
    them apart: five short rows ride with one long row if that is cheaper than a batch of their own. Lines
    beyond the warm buckets are never joined, and a row in them is padded to less than twice its size.
*   The curve also says how many rows go now: 12 as 8 and then 4, or all in a batch of 16.
*   Rows of the bucket that would stay empty are given to shorter examples, which costs nothing.

Where the head would miss its deadline in that batch, a smaller one is formed that the head can make, if everyone
behind it can afford that; else the one that answers the most rows on time for the time it takes. A row that
can't be on time in the batch that is formed is *set aside* while others can have its place, and runs when the
lane has nothing better to do: the estimate may be wrong, the deadline never is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from math import inf, prod

from server.core.curve import Curve, Timing, Timings
from server.core.learned import Between, Caution
from server.core.lengths import Lengths, doubled, holds, longest
from server.core.line import Entry, Line, Piece
from server.core.records import Batch, LaneSettings, Part

_DEADLINES_SEEN = 4
"""Batches' worth of the queue whose deadlines are looked at when a batch can't be on time for its first row."""

_LENGTHS_KEPT = 4096
"""Lengths whose line is remembered, since finding it costs more than everything else about a request."""

_LONGER_KEPT = 64
"""Lines beyond the warm buckets that are remembered, with what was learnt of their batches."""


@dataclass(slots=True)
class _Choice:
    """The next batch, before its rows are taken: `rows` from `lines`, by the buckets of `curve`, in `seconds`."""

    lines: list[Line]
    curve: Curve
    rows: int
    seconds: float


class Lane:
    """The lines of one lane.

    `device_s`: the device's time that it has used, for fairness. `share`: of the last second or so. `rows_due`: what is
    left of the rows that were to go together and were cut into several batches; they don't wait for company again.
    `caution`: what its predictions are multiplied by.
    """

    def __init__(self, key: Hashable, settings: LaneSettings, between: Between) -> None:
        self.key = key
        self.settings = settings
        self.caution = Caution()
        self._between = between
        self.rows_queued = 0
        self.device_s = 0.0
        self.share = 0.0
        self.rows_due = 0
        self._warm = _warm_lines(settings, between)
        self._longer: dict[Lengths, Line] = {}
        self._line_of: dict[Lengths, Line] = {}
        self._late: deque[Piece] = deque()
        self._rows_late = 0
        self._has_priorities = False
        self._sent: tuple[Curve, Timing] | None = None

    @property
    def only_late(self) -> bool:
        """Whether everything queued has been set aside."""
        return self.rows_queued == self._rows_late

    def divide(self, entry: Entry) -> None:
        """Gives the rows of a request to the lines of their lengths; they aren't queued yet."""
        request = entry.request
        if not request.lengths or not self.settings.buckets:
            line = self._line_for(())
            entry.pieces = [Piece(entry, line, range(request.n))]
            entry.at_most_s = request.n * line.curve.clear_s(1)
            return
        rows_of: dict[Line, list[int]] = {}
        for row, lengths in enumerate(request.lengths):
            rows_of.setdefault(self._line_for(lengths), []).append(row)
        entry.pieces = [Piece(entry, line, rows) for line, rows in rows_of.items()]
        entry.at_most_s = sum(len(rows) * line.curve.clear_s(1) for line, rows in rows_of.items())

    def append(self, entry: Entry) -> None:
        """Queues the rows of a request that was divided."""
        for piece in entry.pieces:
            piece.line.append(piece)
        self.rows_queued += entry.rows_left
        self._has_priorities |= entry.priority != 0

    def remove(self, entry: Entry) -> None:
        """Takes the rows of an entry that have not been sent out of the queue."""
        entry.gone = True
        for piece in entry.pieces:
            if piece.late:
                self._rows_late -= piece.left
            else:
                piece.line.leave(piece)
        self.rows_queued -= entry.rows_left
        self.rows_due = min(self.rows_due, self.rows_queued)

    def head(self) -> Piece | None:
        """Returns the piece that goes first; where only late ones are left, they are queued again."""
        if self.rows_queued and self.only_late:
            self._bring_back()
        heads = (line.head() for line in self._lines())
        return min((piece for piece in heads if piece), key=_order, default=None)

    def take(self, batch_id: int, now: float) -> Batch:
        """Takes the rows of the next batch out of the queue, which isn't empty."""
        head = self.head()
        assert head is not None
        due = self.rows_due or min(self.rows_queued, self.settings.max_batch_size)
        choice = self._timely(self._choose(head.line), head, now)
        taken: list[tuple[Piece, Sequence[int]]] = []
        rows = self._collect(taken, choice.lines, choice.rows, now + choice.seconds)
        line = self._holding(taken)
        timing = line.curve.holding(rows)
        if line.warm and timing.rows > rows and not self.settings.lengths_apart:
            shorter = [other for other in self._warm if other.rows and holds(line.lengths, other.lengths)]
            rows += self._collect(taken, shorter, min(timing.rows, self.settings.max_batch_size) - rows, -inf)
        self._sent = (line.curve, timing)
        self.rows_due = max(0, due - rows)
        self._forget_lines()
        return self._batch(batch_id, taken, rows, timing)

    def learn(self, seconds: float) -> None:
        """Corrects the curve by the batch that was taken last."""
        if self._sent is not None:
            curve, timing = self._sent
            curve.learn(timing, seconds)

    def is_full(self) -> bool:
        """Whether a batch taken now could not grow by waiting."""
        return self.rows_queued >= self.settings.max_batch_size

    def delay_ends_at(self) -> float:
        """When the lane has waited long enough for company: its first request, by the delay. Never empty."""
        head = self.head()
        assert head is not None
        return head.entry.arrived_at + self.settings.delay_s

    def must_start_by(self) -> float:
        """The last moment at which what is queued now, a batch at most, would still meet every deadline in it."""
        if self.is_full():
            return -inf
        pieces = (piece for line in self._lines() for piece in line.pieces())
        deadline = min((piece.entry.request.deadline for piece in pieces), default=inf)
        return deadline - self.clear_s()

    def clear_s(self) -> float:
        """Seconds to clear what is queued."""
        return self._clear_s({line: line.rows for line in self._lines()})

    def clear_with_s(self, entry: Entry) -> float:
        """Seconds to clear a request that isn't queued yet, and what would go before it."""
        rows = {line: line.rows for line in self._lines()}
        queued = sum(rows.values())
        for piece in entry.pieces:
            rows[piece.line] = rows.get(piece.line, 0) + piece.left
        after = sum(line.rows_below(entry.priority) for line in rows) if self._has_priorities else 0
        share = (queued - min(after, queued) + entry.rows_left) / (queued + entry.rows_left)
        return share * self._clear_s(rows)

    def alone_s(self, entry: Entry) -> float:
        """Seconds to clear a request if nothing else were queued."""
        return self._clear_s({piece.line: piece.left for piece in entry.pieces})

    def _clear_s(self, rows: dict[Line, int]) -> float:
        """Seconds to clear so many rows of each line, all warm ones apart or all together, whichever is faster."""
        warm = [line for line in rows if line.warm]
        apart = sum(line.curve.clear_s(rows[line]) for line in warm)
        longer = sum(line.curve.clear_s(rows[line]) for line in rows if not line.warm)
        over = self._joining(warm) if len(warm) > 1 and not self.settings.lengths_apart else None
        together = over.curve.clear_s(sum(rows[line] for line in warm)) if over else apart
        return min(apart, together) + longer

    def _line_for(self, lengths: Lengths) -> Line:
        if (line := self._line_of.get(lengths)) is None:
            if len(self._line_of) >= _LENGTHS_KEPT:
                self._line_of.clear()
            line = self._line_of[lengths] = self._find_line(lengths)
        return line

    def _find_line(self, lengths: Lengths) -> Line:
        for line in self._warm:
            if holds(line.lengths, lengths):
                return line
        level = doubled(lengths)
        found = self._longer.get(level)
        if found is None:
            found = self._longer[level] = Line(level, _unmeasured(self.settings, self._between), warm=False)
        return found

    def _forget_lines(self) -> None:
        """Forgets empty lines beyond the warm buckets, when there are many."""
        if len(self._longer) > _LONGER_KEPT:
            late = {piece.line for piece in self._late}
            self._longer = {key: line for key, line in self._longer.items() if line.rows or line in late}
            self._line_of.clear()

    def _holding(self, taken: list[tuple[Piece, Sequence[int]]]) -> Line:
        """The line whose buckets hold what was taken from several, or from one."""
        lines = list({piece.line: None for piece, _ in taken})
        over = self._joining(lines) if len(lines) > 1 else lines[0]
        assert over is not None
        return over

    def _lines(self) -> Iterator[Line]:
        """The lines that have rows."""
        for line in self._warm:
            if line.rows:
                yield line
        for line in self._longer.values():
            if line.rows:
                yield line

    def _choose(self, first: Line) -> _Choice:
        """The lines to join with that of the head, and how many of their rows go now."""
        alone = first.curve.plan(first.rows)
        best = _Choice([first], first.curve, alone.rows, alone.batch_s)
        saved_most = 0.0
        joinable = [] if self.settings.lengths_apart else [line for line in self._warm if line.rows]
        for lines in _neighbours(first, joinable):
            over = self._joining(lines)
            if over is None:
                continue
            plan = over.curve.plan(sum(line.rows for line in lines))
            saved = sum(line.curve.clear_s(line.rows) for line in lines) - plan.seconds
            if saved > saved_most or not plan.batch_s:
                saved_most = saved
                best = _Choice(lines, over.curve, plan.rows, plan.batch_s)
        return best

    def _joining(self, lines: list[Line]) -> Line | None:
        """The warm line whose buckets hold the rows of all of these, or None."""
        lengths: Lengths = ()
        for line in lines:
            lengths = longest(lengths, line.lengths)
        return next((line for line in self._warm if holds(line.lengths, lengths)), None)

    def _timely(self, choice: _Choice, head: Piece, now: float) -> _Choice:
        """The choice; or a smaller batch, where the head would be late in it.

        One in which the head is on time, if everyone behind it can afford that; else the one that answers the
        most rows on time for its time.
        """
        slack = head.entry.request.deadline - now
        if choice.seconds <= slack or head.tried:
            return choice
        deadlines = self._next_deadlines(choice.lines)
        fast = head.line.curve.within(slack)
        if fast is not None and fast.rows < choice.rows:
            line = head.line
            smaller = _Choice([line], line.curve, min(fast.rows, line.rows), fast.planned_s)
            if self._can_wait(deadlines[smaller.rows :], choice, now + smaller.seconds):
                return smaller
        return self._most_on_time(choice, sorted(deadlines), now)

    def _next_deadlines(self, lines: list[Line]) -> list[float]:
        """The deadlines of the next rows of these lines: of some batches' worth of them."""
        pieces = chain.from_iterable(line.pieces() for line in lines)
        seen = islice(pieces, _DEADLINES_SEEN * self.settings.max_batch_size)
        return list(chain.from_iterable(repeat(piece.entry.request.deadline, piece.left) for piece in seen))

    def _can_wait(self, deadlines: list[float], choice: _Choice, until: float) -> bool:
        """Whether rows of these deadlines are on time when the choice is started only then."""
        return all(
            min(deadlines[start : start + choice.rows]) >= until + choice.curve.clear_s(start + choice.rows)
            for start in range(0, len(deadlines), choice.rows)
        )

    def _most_on_time(self, choice: _Choice, deadlines: list[float], now: float) -> _Choice:
        best, best_rate = choice, 0.0
        for rows, seconds in choice.curve.sizes(choice.rows):
            on_time = len(deadlines) - bisect_left(deadlines, now + seconds)
            rate = min(rows, on_time) / (seconds + self._between.planned_s)
            if rate >= best_rate:
                best_rate = rate
                best = replace(choice, rows=rows, seconds=seconds)
        return best

    def _collect(self, taken: list[tuple[Piece, Sequence[int]]], lines: list[Line], limit: int, ends_at: float) -> int:
        """Takes up to `limit` rows of these lines, in order; those that would be late only if nobody else is there.

        Appends to `taken` pieces and the rows that were taken of them; returns how many in all.
        """
        rows = 0
        spare = sum(line.rows for line in lines) - limit
        heads = {line: piece for line in lines if (piece := line.head())}
        while rows < limit and heads:
            line = min(heads, key=lambda line: heads[line].entry.order) if len(heads) > 1 else next(iter(heads))
            piece = heads[line]
            left = len(piece.rows) - piece.next
            if piece.entry.request.deadline < ends_at and left <= spare and not piece.tried:
                spare -= left
                self._rows_late += left
                self._late.append(piece)
                line.set_aside(piece)
            else:
                count = min(left, limit - rows)
                taken.append((piece, piece.rows[piece.next : piece.next + count]))
                piece.next += count
                piece.entry.rows_left -= count
                line.rows -= count
                rows += count
            if head := line.head():
                heads[line] = head
            else:
                del heads[line]
        self.rows_queued -= rows
        return rows

    def _batch(self, batch_id: int, taken: list[tuple[Piece, Sequence[int]]], rows: int, timing: Timing) -> Batch:
        rows_of: dict[int, Sequence[int]] = {}
        measured: list[Lengths] = []
        for piece, own in taken:
            request = piece.entry.request
            if request.lengths:
                measured += map(request.lengths.__getitem__, own)
            others = rows_of.get(request.id)
            rows_of[request.id] = sorted((*others, *own)) if others else own
        lengths = tuple(map(max, zip(*measured, strict=True)))
        parts = tuple(Part(id, own) for id, own in rows_of.items())
        return Batch(batch_id, self.key, parts, rows, lengths, timing.shape, timing.planned_s)

    def _bring_back(self) -> None:
        while self._late:
            piece = self._late.popleft()
            if not piece.entry.gone:
                piece.late = False
                piece.line.append(piece)
        self._rows_late = 0


def _order(piece: Piece) -> tuple[float, int]:
    return piece.entry.order


def _warm_lines(settings: LaneSettings, between: Between) -> list[Line]:
    """A line for each length of the warm buckets, shortest first; without buckets, one for all lengths."""
    if not settings.buckets:
        return [Line((), _unmeasured(settings, between), warm=True)]
    timings = Timings()
    seconds = chain(settings.seconds, repeat(0.0))
    each = [timings.add(bucket.rows, bucket, s) for bucket, s in zip(settings.buckets, seconds, strict=False)]
    levels = sorted({bucket.lengths for bucket in settings.buckets}, key=lambda level: (prod(level), level))
    return [
        Line(level, Curve(timings, _smallest_by_rows(each, level), settings.max_batch_size, between), True)
        for level in levels
    ]


def _smallest_by_rows(timings: Iterable[Timing], level: Lengths) -> Iterable[Timing]:
    """Of the buckets that hold this level, the one of the smallest lengths for each number of rows."""
    found: dict[int, tuple[Lengths, Timing]] = {}
    for timing in timings:
        assert timing.shape is not None
        lengths = timing.shape.lengths
        if holds(lengths, level) and (timing.rows not in found or lengths < found[timing.rows][0]):
            found[timing.rows] = (lengths, timing)
    return [timing for _, timing in found.values()]


def _unmeasured(settings: LaneSettings, between: Between) -> Curve:
    """The curve of batches that no bucket holds: in powers of two of rows, to be learnt."""
    timings = Timings()
    ladder = [1]
    while ladder[-1] < settings.max_batch_size:
        ladder.append(min(2 * ladder[-1], settings.max_batch_size))
    steps = [timings.add(rows, None, 0.0) for rows in ladder]
    return Curve(timings, steps, settings.max_batch_size, between)


def _neighbours(first: Line, lines: list[Line]) -> Iterator[list[Line]]:
    """The runs of several neighbouring lines that `first` is part of, the short ones first."""
    if first not in lines:
        return
    place = lines.index(first)
    for count in range(2, len(lines) + 1):
        for start in range(max(0, place - count + 1), min(place, len(lines) - count) + 1):
            yield lines[start : start + count]
