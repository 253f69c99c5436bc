"""Raw bytes to an HTTP server and back, for what no client library would send."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass
class RawReply:
    """One reply as it arrived; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def closes(self) -> bool:
        """Whether the server says that this is the connection's last reply."""
        return self.headers.get("connection") == "close"


class RawConnection:
    """One connection; `send` bytes, `reply` reads the next reply, `ended` whether the server has ended its half."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> RawConnection:
        """Connects to a port of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def __aenter__(self) -> RawConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def send(self, data: bytes) -> None:
        """Sends without waiting."""
        self.writer.write(data)

    async def reply(self, timeout_s: float = 5.0) -> RawReply:
        """Reads one reply that has a content-length. Raises IncompleteReadError at the end of the connection."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), timeout_s)
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await asyncio.wait_for(self.reader.readexactly(int(headers.get("content-length", "0"))), timeout_s)
        return RawReply(int(first.split()[1]), headers, body)

    async def ended(self, timeout_s: float = 5.0) -> bool:
        """Waits for the server's end; False if more bytes come first. A reset raises ConnectionError."""
        return await asyncio.wait_for(self.reader.read(1), timeout_s) == b""
