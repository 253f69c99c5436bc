"""What an OpenTelemetry collector is to us: takes spans over HTTP, as protobuf, and keeps them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """Where it is, and what it got so far."""

    endpoint: str
    requests: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def resources(self) -> list[dict[str, Any]]:
        """The attributes of each resource."""
        return [attributes_of(each.resource) for request in self.requests for each in request.resource_spans]

    def spans(self) -> list[Any]:
        """Every span, as its protobuf message."""
        scopes = [scope for request in self.requests for each in request.resource_spans for scope in each.scope_spans]
        return [span for scope in scopes for span in scope.spans]


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in message.attributes}


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """Listens until the block ends."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
    )

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["content-type"] == "application/x-protobuf"
            receiver.requests.append(ExportTraceServiceRequest.FromString(body))
            receiver.paths.append(self.path)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
