"""The supervisor: owns one engine process for each model; starts it, says when it is ready, restarts it.

Models are loaded from files or modules that only engine processes ever import. A file's first process loads
its first model and reports the names of the others, which then get processes of their own. A model that fails
before it has ever been ready ends the start with its error. One whose process ends later is started again,
after a wait that doubles with every failure; meanwhile its callers get 503, and the other models live on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from server.dispatcher import BatchRunner, Dispatcher
from server.engines.settings import EngineSettings
from server.errors import EngineDied, ModelLoadError, ModelUnavailable, UnknownModel
from server.loading_progress import LoadingProgress
from server.metrics import Metrics, show_certification
from server.model_description import ModelDescription
from server.process.messages import ModelSource, Progress
from server.shadow import Shadows

_log = logging.getLogger("batchd.supervisor")

State: TypeAlias = Literal["loading", "ready", "restarting"]


class Engine(BatchRunner, Protocol):
    """What the supervisor needs of an engine process; see `server.process.host.EngineProcess`."""

    exited: asyncio.Future[str]

    async def start(self, on_progress: Callable[[Progress], None] | None = None) -> ModelDescription:
        """Loads the model and returns when it is warm."""
        ...

    async def close(self) -> None:
        """Ends the process."""
        ...


StartEngine: TypeAlias = Callable[[ModelSource, EngineSettings], Engine]


@dataclass(slots=True)
class ServedModel:
    """A model and how it is doing. `name` is the location until its file has been loaded."""

    name: str
    source: ModelSource
    state: State = "loading"
    description: ModelDescription | None = None
    progress: Progress | None = None
    restarts: int = 0

    def ready(self) -> ModelDescription:
        """Returns the description of a model that can answer. Raises ModelUnavailable."""
        if self.state == "ready" and self.description is not None:
            return self.description
        raise ModelUnavailable(f"model {self.name!r} is {self.state}{self._how_far()}; try again in a moment")

    def _how_far(self) -> str:
        if self.progress is None:
            return ""
        of_total = f" {self.progress.done} of {self.progress.total}" if self.progress.total else ""
        return f" ({self.progress.phase}{of_total})"


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


class Supervisor:
    """All served models. `start_engine` makes an engine process; `on_progress` shows how loading goes."""

    def __init__(
        self,
        locations: Sequence[str],
        *,
        start_engine: StartEngine,
        engine_settings: EngineSettings,
        dispatcher: Dispatcher,
        metrics: Metrics,
        progress: LoadingProgress,
        models_loading_at_once: int = 1,
        restart_backoff_s: float = 0.5,
        restart_backoff_limit_s: float = 30.0,
    ) -> None:
        self._locations = locations
        self._start_engine = start_engine
        self._engine_settings = engine_settings
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._progress = progress
        self._backoff_s = (restart_backoff_s, restart_backoff_limit_s)
        self._loading = asyncio.Semaphore(models_loading_at_once)
        self._shadows = Shadows(start_engine, engine_settings, metrics)
        self._models: list[ServedModel] = []
        self._engines: dict[int, Engine] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self.draining = False

    @property
    def models(self) -> Sequence[ServedModel]:
        """The models known so far, in the order in which they were given."""
        return self._models

    @property
    def loading(self) -> bool:
        """Whether a model has never been ready yet; more may then be found in its file."""
        return not self._models or any(model.description is None for model in self._models)

    def not_ready(self) -> str | None:
        """Returns why not all models can answer, or None if they can."""
        if self.draining:
            return "the server is shutting down"
        waiting = [f"{model.name!r} is {model.state}" for model in self._models if model.state != "ready"]
        return "; ".join(waiting) or (None if self._models else "no model is loaded yet")

    def find(self, name: str) -> ServedModel:
        """Returns the model of that name. Raises UnknownModel, or ModelUnavailable while loading."""
        for model in self._models:
            if model.name == name and (model.description or model.source.model):
                return model
        if self.loading:
            raise ModelUnavailable(f"model {name!r} is not loaded; models are still loading")
        raise UnknownModel(f"no model {name!r}; {self._served()}")

    def only(self) -> ServedModel:
        """Returns the only model. Raises UnknownModel if not alone, ModelUnavailable while loading."""
        if len(self._models) == 1 and self._models[0].description:
            return self._models[0]
        if self.loading:
            raise ModelUnavailable("models are still loading; try again in a moment")
        raise UnknownModel(f'"model" is needed when several models are served; {self._served()}')

    async def start(self) -> None:
        """Loads everything; returns when all are ready. Raises the error of the first that can't load."""
        self._models = [ServedModel(location, ModelSource(location)) for location in self._locations]
        with self._progress:
            try:
                async with asyncio.TaskGroup() as group:
                    for model in list(self._models):
                        group.create_task(self._load_with_siblings(model, group))
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        self._shadows.load()

    async def close(self) -> None:
        """Ends all engine processes."""
        await self._shadows.close()
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await asyncio.gather(*(engine.close() for engine in self._engines.values()), return_exceptions=True)

    async def _load_with_siblings(self, model: ServedModel, group: asyncio.TaskGroup) -> None:
        description = await self._load_first_time(model)
        names = [name for name in description.file_models if name != description.name]
        siblings = [ServedModel(name, ModelSource(model.source.location, name)) for name in names]
        place = self._models.index(model) + 1
        self._models[place:place] = siblings
        for sibling in siblings:
            group.create_task(self._load_first_time(sibling))

    async def _load_first_time(self, model: ServedModel) -> ModelDescription:
        engine, description = await self._load(model)
        for other in self._models:
            if other is not model and other.description and other.name == description.name:
                first, second = other.source.location, model.source.location
                raise ModelLoadError(f"model {description.name!r} is registered by both {first} and {second}")
        model.source = ModelSource(model.source.location, description.name)
        self._open(model, engine, description)
        self._watchers.append(asyncio.create_task(self._keep_alive(model, engine)))
        return description

    async def _load(self, model: ServedModel) -> tuple[Engine, ModelDescription]:
        async with self._loading:
            engine = self._engines[id(model)] = self._start_engine(model.source, self._engine_settings)

            def on_progress(progress: Progress) -> None:
                model.progress = progress
                self._progress.show(model.name, progress)

            return engine, await engine.start(on_progress)

    def _open(self, model: ServedModel, engine: Engine, description: ModelDescription) -> None:
        self._dispatcher.attach(description, self._shadows.beside(model.source, description, engine))
        self._progress.ready(model.name, description)
        model.name, model.description, model.state, model.progress = (
            description.name,
            description,
            "ready",
            None,
        )
        self._metrics.ready.labels(model.name).set(1)
        name, version = description.name, description.version
        for phase, seconds in description.load_seconds.items():
            self._metrics.load_seconds.labels(name, version, phase).set(seconds)
        for signature in description.signatures:
            lane = self._metrics.lane(name, signature.name, description.engine, version)
            lane.fallback_ops.set(len(signature.report.get("fallbacks", ())))
        show_certification(self._metrics, description)
        self._metrics.lane(name, description.signatures[0].name, description.engine, version).compiles_loading.inc(
            description.compiles
        )

    async def _keep_alive(self, model: ServedModel, engine: Engine) -> None:
        """Waits for the end of the engine process, tells its callers, and starts another; for ever."""
        loop = asyncio.get_running_loop()
        backoff = _Backoff(*self._backoff_s)
        while True:
            ready_at = loop.time()
            reason = await engine.exited
            wait_s = backoff.next_s(loop.time() - ready_at)
            model.state = "restarting"
            self._metrics.ready.labels(model.name).set(0)
            self._metrics.restarts.labels(model.name).inc()
            model.restarts += 1
            _log.error("model %r: its engine ended (%s); restarting in %.1f s", model.name, reason, wait_s)
            message = f"the engine of model {model.name!r} ended ({reason}); it is being restarted"
            self._dispatcher.detach(model.name, EngineDied(message, retry_after_s=max(1.0, wait_s)))
            await engine.close()
            engine = await self._restart(model, wait_s, backoff)

    async def _restart(self, model: ServedModel, wait_s: float, backoff: _Backoff) -> Engine:
        while True:
            await asyncio.sleep(wait_s)
            try:
                engine, description = await self._load(model)
            except Exception as error:
                wait_s = backoff.next_s(lived_s=0.0)
                _log.error("model %r: restart failed (%s); again in %.1f s", model.name, error, wait_s)
                await self._engines[id(model)].close()
            else:
                self._open(model, engine, description)
                return engine

    def _served(self) -> str:
        return f"served here: {', '.join(model.name for model in self._models)}"
