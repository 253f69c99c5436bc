"""The supervisor: brings models up, at start and on request, and takes them down. What serves is in its catalogue.

Models are loaded from files or modules that only engine processes ever import, and only from those that the command
line named: a request can ask for a model by its name, never for a file. A file's first process loads its first model
and reports the others, which then get processes of their own. A model that fails at start ends the start.

`load(name)` runs the model's file anew, in new processes beside those that serve. Once all of its versions are warm,
they take over in one step; the old ones finish what they have. If anything fails, the old ones just go on. So does
`unload(name)` finish what is queued before the processes end. For one name these happen one after the other, in the
order in which they were asked for; who asks for what will be done anyway joins that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from server.catalogue import Catalogue, ServedModel
from server.deployment import Deployment, Engine, Means, StartEngine
from server.dispatcher import Dispatcher
from server.engines.settings import EngineSettings
from server.errors import BatchdError, Draining, LoadFailed, ModelLoadError, ModelUnavailable
from server.loading_progress import LoadingProgress
from server.metrics import Metrics
from server.model_description import ModelDescription
from server.process.messages import ModelSource
from server.shadow import Shadows

__all__ = ["Engine", "ServedModel", "StartEngine", "Supervisor"]

_log = logging.getLogger("batchd.supervisor")


Kind: TypeAlias = Literal["load", "unload"]


@dataclass(slots=True)
class _Change:
    """What was last asked of a model."""

    kind: Kind
    has_begun: bool = False
    task: asyncio.Task[None] = field(init=False)


class Supervisor:
    """All served models. `start_engine` makes an engine process; `progress` shows how loading goes.

    `drain_timeout_s`: how long an engine that is to go may take for the requests that it has.
    """

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
        drain_timeout_s: float = 30.0,
    ) -> None:
        self._locations = locations
        self._metrics = metrics
        self._progress = progress
        self._drain_timeout_s = drain_timeout_s
        self._shadows = Shadows(start_engine, engine_settings, metrics)
        self._means = Means(
            start_engine=start_engine,
            engine_settings=engine_settings,
            dispatcher=dispatcher,
            metrics=metrics,
            progress=progress,
            shadows=self._shadows,
            loading=asyncio.Semaphore(models_loading_at_once),
            restart_backoff_s=restart_backoff_s,
            restart_backoff_limit_s=restart_backoff_limit_s,
            refuse=self._refuse_second,
            changed=self._show_ready,
        )
        self._catalogue = Catalogue()
        self._deployments: dict[ServedModel, Deployment] = {}
        self._changes: dict[str, _Change] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._retiring: dict[asyncio.Task[None], str] = {}
        self.draining = False
        self.concerns: Sequence[Callable[[], str | None]] = (dispatcher.concern,)

    @property
    def models(self) -> Sequence[ServedModel]:
        """The models known so far, in the order in which they were given."""
        return self._catalogue.models

    @property
    def loading(self) -> bool:
        """Whether a model has never been ready yet; more may then be found in its file."""
        return self._catalogue.loading

    def not_ready(self) -> str | None:
        """Returns why not all models that should answer can, or None if they can."""
        if self.draining:
            return "the server is shutting down"
        concerns = filter(None, (self._catalogue.not_ready(), *(concern() for concern in self.concerns)))
        return "; ".join(concerns) or None

    def find(self, name: str, version: str = "") -> ServedModel:
        """Returns a version of a model, the latest where none is said. Raises UnknownModel, ModelUnavailable."""
        return self._catalogue.find(name, version)

    def versions(self, name: str) -> Sequence[ServedModel]:
        """Returns all versions of a model. Raises UnknownModel, ModelUnavailable."""
        self._catalogue.find(name)
        return self._catalogue.versions(name)

    def only(self, version: str = "") -> ServedModel:
        """Returns the only model. Raises UnknownModel if not alone, ModelUnavailable while loading."""
        return self._catalogue.only(version)

    async def start(self) -> None:
        """Loads everything; returns when all are ready. Raises the error of the first that can't load."""
        given = [ServedModel(location, ModelSource(location)) for location in self._locations]
        self._catalogue.models = list(given)
        with self._progress:
            try:
                async with asyncio.TaskGroup() as group:
                    for model in given:
                        group.create_task(self._start_file(model, group))
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        self._shadows.load()

    async def load(self, name: str) -> None:
        """Loads a model of that name, or loads it anew; returns when the new engines answer.

        Raises UnknownModel for a name that no file given at start registers, LoadFailed, ModelUnavailable while the
        server starts or stops. A caller who leaves stops nothing.
        """
        await self._change("load", name, self._load)

    async def unload(self, name: str) -> None:
        """Stops serving all versions of a model; returns when their processes have ended. Raises as `load`."""
        await self._change("unload", name, self._unload)

    async def close(self) -> None:
        """Ends all engine processes."""
        tasks = [*self._tasks, *self._retiring]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        deployments = list(self._deployments.values())
        await asyncio.gather(*(deployment.close() for deployment in deployments), return_exceptions=True)

    async def _start_file(self, model: ServedModel, group: asyncio.TaskGroup) -> None:
        description = await self._start_model(model)
        location = model.source.location
        others = [
            ServedModel(name, ModelSource(location, name, version), version=version)
            for name, version in description.others_in_file
        ]
        self._catalogue.add_after(model, others)
        for other in others:
            group.create_task(self._start_model(other))

    async def _start_model(self, model: ServedModel) -> ModelDescription:
        deployment = self._deployments[model] = Deployment(model, self._means)
        description = await deployment.load()
        self._refuse_second(model, description)
        deployment.open()
        return description

    def _change(self, kind: Kind, name: str, change: Callable[[str], Awaitable[None]]) -> Awaitable[None]:
        """Asks for a change after all that were asked for before; joins the last of them if it will do the same."""
        if self.draining:
            raise Draining(f"the server is shutting down; no model is {kind}ed any more")
        if any(model.state == "loading" for model in self._catalogue.versions(name)):
            raise ModelUnavailable(f"model {name!r} is being loaded for the first time; try again in a moment")
        self._catalogue.find(name)
        before = self._changes.get(name)
        # A load that has begun may have read the file before it was last written.
        if before is not None and before.kind == kind and not (kind == "load" and before.has_begun):
            return _outcome(kind, before.task)
        ours = self._changes[name] = _Change(kind)
        ours.task = asyncio.create_task(self._in_turn(name, change, ours, before))
        self._tasks.add(ours.task)
        ours.task.add_done_callback(partial(self._changed, name))
        return _outcome(kind, ours.task)

    async def _in_turn(
        self, name: str, change: Callable[[str], Awaitable[None]], ours: _Change, before: _Change | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before.task])
        ours.has_begun = True
        await change(name)

    def _changed(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._changes[name].task is task:
            del self._changes[name]
        if not task.cancelled() and (error := task.exception()):
            _log.error("%s", error)

    async def _load(self, name: str) -> None:
        retiring = [task for task, retired in self._retiring.items() if retired == name]
        await asyncio.gather(*retiring, return_exceptions=True)
        old = self.versions(name)
        fresh: list[Deployment] = []
        for model in old:
            model.being_loaded, model.failure = True, ""
        try:
            for location in dict.fromkeys(model.source.location for model in old):
                await self._load_versions(location, name, fresh)
            _refuse_unfit(fresh)
        except BaseException as error:
            await asyncio.gather(*(deployment.close() for deployment in fresh), return_exceptions=True)
            if not isinstance(error, Exception):
                raise
            why = error.message if isinstance(error, BatchdError) else f"{type(error).__name__}: {error}"
            for model in old:
                model.failure = why
            self._metrics.loads.labels(name, "failed").inc()
            raise LoadFailed(f"model {name!r} could not be loaded: {why}{_meanwhile(old)}") from error
        finally:
            for model in old:
                model.being_loaded = False
        self._take_over(name, old, fresh)
        self._metrics.loads.labels(name, "done").inc()

    async def _load_versions(self, location: str, name: str, loaded: list[Deployment]) -> None:
        """Loads all versions that a file registers of a model; adds each to `loaded` before it begins."""
        first = Deployment(ServedModel(name, ModelSource(location, name)), self._means)
        loaded.append(first)
        description = await first.load()
        for other, version in description.others_in_file:
            if other == name:
                loaded.append(Deployment(ServedModel(name, ModelSource(location, name, version)), self._means))
                await loaded[-1].load()

    def _take_over(self, name: str, old: Sequence[ServedModel], fresh: Sequence[Deployment]) -> None:
        """Sends new requests to the new engines from here on; the old ones finish what they have."""
        self._catalogue.replace(old, [deployment.model for deployment in fresh])
        for deployment in fresh:
            self._deployments[deployment.model] = deployment
            deployment.open()
        versions = [deployment.model.version for deployment in fresh]
        for model in old:
            if model.version not in versions and model in self._deployments:
                self._catalogue.add_after(fresh[-1].model, [model])
            if model in self._deployments:
                self._deployments[model].withdraw()
                retiring = asyncio.create_task(self._retire(self._deployments[model]))
                self._retiring[retiring] = name
                retiring.add_done_callback(self._retiring.pop)
            else:
                self._forget(model)
        for deployment in fresh:
            self._list_others(deployment)
        _log.info("model %r: now serving version %s", name, " and ".join(map(repr, versions)))

    async def _retire(self, deployment: Deployment) -> None:
        await deployment.retire(self._drain_timeout_s)
        del self._deployments[deployment.model]
        self._forget(deployment.model)

    async def _unload(self, name: str) -> None:
        models = [model for model in self._catalogue.versions(name) if not model.is_off]
        for model in models:
            self._deployments[model].withdraw()
        await asyncio.gather(*(self._deployments[model].retire(self._drain_timeout_s) for model in models))
        for model in models:
            del self._deployments[model]
            source = ModelSource(model.source.location, name)
            self._catalogue.replace([model], [ServedModel(name, source, "unloaded", model.version)])
        if models:
            _log.info("model %r: unloaded", name)

    def _list_others(self, deployment: Deployment) -> None:
        """Lists what the file registers by now and nothing has loaded; a request may load it."""
        location, description = deployment.model.source.location, deployment.description
        registered = description.others_in_file
        catalogue = self._catalogue
        of_file = [model for model in catalogue.models if model.source.location == location]
        for model in of_file:
            if model.state == "not loaded" and (model.name, model.version) not in registered:
                catalogue.models.remove(model)
        known = {model.name for model in of_file if model in catalogue.models}
        others = [
            ServedModel(name, ModelSource(location, name), "not loaded", version)
            for name, version in registered
            if name not in known
        ]
        catalogue.add_after(deployment.model, others)

    def _forget(self, model: ServedModel) -> None:
        """Drops a version that has been superseded."""
        if model in self._catalogue.models:
            self._catalogue.models.remove(model)
        if not any(other.version == model.version for other in self._catalogue.versions(model.name)):
            self._metrics.forget_ready(model.name, model.version)

    def _refuse_second(self, model: ServedModel, description: ModelDescription) -> None:
        """Raises ModelLoadError if the same version of the same model already serves from elsewhere."""
        for other in self._catalogue.versions(description.name):
            if other is not model and other.description and not other.is_off and other.version == description.version:
                raise _registered_twice(description, other.source.location, model.source.location)

    def _show_ready(self, model: ServedModel) -> None:
        versions = [other for other in self._catalogue.versions(model.name) if other.version == model.version]
        is_ready = any(other.state == "ready" for other in versions)
        self._metrics.ready.labels(model.name, model.version).set(is_ready)


def _refuse_unfit(fresh: Sequence[Deployment]) -> None:
    """Raises ModelLoadError if these can't take over: one has ended already, or two are the same version."""
    by_version: dict[str, Deployment] = {}
    for deployment in fresh:
        description = deployment.description
        if not deployment.is_alive:
            raise ModelLoadError(f"the engine process of version {description.version!r} ended as soon as it was ready")
        other = by_version.setdefault(description.version, deployment)
        if other is not deployment:
            raise _registered_twice(description, other.model.source.location, deployment.model.source.location)


def _registered_twice(description: ModelDescription, first: str, second: str) -> ModelLoadError:
    name, version = description.name, description.version
    return ModelLoadError(
        f"model {name!r} is registered by both {first} and {second}, as version {version!r}; "
        "give one of them another name, or another version"
    )


def _meanwhile(old: Sequence[ServedModel]) -> str:
    serving = [repr(model.version) for model in old if model.is_serving]
    return f"; version {' and '.join(serving)} {'go' if len(serving) > 1 else 'goes'} on serving" if serving else ""


async def _outcome(kind: Kind, task: asyncio.Task[None]) -> None:
    """Waits for a change, which goes on if the caller leaves; only the end of the server ends it before its time."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        raise Draining(f"the server is shutting down; the model was not {kind}ed") from None
