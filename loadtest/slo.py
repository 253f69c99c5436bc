"""The highest rate that a server carries within a latency objective. Pure arithmetic over attempts, no I/O.

The search starts a little above the saturated throughput and goes down in even steps until a rate is met in one of two
tries. The answer is the first rate that holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.results import Record

MET_SHARE = 0.99
FIRST_OF_SATURATED = 1.1
STEP = 0.85
TRIES = 2  # of each rate: a machine has bad seconds of its own
MOST_ATTEMPTS = 24
ATTEMPT_S = 2.0
FEWEST_REQUESTS = 100


def met(records: Sequence[Record], slo_ms: float) -> bool:
    """Whether 99 % of all offered requests were answered rightly within the objective, counted from when due."""
    within = sum(record.outcome == "ok" and record.latency_s * 1e3 <= slo_ms for record in records)
    return within >= MET_SHARE * len(records)


@dataclass
class RateSearch:
    """rate_per_s: what to try next. carried_per_s: the answer, once `done`; 0 where no attempt held."""

    saturated_per_s: float
    attempts: int = 0
    carried_per_s: float = 0.0

    @property
    def rate_per_s(self) -> float:
        return self.saturated_per_s * FIRST_OF_SATURATED * STEP ** (self.attempts // TRIES)

    @property
    def done(self) -> bool:
        return self.carried_per_s > 0 or self.attempts >= MOST_ATTEMPTS or self.saturated_per_s <= 0

    @property
    def requests(self) -> int:
        """How many make an attempt: some seconds' worth, and enough to tell a share of 99 %."""
        return max(FEWEST_REQUESTS, round(self.rate_per_s * ATTEMPT_S))

    def tried(self, records: Sequence[Record], slo_ms: float) -> None:
        """Takes the records of an attempt at `rate_per_s`."""
        if met(records, slo_ms):
            self.carried_per_s = self.rate_per_s
        self.attempts += 1
