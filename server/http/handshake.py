"""Accepting connections that speak TLS: each counts, and has a deadline, from its first moment on.

An asyncio server tells of a connection when its handshake is done. Until then it would be in no count and under no
limit but the loop's own minute, and sockets that say nothing would take every descriptor that there is.
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
"""What one turn of the loop accepts: a handshake begins with a few hundred microseconds of work."""

_ACCEPT_AGAIN_S = 0.5
"""How long accepting rests when the system has no descriptor left."""


class Handshake:
    """A connection until its handshake is done; then its protocol takes its place among the connections."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.task: asyncio.Task[None] | None = None

    def close_after_reply(self) -> None:
        """There is no reply yet."""

    def end_if_idle(self, last_word: Refusal) -> None:
        """Gives it up: nothing can be said before the handshake is done."""
        self.drop(last_word.reason)

    def end_half_sent(self, last_word: Refusal) -> None:
        """Gives it up, too."""
        self.drop(last_word.reason)

    def drop(self, reason: str) -> None:
        """Ends the connection at once."""
        self._connections.count(reason)
        if self.task is not None:
            self.task.cancel()


class Handshakes:
    """Those that are going on. `protocol` makes the one of a connection, given the handshake whose place it takes."""

    def __init__(
        self, connections: Connections, tls: ssl.SSLContext, protocol: Callable[[Handshake], asyncio.Protocol]
    ) -> None:
        self._connections = connections
        self._tls = tls
        self._protocol = protocol
        self._going_on: set[asyncio.Task[None]] = set()
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
        """Begins the handshakes of sockets that were accepted."""
        for each in accepted:
            handshake = Handshake(self._connections)
            self._connections.add(handshake)
            if self._connections.is_flooded:
                self._connections.discard(handshake)
                self._connections.count("limit")
                each.close()
                continue
            handshake.task = asyncio.get_running_loop().create_task(self._shake(handshake, each))
            self._going_on.add(handshake.task)
            handshake.task.add_done_callback(self._going_on.discard)

    async def finish(self, timeout_s: float) -> None:
        """Waits for those that are going on."""
        if self._going_on:
            await asyncio.wait(self._going_on, timeout=timeout_s)

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

    async def _shake(self, handshake: Handshake, accepted: socket.socket) -> None:
        loop, timeout_s = asyncio.get_running_loop(), self._connections.limits.header_timeout_s
        try:
            await loop.connect_accepted_socket(
                partial(self._protocol, handshake), accepted, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except Exception as error:  # whatever a client did, it concerns no other
            if isinstance(error, ConnectionAbortedError):  # the loop's, for the timeout
                self._connections.count("header_timeout")
            _log.debug("a TLS handshake failed: %s", error)
        finally:
            self._connections.discard(handshake)
