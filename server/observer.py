"""Who looks on while requests are answered: the access log and tracing. Without either there is none of it."""

from __future__ import annotations

from collections.abc import Iterable

from server.access_log import AccessLog, AccessLogMode
from server.request_context import RequestContext
from server.tracing import Tracing


class Observer:
    """Told of each request's beginning and end by every protocol; unless `sees_all`, only of the end of failed ones."""

    def __init__(self, access_log: AccessLog | None, tracing: Tracing | None) -> None:
        self.sees_all = tracing is not None or (access_log is not None and access_log.every)
        self._access_log = access_log
        self._tracing = tracing

    def request_began(self, request: RequestContext, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Its headers are there: `protocol`, `method` and `path` are known."""
        if self._tracing is not None:
            self._tracing.request_began(request, headers)

    def request_ended(self, request: RequestContext) -> None:
        """It has its reply, or its caller has left: all that the context has is known."""
        if self._access_log is not None:
            self._access_log.write(request)
        if self._tracing is not None:
            self._tracing.request_ended(request)


def create_observer(access_log: AccessLogMode, tracing: Tracing | None) -> Observer | None:
    """Returns what the settings ask for; None, which costs nothing, if that is nothing."""
    if access_log == "off" and tracing is None:
        return None
    return Observer(None if access_log == "off" else AccessLog(every=access_log == "all"), tracing)
