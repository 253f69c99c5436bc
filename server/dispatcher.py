"""The dispatcher: waits, so that the scheduler doesn't have to. One for each device.

It turns `await predict(request)` into a place in the queue and a future, does what the scheduler core says,
sends batches to engine processes, and hands every caller its own row. Three things happen beside each other: a
batch computes, one timer (for the next deadline, or the end of a lane's delay), and the callers that
wait. A deadline is therefore answered on time while a batch computes; its row is dropped when it comes back.
A batch can't be interrupted, even when all its callers have gone: only the end of its process would stop it,
and loading the model again takes longer than any batch should. After `batch_timeout_s` that is what happens.

Every row travels with the number of its request, beside it in shared memory, and its answer comes back with
the number that was read there. A mismatch fails the whole batch, loudly: nobody gets someone else's answer.

Requests that arrive in the same turn of the event loop share a batch: the decision is taken at the end of
that turn. When a batch completes, the next is sent before the answers of this one are handed out. A turn may be
long, when hundreds of requests have arrived, and the device would stand idle until its end: so every request looks,
on its way in and on its way out, whether the batch is over already.

An exception that nobody expected fails the requests that it concerns (500), is counted, and the loop goes on: those
of a batch, where a batch went wrong; where the scheduler itself raised, its state can't be trusted, so all that wait
fail and a new one takes its place. If that happens again and again, readiness says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import Context
from functools import partial
from math import inf

from server.attached import Attached, ServedLane
from server.core.records import Batch, LaneSettings, Reason, Request, RunBatch, WaitUntil
from server.core.scheduler import Scheduler
from server.engines.batch_result import BatchResult
from server.errors import BatchdError, DeadlineExceeded, ModelUnavailable, PayloadTooLarge
from server.metrics import Metrics
from server.model_description import Bucket, ModelDescription, SignatureDescription
from server.prediction import BatchRunner, PredictReply, PredictRequest, Provenance
from server.request_context import current_request
from server.sent_batch import SentBatch
from server.tensors import check_count
from server.tracing import Tracing
from server.verdicts import refused
from server.waiting import Waiting, hand_out

_log = logging.getLogger("batchd.dispatcher")

_BETWEEN_BATCHES_S = 0.0003
"""What a batch takes besides its engine's own work, until it has been seen: on an idle machine."""

_LATE_FACTOR = 10.0
_LATE_AT_LEAST_S = 1.0
"""A batch that takes so many times its measured time, and at least so long, speaks against sending more work here."""

_LOOK_EVERY_S = 0.0002
"""Looking for answers costs some 3 µs: not more often than that."""

_FAULTS_BORNE = 3
_FAULTS_FORGOTTEN_S = 60.0
"""More faults of the scheduler than that within so long, and the dispatcher isn't ready any more."""


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
        tracing: Tracing | None = None,
    ) -> None:
        self._core = Scheduler(queue_limit_examples, queue_limit_bytes, _BETWEEN_BATCHES_S)
        self._faults_at: list[float] = []
        self._batch_timeout_s = batch_timeout_s
        self._max_delay_s = max_delay_s
        self._metrics = metrics
        self._clock = clock
        self._tracing = tracing
        self._of_no_request = Context()
        self._attached: dict[int, Attached] = {}
        self._last_attached = 0
        self._lanes_by_key: dict[object, ServedLane] = {}
        self._waiting: dict[int, Waiting] = {}
        self._last_id = 0
        self._step_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._sent: SentBatch | None = None
        self._looked_at = -inf
        self._late_at = inf
        self._emptied = asyncio.Event()
        metrics.queue_bytes.set_function(lambda: self._core.bytes_queued)
        metrics.in_flight.set_function(lambda: len(self._waiting))

    def attach(self, model: ModelDescription, runner: BatchRunner) -> int:
        """Opens the lanes of a model that is ready; returns the number by which requests name this engine.

        Several engines may be attached for one model at a time: its versions, or one that another takes over from.
        """
        self._last_attached = number = self._last_attached + 1
        attached = self._attached[number] = Attached(number, model.name)
        for signature in model.signatures:
            metrics = self._metrics.lane(model.name, signature.name, model.engine, model.version)
            lane = ServedLane(attached, model, signature, runner, metrics, self._lane_settings(model, signature))
            self._core.open_lane(lane.key, lane.settings)
            attached.lanes[signature.name] = self._lanes_by_key[lane.key] = lane
            metrics.queue_depth.set_function(partial(self._rows_queued, lane.labels))
        return number

    async def finish(self, attachment: int, timeout_s: float) -> bool:
        """Waits until nobody waits for an engine; False if that took longer than allowed."""
        attached = self._attached[attachment]
        attached.emptied.clear()
        return not attached.waiting or await _is_set_within(attached.emptied, timeout_s)

    def detach(self, attachment: int, error: ModelUnavailable) -> None:
        """Closes the lanes of an engine; its callers, queued or running, get `error` at once."""
        for lane in self._attached.pop(attachment).lanes.values():
            del self._lanes_by_key[lane.key]
            for id in self._core.close_lane(lane.key):
                self._fail(id, error)

    @property
    def queue_limit_examples(self) -> int:
        """How many examples may wait, and therefore stand in one request."""
        return self._core.queue_limit_examples

    async def predict(self, request: PredictRequest) -> PredictReply:
        """Queues the examples of a request and waits for all their answers; without examples, answers at once.

        Raises ExampleRejected (naming the row), TooManyExamples, PayloadTooLarge, QueueFull, Draining,
        EngineDied, ModelUnavailable, DeadlineExceeded or OwnershipError. Cancelling the call takes what has
        not run of it out of the queue; so does the failure of one of its rows.
        """
        lane = self._lane(request)
        if lane is None:
            raise ModelUnavailable(f"model {request.model!r} is not ready; try again in a moment")
        try:
            reply = await self._predict(lane, request)
        except BatchdError as error:
            lane.metrics.outcomes(error.outcome).inc()
            raise
        except asyncio.CancelledError:
            lane.metrics.outcomes("cancelled").inc()
            raise
        lane.metrics.outcomes("answered").inc()
        return reply

    async def _predict(self, lane: ServedLane, request: PredictRequest) -> PredictReply:
        examples = request.examples
        if not examples:
            return PredictReply([], Provenance(0, Bucket(0), 0.0, "idle", 0.0, 0.0, batches=0))
        now = self._clock()
        self._look_for_answers(now)
        self._last_id = id = self._last_id + 1
        count = len(examples)
        check_count(count, self._core.queue_limit_examples)
        lengths = [lane.measure(example) for example in examples] if lane.is_measured else ()
        size_bytes = sum(map(lane.bytes_of, examples))
        self._refuse_too_large(size_bytes)
        queued = Request(id, lane.key, count, lengths, request.deadline, request.priority, size_bytes)
        if refusal := self._core.add(queued, now):
            raise refused(refusal)
        loop = asyncio.get_running_loop()
        context = current_request.get()
        waiting = self._waiting[id] = Waiting(id, loop.create_future(), examples, now, [None] * count, count, context)
        lane.attached.waiting += 1
        if not self._step_is_due:
            self._step_is_due = True
            # What it starts runs for other requests, too: in the context of this one it would be logged as its own.
            loop.call_soon(self._step, context=self._of_no_request)
        try:
            return await waiting.future
        except asyncio.CancelledError:
            self._core.cancel(id)
            raise
        finally:
            self._look_for_answers(self._clock())
            del self._waiting[id]
            lane.attached.waiting -= 1
            if not lane.attached.waiting:
                lane.attached.emptied.set()
            if not self._waiting:
                self._emptied.set()

    def _lane(self, request: PredictRequest) -> ServedLane | None:
        if request.attachment is not None:
            attached = self._attached.get(request.attachment)
        else:
            newest_first = reversed(self._attached.values())
            attached = next((each for each in newest_first if each.model == request.model), None)
        return attached.lanes.get(request.signature) if attached is not None else None

    def _rows_queued(self, labels: tuple[str, str, str, str]) -> int:
        """Examples that wait, of all engines that are counted under these labels."""
        lanes = [lane.key for lane in self._lanes_by_key.values() if lane.labels == labels]
        return sum(map(self._core.rows_queued_in, lanes))

    def _refuse_too_large(self, size_bytes: int) -> None:
        """Raises for a request whose arrays the queue could not hold even if it were empty."""
        limit = self._core.queue_limit_bytes
        if size_bytes > limit:
            raise PayloadTooLarge(
                f"the request's arrays take {size_bytes} bytes; at most {limit} may wait at once; send it in pieces"
            )

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests and waits until the queue is empty; False if that took longer than allowed."""
        self._core.drain()
        self._step()
        self._emptied.clear()
        return not self._waiting or await _is_set_within(self._emptied, timeout_s)

    def abandon(self, error: BatchdError) -> None:
        """Answers all that wait, queued or running, with an error."""
        for waiting in list(self._waiting.values()):
            waiting.fail(error)

    def concern(self) -> str | None:
        """Returns what speaks against sending more work here, or None."""
        now = self._clock()
        if len(self._recent_faults(now)) > _FAULTS_BORNE:
            return f"the scheduler has failed {len(self._faults_at)} times within {_FAULTS_FORGOTTEN_S:.0f} s"
        if self._sent is not None and now > self._late_at:
            return f"a batch of model {self._sent.lane.model!r} takes much longer than measured"
        return None

    def _lane_settings(self, model: ModelDescription, signature: SignatureDescription) -> LaneSettings:
        seconds = {timed.bucket: timed.seconds for timed in model.timings.get(signature.name, ())}
        return LaneSettings(
            max_batch_size=model.max_batch_size,
            buckets=signature.buckets,
            seconds=[seconds.get(bucket, 0.0) for bucket in signature.buckets],
            delay_s=self._max_delay_s,
            lengths_apart=signature.lengths_apart,
        )

    def _step(self) -> None:
        """Does what the scheduler says, until it says wait; and lives on, whatever happens."""
        self._step_is_due = False
        try:
            self._take_steps()
        except Exception as error:
            self._start_over(error)

    def _take_steps(self) -> None:
        now = self._clock()
        while isinstance(action := self._core.next_action(now), RunBatch):
            self._answer_expired(action.expired, now)
            try:
                self._send(action.batch, action.reason, now)
            except Exception as error:
                self._fail_batch(action.batch, error, "step")
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

    def _fail_batch(self, batch: Batch, error: Exception, where: str) -> None:
        """Answers a batch that could not be sent, or whose answers could not be handed out, with the error."""
        sentence = self._note_fault(error, where)
        for part in batch.parts:
            self._fail(part.request_id, BatchdError(sentence))
        try:
            for part in batch.parts:
                self._core.cancel(part.request_id)
            if self._core.running is batch:
                self._core.completed(batch, batch.expected_s, representative=False)
        except Exception as fault:
            self._start_over(fault)

    def _start_over(self, error: Exception) -> None:
        """Answers all that wait with the error of the scheduler, and goes on with a new one."""
        self._faults_at = [*self._recent_faults(self._clock()), self._clock()]
        self.abandon(BatchdError(self._note_fault(error, "scheduler")))
        old = self._core
        self._core = Scheduler(old.queue_limit_examples, old.queue_limit_bytes, _BETWEEN_BATCHES_S)
        for lane in self._lanes_by_key.values():
            self._core.open_lane(lane.key, lane.settings)
        if old.draining:
            self._core.drain()

    def _note_fault(self, error: Exception, where: str) -> str:
        _log.exception("the dispatcher failed unexpectedly (%s)", where, exc_info=error)
        self._metrics.internal_errors.labels(where).inc()
        return f"internal error: {type(error).__name__}; the server's log has the details"

    def _recent_faults(self, now: float) -> list[float]:
        return [at for at in self._faults_at if now - at < _FAULTS_FORGOTTEN_S]

    def _send(self, batch: Batch, reason: Reason, now: float) -> None:
        lane = self._lanes_by_key[batch.lane]
        parts = [(self._waiting[part.request_id], part) for part in batch.parts]
        sent = SentBatch(lane, batch, parts, reason, now)
        lane.metrics.dispatches(reason).inc()
        lane.metrics.batch_size.observe(batch.rows)
        lane.metrics.batches_in(sent.bucket_name).inc()
        for waiting, part in parts:
            queue_s = now - waiting.arrived_at
            if not waiting.batches:
                waiting.queue_s = queue_s
            for _ in part.rows:
                lane.metrics.queue_duration.observe(queue_s)
        self._late_at = now + max(_LATE_AT_LEAST_S, _LATE_FACTOR * batch.expected_s)
        ahead, self._sent = self._sent, sent
        if ahead is None:
            self._submit(sent)
        else:  # of a scheduler that is gone: the device still computes it
            ahead.then = partial(self._submit, sent)

    def _submit(self, sent: SentBatch) -> None:
        loop, lane = asyncio.get_running_loop(), sent.lane
        sent.forget_timeout = loop.call_later(self._batch_timeout_s, self._end_stuck_engine, sent).cancel
        # What it leads to is done for other requests than the one, if any, in whose context the engine was started.
        on_done = partial(self._on_batch_done, sent)
        try:
            lane.runner.submit(
                lane.signature, sent.rows(), sent.bucket, sent.owners(), partial(self._of_no_request.run, on_done)
            )
        except Exception as error:
            loop.call_soon(self._on_batch_done, sent, error)

    def _look_for_answers(self, now: float) -> None:
        """Takes the answers of the batch that runs, if they are there; the event loop would tell at its next turn."""
        if self._sent is None or now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            self._sent.lane.runner.poll()
        except Exception:
            _log.exception("looking for answers failed")

    def _on_batch_done(self, sent: SentBatch, outcome: BatchResult | Exception) -> None:
        if self._sent is sent:
            self._sent = None
        try:
            self._complete(sent, outcome)
        except Exception as error:
            self._fail_batch(sent.batch, error, "batch")
            self._step()
        sent.then()

    def _complete(self, sent: SentBatch, outcome: BatchResult | Exception) -> None:
        lane, batch, parts = sent.lane, sent.batch, sent.parts
        sent.forget_timeout()
        judged = sent.judged(outcome)
        compute_s = self._clock() - sent.sent_at
        if self._core.running is not batch:
            return  # the scheduler that ordered it is gone, and its callers have their errors
        if isinstance(judged, BatchResult):
            stats = judged.stats
            execute_s = stats.assembly_s + stats.compute_s + stats.split_s
            between_s = max(0.0, compute_s - execute_s) if execute_s else 0.0
            self._core.completed(batch, execute_s or compute_s, between_s, representative=not stats.isolated)
        else:
            self._core.completed(batch, compute_s, representative=False)
        failures = hand_out(parts, judged, compute_s)
        for waiting, _ in failures:
            self._core.cancel(waiting.id)
        self._step()
        if isinstance(judged, BatchResult):
            self._count(lane, judged, compute_s)
            for waiting, _ in parts:
                waiting.answer(batch, sent.bucket, judged.stats.padding_ratio, sent.reason, lane.reproducible)
        for waiting, failure in failures:
            waiting.fail(failure)
        if self._tracing is not None:
            sent.trace(self._tracing, compute_s, judged)

    def _end_stuck_engine(self, sent: SentBatch) -> None:
        lane, message = sent.lane, "model %r: a batch ran for more than %g s; killing its engine"
        _log.error(message, lane.model, self._batch_timeout_s, extra=sent.about())
        self._metrics.hung_engines.labels(lane.model, "batch").inc()
        lane.runner.kill()

    def _count(self, lane: ServedLane, result: BatchResult, compute_s: float) -> None:
        stats, metrics = result.stats, lane.metrics
        metrics.count_batch(stats, compute_s)
        metrics.tally.add_batch(len(result.rows), stats)
        if stats.compiles > lane.compiles:
            new = stats.compiles - lane.compiles
            metrics.compiles_serving.inc(new)
            lane.compiles = stats.compiles
            message = "model %r: %d traces or compiles while serving, which warming up should have done; callers waited"
            _log.warning(message, lane.model, new)

    def _answer_expired(self, ids: tuple[int, ...], now: float) -> None:
        for id in ids:
            waited_ms = (now - self._waiting[id].arrived_at) * 1000
            self._fail(id, DeadlineExceeded(f"no answer before the deadline: waited {waited_ms:.0f} ms"))

    def _fail(self, id: int, error: BatchdError) -> None:
        if waiting := self._waiting.get(id):
            waiting.fail(error)


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
