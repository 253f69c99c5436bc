"""Warm-up: runs every bucket on full batches of samples and measures how long one takes.

The scheduler decides with these times, so they are what a batch costs here from stacking to splitting.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from server.engines import Engine, OnStep
from server.engines.batch_result import Example
from server.engines.samples import Sample, fill_batch
from server.engines.stretching import stretch
from server.model_description import Bucket, BucketTime

_RUNS = 3
_LONG_RUN_S = 0.5


def warm_up(engine: Engine, samples: Sequence[Sample], on_step: OnStep) -> None:
    """Times every bucket of the engine (median of three runs, one where a run is long) and tells it."""
    examples = [sample.example for sample in samples if sample.usable]
    times = []
    for step, timed in enumerate(engine.buckets()):
        rows = _full_batch(engine, examples, timed.bucket)
        seconds: list[float] = []
        while len(seconds) < _RUNS and sum(seconds) < _LONG_RUN_S:
            started_at = time.perf_counter()
            engine.run(rows, timed.bucket)
            seconds.append(time.perf_counter() - started_at)
        times.append(BucketTime(timed.bucket, statistics.median(seconds)))
        on_step("warm", step + 1, len(engine.buckets()))
    engine.set_times(times)


def _full_batch(engine: Engine, examples: Sequence[Example], bucket: Bucket) -> list[Example]:
    """A batch of samples; where lengths go apart, of one as long as the bucket, which belongs nowhere else."""
    if engine.lengths_apart:
        longest = max(examples, key=lambda example: sum(engine.measure(example)))
        return [stretch(longest, engine.inputs, engine.bounds, bucket.lengths)] * bucket.rows
    return fill_batch(examples, [engine.measure(example) for example in examples], bucket)
