"""What every call has, whoever answers it: an id, which comes back in the trailing metadata, and an observer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc.aio

from server.errors import BatchdError
from server.observer import Observer
from server.request_context import REQUEST_ID, begin_request, current_request

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Behaviour: TypeAlias = Callable[[Any, Context], Awaitable[Any]]

CLIENT_CLOSED_REQUEST = 499


async def observed(observer: Observer | None, path: str, behaviour: Behaviour, message: Any, context: Context) -> Any:
    """Answers a call by `behaviour`, within a context of its own. `path`: of the call, as in `/service/method`."""
    headers = _headers(context)
    request = begin_request(headers)
    request.protocol, request.method, request.path = "grpc", path.rpartition("/")[2], path
    context.set_trailing_metadata(identity())
    if observer is not None and observer.sees_all:
        observer.request_began(request, headers)
    request.status = CLIENT_CLOSED_REQUEST
    try:
        answer = await behaviour(message, context)
        request.status = 200
        return answer
    finally:
        if observer is not None and (observer.sees_all or request.status >= 400):
            observer.request_ended(request)
        request.ended = True


def identity() -> tuple[tuple[str, str], ...]:
    """The id of the current request, as trailing metadata."""
    request = current_request.get()
    return () if request is None else ((REQUEST_ID.decode(), request.id.decode()),)


def note_failure(status: int, error: BaseException) -> None:
    """Keeps, for the log, why the current request gets no answer."""
    if request := current_request.get():
        request.status, request.error = status, error


def note_error(error: BatchdError) -> None:
    """Likewise, of an error that knows its status."""
    note_failure(error.status, error)


def _headers(context: Context) -> list[tuple[bytes, bytes]]:
    """The call's metadata, as HTTP headers are."""
    metadata = context.invocation_metadata() or ()
    return [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in metadata]
