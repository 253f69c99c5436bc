"""One call of the model's function for each row: no batching at all. The reference, and the way out for
functions that can't be vectorized."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from server.engines import OnStep
from server.engines.batch_result import BatchResult, BatchStats, Example, Outputs
from server.engines.buckets import make_buckets
from server.engines.measure import Lengths
from server.engines.per_example import PerExample
from server.engines.settings import EngineSettings
from server.model_description import BoundDescription, Bucket, BucketTime
from server.registry import ModelSpec


class PerRequestEngine:
    """Runs the rows of a batch one after the other; a batch only saves messages between processes."""

    name = "per_request"
    bounds: tuple[BoundDescription, ...] = ()

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        self._per_example = PerExample(spec)
        self.inputs, self.outputs = self._per_example.inputs, self._per_example.outputs
        self.report: dict[str, Any] = {}
        self.report_text = "one call of the function for each example; nothing is vectorized"
        self._times = [
            BucketTime(bucket, 0.0) for bucket in make_buckets(settings.max_batch_size or spec.max_batch_size, [()])
        ]

    def per_example(self, example: Example) -> Outputs:
        return self._per_example(example)

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Calls the function once, so that its kernels are loaded."""
        self._per_example.answer(samples[0])
        on_step("compile", 1, 1)

    def buckets(self) -> Sequence[BucketTime]:
        return self._times

    def set_times(self, times: Sequence[BucketTime]) -> None:
        self._times = list(times)

    def measure(self, example: Example) -> Lengths:
        return ()

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        started_at = time.perf_counter()
        answers = [self._per_example.answer(row) for row in rows]
        return BatchResult(answers, BatchStats(compute_s=time.perf_counter() - started_at, program="alone"))

    def close(self) -> None:
        pass
