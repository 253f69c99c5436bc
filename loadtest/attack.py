"""Sends requests as a pacer says and keeps every exchange. Nothing is judged here, and nothing is dropped.

Latency counts from when a request was *due*: in an open loop a request that had to wait for this generator or
for a connection was late, and its caller would have waited too.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import uvloop

from loadtest.connection import ConnectionPool
from loadtest.pacer import ClosedLoop, Pacer
from loadtest.targets import Target

OPEN_LOOP_CONNECTIONS = 256


@dataclass(slots=True)
class Exchange:
    """One request and what came of it. Times are seconds from the start of the attack.

    example: index into the target's requests. status: None when no reply came; `failure` then says why,
    `timed_out` that the generator gave up waiting, and `left` that it had meant to.
    """

    index: int
    example: int
    due_s: float
    sent_s: float = 0.0
    done_s: float = 0.0
    status: int | None = None
    headers: Mapping[str, str] | None = None
    body: bytes = b""
    failure: str | None = None
    timed_out: bool = False
    left: bool = False


@dataclass(frozen=True)
class Leavers:
    """Callers who close their connection if there is no reply yet after `after_s` seconds; the seed says which."""

    share: float
    after_s: float
    seed: int = 0

    def chosen(self, count: int) -> set[int]:
        """Returns the indices of those among `count` requests."""
        return set(np.flatnonzero(np.random.default_rng(self.seed).random(count) < self.share).tolist())


@dataclass(frozen=True)
class AttackLog:
    """Every exchange of one attack, in order of due time.

    generator_cpu_share: processor time of this process over the wall time; near 1 the generator itself was
    the limit.
    """

    exchanges: list[Exchange]
    elapsed_s: float
    generator_cpu_share: float


def attack(
    target: Target,
    pacer: Pacer,
    *,
    timeout_s: float = 30.0,
    connections: int = OPEN_LOOP_CONNECTIONS,
    leavers: Leavers | None = None,
) -> AttackLog:
    """Run one attack to its end, in an event loop of its own.

    timeout_s: after this long without a reply an exchange ends as `timed_out`.
    connections: most connections of an open loop; a closed loop opens its concurrency.
    leavers: callers who don't wait that long.
    """
    run = attack_async(target, pacer, timeout_s=timeout_s, connections=connections, leavers=leavers)
    return uvloop.run(run)


async def attack_async(
    target: Target,
    pacer: Pacer,
    *,
    timeout_s: float = 30.0,
    connections: int = OPEN_LOOP_CONNECTIONS,
    leavers: Leavers | None = None,
) -> AttackLog:
    """`attack` for a running event loop."""
    size = pacer.concurrency if isinstance(pacer, ClosedLoop) else connections
    run = _Run(target, pacer, timeout_s, leavers, ConnectionPool(target.host, target.port, size))
    cpu_before_s = time.process_time()
    with _no_collector():
        try:
            if isinstance(pacer, ClosedLoop):
                await run.closed(pacer.concurrency)
            else:
                await run.open()
        finally:
            run.pool.close()
    elapsed_s = run.now_s()
    cpu_s = time.process_time() - cpu_before_s
    return AttackLog(run.exchanges, elapsed_s, cpu_s / elapsed_s if elapsed_s else 0.0)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Keeps Python's collector still: it would look through all exchanges, and its pauses look like the server's."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Run:
    def __init__(
        self, target: Target, pacer: Pacer, timeout_s: float, leavers: Leavers | None, pool: ConnectionPool
    ) -> None:
        self.target = target
        self.pacer = pacer
        self.timeout_s = timeout_s
        self.leave_after_s = leavers.after_s if leavers else 0.0
        self.leaving = leavers.chosen(pacer.count) if leavers else set()
        self.pool = pool
        self.exchanges: list[Exchange] = []
        self.started_at = time.perf_counter()

    def now_s(self) -> float:
        return time.perf_counter() - self.started_at

    async def open(self) -> None:
        """Start each request when it is due, whether or not earlier ones are answered."""
        async with asyncio.TaskGroup() as group:
            for sent in range(self.pacer.count):
                # uvloop's timers count whole milliseconds and may wake a fraction early.
                while (wait_s := self.pacer.wait_s(self.now_s(), sent)) > 0:
                    await asyncio.sleep(wait_s)
                group.create_task(self._exchange(self._next(self.pacer.due_s(sent))))

    async def closed(self, concurrency: int) -> None:
        """Keep `concurrency` requests under way until all are sent."""
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, self.pacer.count)):
                group.create_task(self._caller())

    async def _caller(self) -> None:
        while len(self.exchanges) < self.pacer.count:
            await self._exchange(self._next(self.now_s()))

    def _next(self, due_s: float) -> Exchange:
        index = len(self.exchanges)
        exchange = Exchange(index, index % len(self.target.requests), due_s)
        self.exchanges.append(exchange)
        return exchange

    async def _exchange(self, exchange: Exchange) -> None:
        leaves = exchange.index in self.leaving
        patience_s = self.leave_after_s if leaves else self.timeout_s
        exchange.sent_s = self.now_s()
        try:
            connection = await self.pool.take()
            exchange.sent_s = self.now_s()
            try:
                reply = await connection.exchange(self.target.requests[exchange.example], patience_s)
            finally:
                self.pool.give_back(connection)
        except TimeoutError as error:
            exchange.failure, exchange.timed_out, exchange.left = str(error), not leaves, leaves
        except OSError as error:
            exchange.failure = str(error) or type(error).__name__
        else:
            exchange.status, exchange.headers, exchange.body = reply.status, reply.headers, reply.body
        exchange.done_s = self.now_s()
