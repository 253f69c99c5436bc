"""When requests are due. Pure arithmetic, decided before the run: no clock, no I/O.

A pacer answers one question, `wait_s(elapsed_s, sent)`: how long from now until the next request is due, when
`sent` have been sent. An open-loop pacer holds a table of due times that the server can't influence; the
closed loop has no such times, every connection sends as soon as it has its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Times = np.ndarray[Any, np.dtype[np.float64]]

BURST_PERIOD_S = 1.0
BURST_SHARE = 0.2


class Pacer(Protocol):
    """What an attack asks: how many requests there are, when each is due, how many may be under way."""

    @property
    def count(self) -> int: ...

    @property
    def is_open(self) -> bool: ...

    def due_s(self, sent: int) -> float:
        """When request number `sent` is due, seconds from the start; 0 in a closed loop."""
        ...

    def wait_s(self, elapsed_s: float, sent: int) -> float:
        """Seconds until the next request is due; 0 if it is due or overdue."""
        ...


@dataclass(frozen=True)
class OpenLoop:
    """Requests are due at `table_s` (ascending, seconds from the start), whatever the server does."""

    table_s: Times

    @property
    def count(self) -> int:
        return len(self.table_s)

    @property
    def is_open(self) -> bool:
        return True

    def due_s(self, sent: int) -> float:
        return float(self.table_s[sent])

    def wait_s(self, elapsed_s: float, sent: int) -> float:
        return max(0.0, self.due_s(sent) - elapsed_s)


@dataclass(frozen=True)
class ClosedLoop:
    """Each of `concurrency` connections sends its next request when the last is answered.

    This finds the throughput of a saturated server; its latencies can't be compared with an open loop's.
    """

    count: int
    concurrency: int

    @property
    def is_open(self) -> bool:
        return False

    def due_s(self, sent: int) -> float:
        return 0.0

    def wait_s(self, elapsed_s: float, sent: int) -> float:
        return 0.0


def constant(rate_per_s: float, count: int, seed: int = 0) -> Times:
    """One request every 1/rate seconds, the first at 0. `seed` is taken for symmetry."""
    return np.arange(count) / rate_per_s


def poisson(rate_per_s: float, count: int, seed: int = 0) -> Times:
    """Independent callers: exponential gaps of mean 1/rate."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, count))


def burst(rate_per_s: float, count: int, seed: int = 0) -> Times:
    """Poisson arrivals squeezed into the first fifth of every second; the mean rate stays `rate_per_s`."""
    busy_s = poisson(rate_per_s / BURST_SHARE, count, seed)
    on_s = BURST_PERIOD_S * BURST_SHARE
    return np.floor(busy_s / on_s) * BURST_PERIOD_S + busy_s % on_s


ARRIVALS: dict[str, Callable[[float, int, int], Times]] = {
    "constant": constant,
    "poisson": poisson,
    "burst": burst,
}


def open_loop(arrivals: str, rate_per_s: float, count: int, seed: int) -> OpenLoop:
    """The pacer for a named arrival process; the same arguments always give the same table."""
    if rate_per_s <= 0 or count < 0:
        raise ValueError(f"rate must be above 0 and count at least 0; got {rate_per_s}/s and {count}")
    if arrivals not in ARRIVALS:
        raise ValueError(f"no arrivals {arrivals!r}; there are {', '.join(ARRIVALS)}")
    return OpenLoop(ARRIVALS[arrivals](rate_per_s, count, seed))
