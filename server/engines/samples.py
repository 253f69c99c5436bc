"""Examples to certify and warm a model with: the user's samples, or generated ones, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from server.engines import Engine
from server.engines.batch_result import Array, Example, Outputs, RowError, as_array
from server.engines.error_text import row_message
from server.engines.measure import Lengths, fits
from server.engines.stretching import stretch
from server.errors import CertificationError
from server.model_description import Bucket, TensorDescription
from server.registry import ModelSpec

SAMPLES = 64
"""How many samples are drawn from a function, generated, or kept of a list."""

STRETCHED = 2
"""How many examples are made as long as each bucket."""

_LONGEST_GENERATED = 12
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Sample:
    """One example, and what the per-example function says to it."""

    example: Example
    expected: Outputs | RowError

    @property
    def usable(self) -> bool:
        return not isinstance(self.expected, RowError)


def draw_samples(spec: ModelSpec, engine: Engine, seed: int) -> list[Sample]:
    """Returns up to 64 samples with their expected answers.

    Raises CertificationError where a sample doesn't fit the inputs, or the function raises on more than half.
    """
    rng = np.random.default_rng(seed)
    samples = [_judge(engine, example) for example in _draw(spec, rng)]
    refused = [sample.expected for sample in samples if isinstance(sample.expected, RowError)]
    if 2 * len(refused) > len(samples):
        origin = "generated examples" if spec.samples is None else "its samples"
        raise CertificationError(
            f"model '{spec.name}' raises on {len(refused)} of {len(samples)} {origin}, so it can't be "
            f"certified; give samples= that it accepts. The first error: {refused[0].message}"
        )
    return samples


def stretched_samples(engine: Engine, samples: Sequence[Sample], lengths: Lengths) -> list[Sample]:
    """Returns samples made of the two longest usable ones, each bounded size exactly that of `lengths`."""
    usable = [sample.example for sample in samples if sample.usable]
    longest = sorted(usable, key=lambda example: sum(engine.measure(example)))[-STRETCHED:]
    return [_judge(engine, stretch(example, engine.inputs, engine.bounds, lengths)) for example in longest]


def fill_batch(examples: Sequence[Example], measured: Sequence[Lengths], bucket: Bucket) -> list[Example]:
    """Returns `bucket.rows` examples that fit the bucket, the largest first, repeated as needed.

    The bucket is one that `length_levels` made for these examples, so that at least one fits.
    """
    sized = sorted(zip(measured, range(len(examples)), strict=True), reverse=True)
    fitting = [examples[index] for lengths, index in sized if fits(lengths, bucket)]
    return [fitting[row % len(fitting)] for row in range(bucket.rows)]


def _draw(spec: ModelSpec, rng: np.random.Generator) -> list[Example]:
    if spec.samples is None:
        return [_generate(spec.input_tensors, rng) for _ in range(SAMPLES)]
    if callable(spec.samples):
        return [as_example(spec, spec.samples(rng), f"samples() call {i}") for i in range(SAMPLES)]
    chosen = list(range(len(spec.samples)))
    if len(chosen) > SAMPLES:
        chosen = sorted(rng.choice(len(chosen), SAMPLES, replace=False).tolist())
    return [as_example(spec, spec.samples[i], f"samples[{i}]") for i in chosen]


def _judge(engine: Engine, example: Example) -> Sample:
    try:
        return Sample(example, engine.per_example(example))
    except Exception as error:
        return Sample(example, RowError(row_message(error)))


def as_example(spec: ModelSpec, value: Any, where: str) -> Example:
    """Returns a user's sample (a dict, a tuple, or a single input's bare value) as arrays in input order."""
    names = [tensor.name for tensor in spec.input_tensors]
    if isinstance(value, dict):
        if set(value) != set(names):
            raise CertificationError(
                f"model '{spec.name}', {where}: expected inputs {', '.join(names)}, got {', '.join(map(str, value))}"
            )
        values = [value[name] for name in names]
    elif isinstance(value, tuple) and len(value) == len(names):
        values = list(value)
    elif len(names) == 1:
        values = [value]
    else:
        raise CertificationError(
            f"model '{spec.name}', {where}: give a dict with {', '.join(names)}, or a tuple in that order"
        )
    return tuple(_as_input(spec, tensor, item, where) for tensor, item in zip(spec.input_tensors, values, strict=True))


def _as_input(spec: ModelSpec, tensor: TensorDescription, value: Any, where: str) -> Array:
    try:
        array = as_array(value, tensor.dtype)
    except (TypeError, ValueError) as error:
        raise CertificationError(f"model '{spec.name}', {where}, input '{tensor.name}': {error}") from error
    expected = tensor.shape
    fitting = len(expected) == array.ndim and all(
        size is None or size == got for size, got in zip(expected, array.shape, strict=False)
    )
    if not fitting:
        raise CertificationError(
            f"model '{spec.name}', {where}, input '{tensor.name}': expected {tensor.dtype} of shape "
            f"{expected}, got shape {list(array.shape)}"
        )
    return array


def _generate(tensors: Sequence[TensorDescription], rng: np.random.Generator) -> Example:
    """Returns one generated example; half the time all variable dimensions agree, as parallel lists do."""
    common = _size(rng) if rng.random() < 0.5 else None
    return tuple(_generate_input(tensor, rng, common) for tensor in tensors)


def _generate_input(tensor: TensorDescription, rng: np.random.Generator, common: int | None) -> Array:
    shape = [size if size is not None else common if common is not None else _size(rng) for size in tensor.shape]
    if tensor.dtype == "string":
        words = [_word(rng) for _ in range(int(np.prod(shape)))]
        return as_array(np.array([*words, None], object)[:-1].reshape(shape), "string")
    if tensor.dtype == "bool":
        return rng.random(shape) < 0.5
    if tensor.dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape), tensor.dtype)
    return np.asarray(rng.integers(0, 4, shape), tensor.dtype)


def _size(rng: np.random.Generator) -> int:
    """Returns 0 once in sixteen times, else 1 to 12."""
    return int(rng.integers(1, _LONGEST_GENERATED + 1)) if rng.random() < 15 / 16 else 0


def _word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(_LETTERS), int(rng.integers(1, _LONGEST_GENERATED + 1))))
