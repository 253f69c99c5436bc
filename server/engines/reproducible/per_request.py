"""One call of the function for each row, certified to give the same bits each time: what else runs can't matter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from server.engines import OnStep
from server.engines.batch_result import Example
from server.engines.per_request import PerRequestEngine
from server.engines.reproducible.engine import answers_equal, require_cpu
from server.engines.reproducible.identity import function_digest, machine_digest, threads_within_an_op
from server.engines.reproducible.refusal import unsteady
from server.engines.settings import EngineSettings
from server.model_description import Reproducibility
from server.registry import ModelSpec
from vectorizer.tracing import normalise

_REPEATS = 4
_CERTIFY_S = 10.0


class ReproduciblePerRequestEngine(PerRequestEngine):
    """Answers every example by itself; refuses functions that answer one example in several ways."""

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        require_cpu(spec, settings)
        super().__init__(spec, settings)
        self._name = spec.name

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Runs every sample several times, two at once, and compares bits. Raises CertificationError."""
        started_at = time.perf_counter()
        super().prepare(samples, on_step)
        compared = 0
        with ThreadPoolExecutor(2) as pool:
            for example in samples:
                first, *others = pool.map(self._per_example.answer, [example] * _REPEATS)
                if not all(answers_equal(first, other) for other in others):
                    raise unsteady(self._name)
                compared += len(others)
                if time.perf_counter() - started_at > _CERTIFY_S:
                    break
        concrete = self._per_example.concrete
        self.reproducible = Reproducibility(
            program="per_request",
            rows=(),
            lengths=(),
            function=function_digest(normalise(concrete), concrete.variables),
            machine=machine_digest(),
            threads=threads_within_an_op(),
            trials=compared,
            comparisons=compared,
            positions=1.0,
            seconds=time.perf_counter() - started_at,
        )
