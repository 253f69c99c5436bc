"""Sums over the requests and the batches of a model, as the Open Inference Protocol's statistics have them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from server.engines.batch_result import BatchStats


class AnswerTimes(Protocol):
    """Where a request's time went, in seconds; of one that took several batches, the sum."""

    @property
    def queue_s(self) -> float: ...
    @property
    def assembly_s(self) -> float: ...
    @property
    def execute_s(self) -> float: ...
    @property
    def split_s(self) -> float: ...


@dataclass(slots=True)
class BatchTally:
    """The batches of one size: how many, and their seconds of assembly, of the program, of splitting."""

    count: int = 0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0

    def add(self, other: BatchTally) -> None:
        """Adds another's."""
        self.count += other.count
        self.input_s += other.input_s
        self.infer_s += other.infer_s
        self.output_s += other.output_s


@dataclass(slots=True)
class Tally:
    """Sums since the start. Times in seconds; all but `failed_s` and those in `batches` are of answered requests.

    `failures`: by reason. `output_s`: splitting, and writing the reply. `batches`: by size, without padding; those
    that came back. `last_at`: when the last of them did, in seconds since 1970, or 0.
    """

    succeeded: int = 0
    succeeded_s: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    failed_s: float = 0.0
    examples: int = 0
    queue_s: float = 0.0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0
    batches: dict[int, BatchTally] = field(default_factory=dict)
    last_at: float = 0.0

    @property
    def failed(self) -> int:
        """Requests that got no answer."""
        return sum(self.failures.values())

    @property
    def executions(self) -> int:
        """Batches that came back."""
        return sum(batches.count for batches in self.batches.values())

    def add_answer(self, seconds: float, examples: int, times: AnswerTimes, serialise_s: float) -> None:
        """Adds a request that got its answer."""
        self.succeeded += 1
        self.succeeded_s += seconds
        self.examples += examples
        self.queue_s += times.queue_s
        self.input_s += times.assembly_s
        self.infer_s += times.execute_s
        self.output_s += times.split_s + serialise_s

    def add_failure(self, reason: str, seconds: float) -> None:
        """Adds a request that got none."""
        self.failures[reason] = self.failures.get(reason, 0) + 1
        self.failed_s += seconds

    def add_batch(self, size: int, stats: BatchStats) -> None:
        """Adds a batch of so many examples that came back."""
        batches = self.batches.get(size)
        if batches is None:
            batches = self.batches[size] = BatchTally()
        batches.count += 1
        batches.input_s += stats.assembly_s
        batches.infer_s += stats.compute_s
        batches.output_s += stats.split_s
        self.last_at = time.time()

    @classmethod
    def of(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum of several."""
        total = cls()
        for tally in tallies:
            total.succeeded += tally.succeeded
            total.succeeded_s += tally.succeeded_s
            for reason, count in tally.failures.items():
                total.failures[reason] = total.failures.get(reason, 0) + count
            total.failed_s += tally.failed_s
            total.examples += tally.examples
            total.queue_s += tally.queue_s
            total.input_s += tally.input_s
            total.infer_s += tally.infer_s
            total.output_s += tally.output_s
            for size, batches in tally.batches.items():
                total.batches.setdefault(size, BatchTally()).add(batches)
            total.last_at = max(total.last_at, tally.last_at)
        return total
