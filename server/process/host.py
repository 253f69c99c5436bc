"""The parent's side of an engine process: one child for one model version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from server.engines.batch_result import BatchResult, Example
from server.model_description import Bucket, ModelDescription
from server.engines.settings import EngineSettings
from server.process.messages import ModelSource, Progress

OnProgress = Callable[[Progress], None]


class EngineProcess:
    """One engine process; start it once, run batches one at a time, close it."""

    exited: asyncio.Future[str]
    """Resolves with the reason as soon as the child is gone."""
    models_found: asyncio.Future[tuple[str, ...]]
    """Resolves, early in `start`, with the names of all models that the file registers."""
    pid: int | None

    def __init__(self, source: ModelSource, settings: EngineSettings) -> None: ...

    async def start(self, on_progress: OnProgress | None = None) -> ModelDescription:
        """Spawns the child and waits until the model is warm. Raises ModelLoadError, CertificationError."""
        raise NotImplementedError

    async def run(self, signature: str, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        """Runs one batch; raises EngineDied if the child ends first."""
        raise NotImplementedError

    def kill(self) -> None:
        """Ends the child at once (SIGKILL)."""

    async def close(self) -> None:
        """Ends the child and frees its shared memory; safe to call twice, and after the child's death."""
