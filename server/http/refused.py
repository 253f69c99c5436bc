"""What becomes of requests that their connection refuses before, or while, the application has them.

Each is counted and logged once, with the status that was sent. One that the application has begun, it logs itself at
its end: the connection has noted on the context what was sent, which counts, whatever the application made of it.
"""

from __future__ import annotations

import httptools

from server.http.body import Headers
from server.metrics import Metrics
from server.observer import Observer
from server.request_context import RequestContext, current_request, request_of

REQUEST = "batchd.request"
"""Where a scope has its RequestContext, from when the application begins, or the connection has refused it."""

_UNKNOWN = "-"


class RefusedRequests:
    """Told of each. Without metrics or an observer, nobody is."""

    def __init__(self, metrics: Metrics | None = None, observer: Observer | None = None) -> None:
        self._metrics = metrics
        self._observer = observer

    def count(self, status: int, reason: str) -> None:
        """Counts a request that gets this status."""
        if self._metrics is not None:
            self._metrics.count_unplaced(status, reason)

    def tell(self, request: RequestContext, headers: Headers) -> None:
        """Tells, for the log, of a request that the application never sees; its `refusal` is set."""
        if self._observer is not None:
            before = current_request.set(request)
            self._observer.request_began(request, headers)
            request.settle()
            self._observer.request_ended(request)
            current_request.reset(before)
        request.ended = True


def refused_head(method: bytes, url: bytes, headers: Headers) -> RequestContext:
    """Returns the context of a request of which so much has arrived; `url` may be cut, and all may be empty."""
    request = request_of(headers)
    try:
        path = httptools.parse_url(url).path if url else None
    except httptools.HttpParserInvalidURLError:
        path = None
    request.method = method.decode("ascii", "replace") or _UNKNOWN
    request.path = (path or b"").decode("ascii", "replace") or _UNKNOWN
    return request
