"""A deployment: one version of a model and the engine process that serves it; loads it, keeps it alive, ends it.

When the process ends, its callers are told and another is started, after a wait that doubles with every failure. A
restart runs the model's file as it is then; should it have become another version, that is what serves from there on.

A deployment that is to go (`retire`) gets no new requests, since nobody finds it any more; it finishes those that it
has, and its process ends. Another deployment of the same model may serve beside it meanwhile: requests say which
engine they were read for, so that each runs on what its caller was told of inputs and outputs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from server.catalogue import ServedModel
from server.dispatcher import Dispatcher
from server.engines.settings import EngineSettings
from server.errors import Draining, EngineDied, ModelUnavailable
from server.loading_progress import LoadingProgress
from server.metrics import Metrics, show_certification
from server.model_description import ModelDescription
from server.prediction import BatchRunner
from server.process.messages import ModelSource, Progress
from server.shadow import ShadowEngine, Shadows

_log = logging.getLogger("batchd.supervisor")


class Engine(BatchRunner, ShadowEngine, Protocol):
    """What is needed of an engine process; see `server.process.host.EngineProcess`."""

    exited: asyncio.Future[str]

    async def start(self, on_progress: Callable[[Progress], None] | None = None) -> ModelDescription:
        """Loads the model and returns when it is warm."""
        ...


StartEngine: TypeAlias = Callable[[ModelSource, EngineSettings], Engine]


@dataclass(frozen=True, slots=True)
class Means:
    """What all deployments share.

    `loading` lets so many load at once. `refuse` raises ModelLoadError for a description that may not serve beside the
    others. `changed` hears of a model whose state has changed.
    """

    start_engine: StartEngine
    engine_settings: EngineSettings
    dispatcher: Dispatcher
    metrics: Metrics
    progress: LoadingProgress
    shadows: Shadows
    loading: asyncio.Semaphore
    restart_backoff_s: float
    restart_backoff_limit_s: float
    refuse: Callable[[ServedModel, ModelDescription], None]
    changed: Callable[[ServedModel], None]


@dataclass(slots=True)
class _Backoff:
    """How long to wait before the next restart; forgets its failures after a model has lived long enough."""

    first_s: float
    limit_s: float
    failures: int = field(default=0, init=False)

    def next_s(self, lived_s: float) -> float:
        if lived_s > 2 * self.limit_s:
            self.failures = 0
        wait_s = min(self.limit_s, self.first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return wait_s


class Deployment:
    """One version of a model on one engine process after the other. `model` shows how it is doing."""

    def __init__(self, model: ServedModel, means: Means) -> None:
        self.model = model
        self._means = means
        self._engine: Engine | None = None
        self._loaded: ModelDescription | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it has an engine process that has not ended."""
        return self._engine is not None and not self._engine.exited.done()

    @property
    def description(self) -> ModelDescription:
        """What was loaded last, whether it serves yet or not."""
        assert self._loaded is not None
        return self._loaded

    async def load(self) -> ModelDescription:
        """Starts the engine and returns when it is warm; no request reaches it before `open`.

        Raises ModelLoadError or CertificationError; the process is gone then.
        """
        means, model = self._means, self.model

        def on_progress(progress: Progress) -> None:
            model.progress = progress
            means.progress.show(model.name, progress)

        async with means.loading:
            engine = means.start_engine(model.source, means.engine_settings)
            try:
                description = await engine.start(on_progress)
            except BaseException:
                await engine.close()
                raise
        self._engine, self._loaded = engine, description
        return description

    def open(self) -> None:
        """Lets requests reach what was loaded, and keeps it alive from now on."""
        model, means, engine, description = self.model, self._means, self._engine, self.description
        assert engine is not None
        means.progress.ready(model.name, description)
        pinned = description.version if description.file_models.count(description.name) > 1 else None
        model.source = ModelSource(model.source.location, description.name, pinned)
        model.name, model.version, model.description = description.name, description.version, description
        runner = means.shadows.beside(self, model.source, description, engine)
        model.attachment = means.dispatcher.attach(description, runner)
        model.state, model.progress, model.failure = "ready", None, ""
        _show_loading(means.metrics, description)
        means.changed(model)
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_alive())

    def withdraw(self) -> None:
        """Takes it off offer: nobody finds it any more, and it isn't restarted."""
        if self._keeper is not None:
            self._keeper.cancel()
        self.model.state = "unloading"
        self._means.changed(self.model)

    async def retire(self, timeout_s: float) -> None:
        """Once withdrawn: finishes what is queued and running, for `timeout_s` at most, and ends the process."""
        await self._stop_keeping()
        number = self.model.attachment
        if number is not None and not await self._means.dispatcher.finish(number, timeout_s):
            _log.warning("model %r: what its old engine had isn't answered after %g s", self.model.name, timeout_s)
        await self.close()

    async def close(self) -> None:
        """Ends the process now."""
        await self._stop_keeping()
        self._detach(Draining(f"the engine of model {self.model.name!r} was ended before it had answered; try again"))
        await self._means.shadows.end(self)
        if self._engine is not None:
            await self._engine.close()

    async def _stop_keeping(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def _detach(self, error: ModelUnavailable) -> None:
        number, self.model.attachment = self.model.attachment, None
        if number is not None:
            self._means.dispatcher.detach(number, error)

    async def _keep_alive(self) -> None:
        """Waits for the end of the engine process, tells its callers, and starts another; for ever."""
        loop, model, means = asyncio.get_running_loop(), self.model, self._means
        backoff = _Backoff(means.restart_backoff_s, means.restart_backoff_limit_s)
        while (engine := self._engine) is not None:
            ready_at = loop.time()
            reason = await asyncio.shield(engine.exited)
            wait_s = backoff.next_s(loop.time() - ready_at)
            model.state = "restarting"
            model.restarts += 1
            means.metrics.restarts.labels(model.name).inc()
            means.changed(model)
            _log.error("model %r: its engine ended (%s); restarting in %.1f s", model.name, reason, wait_s)
            message = f"the engine of model {model.name!r} ended ({reason}); it is being restarted"
            self._detach(EngineDied(message, retry_after_s=max(1.0, wait_s)))
            await engine.close()
            await self._restart(wait_s, backoff)

    async def _restart(self, wait_s: float, backoff: _Backoff) -> None:
        while True:
            await asyncio.sleep(wait_s)
            try:
                description = await self.load()
                self._means.refuse(self.model, description)
            except Exception as error:
                wait_s = backoff.next_s(lived_s=0.0)
                self.model.failure = str(error)
                _log.error("model %r: restart failed (%s); again in %.1f s", self.model.name, error, wait_s)
                if self._engine is not None:
                    await self._engine.close()
                continue
            if description.version != self.model.version:
                _log.warning("model %r: its file has become version %r", self.model.name, description.version)
            self.open()
            return


def _show_loading(metrics: Metrics, description: ModelDescription) -> None:
    """Shows what loading took and what it found."""
    name, version, engine = description.name, description.version, description.engine
    for phase, seconds in description.load_seconds.items():
        metrics.load_seconds.labels(name, version, phase).set(seconds)
    for signature in description.signatures:
        lane = metrics.lane(name, signature.name, engine, version)
        lane.fallback_ops.set(len(signature.report.get("fallbacks", ())))
    show_certification(metrics, description)
    metrics.lane(name, description.signatures[0].name, engine, version).compiles_loading.inc(description.compiles)
