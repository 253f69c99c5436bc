"""The dispatcher: waits, so that the scheduler doesn't have to. One for each device.

It turns `await predict(request)` into a place in the queue and a future, does what the scheduler core says,
sends batches to engine processes, and hands every caller its own row. Three things run beside each other: a
batch that computes, one timer (for the next deadline, or the end of a lane's delay), and the callers that
wait. A deadline is therefore answered on time while a batch computes; its row is dropped when it comes back.

Requests that arrive in the same turn of the event loop share a batch: the decision is taken at the end of
that turn. When a batch completes, the next is sent before the answers of this one are handed out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from server.core.records import Batch, LaneSettings, Reason, Refusal, Request, RunBatch, WaitUntil
from server.core.scheduler import Scheduler
from server.engines.batch_result import BatchResult, Example, Outputs, RowError
from server.engines.measure import Measure
from server.errors import (
    BatchdError,
    DeadlineExceeded,
    Draining,
    ExampleRejected,
    ModelUnavailable,
    OwnershipError,
    QueueFull,
)
from server.metrics import LaneMetrics, Metrics
from server.model_description import Bucket, ModelDescription, SignatureDescription

_log = logging.getLogger("batchd.dispatcher")


class BatchRunner(Protocol):
    """What the dispatcher needs of an engine process."""

    async def run(self, signature: str, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        """Runs one batch; raises EngineDied if the process ends first."""
        ...

    def kill(self) -> None:
        """Ends the process at once."""
        ...


@dataclass(slots=True)
class PredictRequest:
    """One example for one signature; `deadline` is a time of the dispatcher's clock (`time.monotonic`)."""

    model: str
    signature: str
    example: Example
    deadline: float


@dataclass(slots=True)
class Provenance:
    """How a request was served: its batch, why that was sent, and where the time went (seconds)."""

    batch_size: int
    bucket: Bucket
    padding_ratio: float
    reason: Reason
    queue_s: float
    compute_s: float


@dataclass(slots=True)
class PredictReply:
    """The example's outputs, in the order of the signature's outputs."""

    outputs: Outputs
    provenance: Provenance


@dataclass(slots=True)
class _Waiting:
    """A caller: its example, since when it waits, and where to put the answer."""

    future: asyncio.Future[PredictReply]
    example: Example
    arrived_at: float


class _Lane:
    """One signature of one attached model: what is measured of its examples, who computes it, its metrics."""

    def __init__(
        self,
        model: ModelDescription,
        signature: SignatureDescription,
        runner: BatchRunner,
        metrics: LaneMetrics,
    ) -> None:
        self.key = (model.name, signature.name, model.engine)
        self.model = model.name
        self.signature = signature.name
        self.runner = runner
        self.metrics = metrics
        self.compiles = 0
        self.measure = Measure(signature.inputs, signature.bounds)
        self._texts = [index for index, tensor in enumerate(signature.inputs) if tensor.dtype == "string"]

    def bytes_of(self, example: Example) -> int:
        """What the example occupies while it waits."""
        texts = sum(sum(map(len, example[index].flat)) for index in self._texts)
        return texts + sum([array.nbytes for array in example])


class Dispatcher:
    """The queue in front of one device, for all models on it."""

    def __init__(
        self,
        *,
        queue_limit_examples: int,
        queue_limit_bytes: int,
        batch_timeout_s: float,
        metrics: Metrics,
        max_delay_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = Scheduler(queue_limit_examples, queue_limit_bytes)
        self._batch_timeout_s = batch_timeout_s
        self._max_delay_s = max_delay_s
        self._metrics = metrics
        self._clock = clock
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._lanes_by_key: dict[object, _Lane] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._step_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._run_task: asyncio.Task[None] | None = None
        self._emptied = asyncio.Event()

    def attach(self, model: ModelDescription, runner: BatchRunner) -> None:
        """Opens the lanes of a model that is ready. Raises ValueError if it is attached already."""
        for signature in model.signatures:
            lane = _Lane(model, signature, runner, self._metrics.lane(model.name, signature.name, model.engine))
            self._core.open_lane(lane.key, self._lane_settings(model, signature))
            self._lanes[model.name, signature.name] = self._lanes_by_key[lane.key] = lane
            lane.metrics.queue_depth.set_function(partial(self._core.rows_queued_in, lane.key))

    def detach(self, model: str, error: ModelUnavailable) -> None:
        """Closes the lanes of a model; its callers, queued or running, get `error` at once."""
        for lane in [lane for lane in self._lanes.values() if lane.model == model]:
            lane.metrics.queue_depth.set_function(lambda: 0)
            del self._lanes[lane.model, lane.signature], self._lanes_by_key[lane.key]
            for id in self._core.close_lane(lane.key):
                self._fail(id, error)

    async def predict(self, request: PredictRequest) -> PredictReply:
        """Queues an example and waits for its answer.

        Raises ExampleRejected, QueueFull, Draining, EngineDied, ModelUnavailable, DeadlineExceeded or
        OwnershipError. Cancelling the call takes the example out of the queue.
        """
        lane = self._lanes.get((request.model, request.signature))
        if lane is None:
            raise ModelUnavailable(f"model {request.model!r} is not ready; try again in a moment")
        now = self._clock()
        self._last_id = id = self._last_id + 1
        example = request.example
        queued = Request(id, lane.key, 1, lane.measure(example), request.deadline, 0, lane.bytes_of(example))
        if refusal := self._core.add(queued, now):
            raise _refused(refusal)
        loop = asyncio.get_running_loop()
        waiting = self._waiting[id] = _Waiting(loop.create_future(), example, now)
        if not self._step_is_due:
            self._step_is_due = True
            loop.call_soon(self._step)
        try:
            return await waiting.future
        except asyncio.CancelledError:
            self._core.cancel(id)
            raise
        finally:
            del self._waiting[id]
            if not self._waiting:
                self._emptied.set()

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests and waits until the queue is empty; False if that took longer than allowed."""
        self._core.drain()
        self._step()
        self._emptied.clear()
        if not self._waiting:
            return True
        try:
            await asyncio.wait_for(self._emptied.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _lane_settings(self, model: ModelDescription, signature: SignatureDescription) -> LaneSettings:
        full = [
            timed.seconds
            for timed in model.timings.get(signature.name, ())
            if timed.bucket.rows >= model.max_batch_size
        ]
        return LaneSettings(
            max_batch_size=model.max_batch_size,
            buckets=signature.buckets,
            delay_s=self._max_delay_s,
            expected_batch_s=max(full, default=0.0),
        )

    def _step(self) -> None:
        """Does what the scheduler says, until it says wait."""
        self._step_is_due = False
        now = self._clock()
        while isinstance(action := self._core.next_action(now), RunBatch):
            self._answer_expired(action.expired, now)
            self._send(action.batch, action.reason, now)
        self._answer_expired(action.expired, now)
        if isinstance(action, WaitUntil):
            self._wake_at(action.time, now)

    def _wake_at(self, time: float, now: float) -> None:
        """Arms the timer; one that is due earlier stays, finds nothing to do, and arms itself again."""
        if self._timer is not None:
            if self._timer_at <= time:
                return
            self._timer.cancel()
        self._timer_at = time
        self._timer = asyncio.get_running_loop().call_later(max(0.0, time - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._step()

    def _send(self, batch: Batch, reason: Reason, now: float) -> None:
        lane = self._lanes_by_key[batch.lane]
        rows = [self._waiting[part.request_id] for part in batch.parts]
        if batch.bucket is None:
            bucket = Bucket(batch.rows, batch.lengths)
        else:
            bucket = Bucket(batch.bucket.rows, batch.bucket.lengths)
        lane.metrics.dispatches(reason).inc()
        lane.metrics.batch_size.observe(batch.rows)
        for row in rows:
            lane.metrics.queue_duration.observe(now - row.arrived_at)
        run = self._run(lane, batch, rows, bucket, reason, now)
        self._run_task = asyncio.get_running_loop().create_task(run)

    async def _run(
        self,
        lane: _Lane,
        batch: Batch,
        rows: list[_Waiting],
        bucket: Bucket,
        reason: Reason,
        sent_at: float,
    ) -> None:
        watchdog = asyncio.get_running_loop().call_later(self._batch_timeout_s, self._end_stuck_engine, lane)
        outcome: BatchResult | BatchdError
        try:
            outcome = await lane.runner.run(lane.signature, [row.example for row in rows], bucket)
            if len(outcome.rows) != len(rows):
                outcome = _disowned(lane, len(rows), len(outcome.rows))
        except BatchdError as error:
            outcome = error
        except Exception as error:
            _log.exception("a batch of %d for model %r failed", len(rows), lane.model)
            outcome = BatchdError(f"model {lane.model!r} failed on a batch: {type(error).__name__}: {error}")
        watchdog.cancel()
        compute_s = self._clock() - sent_at
        self._core.completed(batch, compute_s)
        self._step()
        if isinstance(outcome, BatchdError):
            for row in rows:
                _settle(row, outcome)
            return
        self._count(lane, outcome, compute_s)
        padding_ratio = outcome.stats.padding_ratio
        for row, answer in zip(rows, outcome.rows, strict=True):
            if isinstance(answer, RowError):
                _settle(row, ExampleRejected(answer.message))
            elif not row.future.done():
                queue_s = sent_at - row.arrived_at
                provenance = Provenance(len(rows), bucket, padding_ratio, reason, queue_s, compute_s)
                row.future.set_result(PredictReply(answer, provenance))

    def _end_stuck_engine(self, lane: _Lane) -> None:
        _log.error("model %r: a batch ran for more than %g s; ending its engine", lane.model, self._batch_timeout_s)
        lane.runner.kill()

    def _count(self, lane: _Lane, result: BatchResult, compute_s: float) -> None:
        stats, metrics = result.stats, lane.metrics
        metrics.compute_duration.observe(compute_s)
        metrics.padding_ratio.observe(stats.padding_ratio)
        if stats.launches:
            metrics.launches.inc(stats.launches)
            metrics.nodes.inc(stats.nodes)
        if stats.cold:
            metrics.cold.inc()
        if stats.isolated:
            metrics.isolated.inc(stats.isolated)
        if stats.compiles > lane.compiles:
            metrics.compiles_serving.inc(stats.compiles - lane.compiles)
            lane.compiles = stats.compiles

    def _answer_expired(self, ids: tuple[int, ...], now: float) -> None:
        for id in ids:
            waited_ms = (now - self._waiting[id].arrived_at) * 1000
            self._fail(id, DeadlineExceeded(f"no answer before the deadline: waited {waited_ms:.0f} ms"))

    def _fail(self, id: int, error: BatchdError) -> None:
        if waiting := self._waiting.get(id):
            _settle(waiting, error)


def _settle(waiting: _Waiting, error: BatchdError) -> None:
    """Hands an error to a caller that still waits."""
    if not waiting.future.done():
        waiting.future.set_exception(error)


def _disowned(lane: _Lane, sent: int, returned: int) -> OwnershipError:
    message = f"model {lane.model!r} answered {returned} rows to a batch of {sent}; no row can be trusted"
    _log.critical(message)
    return OwnershipError(message)


def _refused(refusal: Refusal) -> ModelUnavailable:
    wait_s = refusal.predicted_wait_s
    if refusal.reason == "draining":
        return Draining("the server is shutting down and takes no new requests", retry_after_s=max(1.0, wait_s))
    return QueueFull(
        f"the queue is full: {refusal.queued} of at most {refusal.limit} {refusal.reason} wait, "
        f"about {wait_s:.1f} s of work",
        retry_after_s=max(1.0, wait_s),
    )
