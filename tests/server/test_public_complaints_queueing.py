"""What users of other batching servers have complained about, where it concerns queueing: none of it happens here.

Each test is named for the kind of fault; its docstring cites the complaint. Engines are in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from server.dispatcher import Dispatcher
from server.engines.batch_result import BatchResult
from server.errors import BatchdError, DeadlineExceeded, ExampleRejected, QueueFull
from server.metrics import Metrics
from server.model_description import BoundDescription, Bucket, BucketTime, ModelDescription
from server.prediction import PredictReply, PredictRequest
from tests.support.fake_engine import FakeEngine, describe


@dataclass
class Queue:
    """A dispatcher, the engine behind it, and its metrics."""

    engine: FakeEngine
    dispatcher: Dispatcher
    registry: CollectorRegistry

    def ask(self, *examples: list[float], timeout_s: float = 5.0) -> asyncio.Task[PredictReply]:
        arrays = [(np.array(example, np.float32),) for example in examples]
        request = PredictRequest("double", "predict", arrays, time.monotonic() + timeout_s)
        return asyncio.create_task(self.dispatcher.predict(request))

    def metric(self, name: str, **labels: str) -> float:
        lane = {"model": "double", "version": "1", "signature": "predict", "engine": "fake"}
        return self.registry.get_sample_value(name, lane | labels) or 0.0


def queue(compute: Callable = lambda x: x * 2, description: ModelDescription | None = None, **limits) -> Queue:
    registry = CollectorRegistry()
    given = {"queue_limit_examples": 100, "queue_limit_bytes": 10**6, "batch_timeout_s": 10.0} | limits
    dispatcher = Dispatcher(metrics=Metrics(registry), **given)
    engine = FakeEngine(compute, description)
    dispatcher.attach(engine.description, engine)
    return Queue(engine, dispatcher, registry)


def timed(milliseconds: dict[int, float], lengths: tuple[int, ...] = ()) -> ModelDescription:
    """A model whose buckets take so long, by rows."""
    bounds = [BoundDescription("x", 0)] if lengths else []
    model = describe(bounds=bounds, lengths=[(each,) for each in lengths] or [()], max_batch_size=max(milliseconds))
    times = [
        BucketTime(bucket, milliseconds[bucket.rows] / 1000 * (bucket.lengths[0] if lengths else 1))
        for bucket in model.signatures[0].buckets
    ]
    return ModelDescription(
        *(model.name, model.version, model.engine, model.device, model.max_batch_size, model.signatures),
        {"predict": tuple(times)},
    )


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.complaint(1)
async def test_one_bad_example_fails_its_whole_batch():
    """Lightning-AI/LitServe#340"""

    def picky(x):
        if x[0] < 0:
            raise ValueError("negative")
        return x

    served = queue(picky)
    answers = await asyncio.gather(*(served.ask([i - 1]) for i in range(8)), return_exceptions=True)
    assert served.engine.sizes == [8]
    assert isinstance(answers[0], ExampleRejected)
    assert [answer.rows[0][0][0] for answer in answers[1:]] == list(range(7))


@pytest.mark.complaint(2, 12)
async def test_an_answer_reaches_another_caller():
    """pytorch/serve#1329; SeldonIO/MLServer#1306: un-batching that gives one client three results and others none"""
    served = queue()
    rng = np.random.default_rng(7)
    served.engine.seconds = 0.001
    asked = []
    for _ in range(60):
        values = rng.uniform(0, 1000, rng.integers(1, 6)).astype(np.float32).tolist()
        asked.append((values, served.ask(*([value] for value in values))))
        if rng.random() < 0.3:
            asked[int(rng.integers(len(asked)))][1].cancel()
        if rng.random() < 0.3:
            await asyncio.sleep(0.001)
    await asyncio.gather(*(task for _, task in asked), return_exceptions=True)
    for values, task in asked:
        if not task.cancelled():
            assert [row[0][0] for row in task.result().rows] == [2 * np.float32(value) for value in values]


@pytest.mark.complaint(3)
async def test_a_failing_batch_ends_the_batching_for_good():
    """ray-project/ray#66140: valid requests hang while the application says that it runs"""
    served = queue()
    served.engine.compute = lambda x: [][0]
    with pytest.raises(BatchdError, match="failed on a batch: IndexError"):
        await served.ask([1])
    served.engine.compute = lambda x: x
    assert (await asyncio.wait_for(served.ask([1]), 1)).rows[0][0] == [1]


@pytest.mark.complaint(4)
async def test_cancelled_requests_wedge_the_batcher():
    """ray-project/ray#50046, ray-project/ray#41057"""
    served = queue()
    served.engine.seconds = 0.001
    for _ in range(10):
        tasks = [served.ask([1]) for _ in range(30)]
        await asyncio.sleep(0.0005)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (await asyncio.wait_for(served.ask([4]), 1)).rows[0][0] == [8]
    assert served.metric("batchd_queue_depth") == 0


@pytest.mark.complaint(5)
async def test_what_nobody_waits_for_is_computed():
    """triton-inference-server/server#7532, triton-inference-server/server#6920; Lightning-AI/LitServe#165"""
    served = queue()
    served.engine.gate = asyncio.Event()
    first = served.ask([0])
    await turns()
    gone = [served.ask([i]) for i in range(20)]
    late = served.ask([1], timeout_s=0.01)
    await turns()
    for task in gone:
        task.cancel()
    with pytest.raises(DeadlineExceeded):
        await late
    served.engine.gate.set()
    await first
    await turns()
    assert served.engine.sizes == [1]
    assert served.metric("batchd_outcomes_total", outcome="cancelled") == 20
    assert served.metric("batchd_outcomes_total", outcome="expired") == 1


@pytest.mark.complaint(6)
async def test_a_deadline_is_answered_only_when_the_running_batch_ends():
    """triton-inference-server/server#7512: a limit of 10 s, answered after 90"""
    served = queue()
    served.engine.gate = asyncio.Event()
    running = served.ask([1])
    await turns()
    started_at = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        await served.ask([2], timeout_s=0.05)
    assert time.monotonic() - started_at < 2
    assert not running.done()
    served.engine.gate.set()
    await running


@pytest.mark.complaint(7)
async def test_alternating_lengths_make_batches_of_one():
    """triton-inference-server/server#8156, #3395, #270, #6937, #6984; wenet-e2e/wenet#1993"""
    served = queue(description=timed({1: 1, 2: 1.5, 4: 2, 8: 3}, (4, 64)))
    served.engine.gate = asyncio.Event()
    first = served.ask([0])
    await turns()
    others = [served.ask([1.0] * (60 if i % 2 else 3)) for i in range(16)]
    await turns()
    served.engine.gate.set()
    await asyncio.gather(first, *others)
    assert served.engine.batches[1:] == [(8, Bucket(8, (4,))), (8, Bucket(8, (64,)))]


@pytest.mark.complaint(9)
async def test_examples_of_different_lengths_in_one_request_are_refused():
    """tensorflow/serving#1538, tensorflow/serving#1934, tensorflow/serving#530"""
    reply = await queue().ask([1, 2, 3], [], [4])
    assert [row[0].tolist() for row in reply.rows] == [[2, 4, 6], [], [8]]


@pytest.mark.complaint(13)
async def test_a_lone_request_waits_for_company():
    """pytorch/serve#67: 5002 ms for one request; pytorch/serve#1699; kserve/kserve#1666; mosecorg/mosec#382"""
    served = queue()
    started_at = time.monotonic()
    reply = await served.ask([1])
    assert time.monotonic() - started_at < 1
    assert reply.provenance.reason == "idle"


@pytest.mark.complaint(14)
async def test_a_single_request_is_padded_to_a_large_batch():
    """tensorflow/serving#1529"""
    reply = await queue().ask([1])
    assert reply.provenance.bucket == Bucket(1)


@pytest.mark.complaint(15)
@pytest.mark.parametrize(("sixteen_ms", "expected"), [(9, [8, 4]), (2.5, [12])])
async def test_twelve_rows_run_in_a_size_that_nobody_prefers(sixteen_ms: float, expected: list[int]):
    """triton-inference-server/server#8141, #3116, #7604: 12 should be 8 and 4, where that is faster"""
    served = queue(description=timed({1: 1, 2: 1.2, 4: 1.4, 8: 2, 16: sixteen_ms}))
    await served.ask(*([i] for i in range(12)))
    assert served.engine.sizes == expected
    assert {bucket.rows for _, bucket in served.engine.batches} <= {1, 2, 4, 8, 16}


@pytest.mark.complaint(17)
async def test_a_request_larger_than_a_batch_is_refused_or_runs_whole():
    """triton-inference-server/server#4547, #4363, #6120; bentoml/BentoML#3710, bentoml/BentoML#3859"""
    served = queue()
    reply = await served.ask(*([i] for i in range(50)))
    assert [row[0][0] for row in reply.rows] == [2 * i for i in range(50)]
    assert max(served.engine.sizes) == 8


@pytest.mark.complaint(18)
async def test_the_queue_grows_without_bound():
    """triton-inference-server/server#914, #980, #3451; ray-project/ray#22670; pytorch/serve#2333"""
    served = queue(queue_limit_examples=10)
    served.engine.gate = asyncio.Event()
    tasks = [served.ask([0])]
    await turns()
    tasks += [served.ask(*([i] for i in range(5))) for _ in range(50)]
    await turns()
    assert served.metric("batchd_queue_depth") == 10
    served.engine.gate.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, QueueFull)]
    assert len(refused) == 48
    assert all(answer.retry_after_s >= 1 and "10 of at most 10 examples wait" in answer.message for answer in refused)


@pytest.mark.complaint(19)
async def test_the_wait_in_the_queue_is_taken_for_the_time_of_a_batch():
    """ucbrise/clipper#222; bentoml/BentoML#3200, bentoml/BentoML#1530"""
    served = queue(description=timed({1: 1, 2: 1, 4: 1, 8: 1}))
    served.engine.seconds = 0.001
    for _ in range(5):
        await asyncio.gather(*(served.ask([i]) for i in range(80)))
    served.engine.gate = asyncio.Event()
    first = served.ask([0])
    await turns()
    waiting = served.ask([1])
    await turns()
    core = served.dispatcher._core
    assert core.predicted_wait_s() - core._between.planned_s < 0.003
    served.engine.gate.set()
    await asyncio.gather(first, waiting)


@pytest.mark.complaint(20)
async def test_a_late_request_gets_a_made_up_answer():
    """ucbrise/clipper#118, ucbrise/clipper#744: a default output, with success"""
    served = queue()
    served.engine.seconds = 0.2
    with pytest.raises(DeadlineExceeded, match="no answer before the deadline"):
        await served.ask([1], timeout_s=0.02)


@pytest.mark.complaint(23)
async def test_nobody_can_tell_whether_requests_were_batched():
    """triton-inference-server/server#2811, #5205, #5802, #6421"""
    served = queue()
    replies = await asyncio.gather(*(served.ask([i]) for i in range(3)))
    how = replies[0].provenance
    assert (how.batch_size, how.bucket, how.padding_ratio, how.reason, how.batches) == (3, Bucket(4), 0.25, "idle", 1)
    assert served.metric("batchd_batch_size_sum") == 3
    assert served.metric("batchd_bucket_batches_total", bucket="4") == 1


@pytest.mark.complaint(16)
async def test_a_trace_while_serving_goes_unnoticed(caplog: pytest.LogCaptureFixture):
    """triton-inference-server/server#7776; tensorflow/serving#733: the first request of a size takes seconds"""
    served = queue()
    await served.ask([1])
    assert served.metric("batchd_compiles_total", phase="serving") == 0
    run = served.engine.run

    async def run_and_trace(*arguments) -> BatchResult:
        result = await run(*arguments)
        return replace(result, stats=replace(result.stats, compiles=2))

    served.engine.run = run_and_trace
    for _ in range(3):
        await served.ask([1])
    assert served.metric("batchd_compiles_total", phase="serving") == 2
    [line] = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("model 'double': 2 traces or compiles while serving")
