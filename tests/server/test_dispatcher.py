"""The dispatcher with an engine in memory: who gets what, and when."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from server.dispatcher import Dispatcher
from server.engines.batch_result import BatchResult, BatchStats
from server.errors import (
    BatchdError,
    DeadlineExceeded,
    DeadlineUnreachable,
    Draining,
    EngineDied,
    ExampleRejected,
    ModelUnavailable,
    OwnershipError,
    PayloadTooLarge,
    QueueFull,
    TooManyExamples,
)
from server.metrics import Metrics
from server.model_description import BoundDescription, Bucket, TensorDescription
from server.prediction import PredictReply, PredictRequest
from tests.support.fake_engine import FakeEngine, describe


def positive(x):
    if (x < 0).any():
        raise ValueError("x must not be negative")
    return x + 1


def serving(*engines: FakeEngine, **settings) -> SimpleNamespace:
    registry = CollectorRegistry()
    limits = {"queue_limit_examples": 100, "queue_limit_bytes": 10**6, "batch_timeout_s": 10.0} | settings
    dispatcher = Dispatcher(metrics=Metrics(registry), **limits)
    for engine in engines:
        engine.attachment = dispatcher.attach(engine.description, engine)

    def predict(*values: float, model: str = "double", timeout_s: float = 5.0) -> asyncio.Task[PredictReply]:
        example = (np.array(values, np.float32),)
        deadline = time.monotonic() + timeout_s
        return asyncio.create_task(dispatcher.predict(PredictRequest(model, "predict", (example,), deadline)))

    def sample(name: str, **labels) -> float | None:
        labels = {"model": "double", "version": "1", "signature": "predict", "engine": "fake"} | labels
        return registry.get_sample_value(name, labels)

    return SimpleNamespace(dispatcher=dispatcher, predict=predict, sample=sample)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_everyone_gets_the_own_row():
    engine = FakeEngine(seconds=0.001)
    served = serving(engine)
    replies = await asyncio.gather(*(served.predict(i, i + 1) for i in range(50)))
    for i, reply in enumerate(replies):
        np.testing.assert_array_equal(reply.rows[0][0], [2 * i, 2 * i + 2])
    assert engine.sizes == [8, 8, 8, 8, 8, 8, 2]
    assert served.sample("batchd_batch_size_sum") == 50
    assert served.sample("batchd_dispatches_total", reason="full") == 6
    assert served.sample("batchd_dispatches_total", reason="idle") == 1
    assert served.sample("batchd_compiles_total", phase="serving") == 0


class LookedAtEngine(FakeEngine):
    """Its answer is there as soon as it is asked for, and only then: the loop tells of nothing."""

    def submit(self, signature, rows, bucket, owners, done) -> None:
        self.ready = signature, rows, bucket, owners, done

    def poll(self) -> None:
        if self.ready is not None:
            (*batch, done), self.ready = self.ready, None
            self.batches.append((len(batch[1]), batch[2]))
            done(BatchResult([self._answer(row) for row in batch[1]], BatchStats(compute_s=0.001), list(batch[3])))


async def test_requests_look_for_the_answers_of_the_batch_that_runs():
    """In a turn of many requests the device doesn't wait for its end: the next batch goes in the middle of it."""
    engine = LookedAtEngine()
    served = serving(engine)
    first = served.predict(1)
    await turns()
    time.sleep(0.001)  # it is looked for now and then only
    second = served.predict(2)
    await turns()
    assert first.done()
    assert engine.sizes == [1]
    time.sleep(0.001)
    third = served.predict(3)
    await turns()
    assert [reply.rows[0][0][0] for reply in (await first, await second)] == [2, 4]
    third.cancel()


async def test_a_reply_says_how_it_was_served():
    engine = FakeEngine()
    served = serving(engine)
    replies = await asyncio.gather(*(served.predict(i) for i in range(3)))
    provenance = replies[0].provenance
    assert (provenance.batch_size, provenance.bucket, provenance.reason) == (3, Bucket(4), "idle")
    assert provenance.padding_ratio == 0.25
    assert 0 <= provenance.queue_s < 1
    assert 0 <= provenance.compute_s < 1


async def test_only_the_rejected_row_fails():
    engine = FakeEngine(positive)
    served = serving(engine)
    answers = await asyncio.gather(*(served.predict(i - 3) for i in range(8)), return_exceptions=True)
    assert engine.sizes == [8]
    assert [isinstance(answer, ExampleRejected) for answer in answers] == [True] * 3 + [False] * 5
    assert answers[0].message == "x must not be negative"
    assert [answer.rows[0][0][0] for answer in answers[3:]] == [1, 2, 3, 4, 5]


async def test_the_deadline_is_answered_while_the_batch_runs():
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine)
    running, queued = served.predict(1, timeout_s=0.05), served.predict(2, timeout_s=5)
    await turns()
    late = served.predict(3, timeout_s=0.06)
    started = time.monotonic()
    for task in (running, late):
        with pytest.raises(DeadlineExceeded, match=r"no answer before the deadline: waited \d+ ms"):
            await task
    assert time.monotonic() - started < 1
    engine.gate.set()
    assert (await queued).rows[0][0] == [4]
    assert engine.sizes == [2]


async def test_a_caller_that_leaves_is_not_computed():
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine)
    first = served.predict(1)
    await turns()
    others = [served.predict(i) for i in range(5)]
    await turns()
    assert served.sample("batchd_queue_depth") == 5
    for task in others[:3]:
        task.cancel()
    await turns()
    assert served.sample("batchd_queue_depth") == 2
    first.cancel()
    engine.gate.set()
    assert [reply.rows[0][0][0] for reply in await asyncio.gather(*others[3:])] == [6, 8]
    assert engine.sizes == [1, 2]


async def test_a_storm_of_cancellations_leaves_it_working():
    engine = FakeEngine(seconds=0.001)
    served = serving(engine)
    for wave in range(20):
        tasks = [served.predict(i) for i in range(20)]
        await asyncio.sleep(0.0005 * (wave % 4))
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [result.rows[0][0][0] for result in results[1::2]] == [2 * i for i in range(1, 20, 2)]


async def test_a_full_queue_refuses_at_once_and_says_why():
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine, queue_limit_examples=2)
    tasks = [served.predict(0)]
    await turns()
    tasks += [served.predict(1), served.predict(2)]
    with pytest.raises(QueueFull, match="the queue is full: 2 of at most 2 examples wait") as refused:
        await served.predict(3)
    assert refused.value.retry_after_s >= 1
    engine.gate.set()
    await asyncio.gather(*tasks)


async def test_a_dead_engine_fails_its_callers_at_once_and_no_others():
    dying, living = FakeEngine(), FakeEngine(description=describe("other"))
    dying.gate = asyncio.Event()
    served = serving(dying, living)
    tasks = [served.predict(0)]
    await turns()
    tasks.append(served.predict(1))
    other = served.predict(7, model="other")
    await turns()
    dying.kill()
    served.dispatcher.detach(dying.attachment, EngineDied("the engine of model 'double' ended"))
    for task in tasks:
        with pytest.raises(EngineDied):
            await asyncio.wait_for(task, 1)
    assert (await asyncio.wait_for(other, 1)).rows[0][0] == [14]
    with pytest.raises(ModelUnavailable, match="not ready"):
        await served.predict(1)
    again = FakeEngine()
    served.dispatcher.attach(again.description, again)
    assert (await served.predict(4)).rows[0][0] == [8]


async def test_a_request_runs_on_the_engine_that_it_was_read_for():
    old, new = FakeEngine(), FakeEngine(lambda x: x * 3)
    served = serving(old, new)

    async def ask(attachment: int | None) -> float:
        example = (np.array([1], np.float32),)
        request = PredictRequest("double", "predict", (example,), time.monotonic() + 5, attachment=attachment)
        return (await served.dispatcher.predict(request)).rows[0][0][0]

    numbers = (old.attachment, new.attachment, None)
    assert await asyncio.gather(*map(ask, numbers)) == [2, 3, 3]
    served.dispatcher.detach(new.attachment, ModelUnavailable("gone"))
    assert await ask(None) == 2
    with pytest.raises(ModelUnavailable, match="not ready"):
        await ask(new.attachment)


async def test_an_engine_is_finished_when_nobody_waits_for_it():
    busy, idle = FakeEngine(), FakeEngine(description=describe("other"))
    busy.gate = asyncio.Event()
    served = serving(busy, idle)
    tasks = [served.predict(0), served.predict(1)]
    await turns()
    assert await served.dispatcher.finish(idle.attachment, 1)
    assert not await served.dispatcher.finish(busy.attachment, 0.01)
    finishing = asyncio.create_task(served.dispatcher.finish(busy.attachment, 5))
    busy.gate.set()
    await asyncio.gather(*tasks)
    assert await finishing


async def test_a_stuck_engine_is_ended():
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine, batch_timeout_s=0.05)
    with pytest.raises(EngineDied):
        await asyncio.wait_for(served.predict(1), 2)
    assert engine.exited.done()


async def test_a_wrong_number_of_answers_fails_them_all_loudly(caplog):
    engine = FakeEngine()
    engine.rows_lost = 1
    served = serving(engine)
    answers = await asyncio.gather(*(served.predict(i) for i in range(3)), return_exceptions=True)
    assert all(isinstance(answer, OwnershipError) for answer in answers)
    assert "answered 2 rows to a batch of 3" in caplog.text
    engine.rows_lost = 0
    assert (await served.predict(1)).rows[0][0] == [2]


async def test_an_unexpected_failure_is_answered_and_survived():
    def broken(x):
        raise KeyError("weights")

    engine = FakeEngine(broken)
    served = serving(engine)
    with pytest.raises(BatchdError, match="failed on a batch: KeyError"):
        await served.predict(1)
    engine.compute = lambda x: x
    assert (await served.predict(1)).rows[0][0] == [1]


async def test_draining_finishes_the_queue_and_refuses_the_rest():
    engine = FakeEngine(seconds=0.02)
    served = serving(engine)
    tasks = [served.predict(i) for i in range(12)]
    await turns()
    draining = asyncio.create_task(served.dispatcher.drain(5.0))
    await turns()
    with pytest.raises(Draining):
        await served.predict(1)
    assert await draining is True
    assert [reply.rows[0][0][0] for reply in await asyncio.gather(*tasks)] == [2 * i for i in range(12)]
    assert served.sample("batchd_dispatches_total", reason="drain") == 1


async def test_draining_gives_up_when_its_time_is_over():
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    served = serving(engine)
    task = served.predict(1)
    await turns()
    assert await served.dispatcher.drain(0.02) is False
    engine.gate.set()
    await task


async def test_lengths_choose_the_bucket_and_beyond_them_the_plain_program():
    text = TensorDescription("text", "string", [])
    xs = TensorDescription("x", "float32", [None])
    description = describe(
        inputs=[text, xs],
        bounds=[BoundDescription("text", None), BoundDescription("x", 0)],
        lengths=[(8, 4), (8, 16), (32, 4), (32, 16)],
    )
    engine = FakeEngine(lambda text, x: x, description)
    served = serving(engine)

    async def ask(text: bytes, n: int) -> PredictReply:
        example = (np.array(text, object), np.zeros(n, np.float32))
        return await served.dispatcher.predict(PredictRequest("double", "predict", (example,), time.monotonic() + 5))

    assert (await ask(b"short", 9)).provenance.bucket == Bucket(1, (8, 16))
    await asyncio.gather(ask(b"short", 1), ask("schöneres Wetter".encode(), 3), ask(b"", 0))
    assert engine.batches[-1] == (3, Bucket(4, (32, 4)))
    await ask(b"x" * 33, 5)
    assert engine.batches[-1] == (1, Bucket(1, (33, 5)))
    assert served.sample("batchd_cold_batches_total") == 1


async def test_a_delay_waits_for_company():
    engine = FakeEngine()
    served = serving(engine, max_delay_s=0.05)
    tasks = [served.predict(1)]
    await asyncio.sleep(0.01)
    assert engine.sizes == []
    tasks.append(served.predict(2))
    replies = await asyncio.gather(*tasks)
    assert engine.sizes == [2]
    assert replies[0].provenance.reason == "delay"


def examples(*values: float) -> list[tuple[np.ndarray, ...]]:
    return [(np.array([value], np.float32),) for value in values]


def ask(served: SimpleNamespace, rows: list, timeout_s: float = 5.0, **fields) -> asyncio.Task[PredictReply]:
    request = PredictRequest("double", "predict", rows, time.monotonic() + timeout_s, **fields)
    return asyncio.create_task(served.dispatcher.predict(request))


async def test_a_request_of_many_rows_is_split_and_rejoined():
    engine = FakeEngine(seconds=0.001)
    served = serving(engine)
    alone = served.predict(-1)
    many = ask(served, examples(*range(19)))
    after = served.predict(-2)
    reply = await many
    assert [row[0][0] for row in reply.rows] == [2 * value for value in range(19)]
    assert engine.sizes == [8, 8, 5]
    assert reply.provenance.batches == 3
    assert reply.provenance.batch_size == 5
    assert [(await each).rows[0][0] for each in (alone, after)] == [[-2], [-4]]


async def test_a_request_without_rows_is_answered_without_queueing():
    engine = FakeEngine()
    reply = await ask(serving(engine), [])
    assert (reply.rows, reply.provenance.batches, engine.sizes) == ([], 0, [])


async def test_failing_rows_fail_their_request_by_name_and_free_the_queue():
    engine = FakeEngine(positive)
    engine.gate = asyncio.Event()
    served = serving(engine)
    bad = ask(served, examples(0, 1, -1, 3, -2, *range(20)))
    other = served.predict(5)
    await turns()
    engine.gate.set()
    with pytest.raises(ExampleRejected, match="row 2: x must not be negative; row 4: x must") as rejected:
        await bad
    assert (rejected.value.row, rejected.value.rows) == (2, (2, 4))
    assert (await other).rows[0][0] == [6]
    assert engine.sizes == [8, 1]


async def test_more_rows_than_may_ever_wait_are_refused_as_too_large():
    served = serving(FakeEngine(), queue_limit_examples=4, queue_limit_bytes=100)
    with pytest.raises(TooManyExamples, match="has 5 examples; at most 4"):
        await ask(served, examples(*range(5)))
    with pytest.raises(PayloadTooLarge, match="take 160 bytes; at most 100"):
        await ask(served, [(np.zeros(40, np.float32),)])
    assert len((await ask(served, examples(*range(4)))).rows) == 4


async def test_an_answer_for_another_request_fails_the_batch_loudly(caplog):
    engine = FakeEngine()
    engine.owners_turned = 1
    served = serving(engine)
    answers = await asyncio.gather(*(served.predict(i) for i in range(3)), return_exceptions=True)
    assert all(isinstance(answer, OwnershipError) for answer in answers)
    assert "answered row 0 of a batch for another request than had asked" in caplog.text
    assert served.sample("batchd_outcomes_total", outcome="disowned") == 3


async def test_what_the_queue_makes_impossible_is_refused_at_once():
    engine = FakeEngine(description=describe(max_batch_size=1))
    engine.gate = asyncio.Event()
    served = serving(engine)
    tasks = [served.predict(i) for i in range(50)]
    await turns()
    with pytest.raises(DeadlineUnreachable, match=r"49 examples wait, and the answer would take about 0\.0"):
        await served.predict(1, timeout_s=0.02)
    with pytest.raises(DeadlineExceeded, match="the deadline is too near"):
        await served.predict(1, timeout_s=1e-4)
    engine.gate.set()
    await asyncio.gather(*tasks)


async def test_a_higher_priority_goes_first():
    engine = FakeEngine(description=describe(max_batch_size=1))
    engine.gate = asyncio.Event()
    served = serving(engine)
    order: list[int] = []
    tasks = [served.predict(0)]
    await turns()
    for value, priority in enumerate((0, 1, -1, 1), 1):
        task = ask(served, examples(value), priority=priority)
        task.add_done_callback(lambda task, value=value: order.append(value))
        tasks.append(task)
    await turns()
    engine.gate.set()
    await asyncio.gather(*tasks)
    assert order == [2, 4, 1, 3]


async def test_short_and_long_rows_of_a_request_come_back_in_its_order():
    xs = TensorDescription("x", "float32", [None])
    description = describe(inputs=[xs], bounds=[BoundDescription("x", 0)], lengths=[(4,), (64,)])
    engine = FakeEngine(description=description)
    served = serving(engine)
    rows = [(np.full(length, index, np.float32),) for index, length in enumerate((50, 2, 60, 3, 200, 1))]
    reply = await ask(served, rows)
    assert [row[0][0] for row in reply.rows] == [0, 2, 4, 6, 8, 10]
    assert [len(row[0]) for row in reply.rows] == [50, 2, 60, 3, 200, 1]


async def test_every_request_is_accounted_for():
    def picky(x):
        if x[0] % 7 == 3:
            raise ValueError("not this one")
        return x

    engine = FakeEngine(picky, seconds=0.002)
    served = serving(engine, queue_limit_examples=30)
    rng = np.random.default_rng(5)
    tasks = []
    for _ in range(40):
        tasks += [
            ask(served, examples(*rng.integers(0, 50, rng.integers(0, 12))), timeout_s=float(rng.choice([0.004, 5])))
            for _ in range(5)
        ]
        await asyncio.sleep(0.001)
        for task in rng.choice(np.array(tasks, object), 3):
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    ended = {
        outcome: served.sample("batchd_outcomes_total", outcome=outcome) or 0
        for outcome in ("answered", "rejected", "queue_full", "unreachable", "expired", "cancelled")
    }
    never_began = sum(isinstance(result, asyncio.CancelledError) for result in results) - ended["cancelled"]
    assert never_began >= 0
    assert sum(ended.values()) + never_began == len(tasks)
    assert ended["answered"] == sum(isinstance(result, PredictReply) for result in results)
    ended["too late"] = ended.pop("unreachable") + ended.pop("expired")  # which of them depends on the machine
    assert all(ended.values()), ended
    assert served.sample("batchd_queue_depth") == 0


async def test_the_curve_learns_the_engines_time_and_not_the_wait():
    engine = FakeEngine(seconds=0.004)
    served = serving(engine)
    for _ in range(40):
        await served.predict(1)
    engine.gate = asyncio.Event()
    task = served.predict(1)
    await turns()
    others = [served.predict(i) for i in range(2)]
    await turns()
    core = served.dispatcher._core
    assert core.predicted_wait_s() - core._between.planned_s == pytest.approx(0.004, rel=0.3)
    engine.gate.set()
    await asyncio.gather(task, *others)
    assert served.sample("batchd_execute_duration_seconds_count") == served.sample("batchd_batch_size_count")
    assert served.sample("batchd_bucket_batches_total", bucket="1") > 1


async def test_a_slow_model_holds_up_a_fast_one_by_one_of_its_batches():
    slow, fast = FakeEngine(seconds=0.03), FakeEngine(seconds=0.001, description=describe("fast"))
    served = serving(slow, fast)
    busy = True

    async def keep_slow_busy() -> None:
        while busy:
            await served.predict(1)

    loads = [asyncio.create_task(keep_slow_busy()) for _ in range(40)]
    await turns()
    waits = []
    for _ in range(15):
        started_at = time.monotonic()
        await served.predict(1, model="fast")
        waits.append(time.monotonic() - started_at)
    busy = False
    await asyncio.gather(*loads)
    assert sorted(waits)[7] < 2 * 0.03, "half of them waited for more than one batch"
    assert max(slow.sizes) == 8
