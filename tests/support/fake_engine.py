"""An engine process in memory: the same seam; answers by numpy, can be slow, refuse a row, or die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import numpy as np

from server.engines.batch_result import Array, BatchResult, BatchStats, Example, OnBatch, Outputs, RowError
from server.engines.settings import EngineSettings
from server.errors import EngineDied
from server.model_description import (
    BoundDescription,
    Bucket,
    BucketTime,
    ModelDescription,
    SignatureDescription,
    TensorDescription,
)
from server.process.messages import ModelSource, Progress

Compute = Callable[..., Array | Outputs]


def describe(
    name: str = "double",
    inputs: Sequence[TensorDescription] = (TensorDescription("x", "float32", [None]),),
    outputs: Sequence[TensorDescription] = (TensorDescription("output", "float32", [None]),),
    bounds: Sequence[BoundDescription] = (),
    lengths: Sequence[tuple[int, ...]] = ((),),
    max_batch_size: int = 8,
    version: str = "1",
) -> ModelDescription:
    """Describes a model with one signature and buckets of 1, 2, 4, ... rows by the given lengths."""
    rows = [2**power for power in range(max_batch_size.bit_length())]
    buckets = tuple(Bucket(count, each) for count in rows for each in lengths)
    signature = SignatureDescription(
        "predict", tuple(inputs), tuple(outputs), tuple(bounds), buckets, {"ops": 1}, "1 op: all vectorized"
    )
    timings = {"predict": tuple(BucketTime(bucket, 0.001) for bucket in buckets)}
    return ModelDescription(
        *(name, version, "fake", "cpu", max_batch_size, (signature,), timings, (name,)), file_versions=(version,)
    )


class FakeEngine:
    """`compute(*example)` answers one example; a ValueError that it raises is that row's error.

    `seconds`: of every batch; `assembly_s` and `split_s` come on top. `gate`: when set, batches wait for it.
    `batches`: (rows, bucket) of each.
    """

    def __init__(
        self,
        compute: Compute = lambda x: x * 2,
        description: ModelDescription | None = None,
        seconds: float = 0.0,
        load_error: Exception | None = None,
    ) -> None:
        self.compute = compute
        self.description = description or describe()
        self.seconds = seconds
        self.assembly_s = self.split_s = 0.0
        self.load_error = load_error
        self.gate: asyncio.Event | None = None
        self.may_start: asyncio.Event | None = None
        self.batches: list[tuple[int, Bucket]] = []
        self.rows_lost = 0
        self.owners_turned = 0
        self.pid: int | None = None
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[str] = loop.create_future()
        self.models_found: asyncio.Future[tuple[str, ...]] = loop.create_future()

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch so far."""
        return [rows for rows, _ in self.batches]

    async def start(self, on_progress: Callable[[Progress], None] | None = None) -> ModelDescription:
        """Reports some progress and is ready."""
        if on_progress:
            on_progress(Progress("warm", 1, 2))
        if self.may_start:
            await self.may_start.wait()
        if self.load_error:
            raise self.load_error
        self.pid = 4711
        return self.description

    def submit(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int], done: OnBatch
    ) -> None:
        """Runs one batch in a task; `done` gets the outcome."""
        task = asyncio.get_running_loop().create_task(self.run(signature, rows, bucket, owners))
        task.add_done_callback(lambda ran: done(ran.exception() or ran.result()))

    def poll(self) -> None:
        """Nothing: the loop tells."""

    async def run(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int] = ()
    ) -> BatchResult:
        """Computes one row after the other, after the delay or the gate, unless the engine dies first."""
        self.batches.append((len(rows), bucket))
        if self.seconds or self.gate:
            whole_s = self.seconds + self.assembly_s + self.split_s
            wait = asyncio.ensure_future(self.gate.wait() if self.gate else asyncio.sleep(whole_s))
            await asyncio.wait([wait, self.exited], return_when=asyncio.FIRST_COMPLETED)
            wait.cancel()
        if self.exited.done():
            raise EngineDied(f"the engine of model {self.description.name!r} ended: {self.exited.result()}")
        started_at = time.perf_counter()
        answers = [self._answer(row) for row in rows][self.rows_lost :]
        padded = bucket.rows - len(rows)
        stats = BatchStats(
            compute_s=self.seconds or time.perf_counter() - started_at,
            assembly_s=self.assembly_s,
            split_s=self.split_s,
            rows_padded=padded,
            padding_ratio=padded / bucket.rows,
            cold=bucket not in self.description.signatures[0].buckets,
        )
        turned = [*owners[self.owners_turned :], *owners[: self.owners_turned]]
        return BatchResult(answers, stats, turned)

    def kill(self) -> None:
        """Dies at once."""
        if not self.exited.done():
            self.exited.set_result("killed by signal 9")

    async def close(self) -> None:
        """Ends."""
        self.kill()

    def _answer(self, example: Example) -> Outputs | RowError:
        try:
            outputs = self.compute(*example)
        except ValueError as error:
            return RowError(str(error))
        return outputs if isinstance(outputs, tuple) else (np.asarray(outputs),)


class FakeEngines:
    """Stands in for `EngineProcess(source, settings)`: makes the engine that was prepared for a model or a location."""

    def __init__(self, **prepared: Callable[[], FakeEngine]) -> None:
        self.prepared = prepared
        self.started: list[FakeEngine] = []
        self.sources: list[ModelSource] = []

    def __call__(self, source: ModelSource, settings: EngineSettings) -> FakeEngine:
        engine = self.prepared[source.model if source.model in self.prepared else source.location]()
        self.sources.append(source)
        self.started.append(engine)
        return engine
