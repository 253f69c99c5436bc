"""Reading a request's body, up to the limit, and seeing its caller leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from server.errors import PayloadTooLarge

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

WATCH_AFTER_S = 0.02
"""A task that watches for the caller to leave costs some 15 µs: requests answered sooner don't get one."""


class CallerLeft(Exception):
    """The connection was closed before the reply."""


async def read_body(headers: Headers, receive: Receive, limit_bytes: int) -> bytes:
    """Returns the whole body. Raises PayloadTooLarge as soon as it is known to exceed the limit, CallerLeft.

    What the caller still sends of a body that is too large, the HTTP server reads and drops, so the caller
    gets its reply and the connection stays in step.
    """
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > limit_bytes:
            raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if not message.get("more_body", False):
            return b"".join(chunks) + chunk if chunks else chunk
        chunks.append(chunk)


class CallerWatch:
    """Cancels the current task when the caller leaves; a `with` block around the wait for an answer."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._waiting_task = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._left = False

    def __enter__(self) -> None:
        self._timer = self._loop.call_later(WATCH_AFTER_S, self._start)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._left and kind is asyncio.CancelledError and self._waiting_task is not None:
            self._waiting_task.uncancel()
            raise CallerLeft from None

    def _start(self) -> None:
        self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect" and self._waiting_task is not None:
            self._left = True
            self._waiting_task.cancel()


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the request body is larger than the limit of {limit_bytes} bytes")
