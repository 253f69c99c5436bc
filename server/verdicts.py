"""What callers are told: from what the scheduler and the engines say to errors that are sentences."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from server.core.records import Refusal
from server.engines.batch_result import BatchResult
from server.errors import (
    BatchdError,
    DeadlineExceeded,
    DeadlineUnreachable,
    Draining,
    ExampleRejected,
    OwnershipError,
    QueueFull,
)

_ROWS_NAMED = 5
"""Failed rows of one request whose messages are repeated; of the others only the number is told."""


def rejected(messages: dict[int, str], count: int) -> ExampleRejected:
    """The error of a request of which these rows failed."""
    if count == 1:
        return ExampleRejected(messages[0], rows=(0,))
    named = [f"row {row}: {message}" for row, message in list(messages.items())[:_ROWS_NAMED]]
    if len(messages) > _ROWS_NAMED:
        named.append(f"and {len(messages) - _ROWS_NAMED} more rows")
    return ExampleRejected("; ".join(named), rows=tuple(messages))


def check_ownership(model: str, owners: Sequence[int], result: BatchResult) -> None:
    """Raises OwnershipError unless every answer came back with the request that asked for it."""
    if len(result.rows) != len(owners):
        message = f"model {model!r} answered {len(result.rows)} rows to a batch of {len(owners)}"
    elif list(result.owners) != list(owners):
        row = next(index for index, pair in enumerate(zip(owners, result.owners, strict=False)) if pair[0] != pair[1])
        message = f"model {model!r} answered row {row} of a batch for another request than had asked"
    else:
        return
    raise OwnershipError(f"{message}; no row can be trusted")


def refused(refusal: Refusal) -> BatchdError:
    """The error of a request that the scheduler didn't let in."""
    wait_s, retry_after_s = refusal.predicted_wait_s, max(1.0, refusal.retry_after_s)
    if refusal.retry_after_s == inf:
        return DeadlineExceeded(f"the deadline is too near: the answer would take about {wait_s:.3g} s")
    if refusal.reason == "draining":
        return Draining("the server is shutting down and takes no new requests", retry_after_s)
    if refusal.reason == "deadline":
        return DeadlineUnreachable(
            f"the queue is too long for this deadline: {refusal.queued} examples wait, and the answer would take "
            f"about {wait_s:.3g} s; come later, or allow more time",
            retry_after_s,
        )
    return QueueFull(
        f"the queue is full: {refusal.queued} of at most {refusal.limit} {refusal.reason} wait, "
        f"about {wait_s:.1f} s of work",
        retry_after_s,
    )
