"""The turns of the event loop: how long a request waits where nobody sees it, and how many are too many.

An event loop reads what has arrived once a turn, and then does the work of that turn. Whoever comes meanwhile waits
for the next one, in the kernel, where no deadline is kept; and replies leave at the end of a turn. While there is
little to do that is nothing. When thousands of requests are read, refused and answered in a turn it may be half a
second, and an answer that is in time by the server's own clock is late for its caller. So

*   a deadline counts from the last moment at which the loop is known to have looked, if it has been busy ever since,
    and a reply has to be there a turn earlier than its caller wants it;
*   a turn begins no more requests than it can answer in a part of the time that callers allow. The others are refused
    by their connections, unread, for an eighth of what it would cost to find out that they can't be in time.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import Any

READ_AT = "batchd.read_at"
"""Where a scope has the moment at which the loop began to read what had arrived, the end of its request among it."""

_SHARE = 0.1
"""Of the time that callers allow, what a turn may take: a request waits for one, is read in one, answered in one."""
_REFUSED = 0.125
"""What it costs to refuse a request unread, of what it costs to answer one (380 µs): 20 µs, and the
kernel's part, which is an estimate."""
_SURE = 1000
"""So many requests in one turn say as much about what one costs as all before."""
_LEAST_S, _MOST_S = 0.25, 10.0
"""What callers allow counts within these bounds: one who allows nothing, or for ever, doesn't decide for the others."""
_STRICTER, _MILDER = 0.05, 0.01
"""Weight of the newest request in what callers allow: where that is less, and where it is more."""


class Turns:
    """The turn before and this one, as far as it has come; what a request costs; and what callers allow."""

    def __init__(self) -> None:
        self._read_at = -inf
        self._is_reading = self._is_busy = False
        self._begun = self._refused = 0
        self._last_s = 0.0
        self._cost_s = 0.0
        self._allowed_s = inf

    def read(self) -> float:
        """Takes note that a part of a request has been read; returns when this turn began to read."""
        if not self._is_reading:
            now = time.monotonic()
            self._end_turn(now - self._read_at if self._is_busy else 0.0)
            self._read_at, self._is_reading, self._is_busy = now, True, True
            asyncio.get_running_loop().call_soon(self._on_work)
        return self._read_at

    def admits(self) -> bool:
        """Whether one more request can be begun in this turn."""
        self.read()
        if self._begun * self._cost_s > _SHARE * self._allowed_s:
            self._refused += 1
            return False
        self._begun += 1
        return True

    def waits_since(self, scope: Any, now: float) -> float:
        """Returns since when the request of this scope may have waited to be read; it is `now`."""
        read_at: float | None = scope.get(READ_AT)
        return now if read_at is None else read_at - self._last_s

    def reply_s(self, now: float) -> float:
        """Returns what a reply may have to wait for, before it leaves: a turn of as many requests as this."""
        return max(now - self._read_at, self._units() * self._cost_s) if self._is_busy else 0.0

    def allow(self, seconds: float) -> None:
        """Takes note of how long a caller waits."""
        seconds = min(max(seconds, _LEAST_S), _MOST_S)
        if self._allowed_s == inf:
            self._allowed_s = seconds
        else:
            weight = _STRICTER if seconds < self._allowed_s else _MILDER
            self._allowed_s += (seconds - self._allowed_s) * weight

    def _end_turn(self, length_s: float) -> None:
        """`length_s`: of a turn after which the loop did not rest, else 0."""
        self._last_s = length_s
        if length_s and self._begun:
            cost_s = length_s / self._units()
            self._cost_s += (cost_s - self._cost_s) * min(1.0, self._begun / _SURE)
        self._begun = self._refused = 0

    def _units(self) -> float:
        return self._begun + _REFUSED * self._refused

    def _on_work(self) -> None:
        """All has been read, and its work begins; the loop will look for more without resting."""
        self._is_reading = False
        asyncio.get_running_loop().call_soon(self._on_rest)

    def _on_rest(self) -> None:
        """The loop has looked: if nothing was there, it rests from now on."""
        self._is_busy = self._is_reading
