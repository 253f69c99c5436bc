"""What the HTTP connections of one server share: their limits, their counts, and the way in which they end.

Ending without losing a request is a matter of order:

    SIGTERM          every reply says `Connection: close` from now on, and its connection ends after it
    the queue is     the listening socket is closed, after what it had accepted in the kernel; idle connections get a
    empty            last word, a complete 503 with Retry-After, and end. A client that was just sending a request takes
                     that as its answer, which it is: the request wasn't run, and may be sent elsewhere. One that was
                     idle sees that its connection has ended, as it would without the word.
    close timeout    a request that is half sent is answered with the same 503; replies that nobody reads are dropped

Each connection ends its own half first and goes on reading for a moment (`LINGER_S`): closing at once would make
the kernel answer what is still on its way with a reset, which can destroy the reply before the client has read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from server.http.errors import error_body
from server.http.refused import RefusedRequests
from server.http.turns import Turns
from server.request_context import REQUEST_ID

LINGER_S = 1.0
"""How long an ended connection waits for the other side to end, too: more than a round trip."""

_UNANSWERED_SURPLUS = 256
"""Connections beyond the limit that get their 503; more are dropped at once, for each takes a descriptor."""

_PHRASES = {
    400: b"Bad Request",
    408: b"Request Timeout",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_RETRY_AFTER = b"retry-after: 1\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one client may take; the settings of the same names say what each is for."""

    connections: int = 4096
    url_bytes: int = 8192
    header_bytes: int = 32768
    header_count: int = 100
    header_timeout_s: float = 10.0
    body_timeout_s: float = 10.0
    write_timeout_s: float = 30.0
    keep_alive_s: float = 75.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply that a connection gives by itself. `reason`: what the metric calls it. `ends`: the connection with it."""

    status: int
    reason: str
    message: str
    ends: bool = True

    def reply(self, request_id: bytes) -> bytes:
        """The whole reply as it is sent."""
        body = error_body(self.message)
        return b"".join(
            (
                b"HTTP/1.1 %d %s\r\n" % (self.status, _PHRASES[self.status]),
                b"content-type: application/json\r\n",
                b"content-length: %d\r\n" % len(body),
                b"%s: %s\r\n" % (REQUEST_ID, request_id),
                _RETRY_AFTER if self.status == 503 else b"",
                b"connection: close\r\n\r\n" if self.ends else b"\r\n",
                body,
            )
        )


MALFORMED = Refusal(400, "malformed", "this is not a valid HTTP request")
STOPPING = Refusal(503, "stopping", "the server is shutting down; the request was not run; try again")
BUSY = Refusal(
    503, "busy", "too many requests arrive at once, and this one would be late; it was not read; try again", ends=False
)


class Connection(Protocol):
    """What ends a connection; see `server.http.protocol.Protocol`."""

    def close_after_reply(self) -> None:
        """Makes the reply in progress the last one."""
        ...

    def end_if_idle(self, last_word: Refusal) -> None:
        """Ends a connection on which nothing has begun."""
        ...

    def end_half_sent(self, last_word: Refusal) -> None:
        """Answers a request that isn't whole yet."""
        ...

    def drop(self, reason: str) -> None:
        """Ends the connection at once, whatever is on its way."""
        ...


class Connections:
    """All connections of one server. `count` hears the reason of each that the server ends before its client does.

    `refused`: told of the requests that connections refuse. `turns`: those in which requests are read.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        count: Callable[[str], None] = lambda reason: None,
        refused: RefusedRequests | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.limits = limits
        self.turns = turns or Turns()
        self.refused = refused or RefusedRequests()
        self.closing = False
        self._open: set[Connection] = set()
        self.count = count
        self._empty = asyncio.Event()
        self._empty.set()
        seconds = f"{limits.header_timeout_s:g} s"
        self.crowded = Refusal(503, "limit", f"{limits.connections} connections are open already; try again")
        self.head_late = Refusal(408, "header_timeout", f"the request's head was not complete after {seconds}")
        self.body_late = Refusal(
            408, "body_timeout", f"the request's body stopped arriving for {limits.body_timeout_s:g} s"
        )
        self.url_too_long = Refusal(414, "url", f"the URL is longer than {limits.url_bytes} bytes")
        self.head_too_large = Refusal(431, "headers", f"the headers are larger than {limits.header_bytes} bytes")
        self.too_many_headers = Refusal(431, "headers", f"the request has more than {limits.header_count} headers")

    def __len__(self) -> int:
        return len(self._open)

    @property
    def has_room(self) -> bool:
        """Whether the connection that was added last is within the limit."""
        return len(self._open) <= self.limits.connections

    @property
    def is_flooded(self) -> bool:
        """Whether even refusing takes too much."""
        return len(self._open) > self.limits.connections + _UNANSWERED_SURPLUS

    def add(self, connection: Connection, in_place_of: Connection | None = None) -> None:
        """Notes a connection that was made; or that has come further than the one whose place it takes."""
        if in_place_of is not None:
            self._open.discard(in_place_of)
        self._open.add(connection)
        self._empty.clear()

    def discard(self, connection: Connection) -> None:
        """Forgets one that is lost."""
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    def close_with_replies(self) -> None:
        """From now on every reply is the last of its connection, and says so."""
        self.closing = True
        for connection in self._open:
            connection.close_after_reply()

    async def close(self, timeout_s: float) -> bool:
        """Ends all connections, in order; False if some had to be dropped when the time was over."""
        self.close_with_replies()
        for connection in list(self._open):
            connection.end_if_idle(STOPPING)
        linger_s = min(LINGER_S, timeout_s / 2)
        if await self._is_empty_within(timeout_s - linger_s):
            return True
        for connection in list(self._open):
            connection.end_half_sent(STOPPING)
        if await self._is_empty_within(linger_s):
            return True
        for connection in list(self._open):
            connection.drop("stopping")
        return False

    async def _is_empty_within(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
