"""Two figures that the scheduler learns besides the times of buckets: what batches cost in between, and how far to
trust a prediction.
"""

from __future__ import annotations

from math import inf

_NEWEST = 0.1
"""Weight of the newest batch in what is lost in between."""
_LONGEST_SURPRISE = 3.0
"""It counts as at most this many times what was expected (and `_LEAST_S`, where nothing was)."""
_LEAST_S = 0.001
_NOTEWORTHY = 0.1
"""Plans are made anew when it has moved by this share since they were made."""

_PROMISES = 100
"""So many promises that were made with the same caution say whether it was enough."""
_MARGIN = 1.1
"""What is added to the caution that would just have been enough."""
_MOST_AT_ONCE = 1.5
"""Most that is added at once: where all promises were broken, nothing says by how much."""
_EASE, _MOST_EASE = 0.001, 0.004
"""Caution that was enough is relaxed by this share, and by twice as much each time that it was enough again."""
_MOST_CAUTION = 4.0
_STALE_S, _STALE_EASE = 5.0, 0.9
"""Caution by which so little was promised for so long that it couldn't be judged becomes this part of itself."""


class Between:
    """Seconds that a device stands idle between two batches, whatever their size, though there is work.

    Messages to the engine's process and back, and turns of an event loop that has other things to do: a third of a
    millisecond on an idle machine, ten times that on one which reads and refuses thousands of requests a second. And
    what rows take that run alone because they failed, which says nothing about the batch's bucket.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.version = 0
        self.planned_s = seconds
        self._seconds = seconds

    def learn(self, seconds: float) -> None:
        """Takes note of what was lost around one batch."""
        most = _LONGEST_SURPRISE * max(self._seconds, _LEAST_S)
        self._seconds += (min(seconds, most) - self._seconds) * _NEWEST
        if abs(self._seconds - self.planned_s) > _NOTEWORTHY * self.planned_s:
            self.planned_s = self._seconds
            self.version += 1


class Caution:
    """By how much a lane's predictions are multiplied, so that all but a few of those let in are on time.

    A prediction may be short for reasons that no curve knows of: what arrives later and goes first, a machine that
    others use too. A queue that is always as long as just allowed, and longer by a tenth than what the device can
    clear in the time, makes a tenth of what it holds late. So the share of promises that were broken says how much
    caution was missing; only those count that were made since it last changed. Caution that lets nobody in would never
    be judged, so it eases with time, too.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self.version = 0
        self._ease = _EASE
        self._kept = 0
        self._broken = 0
        self._changed_at = -inf
        self._has_changed = True

    def at(self, now: float) -> float:
        """Returns the factor of this moment."""
        if self._has_changed:
            self._changed_at, self._has_changed = now, False
        elif self.factor > 1.0 and now - self._changed_at > _STALE_S:
            self._change(self.factor * _STALE_EASE)
        return self.factor

    def kept(self, version: int) -> None:
        """An answer was on time that had been promised with the caution of that version."""
        if version == self.version:
            self._kept += 1
            self._judge()

    def broken(self, version: int) -> None:
        """Likewise, one that came too late or never."""
        if version == self.version:
            self._broken += 1
            self._judge()

    def _judge(self) -> None:
        promises = self._kept + self._broken
        if promises < _PROMISES:
            return
        if self._broken:
            missing = _MARGIN * promises / max(1, self._kept)
            self._ease = _EASE
            self._change(self.factor * min(_MOST_AT_ONCE, missing))
        else:
            self._change(self.factor * (1 - self._ease))
            self._ease = min(_MOST_EASE, 2 * self._ease)

    def _change(self, factor: float) -> None:
        self.factor = max(1.0, min(_MOST_CAUTION, factor))
        self.version += 1
        self._kept = self._broken = 0
        self._has_changed = True
