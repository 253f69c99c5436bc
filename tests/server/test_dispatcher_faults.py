"""Exceptions that nobody expects, put into the dispatcher: whom they concern gets a 500, and the rest goes on."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from server import dispatcher
from server.core.scheduler import Scheduler
from server.dispatcher import Dispatcher
from server.engines.batch_result import BatchResult, BatchStats
from server.errors import BatchdError, Draining
from server.metrics import LaneMetrics, Metrics
from server.prediction import PredictReply, PredictRequest
from tests.support.fake_engine import FakeEngine, describe

INTERNAL = r"internal error: ZeroDivisionError; the server's log has the details"


class Fault:
    """Stands in for a method: raises so many times, then does what the method does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, times: int = 1) -> None:
        self.left = times
        method = getattr(owner, name)

        def faulty(*arguments, **named):
            if self.left:
                self.left -= 1
                raise ZeroDivisionError(name)
            return method(*arguments, **named)

        monkeypatch.setattr(owner, name, faulty)


def serving(*engines: FakeEngine) -> SimpleNamespace:
    registry = CollectorRegistry()
    dispatcher = Dispatcher(
        metrics=Metrics(registry), queue_limit_examples=100, queue_limit_bytes=10**6, batch_timeout_s=10.0
    )
    for engine in engines:
        dispatcher.attach(engine.description, engine)

    def predict(value: float, model: str = "double") -> asyncio.Task[PredictReply]:
        examples = ((np.array([value], np.float32),),)
        request = PredictRequest(model, "predict", examples, time.monotonic() + 5.0)
        return asyncio.create_task(dispatcher.predict(request))

    def faults(where: str) -> float:
        return registry.get_sample_value("batchd_internal_errors_total", {"where": where}) or 0.0

    return SimpleNamespace(dispatcher=dispatcher, predict=predict, faults=faults)


async def assert_fails(task: asyncio.Task[PredictReply]) -> None:
    with pytest.raises(BatchdError, match=INTERNAL) as failed:
        await asyncio.wait_for(task, 1)
    assert failed.value.status == 500


async def assert_serves(served: SimpleNamespace) -> None:
    replies = await asyncio.wait_for(asyncio.gather(*(served.predict(i) for i in range(20))), 2)
    assert [reply.rows[0][0][0] for reply in replies] == [2.0 * i for i in range(20)]
    assert served.dispatcher.concern() is None


@pytest.mark.parametrize("name", ["batches_in", "dispatches"])
async def test_a_batch_that_cannot_be_sent(name, monkeypatch, caplog):
    Fault(monkeypatch, LaneMetrics, name)
    served = serving(FakeEngine())
    await assert_fails(served.predict(1))
    assert served.faults("step") == 1
    assert "the dispatcher failed unexpectedly (step)" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    await assert_serves(served)


@pytest.mark.parametrize(("owner", "name"), [(dispatcher, "hand_out"), (Dispatcher, "_count")])
async def test_answers_that_cannot_be_handed_out(owner, name, monkeypatch):
    engine = FakeEngine(seconds=0.01)
    served = serving(engine)
    Fault(monkeypatch, owner, name)
    first = served.predict(1)
    await asyncio.sleep(0)
    second = served.predict(2)
    await assert_fails(first)
    await asyncio.wait([second], timeout=1)
    assert second.done()
    assert served.faults("batch") == 1
    await assert_serves(served)


async def test_a_completion_that_the_scheduler_cannot_take(monkeypatch):
    served = serving(FakeEngine())
    Fault(monkeypatch, served.dispatcher._core, "completed")
    await assert_fails(served.predict(1))
    await assert_serves(served)


@pytest.mark.parametrize("name", ["next_action", "expire"])
async def test_a_scheduler_that_raises_is_replaced(name, monkeypatch):
    other = FakeEngine(description=describe("other"))
    served = serving(FakeEngine(), other)
    Fault(monkeypatch, served.dispatcher._core, name)
    tasks = [served.predict(1), served.predict(2, model="other")]
    for task in tasks:
        await assert_fails(task)
    assert served.faults("scheduler") == 1
    await assert_serves(served)
    assert (await served.predict(3, model="other")).rows[0][0][0] == 6.0


async def test_a_scheduler_that_raises_while_a_batch_runs(monkeypatch):
    """The batch comes back to a scheduler that never sent it."""
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine)
    running = served.predict(1)
    while not engine.batches:
        await asyncio.sleep(0)
    Fault(monkeypatch, served.dispatcher._core, "next_action")
    queued = served.predict(2)
    for task in (running, queued):
        await assert_fails(task)
    engine.gate.set()
    await assert_serves(served)


async def test_a_timer_that_raises(monkeypatch):
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine)
    running = served.predict(1)
    while not engine.batches:
        await asyncio.sleep(0)
    Fault(monkeypatch, served.dispatcher._core, "next_action")
    served.dispatcher._on_timer()
    await assert_fails(running)
    engine.gate.set()
    await assert_serves(served)


async def test_a_scheduler_that_raises_again_and_again_is_not_ready():
    served = serving(FakeEngine())
    for _ in range(4):
        served.dispatcher._start_over(ZeroDivisionError("again"))
    assert "the scheduler has failed 4 times within 60 s" in served.dispatcher.concern()
    assert (await served.predict(1)).rows[0][0][0] == 2.0


async def test_a_drain_outlives_a_fault(monkeypatch):
    served = serving(FakeEngine())
    assert await served.dispatcher.drain(1.0)
    served.dispatcher._start_over(ZeroDivisionError("while draining"))
    with pytest.raises(Draining):
        await served.predict(1)


async def test_a_batch_that_takes_much_longer_than_measured_is_a_concern_until_it_ends(monkeypatch):
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine)
    task = served.predict(1)
    while not engine.batches:
        await asyncio.sleep(0)
    assert served.dispatcher.concern() is None
    now = time.monotonic()
    monkeypatch.setattr(served.dispatcher, "_clock", lambda: now + 1.5)
    assert served.dispatcher.concern() == "a batch of model 'double' takes much longer than measured"
    engine.gate.set()
    await task
    assert served.dispatcher.concern() is None


async def test_abandon_answers_all_that_wait():
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine)
    tasks = [served.predict(i) for i in range(12)]
    await asyncio.sleep(0.01)
    served.dispatcher.abandon(Draining("too late"))
    for task in tasks:
        with pytest.raises(Draining, match="too late"):
            await asyncio.wait_for(task, 1)


class OneAtATime(FakeEngine):
    """As engine processes do, it takes no batch while it computes one."""

    def submit(self, signature, rows, bucket, owners, done) -> None:
        if self.seconds < 0:
            raise RuntimeError("a batch runs already")
        self.seconds = -self.seconds

        def free_and_done(outcome) -> None:
            self.seconds = -self.seconds
            done(outcome)

        super().submit(signature, rows, bucket, owners, free_and_done)

    async def run(self, *batch):
        await asyncio.sleep(abs(self.seconds))
        return BatchResult([self._answer(row) for row in batch[1]], BatchStats(compute_s=0.05), list(batch[3]))


async def test_a_new_scheduler_waits_for_the_batch_of_the_old(monkeypatch):
    served = serving(OneAtATime(seconds=0.05))
    running = served.predict(1)
    await asyncio.sleep(0.01)
    Fault(monkeypatch, Scheduler, "next_action")
    await assert_fails(served.predict(2))
    await assert_fails(running)
    assert served.faults("scheduler") == 1
    await assert_serves(served)
