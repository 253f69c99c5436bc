"""The interface of `EngineProcess` with the engine in a thread of this process: for tests of callers.

It imports TensorFlow here, so the serving command never uses it. A thread can't be killed: `kill` makes the
engine *look* dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from server.engines.batch_result import BatchResult, Example, OnBatch
from server.engines.settings import EngineSettings
from server.errors import BatchdError, EngineDied
from server.model_description import Bucket, ModelDescription
from server.process.messages import Loaded, ModelSource, Progress
from server.process.worker import ModelWorker, as_load_error


class EngineThread:
    """Drop-in for `EngineProcess`; see there."""

    def __init__(self, source: ModelSource, settings: EngineSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self.source, self.settings = source, settings
        self.exited: asyncio.Future[str] = self._loop.create_future()
        self.models_found: asyncio.Future[tuple[str, ...]] = self._loop.create_future()
        self.pid: int | None = None
        self.description: ModelDescription | None = None
        self._thread = ThreadPoolExecutor(1)
        self._worker: ModelWorker | None = None

    async def start(self, on_progress: Callable[[Progress], None] | None = None) -> ModelDescription:
        """Loads the model in the thread; raises ModelLoadError, CertificationError."""

        def tell(message: Progress | Loaded) -> None:
            if isinstance(message, Loaded):
                self.models_found.set_result(message.models)
            elif on_progress is not None:
                on_progress(message)

        def on_message(message: Progress | Loaded) -> None:
            self._loop.call_soon_threadsafe(tell, message)

        def load() -> ModelWorker:
            return ModelWorker(self.source, self.settings, on_message)

        try:
            self._worker = await self._loop.run_in_executor(self._thread, load)
        except BatchdError:
            await self.close()
            raise
        except Exception as error:
            await self.close()
            raise as_load_error(error, self.source.location) from error
        self.description = self._worker.description
        return self.description

    async def run(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int] = ()
    ) -> BatchResult:
        """Runs one batch; raises EngineDied once killed or closed."""
        if self._worker is None or self.exited.done():
            raise EngineDied(f"the engine of {self.source.location} is gone; try again")
        running = self._loop.run_in_executor(self._thread, self._worker.run, signature, rows, bucket)
        either: list[asyncio.Future[Any]] = [running, self.exited]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise EngineDied(f"the engine of {self.source.location} ended while it held the request")
        return replace(running.result(), owners=owners)

    def submit(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int], done: OnBatch
    ) -> None:
        """Starts one batch; `done` gets its result, or EngineDied once killed or closed."""
        task = self._loop.create_task(self.run(signature, rows, bucket, owners))
        task.add_done_callback(partial(_tell, done))

    def poll(self) -> None:
        """Nothing: the loop tells."""

    def kill(self) -> None:
        """Makes the engine look dead: pending and later batches raise EngineDied."""
        if not self.exited.done():
            self.exited.set_result("was killed")

    async def close(self) -> None:
        """Ends the thread after its current batch."""
        self.kill()
        self._thread.shutdown(wait=False)
        if self._worker is not None:
            self._worker.close()


def _tell(done: OnBatch, ran: asyncio.Task[BatchResult]) -> None:
    error = ran.exception()
    done(error if isinstance(error, Exception) else ran.result())
