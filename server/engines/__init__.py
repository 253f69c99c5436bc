"""Ways to compute a batch, behind one interface. Importing this package doesn't import TensorFlow.

`build_engine(name, ...)` imports the engine's own file, which does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from server.engines.batch_result import BatchResult, Example, Outputs
from server.engines.measure import Lengths
from server.engines.settings import EngineSettings
from server.errors import ModelLoadError
from server.model_description import BoundDescription, Bucket, BucketTime, Reproducibility, TensorDescription
from server.registry import ModelSpec

ENGINES = {
    "static": "server.engines.static:StaticEngine",
    "while_loop": "server.engines.while_loop:WhileLoopEngine",
    "dynamic": "server.engines.dynamic:DynamicEngine",
    "dynamic_depth": "server.engines.dynamic:DynamicDepthEngine",
    "dynamic_hybrid": "server.engines.dynamic:DynamicHybridEngine",
    "dynamic_auto": "server.engines.dynamic:DynamicAutoEngine",
    "per_request": "server.engines.per_request:PerRequestEngine",
}
"""Import paths by the name that `--engine` takes."""

REPRODUCIBLE = {
    "static": "server.engines.reproducible.engine:ReproducibleEngine",
    "per_request": "server.engines.reproducible.per_request:ReproduciblePerRequestEngine",
}
"""Those that can promise bits which don't depend on traffic, in the place of the engines of these names."""

OnStep = Callable[[str, int, int], None]
"""Progress of loading: phase, steps done, steps in all."""


class Engine(Protocol):
    """A way to compute batches of one signature; made by `build_engine`, then prepared, then run.

    Prepared means: `prepare` has been called with samples; from then on `run` traces and compiles nothing.
    `run` may be called from several threads. `lengths_apart`: it wants examples with others of their bucket's lengths
    only. `reproducible`: what was certified of the answers' bits, once prepared; None: nothing.
    """

    name: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    bounds: tuple[BoundDescription, ...]
    report: dict[str, Any]
    report_text: str
    lengths_apart: bool
    reproducible: Reproducibility | None

    def per_example(self, example: Example) -> Outputs:
        """Returns the answer of the unbatched function; raises what it raises."""
        ...

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Chooses buckets that suit the samples' sizes, and traces and compiles a program for each."""
        ...

    def buckets(self) -> Sequence[BucketTime]:
        """Returns the rows and lengths that are warm, smallest first, with measured seconds (0.0 before)."""
        ...

    def set_times(self, times: Sequence[BucketTime]) -> None:
        """Takes the seconds that warm-up measured."""
        ...

    def measure(self, example: Example) -> Lengths:
        """Returns the sizes of one example that `bounds` bound; strings by bytes."""
        ...

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        """Computes a batch of 1 to `bucket.rows` rows. `rows[i]` of the result belongs to `rows[i]` here."""
        ...

    def close(self) -> None:
        """Lets go of programs; the memory of compiled ones comes back when the process ends."""
        ...


def build_engine(name: str, spec: ModelSpec, settings: EngineSettings) -> Engine:
    """Traces (and, for `static`, vectorizes) the model's function for the engine of that name.

    Raises ModelLoadError where the name is unknown, or the function can't be traced or vectorized, or is to be
    reproducible, which not every engine can be.
    """
    if name not in ENGINES:
        raise ModelLoadError(f"there is no engine '{name}'; choose one of {', '.join(ENGINES)}")
    paths = ENGINES
    if spec.reproducible if settings.reproducible is None else settings.reproducible:
        paths = REPRODUCIBLE
        if name not in paths:
            raise ModelLoadError(
                f"model '{spec.name}' is to be reproducible, which engine '{name}' can't be: what it computes together "
                f"depends on the traffic; choose one of {', '.join(paths)}"
            )
    module, _, attribute = paths[name].partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)(spec, settings)
    return engine
