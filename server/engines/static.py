"""The statically vectorized program: the function's graph, turned once into one that runs a whole batch.

Each bucket runs whichever of two programs measured faster on samples: the plain TensorFlow one, which is the
same for every size and gets the batch as it is, without padding rows; or one compiled by XLA for the bucket's
shape. A batch that no bucket holds runs in the plain one, so nothing compiles while serving.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from server.engines import OnStep
from server.engines.assembly import PADDING_LIMIT_BYTES, Assembled, Assembly
from server.engines.batch_result import Array, BatchResult, BatchStats, Example, Outputs
from server.engines.buckets import length_levels, make_buckets
from server.engines.error_text import row_message, tracing_message
from server.engines.isolation import answer_alone, run_alone
from server.engines.measure import Lengths, Measure, fits
from server.engines.per_example import PerExample
from server.engines.samples import fill_batch
from server.engines.settings import EngineSettings
from server.errors import CertificationError, ModelLoadError
from server.model_description import BoundDescription, Bucket, BucketTime, Reproducibility
from server.registry import ModelSpec
from vectorizer import VectorizationError, vectorize

Program = Callable[[list[Array], list[Array], int], tuple[Sequence[Any], Sequence[Any], Any]]

_TIMED_RUNS = 3
_XLA_FAILURES_BEFORE_GIVING_UP = 2


@dataclass(slots=True)
class _Choice:
    """What a bucket runs, and why."""

    xla: Program | None = None
    plain_s: float = 0.0
    xla_s: float | None = None
    note: str = ""


@dataclass(slots=True)
class _CompileBudget:
    """Seconds of compiling that are left, and how often compiling has failed."""

    left_s: float
    failures: list[str] = field(default_factory=list)

    def refusal(self) -> str:
        if len(self.failures) >= _XLA_FAILURES_BEFORE_GIVING_UP:
            return f"XLA can't compile it: {self.failures[-1]}"
        return "the compile budget is spent" if self.left_s <= 0 else ""


class StaticEngine:
    """Runs batches through `vectorize(function)`."""

    name = "static"
    lengths_apart = False
    reproducible: Reproducibility | None = None

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        self._name = spec.name
        self._settings = settings
        self._max_batch_size = settings.max_batch_size or spec.max_batch_size
        self._vectorized = _vectorize(spec)
        self._per_example = PerExample(spec, self._vectorized.per_example)
        self.inputs, self.outputs = self._per_example.inputs, self._per_example.outputs
        self.bounds = _describe_bounds(self._vectorized)
        self._measure = Measure(self.inputs, self.bounds)
        self._assembly = Assembly(self.inputs, self.outputs, self._vectorized.output_dims)
        self._bound_of_dim = [
            self.bounds.index(BoundDescription(self.inputs[index].name, axis))
            for index, axis in self._assembly.input_dims
        ]
        self._plain: Program = self._vectorized.compile()
        self._choices: dict[Bucket, _Choice] = {}
        self._times: list[BucketTime] = []

    @property
    def report(self) -> dict[str, Any]:
        programs = [
            {
                "rows": bucket.rows,
                "lengths": list(bucket.lengths),
                "program": "xla" if choice.xla else "plain",
                "plain_s": choice.plain_s,
                "xla_s": choice.xla_s,
                "note": choice.note,
            }
            for bucket, choice in sorted(self._choices.items())
        ]
        return {**self._vectorized.report.as_dict(), "programs": programs}

    @property
    def report_text(self) -> str:
        return str(self._vectorized.report)

    def per_example(self, example: Example) -> Outputs:
        return self._per_example(example)

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Chooses buckets for the samples' sizes; compiles, times and chooses a program for each.

        The largest bucket comes first: should the compile budget run out, what matters most is compiled.
        """
        measured = [self._measure(sample) for sample in samples]
        buckets = make_buckets(self._max_batch_size, length_levels(measured))
        budget = _CompileBudget(self._settings.compile_budget_s)
        for step, bucket in enumerate(sorted(buckets, reverse=True)):
            rows = fill_batch(samples, measured, bucket)
            self._choices[bucket] = self._choose(bucket, rows, budget)
            on_step("compile", step + 1, len(buckets))
        self._times = [BucketTime(bucket, 0.0) for bucket in buckets]

    def buckets(self) -> Sequence[BucketTime]:
        return self._times

    def set_times(self, times: Sequence[BucketTime]) -> None:
        self._times = list(times)

    def measure(self, example: Example) -> Lengths:
        return self._measure(example)

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        started_at = time.perf_counter()
        choice = self._choices.get(bucket)
        warm = choice is not None and len(rows) <= bucket.rows and self._all_fit(rows, bucket)
        if not warm and self._assembly.padding_bytes(rows) > PADDING_LIMIT_BYTES:
            return run_alone(self._per_example, rows)
        xla = choice.xla if warm and choice else None
        batch = self._pad(rows, bucket) if xla else self._assembly.stack(rows, len(rows), None)
        assembled_at = time.perf_counter()
        answers: list[Outputs] | None
        failure = ""
        try:
            outputs, lengths, ok = _call(xla or self._plain, batch)
            computed_at = time.perf_counter()
            answers = self._assembly.split(outputs, lengths, len(rows))
        except Exception as error:
            computed_at, answers, ok, failure = time.perf_counter(), None, [], row_message(error)
        merged, alone = answer_alone(self._per_example, rows, answers, ok[: len(rows)])
        return BatchResult(
            merged,
            BatchStats(
                assembly_s=assembled_at - started_at,
                compute_s=computed_at - assembled_at,
                split_s=time.perf_counter() - computed_at,
                rows_padded=batch.rows_padded,
                padding_ratio=batch.padding_ratio,
                isolated=alone,
                program="alone" if answers is None else "xla" if xla else "plain",
                cold=not warm,
                failure=failure,
            ),
        )

    def close(self) -> None:
        self._choices.clear()

    def _all_fit(self, rows: Sequence[Example], bucket: Bucket) -> bool:
        return not self.bounds or all(fits(self._measure(row), bucket) for row in rows)

    def _pad(self, rows: Sequence[Example], bucket: Bucket) -> Assembled:
        return self._assembly.stack(rows, bucket.rows, [bucket.lengths[bound] for bound in self._bound_of_dim])

    def _choose(self, bucket: Bucket, rows: list[Example], budget: _CompileBudget) -> _Choice:
        """Compiles the bucket's XLA program where that is wanted, and keeps it where it measures faster."""
        choice = _Choice()
        exact = self._assembly.stack(rows, len(rows), None)
        if self._settings.xla == "off":
            choice.note = "XLA is switched off"
        elif not self._vectorized.compilable:
            choice.note = "nothing in it can be compiled by XLA"
        elif self._settings.xla == "auto":
            choice.note = budget.refusal()
        xla: Program | None = None
        padded = self._pad(rows, bucket)
        if not choice.note:
            started_at = time.perf_counter()
            try:
                xla = self._vectorized.compile(rows=bucket.rows, lengths=tuple(bucket.lengths), jit=True)
                _call(xla, padded)
            except Exception as error:
                xla = None
                choice.note = row_message(error).splitlines()[0][:300]
                budget.failures.append(choice.note)
            budget.left_s -= time.perf_counter() - started_at
        try:
            choice.plain_s = _fastest(self._plain, exact)
        except Exception as error:
            raise CertificationError(
                f"model '{self._name}': the batched program raises where the function itself doesn't: "
                f"{row_message(error)}; engine='per_request' serves it unbatched"
            ) from error
        if xla is not None:
            choice.xla_s = _fastest(xla, padded)
            if self._settings.xla == "only" or choice.xla_s <= choice.plain_s:
                choice.xla = xla
            else:
                choice.note = "the plain program measured faster"
        return choice


def _vectorize(spec: ModelSpec) -> Any:
    try:
        vectorized = vectorize(spec.function, dict(spec.inputs))
        vectorized.report.length = spec.max_length or vectorized.report.length
        return vectorized
    except VectorizationError as error:
        raise ModelLoadError(f"model '{spec.name}': {error}") from error
    except Exception as error:
        PerExample(spec)  # where the function itself can't be traced, this says so
        raise ModelLoadError(
            f"model '{spec.name}' can't be vectorized: {tracing_message(error)}; this is a fault of batchd, "
            "please report it; engine='per_request' serves the function as it is"
        ) from error


def _describe_bounds(vectorized: Any) -> tuple[BoundDescription, ...]:
    names = vectorized.input_names
    return tuple(BoundDescription(names[bound.input], bound.axis) for bound in vectorized.bounds)


def _call(program: Program, batch: Assembled) -> tuple[list[Array], list[Array], list[bool]]:
    outputs, lengths, ok = program(batch.inputs, batch.lengths, batch.rows)
    return [_numpy(x) for x in outputs], [_numpy(x) for x in lengths], _numpy(ok).tolist()


def _numpy(value: Any) -> Array:
    return value if isinstance(value, np.ndarray) else np.asarray(value.numpy())


def _fastest(program: Program, batch: Assembled) -> float:
    """Returns the seconds of the fastest of a few runs, after one that warms."""
    seconds = []
    for _ in range(_TIMED_RUNS + 1):
        started_at = time.perf_counter()
        _call(program, batch)
        seconds.append(time.perf_counter() - started_at)
    return min(seconds[1:])
