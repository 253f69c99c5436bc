"""Accepting connections: many in one turn of the loop, and each counts from its first moment on.

The loop's own servers accept one connection a turn (libuv does, since 1.45). A turn that answers hundreds of requests
takes tens of milliseconds, so callers who all came at once would wait for seconds before anybody read what they sent.
And with TLS they tell of a connection only when its handshake is done: until then it would be in no count and under
no limit but the loop's own minute, and sockets that say nothing would take every descriptor that there is.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial

from server.http.connections import Connections, Refusal

_log = logging.getLogger("batchd")
_ACCEPTED_AT_ONCE = 64
"""What one turn of the loop accepts: a TLS handshake begins with a few hundred microseconds of work."""

_ACCEPT_AGAIN_S = 0.5
"""How long accepting rests when the system has no descriptor left."""


class Opening:
    """A connection until it can be read, with TLS after the handshake; then its protocol takes its place."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.task: asyncio.Task[None] | None = None

    def close_after_reply(self) -> None:
        """There is no reply yet."""

    def end_if_idle(self, last_word: Refusal) -> None:
        """Gives it up: nothing can be said before it is open."""
        self.drop(last_word.reason)

    def end_half_sent(self, last_word: Refusal) -> None:
        """Gives it up, too."""
        self.drop(last_word.reason)

    def drop(self, reason: str) -> None:
        """Ends the connection at once."""
        self._connections.count(reason)
        if self.task is not None:
            self.task.cancel()


class Acceptor:
    """Accepts on one socket. `protocol` makes the one of a connection, given the opening whose place it takes."""

    def __init__(
        self, connections: Connections, tls: ssl.SSLContext | None, protocol: Callable[[Opening], asyncio.Protocol]
    ) -> None:
        self._connections = connections
        self._tls = tls
        self._protocol = protocol
        self._opening: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._is_short = False

    def listen(self, listening: socket.socket) -> None:
        """Begins to accept."""
        listening.setblocking(False)
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening, self._accept)

    def close(self) -> None:
        """Accepts no more; the listening socket stays open."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening = None
        if self._resting is not None:
            self._resting.cancel()

    def begin(self, accepted: Iterable[socket.socket]) -> None:
        """Opens connections that were accepted."""
        for each in accepted:
            opening = Opening(self._connections)
            self._connections.add(opening)
            if self._connections.is_flooded:
                self._connections.discard(opening)
                self._connections.count("limit")
                each.close()
                continue
            opening.task = asyncio.get_running_loop().create_task(self._open(opening, each))
            self._opening.add(opening.task)
            opening.task.add_done_callback(self._opening.discard)

    async def finish(self, timeout_s: float) -> None:
        """Waits for those that aren't open yet."""
        if self._opening:
            await asyncio.wait(self._opening, timeout=timeout_s)

    def _accept(self) -> None:
        if self._listening is None:
            return
        accepted = []
        try:
            for _ in range(_ACCEPTED_AT_ONCE):
                accepted.append(self._listening.accept()[0])
            self._is_short = False
        except (BlockingIOError, ConnectionAbortedError):
            self._is_short = self._is_short and not accepted
        except OSError as error:
            self._rest(self._listening, error)
        self.begin(accepted)

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        """Lets those that wait do so in the kernel; the socket would be readable all the time."""
        loop = asyncio.get_running_loop()
        if not self._is_short:
            _log.warning(
                "can't accept a connection with %d open: %s; trying again (see ulimit -n)",
                len(self._connections),
                error.strerror,
            )
        self._is_short = True
        loop.remove_reader(listening)
        self._resting = loop.call_later(_ACCEPT_AGAIN_S, self._go_on)

    def _go_on(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def _open(self, opening: Opening, accepted: socket.socket) -> None:
        timeout_s = self._connections.limits.header_timeout_s if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(self._protocol, opening), accepted, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except Exception as error:  # whatever a client did, it concerns no other
            if isinstance(error, ConnectionAbortedError):  # the loop's, for the timeout
                self._connections.count("header_timeout")
            _log.debug("a connection did not open: %s", error)
        finally:
            self._connections.discard(opening)
