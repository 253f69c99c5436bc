"""Messages on a byte stream: each is one msgpack map behind its length in 4 bytes, little-endian."""

from __future__ import annotations

import msgspec

from server.process.messages import FromChild, ToChild

_encode = msgspec.msgpack.Encoder().encode


def frame(message: ToChild | FromChild) -> bytes:
    """Returns the message's bytes, its length in front."""
    body = _encode(message)
    return len(body).to_bytes(4, "little") + body


class Unframer:
    """Collects bytes as they arrive; `feed` returns the bodies of the messages that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        bodies = []
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "little")
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[4:end]))
            del self._buffer[:end]
        return bodies
