"""A transport that closes in two steps, so that the other side can read what was sent last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class LingeringTransport:
    """What a protocol sees of its transport. `close` ends our half and calls `on_end`; reading goes on.

    Over TLS there are no halves: there it closes, which sends what is written first.
    """

    __slots__ = ("_on_end", "_transport", "get_extra_info", "is_ended", "pause_reading", "resume_reading")

    def __init__(self, transport: asyncio.Transport, on_end: Callable[[], None]) -> None:
        self._transport = transport
        self._on_end = on_end
        self.is_ended = False
        self.get_extra_info: Callable[[str], Any] = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def lose(self) -> None:
        """The connection is lost."""
        self.is_ended = True
        self._on_end = _nothing

    def is_closing(self) -> bool:
        """Whether nothing more may be written."""
        return self.is_ended or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Sends; what comes after the end, or when the other side is gone, is for nobody and passed over."""
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Sends what is written, and the end."""
        if self.is_closing():
            return
        self.is_ended = True
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the other side is gone already
            self._transport.close()
        else:
            self._on_end()


def _nothing() -> None:
    """Takes the place of what would refer back to the protocol, so that both are gone at once."""
