"""The measured curve t(rows) of one length, and what it says about clearing a queue.

Time estimates are *robust and online*. A bucket starts with the time that the warm-up measured. Each batch
then moves its bucket's estimate by a part of the difference, in which a batch that took very long (a pause of
the machine, a collection of garbage) counts as a few times the expected time at most. A bucket that isn't
used follows, slowly, what the used ones say about the machine; so an estimate that one bad moment has raised
can't keep its bucket out of use for ever.

Clearing n rows is a choice of buckets: 12 rows are one batch of 16 with 4 rows of padding, or 8 and then 4.
`Curve.plan(n)` gives the least time and the first batch of that choice. It tries, for each n, the cheapest
bucket that holds all of it, the largest that it fills, and the one with the most rows per second that it
fills; the rest is cleared in the same way. Among plans that are about as good the one with the smaller first
batch is taken: where batching gains little, as with a time that is linear in the rows, nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from server.core.learned import Between
from server.core.records import BucketShape

_NEWEST = 0.2
"""Weight of the newest batch in its bucket's estimate: the last ten or so decide."""
_LONGEST_SURPRISE = 3.0
"""A batch counts as at most this many times the expected time."""
_FOLLOW = 0.01
"""How far an unused bucket follows the others with each batch of theirs."""
_NOTEWORTHY = 0.05
"""Plans are made anew when an estimate has moved by this share since they were made."""
_CLEARLY = 0.9
"""A bucket that is larger than needed is taken where it takes less than this share of the time."""
_AS_GOOD = 1.03
"""Of plans whose times differ by less, the one whose first batch is over soonest is taken."""


@dataclass(slots=True)
class Timing:
    """The time of one bucket: `measured_s` at warm-up (0: not measured), and how far off it is by now."""

    rows: int
    shape: BucketShape | None
    measured_s: float
    ratio: float = 1.0
    planned_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.planned_s = self.measured_s

    @property
    def seconds(self) -> float:
        """The estimate as of now; 0 when nothing is known."""
        return self.measured_s * self.ratio


class Timings:
    """All buckets of a lane, which learn together. `version` changes when plans should be made anew."""

    def __init__(self) -> None:
        self.version = 0
        self._all: list[Timing] = []
        self._drift = 1.0

    def add(self, rows: int, shape: BucketShape | None, seconds: float) -> Timing:
        """Makes the timing of one more bucket."""
        timing = Timing(rows, shape, seconds)
        self._all.append(timing)
        return timing

    def learn(self, timing: Timing, seconds: float) -> None:
        """Corrects a bucket by one batch of it, and lets the others follow."""
        if not timing.measured_s:
            timing.measured_s, timing.ratio = seconds / self._drift, self._drift
        seen = min(seconds / timing.measured_s, _LONGEST_SURPRISE * timing.ratio) if timing.measured_s else 1.0
        timing.ratio += (seen - timing.ratio) * _NEWEST
        self._drift += (seen - self._drift) * _NEWEST
        for other in self._all:
            if other is not timing:
                other.ratio += (self._drift - other.ratio) * _FOLLOW
        if any(abs(each.seconds - each.planned_s) > _NOTEWORTHY * each.planned_s for each in self._all):
            self.version += 1
            for each in self._all:
                each.planned_s = each.seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """The cheapest way found to clear some rows: `seconds` in all; first a batch of `rows` in `timing`'s bucket."""

    seconds: float
    rows: int
    timing: Timing
    batch_s: float


class Curve:
    """t(rows) over the buckets of one length. `between` is lost between two batches, whatever their size."""

    def __init__(self, timings: Timings, steps: Iterable[Timing], max_rows: int, between: Between) -> None:
        self._timings = timings
        self._steps: Sequence[Timing] = sorted(steps, key=lambda step: step.rows)
        self._max_rows = min(max_rows, self._steps[-1].rows)
        self._between = between
        self._between_s = between.planned_s
        self._plans: dict[int, Plan] = {}
        self._version = (-1, -1)
        self._busiest_rows, self._busiest_s = 1, 0.0

    def plan(self, rows: int) -> Plan:
        """The cheapest way found to clear `rows` >= 1 rows, and its first batch.

        Of a long queue all but the last few batches are those with the most rows a second.
        """
        self._refresh()
        if rows <= 2 * self._max_rows:
            return self._planned(rows)
        batches, rest = self._cut(rows)
        plan = self._planned(rest)
        return replace(plan, seconds=plan.seconds + batches * self._busiest_s)

    def clear_s(self, rows: int) -> float:
        """Seconds to clear `rows` rows, 0 or more."""
        self._refresh()
        if not rows:
            return 0.0
        if rows <= 2 * self._max_rows:
            return self._planned(rows).seconds
        batches, rest = self._cut(rows)
        return self._planned(rest).seconds + batches * self._busiest_s

    def learn(self, timing: Timing, seconds: float) -> None:
        """Corrects the estimate of a bucket by one batch that ran in it."""
        self._timings.learn(timing, seconds)

    def holding(self, rows: int) -> Timing:
        """The smallest bucket that holds `rows` rows, or a larger one if it is clearly faster; else the largest."""
        fitting = [step for step in self._steps if step.rows >= rows]
        if not fitting:
            return self._steps[-1]
        fastest = min(fitting, key=lambda step: (self._time(step), step.rows))
        return fastest if self._time(fastest) < self._time(fitting[0]) * _CLEARLY else fitting[0]

    def within(self, seconds: float) -> Timing | None:
        """The bucket of the most rows that takes at most this long, or None."""
        fast = [step for step in self._steps if self._time(step) <= seconds]
        return max(fast, key=lambda step: step.rows, default=None)

    def sizes(self, most: int) -> list[tuple[int, float]]:
        """Batches of full buckets, up to `most` rows, and one of just that: how many rows, and seconds."""
        full = [(step.rows, self._time(step)) for step in self._steps if step.rows < most]
        return [*full, (most, self._time(self.holding(most)))]

    def _refresh(self) -> None:
        """Forgets the plans when the times that they were made with have changed."""
        version = (self._timings.version, self._between.version)
        if self._version == version:
            return
        self._version, self._between_s = version, self._between.planned_s
        self._plans.clear()
        step = self._busiest(self._steps)
        self._busiest_rows, self._busiest_s = self._room(step), self._time(step) + self._between_s

    def _planned(self, rows: int) -> Plan:
        found = self._plans.get(rows)
        if found is None:
            found = self._plans[rows] = self._make(rows)
        return found

    def _cut(self, rows: int) -> tuple[int, int]:
        """How many of the busiest batches go before the queue is at most two batches long, and what is left then."""
        batches = -(-(rows - 2 * self._max_rows) // self._busiest_rows)
        return batches, rows - batches * self._busiest_rows

    def _make(self, rows: int) -> Plan:
        plans = [self._split(rows, step) for step in self._filled_by(rows)]
        if rows <= self._max_rows:
            step = self.holding(rows)
            plans.append(Plan(self._time(step) + self._between_s, rows, step, self._time(step)))
        least_s = min(plan.seconds for plan in plans)
        as_good = [plan for plan in plans if plan.seconds <= least_s * _AS_GOOD]
        return min(as_good, key=lambda plan: (plan.batch_s, -plan.rows))

    def _filled_by(self, rows: int) -> list[Timing]:
        """The steps that `rows` rows fill, with some left over, that are worth a try: the largest, and the
        smallest of those with about the most rows a second."""
        filled = [step for step in self._steps if self._room(step) < rows]
        if not filled:
            return []
        return [filled[-1], self._busiest(filled)]

    def _busiest(self, steps: Sequence[Timing]) -> Timing:
        """The smallest of the steps with about the most rows a second."""
        each_s = [(self._time(step) + self._between_s) / self._room(step) for step in steps]
        if not any(each_s):
            return steps[-1]
        return next(step for step, s in zip(steps, each_s, strict=True) if s <= min(each_s) * _AS_GOOD)

    def _split(self, rows: int, step: Timing) -> Plan:
        """Clears as many full batches of a step as there are, then the rest."""
        room, batch_s = self._room(step), self._time(step)
        batches, rest = divmod(rows, room)
        return Plan(batches * (batch_s + self._between_s) + self.clear_s(rest), room, step, batch_s)

    def _room(self, step: Timing) -> int:
        return min(step.rows, self._max_rows)

    def _time(self, step: Timing) -> float:
        """The time of a step that plans go by; of one never measured, that of the nearest that was."""
        if step.planned_s:
            return step.planned_s
        known = [other for other in self._steps if other.planned_s]
        if not known:
            return 0.0
        return min(known, key=lambda other: abs(other.rows - step.rows)).planned_s
