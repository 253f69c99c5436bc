"""The seam to tracing: what is told to it, and nothing of how spans are made. Off, there is no tracer and no import."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from server.engines.batch_result import BatchResult
from server.errors import BatchdError
from server.request_context import RequestContext

TracingMode: TypeAlias = Literal["off", "otel"]


@dataclass(frozen=True, slots=True)
class BatchTrace:
    """A batch that came back. `lane`: model, version, signature, engine. Times of `time.monotonic`, in seconds."""

    lane: tuple[str, str, str, str]
    id: int
    rows: int
    bucket: str
    reason: str
    sent_at: float
    seconds: float
    outcome: BatchResult | BatchdError


class Tracing(Protocol):
    """Makes spans of requests and batches."""

    def request_began(self, request: RequestContext, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Opens the request's span, and keeps it in `request.span`."""
        ...

    def request_ended(self, request: RequestContext) -> None:
        """Closes the request's span."""
        ...

    def batch_ended(self, batch: BatchTrace, requests: Sequence[tuple[RequestContext, float]]) -> None:
        """Makes the span of a batch and what it means to its requests, each with the time when it was queued."""
        ...

    def close(self) -> None:
        """Sends what isn't sent yet."""
        ...


def start_tracing(mode: TracingMode, product_version: str) -> Tracing | None:
    """Returns the tracer that the settings ask for. Raises SettingsError if it isn't installed."""
    if mode == "off":
        return None
    from server.otel import OpenTelemetryTracing

    return OpenTelemetryTracing(product_version)
