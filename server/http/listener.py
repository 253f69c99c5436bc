"""uvicorn's server without its own ways of stopping: signals and the order of the end are ours."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, cast

import uvicorn

from server.http.accepting import Acceptor, Opening
from server.http.application import ASGI
from server.http.connections import Connections
from server.http.protocol import Protocol

_HANDOVER_S = 1.0
"""How long the end waits for connections that are being opened; a quarter of its own time at most."""

_OTHER_DESCRIPTORS = 512
"""What the process needs besides connections: refused ones, engine processes, logs."""


class Listener(uvicorn.Server):
    """Serves an application on a listening socket, until `stop`."""

    def __init__(self, application: ASGI, connections: Connections, **of_uvicorn: Any) -> None:
        protocol = cast(type[asyncio.Protocol], partial(Protocol, connections))
        super().__init__(
            uvicorn.Config(
                application,
                loop="uvloop",
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                **of_uvicorn,
            )
        )
        self._connections = connections
        self._acceptor: Acceptor | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to accept, in our own way."""
        self.servers = []
        self._acceptor = Acceptor(self._connections, self.config.ssl, self._protocol)
        for listening in sockets or ():
            listening.listen(self.config.backlog)
            self._acceptor.listen(listening)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Nothing is left to do: `stop` has done it."""

    async def stop(self, listening: socket.socket, timeout_s: float) -> bool:
        """Stops listening and ends all connections; False if some had to be dropped."""
        loop = asyncio.get_running_loop()
        stop_at = loop.time() + timeout_s
        self._connections.close_with_replies()
        try:
            if self.started and listening.fileno() >= 0:
                await self._stop_listening(listening, min(_HANDOVER_S, timeout_s / 4))
        finally:
            is_clean = await self._connections.close(stop_at - loop.time())
            self.should_exit = True
        return is_clean

    async def _stop_listening(self, listening: socket.socket, timeout_s: float) -> None:
        """Closes the socket after taking what the kernel had accepted, which it would reset otherwise."""
        assert self._acceptor is not None
        with listening.dup() as last:
            self._acceptor.close()
            listening.close()
            last.setblocking(False)
            accepted = list(islice(_accepted(last), self.config.backlog))
        self._acceptor.begin(accepted)
        await self._acceptor.finish(timeout_s)

    def _protocol(self, in_place_of: Opening | None = None) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]  # a partial of Protocol
            in_place_of=in_place_of,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )


def allow_descriptors(connections: int) -> str | None:
    """Lets the process have so many connections; returns a warning where it may not."""
    wanted = connections + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = hard if hard != resource.RLIM_INFINITY else wanted
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, allowed), hard))
    if allowed >= wanted:
        return None
    return f"connection_limit = {connections} needs {wanted} descriptors, and the system allows {allowed} (ulimit -n)"


def _accepted(listening: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            yield listening.accept()[0]
        except OSError:
            return
