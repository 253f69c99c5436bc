"""A second engine that gets a share of the real batches, out of their way: the two side by side in `/metrics`.

A model says `shadow="dynamic", shadow_share=0.05`. Its batches run on the live engine as ever; when one is answered,
and it is this share's turn, the same rows run on the shadow in a process of its own, and the answers are compared.
Callers never wait for it: one mirrored batch at a time, and a turn that comes while it runs is skipped and counted.
What the shadow does is counted under the usual names with its own `engine` label. It shares the machine, though: what
it computes, the live engine doesn't get.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry, Counter

from server.engines.batch_result import BatchResult, Example, OnBatch, Outputs, RowError
from server.engines.certify import TOLERANCES, array_difference
from server.engines.settings import EngineSettings
from server.metrics import Metrics
from server.model_description import Bucket, ModelDescription, SignatureDescription
from server.prediction import BatchRunner
from server.process.messages import ModelSource

_log = logging.getLogger("batchd.shadow")

OUTCOMES = ("equal", "different", "failed", "skipped")


class ShadowEngine(Protocol):
    """What is needed of an engine process; see `server.process.host.EngineProcess`."""

    async def start(self) -> ModelDescription:
        """Loads the model and returns when it is warm."""
        ...

    async def run(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int] = ()
    ) -> BatchResult:
        """Runs one batch; a second call waits for the first."""
        ...

    async def close(self) -> None:
        """Ends the process."""
        ...


StartShadow = Callable[[ModelSource, EngineSettings], ShadowEngine]


def mirrored_batches(registry: CollectorRegistry) -> Counter:
    """The counter of mirrored batches; once for each registry."""
    return Counter(
        "batchd_shadow_batches_total",
        "Batches mirrored to a shadow engine, by outcome: equal, different, failed or skipped (it was busy).",
        ("model", "version", "signature", "engine", "outcome"),
        registry=registry,
    )


class Shadows:
    """The shadow engines of all deployments. They load one after the other, once the live ones are ready."""

    def __init__(self, start_engine: StartShadow, settings: EngineSettings, metrics: Metrics) -> None:
        self._start_engine = start_engine
        self._settings = settings
        self._metrics = metrics
        self._may_load = asyncio.Event()
        self._loading = asyncio.Semaphore(1)
        self._counter = mirrored_batches(metrics.registry)
        self._by_owner: dict[Hashable, _Shadow] = {}

    def load(self) -> None:
        """Every live model is ready; from now on shadows may load."""
        self._may_load.set()

    def beside(
        self, owner: Hashable, source: ModelSource, description: ModelDescription, live: BatchRunner
    ) -> BatchRunner:
        """Returns what the dispatcher should run batches on: `live`, or `live` with the model's shadow beside it.

        A shadow belongs to its owner, and stays the same until `end(owner)`, though the live engine may be restarted.
        """
        engine = description.shadow
        if engine is None or engine == description.engine:
            return live
        shadow = self._by_owner.get(owner)
        if shadow is None:
            shadow = self._by_owner[owner] = _Shadow(description, engine, self._metrics, self._counter)
            settings = msgspec.structs.replace(self._settings, engine=engine, reproducible=False)
            shadow.starting = asyncio.create_task(self._start(shadow, self._start_engine(source, settings)))
        return MirroredRunner(live, shadow.mirror)

    async def end(self, owner: Hashable) -> None:
        """Ends the shadow of this owner, if it has one."""
        shadow = self._by_owner.pop(owner, None)
        if shadow is not None:
            await shadow.close()

    async def _start(self, shadow: _Shadow, process: ShadowEngine) -> None:
        try:
            await self._may_load.wait()
            async with self._loading:
                await process.start()
        except BaseException as error:
            await process.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            _log.error("model %r: no shadow %r: %s", shadow.model, shadow.engine, error)
            return
        _log.info("model %r: %g %% of its batches go to engine %r too", shadow.model, 100 * shadow.share, shadow.engine)
        shadow.process = process


class MirroredRunner:
    """Runs batches on `live`; hands each that was answered to `mirror`."""

    def __init__(
        self,
        live: BatchRunner,
        mirror: Callable[[str, Sequence[Example], Bucket, BatchResult], None],
    ) -> None:
        self._live = live
        self._mirror = mirror

    def submit(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int], done: OnBatch
    ) -> None:
        def mirror_and_tell(outcome: BatchResult | Exception) -> None:
            try:
                if isinstance(outcome, BatchResult):
                    self._mirror(signature, rows, bucket, outcome)
            finally:
                done(outcome)

        self._live.submit(signature, rows, bucket, owners, mirror_and_tell)

    def poll(self) -> None:
        self._live.poll()

    def kill(self) -> None:
        self._live.kill()


class _Shadow:
    """One model's shadow: whose turn it is, and what came of it. `process` is None until it is warm."""

    def __init__(self, description: ModelDescription, engine: str, metrics: Metrics, counter: Counter) -> None:
        self.model, self.engine, self.share = description.name, engine, description.shadow_share
        self.process: ShadowEngine | None = None
        self.starting: asyncio.Task[None] | None = None
        self._description = description
        self._metrics = metrics
        self._counter = counter
        self._due = 0.0
        self._running: asyncio.Task[None] | None = None

    def mirror(self, signature: str, rows: Sequence[Example], bucket: Bucket, live: BatchResult) -> None:
        """Starts the batch's second run if it is this share's turn; returns at once."""
        if self.process is None:
            return
        self._due += self.share
        if self._due < 1 - 1e-9:
            return
        self._due -= 1
        if self._running is not None and not self._running.done():
            self._count(signature, "skipped")
            return
        self._running = asyncio.create_task(self._run(self.process, signature, rows, bucket, live))

    async def close(self) -> None:
        for task in (self.starting, self._running):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        process, self.process = self.process, None
        if process is not None:
            await process.close()

    async def _run(
        self, process: ShadowEngine, signature: str, rows: Sequence[Example], bucket: Bucket, live: BatchResult
    ) -> None:
        started_at = time.monotonic()
        try:
            mirrored = await process.run(signature, rows, bucket)
        except Exception as error:
            self._count(signature, "failed")
            _log.warning("model %r: a batch failed on its shadow %r: %s", self.model, self.engine, error)
            return
        self._observe(signature, len(rows), mirrored, time.monotonic() - started_at)
        described = self._description.signature(signature)
        difference = await asyncio.to_thread(first_difference, described, self._description.rtol, live, mirrored)
        self._count(signature, "different" if difference else "equal")
        if difference:
            _log.warning("model %r: engine %r answers otherwise: %s", self.model, self.engine, difference)

    def _observe(self, signature: str, rows: int, result: BatchResult, seconds: float) -> None:
        lane = self._metrics.lane(self.model, signature, self.engine, self._description.version)
        lane.batch_size.observe(rows)
        lane.count_batch(result.stats, seconds)

    def _count(self, signature: str, outcome: str) -> None:
        self._counter.labels(self.model, self._description.version, signature, self.engine, outcome).inc()


def first_difference(
    signature: SignatureDescription | None, rtol: float | None, live: BatchResult, mirrored: BatchResult
) -> str:
    """The first row and output in which two results of one batch differ, by the rules of certification; or ""."""
    if signature is None or len(live.rows) != len(mirrored.rows):
        return f"{len(mirrored.rows)} rows instead of {len(live.rows)}"
    for row, (expected, got) in enumerate(zip(live.rows, mirrored.rows, strict=True)):
        if isinstance(expected, RowError) or isinstance(got, RowError):
            if type(expected) is not type(got):
                return f"row {row}: one is an error, the other a value"
            continue
        if problem := _row_difference(signature, rtol, expected, got):
            return f"row {row}: {problem}"
    return ""


def _row_difference(signature: SignatureDescription, rtol: float | None, expected: Outputs, got: Outputs) -> str:
    for tensor, right, other in zip(signature.outputs, expected, got, strict=True):
        tolerance = rtol or TOLERANCES.get(tensor.dtype, 0.0)
        problem = array_difference(right, other, tolerance, _scale(right))
        if problem:
            return f"output '{tensor.name}' {problem}"
    return ""


def _scale(array: Any) -> float:
    """The largest finite magnitude, at least 1, that rounding errors are measured against."""
    if array.dtype.kind != "f":
        return 1.0
    return float(np.abs(array[np.isfinite(array)]).max(initial=1.0))
