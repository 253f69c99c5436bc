"""What is known about the request that is being answered, wherever it came in: its id, its trace, how it ended.

A protocol calls `begin_request` when a request's headers are there. From then on `current_request` is that context
in whatever runs for the request, so log lines name it without being told; `logs.py` reads it there. Replies carry
the id as `x-request-id`. What becomes of the request is noted on the way, for the access log and for tracing.

The queue is where requests meet: what runs for a batch runs for none of its requests, and names all of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextvars import ContextVar
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from server.trace_context import TraceParent, parse_traceparent

if TYPE_CHECKING:
    from server.metrics import LaneMetrics
    from server.prediction import Provenance

REQUEST_ID = b"x-request-id"
_TRACEPARENT = b"traceparent"
_HEADERS = frozenset({REQUEST_ID, _TRACEPARENT})
_SAFE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")

_process = token_hex(6).encode()
_numbers = count(1)


class RequestContext:
    """One request. `id` is safe to repeat: the caller's own if it is short and plain, else made here.

    Defaults stand in the class, since most requests never need most of them. `lane`: the model that was asked.
    `how`: how the answer came about. `error`: why there was none. `answered_at`, `written_at`: when the answer was
    back and when its reply was written, in the time of `time.monotonic`, as `arrived_at`. `span`: tracing's own.
    `refusal`: the status and the reason, if its connection has answered in the protocol's place.
    """

    protocol: str = "http"
    method: str = ""
    path: str = ""
    status: int = 0
    lane: LaneMetrics | None = None
    how: Provenance | None = None
    refusal: tuple[int, str] | None = None
    error: BaseException | None = None
    answered_at: float = 0.0
    written_at: float = 0.0
    span: Any = None
    ended: bool = False

    def __init__(self, id: bytes, traceparent: bytes | None) -> None:
        self.id = id
        self.traceparent = traceparent
        self.arrived_at = time.monotonic()

    def settle(self) -> None:
        """At the end: what was sent is what counts."""
        if self.refusal is not None:
            self.status, self.error = self.refusal[0], None

    @property
    def trace(self) -> TraceParent | None:
        """The trace that the caller says this belongs to."""
        return None if self.traceparent is None else parse_traceparent(self.traceparent)

    def fields(self) -> dict[str, str]:
        """What a log line about this request carries."""
        found = {"request_id": self.id.decode()}
        if self.span is not None and (context := self.span.get_span_context()).is_valid:
            return found | {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
        if trace := self.trace:
            found |= {"trace_id": trace.trace_id, "parent_span_id": trace.span_id}
        return found


current_request: ContextVar[RequestContext | None] = ContextVar("current_request", default=None)


def new_request_id() -> bytes:
    """Returns an id that no other request has: this process's random number, and a count."""
    return b"%s-%x" % (_process, next(_numbers))


def begin_request(headers: Iterable[tuple[bytes, bytes]]) -> RequestContext:
    """Returns the context of a request with these headers (names in lower case), and makes it the current one."""
    request = request_of(headers)
    current_request.set(request)
    return request


def request_of(headers: Iterable[tuple[bytes, bytes]]) -> RequestContext:
    """Returns the context of a request with these headers (names in lower case)."""
    id = traceparent = None
    for name, value in headers:
        if name in _HEADERS:
            if name == REQUEST_ID:
                id = id or (value if _SAFE_ID.fullmatch(value) else None)
            else:
                # Two of them are none: which one is meant can't be known.
                traceparent = value if traceparent is None else b""
    return RequestContext(id or new_request_id(), traceparent)
