"""The watchdog, with engine processes that are real and import no TensorFlow."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from server.engines.settings import EngineSettings
from server.errors import EngineDied, ModelLoadError
from server.metrics import Metrics
from server.model_description import Bucket
from server.process import host
from server.process.host import EngineProcess
from server.process.messages import ModelSource
from server.watchdog import Watchdog
from tests.support import quick_engine

NAP = [(np.float32(0.0),)]
SETTINGS = EngineSettings(compile_cache=False)


@pytest.fixture(autouse=True)
def without_tensorflow(monkeypatch) -> None:
    monkeypatch.setattr(host, "CHILD_MODULE", quick_engine.MODULE)


class Watching:
    """A watchdog with an engine, and what it counted."""

    def __init__(self, **timeouts: float) -> None:
        self.registry = CollectorRegistry()
        chosen = {"ping_interval_s": 0.1, "ping_timeout_s": 0.8, "batch_timeout_s": 0.5, "load_timeout_s": 20.0}
        self.watchdog = Watchdog(Metrics(self.registry), **(chosen | timeouts))

    def killed(self, where: str, model: str = "nap") -> float:
        labels = {"model": model, "where": where}
        return self.registry.get_sample_value("batchd_hung_engines_total", labels) or 0.0

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[EngineProcess]:
        engine = self.watchdog.start_engine(ModelSource("nap"), SETTINGS)
        await engine.start()
        running = asyncio.create_task(self.watchdog.run())
        try:
            yield engine
        finally:
            running.cancel()
            await engine.close()


async def test_an_idle_engine_that_stops_is_told_and_killed():
    watching = Watching(ping_timeout_s=2.0)
    async with watching.engine() as engine:
        await asyncio.sleep(0.3)
        assert watching.watchdog.concern() is None
        os.kill(engine.pid, signal.SIGSTOP)
        began = time.monotonic()
        while watching.watchdog.concern() is None:
            assert time.monotonic() - began < 1.9
            await asyncio.sleep(0.01)
        assert watching.watchdog.concern() == "the engine of model 'nap' does not answer"
        assert await asyncio.wait_for(engine.exited, 4) == "was ended by SIGKILL"
        assert 1.9 < time.monotonic() - began < 3
        assert watching.watchdog.concern() == "the engine of model 'nap' does not answer"
        await engine.close()  # as its deployment does, once it knows
        assert watching.watchdog.concern() is None
        assert watching.killed("ping") == 1


async def test_an_engine_at_work_is_not_pinged_and_one_that_was_late_is_forgiven():
    watching = Watching(batch_timeout_s=10.0)
    async with watching.engine() as engine:
        result = await engine.run("predict", [(np.float32(1.5),)], Bucket(1))
        assert result.rows[0][0] == 1.5
        os.kill(engine.pid, signal.SIGSTOP)
        await asyncio.sleep(0.4)
        os.kill(engine.pid, signal.SIGCONT)
        await asyncio.sleep(1.0)
        assert not engine.exited.done()
        assert (await engine.run("predict", NAP, Bucket(1))).rows[0][0] == 0.0


async def test_a_batch_that_nobody_else_times_is_ended_too():
    """As those of shadow engines."""
    watching = Watching(batch_timeout_s=0.3)
    async with watching.engine() as engine:
        with pytest.raises(EngineDied):
            await asyncio.wait_for(engine.run("predict", [(np.float32(60.0),)], Bucket(1)), 3)
        assert watching.killed("batch") == 1


async def test_loading_that_hangs():
    watching = Watching(load_timeout_s=0.6)
    engine = watching.watchdog.start_engine(ModelSource("hung"), SETTINGS)
    began = time.monotonic()
    with pytest.raises(ModelLoadError, match=r"loading hung has hung: no progress for 0.6 s .*raise load_timeout_s"):
        await engine.start()
    assert time.monotonic() - began < 6
    assert watching.killed("load", "hung") == 1
    assert await engine.exited


async def test_all_are_ended_at_once():
    watching = Watching()
    async with watching.engine() as engine:
        running = asyncio.create_task(engine.run("predict", [(np.float32(60.0),)], Bucket(1)))
        await asyncio.sleep(0.1)
        watching.watchdog.kill_all()
        with pytest.raises(EngineDied):
            await asyncio.wait_for(running, 1)
        assert await engine.exited == "was ended by SIGKILL"
