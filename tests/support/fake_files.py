"""Model files in memory that can be rewritten between loads, for `running(engines=FakeFiles(...))`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from server.engines.settings import EngineSettings
from server.errors import ModelLoadError
from server.model_description import TensorDescription
from server.process.messages import ModelSource
from tests.support.fake_engine import FakeEngine, describe


@dataclass(frozen=True)
class FakeModel:
    """`name` answers x (a list of numbers) with `times` x. `dies`: as soon as it is ready. More goes to the engine."""

    name: str = "m"
    version: str = "1"
    times: float = 2.0
    input: str = "x"
    dies: bool = False
    shadow: str | None = None
    load_error: Exception | None = None
    seconds: float = 0.0


@dataclass
class FakeFiles:
    """Stands in for `EngineProcess(source, settings)`. `prepared`: what each location registers, in order."""

    prepared: dict[str, list[FakeModel]]
    started: list[FakeEngine] = field(default_factory=list)
    sources: list[ModelSource] = field(default_factory=list)
    may_start: asyncio.Event | None = None
    """While set to an event, engines wait for it before they are ready."""

    def write(self, location: str, *models: FakeModel) -> None:
        """Puts other models into a file."""
        self.prepared[location] = list(models)

    @property
    def alive(self) -> list[FakeEngine]:
        """Engines that have been started and not ended."""
        return [engine for engine in self.started if not engine.exited.done()]

    def __call__(self, source: ModelSource, settings: EngineSettings) -> FakeEngine:
        engine = self._engine(source, settings)
        self.sources.append(source)
        self.started.append(engine)
        return engine

    def _engine(self, source: ModelSource, settings: EngineSettings) -> FakeEngine:
        models = self.prepared[source.location]
        for model in models:
            if source.model in (None, model.name) and source.version in (None, model.version):
                break
        else:
            return FakeEngine(load_error=ModelLoadError(f"{source.location} registers no model named '{source.model}'"))
        description = msgspec.structs.replace(
            describe(model.name, [TensorDescription(model.input, "float32", [None])], version=model.version),
            file_models=tuple(each.name for each in models),
            file_versions=tuple(each.version for each in models),
            shadow=model.shadow,
            shadow_share=1.0,
        )
        if settings.engine == model.shadow:
            description = msgspec.structs.replace(description, engine=settings.engine)
        engine = FakeEngine(lambda x: x * model.times, description, model.seconds, model.load_error)
        engine.may_start = self.may_start
        if model.dies:
            engine.kill()
        return engine
