"""Ending a gRPC server so that no client takes its end for its own doing.

`grpc.aio.Server.stop` answers calls that arrive while it stops with CANCELLED (seen with grpcio 1.85), which says that
the client cancelled them, and which no client repeats. A connection that ends says UNAVAILABLE, which is true, and
which clients do repeat. So the sockets are ended first, the listening one before the others; by then the queue is
empty and every call is refused. (grpcio logs "Failed accept4" when it finds that its listening socket has ended.)
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat

import grpc.aio

_SETTLE_S = 0.1
"""For the last answers to leave grpcio's own buffers, which don't tell."""


async def stop(server: grpc.aio.Server, port: int) -> None:
    """Ends the server and its connections, after the answers that are ready."""
    await asyncio.sleep(_SETTLE_S)
    for its_socket in sorted(_sockets(port), key=_is_connection):
        with its_socket:
            _end(its_socket)
    await server.stop(None)


def _sockets(port: int) -> list[socket.socket]:
    """This process's own sockets of that port, as duplicates: grpcio doesn't hand them out."""
    found = []
    for name in os.listdir("/dev/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            candidate = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # closed meanwhile
            continue
        if candidate.family in (socket.AF_INET, socket.AF_INET6) and candidate.getsockname()[1] == port:
            found.append(candidate)
        else:
            candidate.close()
    return found


def _is_connection(its_socket: socket.socket) -> bool:
    return not its_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def _end(its_socket: socket.socket) -> None:
    try:
        its_socket.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has ended
        return
