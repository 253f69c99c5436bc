"""Callers that wait in the dispatcher, and how a batch's outcome is handed out to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from server.core.records import Batch, Part, Reason
from server.engines.batch_result import BatchResult, BatchStats, Example, Outputs, RowError
from server.errors import BatchdError
from server.model_description import Bucket
from server.prediction import PredictReply, Provenance
from server.request_context import RequestContext
from server.verdicts import rejected

_NO_STATS = BatchStats()


@dataclass(slots=True)
class Waiting:
    """A caller: its number in the queue, its examples, since when it waits, the answers so far, and where they go."""

    id: int
    future: asyncio.Future[PredictReply]
    examples: Sequence[Example]
    arrived_at: float
    answers: list[Outputs | None]
    missing: int
    context: RequestContext | None = None
    queue_s: float = 0.0
    compute_s: float = 0.0
    batches: int = 0
    assembly_s: float = 0.0
    execute_s: float = 0.0
    split_s: float = 0.0

    def fail(self, error: BatchdError) -> None:
        """Hands an error to the caller, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def answer(self, batch: Batch, bucket: Bucket, padding_ratio: float, reason: Reason, reproducible: str) -> None:
        """Hands the reply to a caller that still waits and has all its answers; its last batch is the one described."""
        if self.missing or self.future.done():
            return
        how = Provenance(
            batch.rows,
            bucket,
            padding_ratio,
            reason,
            self.queue_s,
            self.compute_s,
            self.batches,
            self.assembly_s,
            self.execute_s,
            self.split_s,
            batch.id,
            reproducible,
        )
        self.future.set_result(PredictReply([answer for answer in self.answers if answer is not None], how))


Parts: TypeAlias = list[tuple[Waiting, Part]]
"""Whose rows a batch is made of, in its order."""


def hand_out(parts: Parts, outcome: BatchResult | BatchdError, compute_s: float) -> list[tuple[Waiting, BatchdError]]:
    """Gives every request its rows of a batch; returns those that fail by it."""
    failures: list[tuple[Waiting, BatchdError]] = []
    stats = outcome.stats if isinstance(outcome, BatchResult) else _NO_STATS
    row = 0
    for waiting, part in parts:
        waiting.batches += 1
        waiting.compute_s += compute_s
        waiting.assembly_s += stats.assembly_s
        waiting.execute_s += stats.compute_s
        waiting.split_s += stats.split_s
        if isinstance(outcome, BatchdError):
            failures.append((waiting, outcome))
            continue
        answers = outcome.rows[row : row + len(part.rows)]
        row += len(answers)
        messages: dict[int, str] = {}
        for index, answer in zip(part.rows, answers, strict=True):
            if isinstance(answer, RowError):
                messages[index] = answer.message
            else:
                waiting.answers[index] = answer
        if messages:
            failures.append((waiting, rejected(messages, len(waiting.examples))))
        else:
            waiting.missing -= len(answers)
    return failures
