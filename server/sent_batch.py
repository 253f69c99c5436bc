"""A batch that an engine has: what was sent, to whom its answers belong, and what is to be made of what comes back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from server.attached import ServedLane
from server.core.records import Batch, Reason
from server.engines.batch_result import BatchResult, Example
from server.errors import BatchdError, OwnershipError
from server.model_description import Bucket
from server.tracing import BatchTrace, Tracing
from server.verdicts import check_ownership
from server.waiting import Parts

_log = logging.getLogger("batchd.dispatcher")


@dataclass(slots=True)
class SentBatch:
    """`sent_at`: of the dispatcher's clock. `forget_timeout`: it is back, not stuck. `then`: waits for its end."""

    lane: ServedLane
    batch: Batch
    parts: Parts
    reason: Reason
    sent_at: float
    forget_timeout: Callable[[], None] = lambda: None
    then: Callable[[], None] = lambda: None

    @property
    def bucket(self) -> Bucket:
        """The bucket that it runs in; without one, just what holds it."""
        shape = self.batch.bucket
        return Bucket(self.batch.rows, self.batch.lengths) if shape is None else Bucket(shape.rows, shape.lengths)

    @property
    def bucket_name(self) -> str:
        """Its bucket as a label: rows x lengths; all that no bucket holds are one."""
        shape = self.batch.bucket
        return "none" if shape is None else "x".join(map(str, (shape.rows, *shape.lengths)))

    def rows(self) -> list[Example]:
        """The examples, in the order of the answers."""
        return [example for waiting, part in self.parts for example in map(waiting.examples.__getitem__, part.rows)]

    def owners(self) -> list[int]:
        """Row by row, the number of the request that it belongs to."""
        return [part.request_id for _, part in self.parts for _ in part.rows]

    def about(self) -> dict[str, Any]:
        """What log lines about it carry: its requests, too."""
        requests = [waiting.context.id.decode() for waiting, _ in self.parts if waiting.context]
        lane = self.lane
        return {"model": lane.model, "signature": lane.signature, "batch": self.batch.id, "requests": requests}

    def judged(self, outcome: BatchResult | Exception) -> BatchResult | BatchdError:
        """Returns what came back, if each answer is for the request that asked; else the error for all of them."""
        model = self.lane.model
        if isinstance(outcome, BatchResult):
            try:
                check_ownership(model, self.owners(), outcome)
            except OwnershipError as error:
                _log.critical(error.message, extra=self.about())
                return error
            return outcome
        if isinstance(outcome, BatchdError):
            return outcome
        message = "a batch of %d for model %r failed"
        _log.error(message, self.batch.rows, model, exc_info=outcome, extra=self.about())
        return BatchdError(f"model {model!r} failed on a batch: {type(outcome).__name__}: {outcome}")

    def trace(self, tracing: Tracing, seconds: float, outcome: BatchResult | BatchdError) -> None:
        """Tells of it before its callers go on; whatever comes of that is no reason to fail them."""
        lane, batch = self.lane, self.batch
        ended = BatchTrace(
            lane.labels, batch.id, batch.rows, self.bucket_name, self.reason, self.sent_at, seconds, outcome
        )
        try:
            tracing.batch_ended(
                ended, [(waiting.context, waiting.arrived_at) for waiting, _ in self.parts if waiting.context]
            )
        except Exception:
            _log.exception("tracing failed")
