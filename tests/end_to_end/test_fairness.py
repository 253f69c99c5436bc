"""A slow model at full load raises the p99 of a fast one by at most the length of one slow batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
import uvloop

from loadtest.attack import Exchange, attack, attack_async
from loadtest.pacer import ClosedLoop, open_loop
from loadtest.targets import Example, Target, target
from tests.support.serving import SERVICES, Serving, serving

RATE_PER_S = 100.0
REQUESTS = 1500
CONNECTIONS = 24
ROUNDS = 3

pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(600)]


def test_a_fast_model_waits_for_one_slow_batch_at_most() -> None:
    with serving(SERVICES / "heavy.py") as server:
        slow = target(server.url, "heavy", [Example({"seed": i / 64}) for i in range(64)])
        fast = target(server.url, "light", [Example({"x": float(i)}) for i in range(64)])
        attack(slow, ClosedLoop(100, CONNECTIONS))
        attack(fast, ClosedLoop(500, 8))
        rounds = [(_alone(fast), *_together(server, fast, slow)) for _ in range(ROUNDS)]
    alone, together, batch = (float(np.median(each)) for each in zip(*rounds, strict=True))
    print(f"p99 of the fast model {alone:.1f} ms alone, {together:.1f} beside the slow one; its batch {batch:.1f} ms")
    assert together <= alone + batch


def _alone(fast: Target) -> float:
    return _p99_ms(_latencies_ms(attack(fast, open_loop("poisson", RATE_PER_S, REQUESTS, seed=1)).exchanges))


def _together(server: Serving, fast: Target, slow: Target) -> tuple[float, float]:
    """The p99 of the fast model while the slow one is saturated, and of the slow one's batches, in milliseconds."""

    async def both() -> tuple[Sequence[float], Sequence[float]]:
        done = asyncio.Event()

        async def saturate() -> Sequence[float]:
            times: list[float] = []
            while not done.is_set():
                log = await attack_async(slow, ClosedLoop(4 * CONNECTIONS, CONNECTIONS))
                assert all(exchange.status == 200 for exchange in log.exchanges)
                times += [float((exchange.headers or {})["x-batchd-compute-ms"]) for exchange in log.exchanges]
            return times

        saturating = asyncio.create_task(saturate())
        await asyncio.sleep(0.5)
        log = await attack_async(fast, open_loop("poisson", RATE_PER_S, REQUESTS, seed=1))
        done.set()
        return _latencies_ms(log.exchanges), await saturating

    latencies, batches = uvloop.run(both())
    return _p99_ms(latencies), _p99_ms(batches)


def _latencies_ms(exchanges: Sequence[Exchange]) -> list[float]:
    assert all(exchange.status == 200 for exchange in exchanges)
    return [1000 * (exchange.done_s - exchange.sent_s) for exchange in exchanges]


def _p99_ms(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.99))
