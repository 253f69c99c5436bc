"""Warm-up: runs every bucket on full batches of samples and measures how long one takes.

The scheduler decides with these times, so they are what a batch costs here from stacking to splitting.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from server.engines import Engine, OnStep
from server.engines.samples import Sample, fill_batch
from server.model_description import BucketTime

_RUNS = 3
_LONG_RUN_S = 0.5


def warm_up(engine: Engine, samples: Sequence[Sample], on_step: OnStep) -> None:
    """Times every bucket of the engine (median of three runs, one where a run is long) and tells it."""
    examples = [sample.example for sample in samples if sample.usable]
    measured = [engine.measure(example) for example in examples]
    times = []
    for step, timed in enumerate(engine.buckets()):
        rows = fill_batch(examples, measured, timed.bucket)
        seconds: list[float] = []
        while len(seconds) < _RUNS and sum(seconds) < _LONG_RUN_S:
            started_at = time.perf_counter()
            engine.run(rows, timed.bucket)
            seconds.append(time.perf_counter() - started_at)
        times.append(BucketTime(timed.bucket, statistics.median(seconds)))
        on_step("warm", step + 1, len(engine.buckets()))
    engine.set_times(times)
