"""How long a request may have waited before anybody could see it.

An event loop reads what has arrived once a turn, and then does the work of that turn. Whoever comes meanwhile waits
for the next one, in the kernel, where no deadline is kept. While there is little to do that is nothing; when thousands
of requests are read, refused and answered in a turn it may be half a second, and an answer that is in time by the
server's own clock is late for its caller. So deadlines count from the last moment at which the loop is known to have
looked, if it has been busy ever since.
"""

from __future__ import annotations

from math import inf
from typing import Any

POLLED_AT = "batchd.polled_at"
"""Where a scope has the moment at which the turn began that read the end of its request; of `time.monotonic`."""


class Turns:
    """The turns in which requests were read: the one before, and this one as far as it has come."""

    def __init__(self) -> None:
        self._polled_at = self._seen_at = -inf
        self._unseen_s = 0.0

    def waits_since(self, scope: Any, now: float) -> float:
        """Returns since when the request of this scope may have waited; it is `now`."""
        polled_at: float = scope.get(POLLED_AT, now)
        if polled_at > self._polled_at:
            was_busy_s = self._seen_at - self._polled_at
            is_next = polled_at - self._seen_at <= was_busy_s
            self._unseen_s = polled_at - self._polled_at if is_next else 0.0
            self._polled_at = polled_at
        self._seen_at = now
        return min(now, polled_at) - self._unseen_s
