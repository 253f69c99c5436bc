"""A lean HTTP/1.1 connection for the load generator: one request at a time, bytes out, status and body in.

httpx costs about a millisecond of this process per request, which would be measured as the server's; this
costs some tens of microseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import cast

import httptools

# Servers close connections that idle (uvicorn after 5 s); one that is about to be closed isn't used again.
LONGEST_IDLE_S = 4.0


@dataclass(slots=True)
class Reply:
    """One HTTP reply; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """One keep-alive connection; after a ConnectionError or TimeoutError from `exchange` it is closed."""

    def __init__(self) -> None:
        self.is_open = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    async def exchange(self, request: bytes, timeout_s: float) -> Reply:
        """Send one whole request and await its reply."""
        loop = asyncio.get_running_loop()
        if self._transport is None or not self.is_open:
            raise ConnectionError("the connection is closed")
        reply: asyncio.Future[Reply] = loop.create_future()
        self._reply = reply
        timer = loop.call_later(timeout_s, self._time_out, timeout_s)
        self._transport.write(request)
        try:
            return await reply
        finally:
            timer.cancel()
            self._reply = None
            self.idle_since = time.perf_counter()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _time_out(self, timeout_s: float) -> None:
        self._fail(TimeoutError(f"no reply within {timeout_s:g} s"))
        self.close()

    def _fail(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the reply isn't HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._fail(ConnectionError(f"the server closed the connection: {error or 'end of stream'}"))

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._headers = {}
        self._body = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.is_open = False
        if self._reply is not None and not self._reply.done():
            reply = Reply(self._parser.get_status_code(), self._headers, b"".join(self._body))
            self._reply.set_result(reply)


@dataclass
class ConnectionPool:
    """At most `size` connections to one server, opened when first needed, most recently used first."""

    host: str
    port: int
    size: int
    _free: list[Connection] = field(default_factory=list)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    _taken: int = 0

    async def take(self) -> Connection:
        """A connection that is open and nobody else's; waits while all `size` are taken. Raises OSError."""
        if self._taken < self.size:
            self._taken += 1
        else:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn  # the place of whoever gives back passes on, first come, first served
        now = time.perf_counter()
        while self._free:
            connection = self._free.pop()
            if connection.is_open and now - connection.idle_since < LONGEST_IDLE_S:
                return connection
            connection.close()
        try:
            _, connection = await asyncio.get_running_loop().create_connection(Connection, self.host, self.port)
        except OSError:
            self._release()
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        if connection.is_open:
            self._free.append(connection)
        self._release()

    def _release(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._taken -= 1

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()
