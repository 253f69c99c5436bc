"""One model version, from its file to its answers: what an engine process does, less the process.

TensorFlow is imported when a worker is made, not with this module: the process sets its environment first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import msgspec

from server.engines import Engine, build_engine
from server.engines.batch_result import BatchResult, Example
from server.engines.settings import EngineSettings
from server.errors import ModelLoadError, UnknownModel
from server.loading import choose_model, load_models
from server.model_description import Bucket, BucketTime, Certification, ModelDescription, SignatureDescription
from server.process.messages import Loaded, ModelSource, Progress
from server.registry import ModelSpec

OnMessage = Callable[[Progress | Loaded], None]

SIGNATURE = "predict"


class ModelWorker:
    """Loads, certifies and warms one model; then runs its batches.

    Raises, when made: ModelLoadError, CertificationError. `on_message` hears of every step. `description` is
    what the model turned out to be. `cache` is the directory of XLA's persistent cache, where one is in use;
    `importing` is entered while TensorFlow is imported.
    """

    def __init__(
        self,
        source: ModelSource,
        settings: EngineSettings,
        on_message: OnMessage,
        cache: Path | None = None,
        importing: AbstractContextManager[None] | None = None,
    ) -> None:
        self._seconds: dict[str, float] = {}
        self._on_message = on_message
        with self._phase("import"), importing or nullcontext():
            from server.engines.compile_watch import CompileWatch
            from server.engines.device import set_up_device

            device = set_up_device(settings)
        self._watch = CompileWatch(cache)
        with self._phase("load"):
            specs = load_models(source.location)
            on_message(Loaded(tuple(spec.name for spec in specs)))
            spec = choose_model(specs, source.model, source.location, source.version)
        self._engine, certification = self._prepare(spec, settings)
        described = _describe(spec, self._engine, settings, device, specs, self._seconds, self._watch.count())
        reproducible = self._engine.reproducible
        self.description = msgspec.structs.replace(
            described,
            certification={SIGNATURE: certification},
            reproducible={SIGNATURE: reproducible} if reproducible else {},
        )
        self._watch.reset()

    def run(self, signature: str, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        """Runs one batch. Raises UnknownModel for a signature that the model doesn't have."""
        if signature != SIGNATURE:
            raise UnknownModel(f"model '{self.description.name}' has no signature '{signature}'")
        result = self._engine.run(rows, bucket)
        return BatchResult(result.rows, replace(result.stats, compiles=self._watch.count()))

    def close(self) -> None:
        """Lets go of the engine."""
        self._engine.close()

    def _prepare(self, spec: ModelSpec, settings: EngineSettings) -> tuple[Engine, Certification]:
        from server.engines.certify import certify
        from server.engines.samples import draw_samples
        from server.engines.warmup import warm_up

        with self._phase("vectorize"):
            engine = build_engine(settings.engine, spec, settings)
            samples = draw_samples(spec, engine, settings.seed)
        with self._phase("compile"):
            engine.prepare([sample.example for sample in samples if sample.usable], self._step)
        with self._phase("certify"):
            certification = certify(spec, engine, samples, self._step)
        with self._phase("warm"):
            warm_up(engine, samples, self._step)
        return engine, certification

    def _step(self, phase: str, done: int, total: int) -> None:
        self._on_message(Progress(phase, done, total))

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._on_message(Progress(name))
        started_at = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - started_at


def as_load_error(error: Exception, location: str) -> ModelLoadError:
    """Returns what a caller hears of an error that nothing foresaw."""
    return ModelLoadError(f"cannot serve {location}: {type(error).__name__}: {error}")


def _describe(
    spec: ModelSpec,
    engine: Engine,
    settings: EngineSettings,
    device: str,
    specs: Sequence[ModelSpec],
    load_seconds: dict[str, float],
    compiles: int,
) -> ModelDescription:
    times: tuple[BucketTime, ...] = tuple(engine.buckets())
    signature = SignatureDescription(
        name=SIGNATURE,
        inputs=engine.inputs,
        outputs=engine.outputs,
        bounds=engine.bounds,
        buckets=tuple(timed.bucket for timed in times),
        report=engine.report,
        report_text=engine.report_text,
        max_length=spec.max_length,
        lengths_apart=engine.lengths_apart,
    )
    return ModelDescription(
        name=spec.name,
        version=spec.version,
        engine=engine.name,
        device=device,
        max_batch_size=settings.max_batch_size or spec.max_batch_size,
        signatures=(signature,),
        timings={SIGNATURE: times},
        file_models=tuple(each.name for each in specs),
        file_versions=tuple(each.version for each in specs),
        load_seconds=load_seconds,
        compiles=compiles,
        rtol=spec.rtol,
        shadow=spec.shadow,
        shadow_share=spec.shadow_share,
    )
