"""What the engines that vectorize nothing share: whatever comes runs through one program, whatever its lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engines.batch_result import Example, Outputs
from server.engines.buckets import make_buckets
from server.engines.measure import Lengths
from server.engines.per_example import PerExample
from server.engines.settings import EngineSettings
from server.model_description import BoundDescription, BucketTime, Reproducibility
from server.registry import ModelSpec


class OneProgramEngine:
    """Buckets by the number of rows only. Engines add `name`, `report_text`, `prepare` and `run`."""

    bounds: tuple[BoundDescription, ...] = ()
    lengths_apart = False
    reproducible: Reproducibility | None = None

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        self._per_example = PerExample(spec)
        self.inputs, self.outputs = self._per_example.inputs, self._per_example.outputs
        self.report: dict[str, Any] = {}
        rows = settings.max_batch_size or spec.max_batch_size
        self._times = [BucketTime(bucket, 0.0) for bucket in make_buckets(rows, [()])]

    def per_example(self, example: Example) -> Outputs:
        return self._per_example(example)

    def buckets(self) -> Sequence[BucketTime]:
        return self._times

    def set_times(self, times: Sequence[BucketTime]) -> None:
        self._times = list(times)

    def measure(self, example: Example) -> Lengths:
        return ()

    def close(self) -> None:
        pass
