"""Certification: before a model serves, every bucket's batched answers must equal the per-example ones.

Values agree within a tolerance relative to the output's own scale over all samples (1e-5 for float32, 1e-9
for float64, 1e-2 for half precision, or the model's `rtol`); integers, booleans and strings agree exactly,
but for near ties: where a change of the floating-point inputs by one part in a million makes the function
itself give another answer, both are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from server.engines import Engine, OnStep
from server.engines.batch_result import Array, BatchResult, Example, Outputs, RowError
from server.engines.measure import Lengths, fits
from server.engines.samples import Sample, stretched_samples
from server.errors import CertificationError
from server.model_description import Bucket, Certification, OutputCertified
from server.registry import ModelSpec

TOLERANCES = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-9}
"""Relative, by dtype; everything else must be equal."""
_NUDGE = 1e-6
_NUDGES = 8


def certify(spec: ModelSpec, engine: Engine, samples: Sequence[Sample], on_step: OnStep) -> Certification:
    """Runs every bucket, full and partly filled, on the samples that fit it, and compares every row.

    Besides the samples: two made as long as each bucket, which is rounded up, and one batch of what no bucket holds.
    Raises CertificationError, showing the input, the expected and the batched answer, and the bucket.
    """
    times = engine.buckets()
    levels = list(dict.fromkeys(timed.bucket.lengths for timed in times))
    stretched = {lengths: stretched_samples(engine, samples, lengths) for lengths in levels if lengths}
    beyond = _beyond_every_bucket(spec, engine, samples, levels)
    made = [*(sample for group in stretched.values() for sample in group), *beyond]
    comparison = _Comparison(spec, engine, _scales(engine, [*samples, *made]))
    measured = [engine.measure(sample.example) for sample in samples]
    for step, timed in enumerate(times):
        bucket = timed.bucket
        # The stretched first: there are few, and a small bucket doesn't see all samples.
        fitting = [*stretched.get(bucket.lengths, ()), *_fitting(engine, samples, measured, bucket, levels)]
        if not any(sample.usable for sample in fitting):
            raise CertificationError(
                f"model '{spec.name}': no sample fits {describe_bucket(bucket)}; give more samples="
            )
        for offset, rows in _fillings(bucket.rows, len(fitting)):
            batch = [fitting[(offset + row) % len(fitting)] for row in range(rows)]
            comparison.check_batch(batch, bucket)
        on_step("certify", step + 1, len(times))
    if beyond:
        comparison.check_batch([*beyond, *samples[: times[-1].bucket.rows - len(beyond)]], times[-1].bucket)
    refused = sum(not sample.usable for sample in (*samples, *made))
    return comparison.report(len(samples), len(made), refused, len(times))


def _fitting(
    engine: Engine, samples: Sequence[Sample], measured: Sequence[Lengths], bucket: Bucket, levels: Sequence[Lengths]
) -> list[Sample]:
    """The samples that may run in the bucket; where lengths go apart, those of shorter ones don't."""
    shorter = [Bucket(1, level) for level in levels if level < bucket.lengths] if engine.lengths_apart else []
    return [
        sample
        for sample, lengths in zip(samples, measured, strict=True)
        if fits(lengths, bucket) and not any(fits(lengths, other) for other in shorter)
    ]


def _beyond_every_bucket(
    spec: ModelSpec, engine: Engine, samples: Sequence[Sample], levels: Sequence[Lengths]
) -> list[Sample]:
    """Examples half as long again as the longest bucket: what serves them is compared too, unless they are refused."""
    longest = max(levels)
    sizes = tuple(size + size // 2 + 1 for size in longest)
    allowed = spec.max_length is None or max(sizes, default=0) <= spec.max_length
    if not sizes or not allowed or engine.reproducible is not None:
        return []
    return stretched_samples(engine, samples, sizes)


def describe_bucket(bucket: Bucket) -> str:
    """Returns "8 rows of lengths 16, 64"."""
    lengths = f" of lengths {', '.join(map(str, bucket.lengths))}" if bucket.lengths else ""
    return f"{bucket.rows} row{'s' if bucket.rows > 1 else ''}{lengths}"


def _fillings(rows: int, samples: int) -> list[tuple[int, int]]:
    """Returns (first sample, rows) of the batches to check: enough full ones to see each sample, one partial.

    At most four full ones: small buckets would otherwise repeat what larger ones show.
    """
    full = [(offset, rows) for offset in range(0, samples, rows)][:4]
    return full if rows == 1 else [*full, (1, rows // 2 + 1)]


class _Comparison:
    """Compares batches with what is expected, and remembers how far apart they were."""

    def __init__(self, spec: ModelSpec, engine: Engine, scales: Sequence[float]) -> None:
        self._spec, self._engine, self._scales = spec, engine, scales
        self._tolerances = [spec.rtol or TOLERANCES.get(tensor.dtype, 0.0) for tensor in engine.outputs]
        self._largest = [0.0] * len(engine.outputs)
        self._values = [0] * len(engine.outputs)
        self._near_ties = [0] * len(engine.outputs)
        self._batches = self._rows = 0

    def check_batch(self, batch: Sequence[Sample], bucket: Bucket) -> None:
        """Raises CertificationError if any row isn't what its sample says."""
        name = self._spec.name
        result = self._engine.run([sample.example for sample in batch], bucket)
        self._batches += 1
        self._rows += len(batch)
        refused = sum(not sample.usable for sample in batch)
        if result.stats.failure and not refused:
            raise CertificationError(
                f"model '{name}': the batched program for {describe_bucket(bucket)} raises where the "
                f"function itself doesn't: {result.stats.failure}; engine='per_request' serves it unbatched"
            )
        for sample, got in zip(batch, result.rows, strict=True):
            difference = self._difference(sample, got)
            if difference:
                raise CertificationError(
                    f"model '{name}' is not certified: batched differs from per-example in a batch of "
                    f"{len(batch)} in the bucket {describe_bucket(bucket)} ({_program(result)}): {difference}\n"
                    f"  input:       {_show_example(self._engine, sample.example)}\n"
                    f"  per example: {_show(sample.expected)}\n"
                    f"  batched:     {_show(got)}\n"
                    "Give rtol= if the difference is acceptable; engine='per_request' serves it unbatched."
                )

    def report(self, samples: int, stretched: int, refused: int, buckets: int) -> Certification:
        """What was compared, and how far apart it was."""
        outputs = [
            OutputCertified(tensor.name, tolerance, tolerance * scale, largest, values, ties)
            for tensor, tolerance, scale, largest, values, ties in zip(
                self._engine.outputs,
                self._tolerances,
                self._scales,
                self._largest,
                self._values,
                self._near_ties,
                strict=True,
            )
        ]
        return Certification(samples, stretched, refused, buckets, self._batches, self._rows, tuple(outputs))

    def _difference(self, sample: Sample, got: Outputs | RowError) -> str:
        expected = sample.expected
        if isinstance(expected, RowError) or isinstance(got, RowError):
            return "" if type(expected) is type(got) else "one is an error, the other a value"
        for index, tensor in enumerate(self._engine.outputs):
            problem = array_difference(expected[index], got[index], self._tolerances[index], self._scales[index])
            if problem == _UNEQUAL and _is_near_tie(self._engine, sample.example, index, got[index]):
                self._near_ties[index] += 1
            elif problem:
                return f"output '{tensor.name}' {problem} (relative tolerance {self._tolerances[index]:g})"
            self._values[index] += expected[index].size
            self._largest[index] = max(self._largest[index], _apart(expected[index], got[index]))
        return ""


def _apart(expected: Array, got: Array) -> float:
    """The largest difference between finite floats."""
    if expected.dtype.kind != "f" or not expected.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(got.astype("float64") - expected.astype("float64"))
    return float(apart[np.isfinite(apart)].max(initial=0.0))


_UNEQUAL = "has other values"


def array_difference(expected: Array, got: Array, tolerance: float, scale: float) -> str:
    """Returns in what two arrays differ by more than `tolerance` relative to `scale`, or ""."""
    if expected.shape != got.shape:
        return f"has shape {list(got.shape)} instead of {list(expected.shape)}"
    if expected.dtype != got.dtype:
        return f"has dtype {got.dtype} instead of {expected.dtype}"
    if expected.dtype.kind != "f":
        return "" if np.array_equal(expected, got) else _UNEQUAL
    close = np.isclose(got, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if close.all():
        return ""
    with np.errstate(invalid="ignore"):
        apart = np.abs(got.astype("float64") - expected.astype("float64"))[~close]
    if not np.isfinite(apart).all():
        return "differs in where it is NaN or infinite"
    return f"differs by up to {apart.max():.3g} where {tolerance * scale:.3g} is allowed"


def _is_near_tie(engine: Engine, example: Example, index: int, got: Array) -> bool:
    """Whether the function itself, its float inputs nudged by one part in a million, gives `got`."""
    if not any(array.dtype.kind == "f" for array in example):
        return False
    rng = np.random.default_rng(0)
    for _ in range(_NUDGES):
        nudged = tuple(
            (array * (1 + _NUDGE * rng.uniform(-1, 1, array.shape))).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for array in example
        )
        try:
            if np.array_equal(engine.per_example(nudged)[index], got):
                return True
        except Exception:
            return False
    return False


def _scales(engine: Engine, samples: Sequence[Sample]) -> list[float]:
    """Returns, for each output, the largest finite magnitude that the samples' answers have."""
    scales = [0.0] * len(engine.outputs)
    for sample in samples:
        if isinstance(sample.expected, RowError):
            continue
        for index, array in enumerate(sample.expected):
            if array.dtype.kind == "f":
                finite = np.abs(array[np.isfinite(array)])
                scales[index] = max(scales[index], float(finite.max(initial=0.0)))
    return scales


def _program(result: BatchResult) -> str:
    names = {"xla": "compiled by XLA", "plain": "plain TensorFlow"}
    return names.get(result.stats.program, result.stats.program)


def _show_example(engine: Engine, example: Example) -> str:
    return ", ".join(f"{t.name}={_text(array)}" for t, array in zip(engine.inputs, example, strict=True))


def _show(answer: Outputs | RowError) -> str:
    if isinstance(answer, RowError):
        return f"error: {answer.message}"
    return ", ".join(_text(array) for array in answer)


def _text(array: Any) -> str:
    return np.array2string(np.asarray(array), threshold=20, max_line_width=10_000, separator=", ").replace("\n", "")
