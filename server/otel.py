"""Spans for OpenTelemetry, with the extra `otel`; imported only if the setting `tracing` asks for it.

Each request has a server span, in the caller's trace if its headers name one. Beneath it: `queue`, `assembly`,
`compute` and `split` for each of its batches, and `serialise`. Each batch has a span too, linked with all its requests
both ways; it lies in the trace of the first that is sampled, since a trace of its own would be sampled by itself. The
engine process tells how long its phases took, not when they began: they are laid one after the other, in the middle of
the time that the batch was away.

Everything is configured by OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT and its kin, OTEL_SERVICE_NAME,
OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_PROPAGATORS, OTEL_BSP_...; OTEL_TRACES_EXPORTER may be otlp, console
or none.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from server.engines.batch_result import BatchResult
from server.errors import BatchdError
from server.request_context import RequestContext
from server.settings import SettingsError
from server.tracing import BatchTrace

try:
    from opentelemetry import propagate
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context
except ModuleNotFoundError as error:
    raise SettingsError(f"tracing = otel needs the extra: pip install 'batchd[otel]' ({error})") from None

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_ROUTES = (
    (re.compile(r"/predict(/[^/]+)?"), "/predict/{model}"),
    (re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer"), "/v2/models/{model}/infer"),
    (re.compile(r"/v1/models/[^/:]+(/(versions|labels)/[^/:]+)?:predict", re.IGNORECASE), "/v1/models/{model}:predict"),
)
_LONGEST_PATH = 200
_LANE = ("batchd.model", "batchd.version", "batchd.signature", "batchd.engine")
_CLOCKS_AGREE_FOR_S = 60.0
_LAST_SPANS_S = 2.0
"""How long a stop waits for a collector that doesn't answer."""


class OpenTelemetryTracing:
    """Makes the spans; see `server.tracing.Tracing`. `provider`: another than the environment asks for."""

    def __init__(self, product_version: str, provider: TracerProvider | None = None) -> None:
        self._provider = provider or _provider_by_environment(product_version)
        self._tracer = self._provider.get_tracer("batchd", product_version)
        self._compare_clocks()

    def request_began(self, request: RequestContext, headers: Headers) -> None:
        """Opens the server span."""
        if time.monotonic() - self._clocks_compared_at > _CLOCKS_AGREE_FOR_S:
            self._compare_clocks()
        name, attributes = _describe(request)
        request.span = self._tracer.start_span(
            name,
            propagate.extract(headers, getter=_HEADERS),
            SpanKind.SERVER,
            {"batchd.request_id": request.id.decode(), **attributes},
            start_time=self._wall_ns(request.arrived_at),
        )

    def request_ended(self, request: RequestContext) -> None:
        """Closes it, with what became of the request."""
        span: Span = request.span
        if span.is_recording():
            if request.written_at:
                self._child(span, "serialise", request.answered_at, request.written_at)
            span.set_attributes(_outcome(request))
            if request.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
        span.end()

    def batch_ended(self, batch: BatchTrace, requests: Sequence[tuple[RequestContext, float]]) -> None:
        """Makes the batch's span, and beneath those of its requests what it was for them."""
        sampled = [(request.span, queued_at) for request, queued_at in requests if _is_sampled(request.span)]
        if not sampled:
            return
        ended_at = batch.sent_at + batch.seconds
        span = self._tracer.start_span(
            "batch",
            set_span_in_context(sampled[0][0], Context()),
            SpanKind.INTERNAL,
            _batch_attributes(batch),
            links=[Link(each.get_span_context()) for each, _ in sampled],
            start_time=self._wall_ns(batch.sent_at),
        )
        if isinstance(batch.outcome, BatchdError):
            span.set_status(Status(StatusCode.ERROR, type(batch.outcome).__name__))
        phases = _phases(batch)
        for each, queued_at in sampled:
            if each.is_recording():
                each.add_link(span.get_span_context(), {"batchd.batch.id": batch.id})
                self._child(each, "queue", queued_at, batch.sent_at)
                for name, began_at, phase_ended_at in phases:
                    self._child(each, name, began_at, phase_ended_at)
        span.end(self._wall_ns(ended_at))

    def close(self) -> None:
        """Sends what isn't sent yet, if that is possible soon."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_LAST_SPANS_S)

    def _child(self, parent: Span, name: str, began_at: float, ended_at: float) -> None:
        context = set_span_in_context(parent, Context())
        child = self._tracer.start_span(name, context, start_time=self._wall_ns(began_at))
        child.end(self._wall_ns(ended_at))

    def _compare_clocks(self) -> None:
        self._clocks_compared_at = time.monotonic()
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def _wall_ns(self, monotonic_s: float) -> int:
        return self._offset_ns + int(monotonic_s * 1e9)


class _HeaderGetter(Getter[Headers]):
    """Reads ASGI's pairs of bytes."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        """All values of a header."""
        name = key.lower().encode()
        return [value.decode("latin-1") for each, value in carrier if each == name] or None

    def keys(self, carrier: Headers) -> list[str]:
        """All names."""
        return [name.decode("latin-1") for name, _ in carrier]


_HEADERS = _HeaderGetter()


def _provider_by_environment(product_version: str) -> TracerProvider:
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    attributes = {"service.version": product_version, **({} if named else {"service.name": "batchd"})}
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    exporter = _exporter_by_environment(os.environ)
    if exporter is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter_by_environment(environment: Mapping[str, str]) -> SpanExporter | None:
    name = environment.get("OTEL_TRACES_EXPORTER", "") or "otlp"
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if name == "none":
        return None
    if name == "console":
        return ConsoleSpanExporter()
    if name != "otlp":
        raise SettingsError(f"OTEL_TRACES_EXPORTER is {name!r}; here it may be otlp, console or none")
    if protocol not in (None, "", "http/protobuf"):
        raise SettingsError(f"the protocol for OTLP is set to {protocol!r}; here it may be http/protobuf only")
    return OTLPSpanExporter()


def _describe(request: RequestContext) -> tuple[str, dict[str, Any]]:
    """The server span's name and attributes, by OpenTelemetry's conventions; names are few, whatever callers ask."""
    if request.protocol == "grpc":
        service, _, method = request.path[1:].partition("/")
        return request.path[1:], {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
    attributes = {"http.request.method": request.method, "url.path": request.path[:_LONGEST_PATH]}
    for pattern, route in _ROUTES:
        if pattern.fullmatch(request.path):
            return f"{request.method} {route}", {**attributes, "http.route": route}
    return request.method, attributes


def _outcome(request: RequestContext) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    attributes["batchd.status" if request.protocol == "grpc" else "http.response.status_code"] = request.status
    if request.lane is not None:
        attributes |= dict(zip(_LANE, request.lane.labels, strict=True))
    if request.how is not None:
        attributes |= {"batchd.batch.size": request.how.batch_size, "batchd.batches": request.how.batches}
    if request.error is not None:
        attributes["error.type"] = type(request.error).__name__
    return attributes


def _batch_attributes(batch: BatchTrace) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        **dict(zip(_LANE, batch.lane, strict=True)),
        "batchd.batch.id": batch.id,
        "batchd.batch.size": batch.rows,
        "batchd.batch.bucket": batch.bucket,
        "batchd.batch.reason": batch.reason,
    }
    if isinstance(batch.outcome, BatchResult):
        stats = batch.outcome.stats
        attributes |= {
            "batchd.batch.padding_ratio": stats.padding_ratio,
            "batchd.batch.isolated": stats.isolated,
            "batchd.batch.cold": stats.cold,
            "batchd.batch.program": stats.program,
        }
    else:
        attributes["error.type"] = type(batch.outcome).__name__
    return attributes


def _phases(batch: BatchTrace) -> list[tuple[str, float, float]]:
    """Name, beginning and end of what the engine did; nothing where it failed."""
    if not isinstance(batch.outcome, BatchResult):
        return []
    stats = batch.outcome.stats
    seconds = {"assembly": stats.assembly_s, "compute": stats.compute_s, "split": stats.split_s}
    began_at = batch.sent_at + max(0.0, batch.seconds - sum(seconds.values())) / 2
    phases = []
    for name, each_s in seconds.items():
        phases.append((name, began_at, began_at + each_s))
        began_at += each_s
    return phases


def _is_sampled(span: Span | None) -> bool:
    return span is not None and span.get_span_context().trace_flags.sampled
