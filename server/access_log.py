"""The access log: a line for each request that ended, or for each that failed.

No line has anything that a caller sent but the method, the path without its query, and an id that is safe to repeat:
of an error that may quote the request, only the kind is told. Failures are limited to a number a second, since they
come in storms; how many were left out is told with the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from server.errors import BatchdError
from server.request_context import RequestContext

AccessLogMode: TypeAlias = Literal["off", "errors", "all"]

_log = logging.getLogger("batchd.access")
_FAILURES_A_SECOND = 50
_LONGEST_PATH = 200
_LANE = ("model", "version", "signature", "engine")


class AccessLog:
    """`every`: also what was answered; then nothing is left out."""

    def __init__(self, *, every: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.every = every
        self._clock = clock
        self._second_began_at = 0.0
        self._failures = 0
        self._left_out = 0

    def write(self, request: RequestContext) -> None:
        """Writes the line of a request that has ended, if it is to have one."""
        if self.every or (request.status >= 400 and self._is_within_limit()):
            level = logging.WARNING if request.status >= 500 else logging.INFO
            path = request.path[:_LONGEST_PATH]
            _log.log(level, "%s %s %d", request.method, path, request.status, extra=fields_of(request))

    def _is_within_limit(self) -> bool:
        now = self._clock()
        if now - self._second_began_at >= 1:
            if self._left_out:
                _log.warning("%d more requests failed and have no line", self._left_out)
            self._second_began_at, self._failures, self._left_out = now, 0, 0
        self._failures += 1
        if self._failures > _FAILURES_A_SECOND:
            self._left_out += 1
        return self._failures <= _FAILURES_A_SECOND


def fields_of(request: RequestContext) -> dict[str, Any]:
    """Returns what the line says besides its message."""
    fields: dict[str, Any] = {
        "protocol": request.protocol,
        "status": request.status,
        "total_ms": _milliseconds(time.monotonic() - request.arrived_at),
    }
    if request.lane is not None:
        fields |= dict(zip(_LANE, request.lane.labels, strict=True))
    if how := request.how:
        fields |= {
            "batch": how.batch_id,
            "batch_size": how.batch_size,
            "batches": how.batches,
            "queue_ms": _milliseconds(how.queue_s),
            "compute_ms": _milliseconds(how.compute_s),
        }
    if error := request.error:
        fields["reason"] = error.outcome if isinstance(error, BatchdError) else "failed"
        fields["error"] = type(error).__name__
        if isinstance(error, BatchdError) and error.status in (503, 504):
            fields["detail"] = error.message
    elif request.refusal is not None:
        fields["reason"] = request.refusal[1]
    elif request.status == 499:
        fields["reason"] = "cancelled"
    return fields


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
