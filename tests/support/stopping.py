"""Clients that ask again and again while a server is being stopped, and the books that they keep."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.support.raw_http import RawConnection
from tests.support.serving import Serving

BODY = json.dumps({"inputs": {"seconds": 0.003}}).encode()
REQUEST = b"POST /predict/nap HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


@dataclass
class Books:
    """What became of every request. `closing_since`: when a reply first said that its connection ends."""

    statuses: Counter[int] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    without_retry_after: int = 0
    kept_alive_late: int = 0
    closing_since: float = float("inf")

    def note(self, sent_at: float, status: int, closes: bool, retry_after: str | None) -> None:
        """Enters one whole reply."""
        self.statuses[status] += 1
        if status == 503 and not retry_after:
            self.without_retry_after += 1
        if closes:
            self.closing_since = min(self.closing_since, time.monotonic())
        elif sent_at > self.closing_since:
            self.kept_alive_late += 1


async def load_and_stop(server: Serving, replies: int = 60) -> Books:
    """Asks from 16 connections, sends SIGTERM after some replies; returns when no connection is accepted any more."""
    books = Books()
    clients = [_ask_by_httpx(server, books) for _ in range(8)]
    clients += [_ask_raw(server, books, honours_close=turn % 2 == 0) for turn in range(8)]
    tasks = [asyncio.create_task(client) for client in clients]
    while books.statuses.total() < replies:
        await asyncio.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*tasks), 40)
    return books


async def _ask_by_httpx(server: Serving, books: Books) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        while True:
            sent_at = time.monotonic()
            try:
                reply = await client.post("/predict/nap", content=BODY)
            except httpx.ConnectError:
                return
            except httpx.TransportError as error:
                books.lost.append(repr(error))
                return
            closes = reply.headers.get("connection") == "close"
            books.note(sent_at, reply.status_code, closes, reply.headers.get("retry-after"))
            if reply.status_code == 503:
                await asyncio.sleep(0.01)


async def _ask_raw(server: Serving, books: Books, *, honours_close: bool) -> None:
    while True:
        try:
            connection = await RawConnection.open(server.port)
        except ConnectionError:
            return
        async with connection:
            said_close = False
            while not (honours_close and said_close):
                sent_at = time.monotonic()
                try:
                    connection.send(REQUEST)
                    reply = await connection.reply(30)
                except (ConnectionError, asyncio.IncompleteReadError) as error:
                    if not said_close:
                        books.lost.append(repr(error))
                    break
                said_close = reply.closes
                books.note(sent_at, reply.status, reply.closes, reply.headers.get("retry-after"))
