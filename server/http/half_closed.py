"""A client that has ended its half of the connection: it may wait for its reply (`nc -N`), or it may be gone.

The two look the same until something is written: who is gone answers that with a reset. So what is written is
`102 Processing`, which every HTTP/1.1 client reads over; then the socket is asked, now and then, whether
it still lives.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

_PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
_LOOK_EVERY_S = 0.05
"""The first time, too: a reply that comes sooner is itself what is written."""


class HalfClosed:
    """Watches one until `stop`. `awaits_reply`: whether nothing of the reply that is due is written yet."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, awaits_reply: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._awaits_reply = awaits_reply
        self._has_asked = False
        self._timer = loop.call_later(_LOOK_EVERY_S, self._look)

    def stop(self) -> None:
        """The connection is lost."""
        self._timer.cancel()

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        if self._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if not self._has_asked and self._awaits_reply():
            self._has_asked = True
            self._transport.write(_PROCESSING)
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
