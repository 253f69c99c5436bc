"""What a workload is: a computation on one example, examples to run it on, and the right answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.engines.batch_result import Example, Outputs
from server.model_description import TensorDescription

WEIGHTS_SEED = 2017


@dataclass(frozen=True)
class Problem:
    """The computation as numpy has it.

    inputs, outputs: of one example; None for a size that differs between examples.
    examples: (generator, count) -> that many random examples, tuples of arrays in the order of `inputs`.
    reference: (*example) -> its answer, in the order of `outputs`; computed in float64, given as the outputs' dtypes.
    output_lengths: for each variable (output, axis), the (input, axis) that is as long.
    rtol, atol: how near a float32 answer must come; `atol` times the largest magnitude in the answer, at least 1.
    """

    name: str
    about: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    examples: Callable[[np.random.Generator, int], list[Example]]
    reference: Callable[..., Outputs]
    output_lengths: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-5

    @property
    def variable_dims(self) -> list[tuple[int, int]]:
        """Every variable (input, axis), in order; what `lengths` of a padded batch stand for."""
        return [
            (index, axis)
            for index, tensor in enumerate(self.inputs)
            for axis, size in enumerate(tensor.shape)
            if size is None
        ]

    def difference(self, answers: Sequence[Outputs], expected: Sequence[Outputs]) -> str | None:
        """None where all answers are right; else a sentence about the first that isn't."""
        if len(answers) != len(expected):
            return f"{len(answers)} answers to {len(expected)} examples"
        for row, (got, right) in enumerate(zip(answers, expected, strict=True)):
            if sentence := self._row_difference(got, right):
                return f"row {row}: {sentence}"
        return None

    def _row_difference(self, got: Outputs, right: Outputs) -> str | None:
        if len(got) != len(right):
            return f"{len(got)} outputs, expected {len(right)}"
        for tensor, a, b in zip(self.outputs, got, right, strict=True):
            a = np.asarray(a)
            if a.shape != b.shape:
                return f"{tensor.name!r} has shape {list(a.shape)}, expected {list(b.shape)}"
            scale = max(1.0, float(np.abs(b).max(initial=0.0)))
            if not np.allclose(a, b, rtol=self.rtol, atol=self.atol * scale, equal_nan=True):
                return f"{tensor.name!r} is off by {float(np.abs(a - b).max()):.3g}"
        return None


@dataclass(frozen=True)
class Workload:
    """A problem with its TensorFlow function.

    function: of ONE example, called by keyword or in the order of the inputs; `specs` by parameter name.
    options: further keywords of `vectorize`.
    hand_batched: the same for a whole batch as an expert writes it, or None:
    (inputs padded [B, P, ...], lengths int32 [B] of each variable dim) -> outputs.
    padded: for one example, but with its inputs padded and its lengths given, for `tf.vectorized_map`, which can't
    have examples of different shapes: (inputs, lengths) -> outputs; None where nothing differs in size.
    """

    problem: Problem
    function: Callable[..., Any]
    specs: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    hand_batched: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]] | None = None
    padded: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]] | None = None

    @property
    def name(self) -> str:
        return self.problem.name

    @property
    def examples(self) -> Callable[[np.random.Generator, int], list[Example]]:
        return self.problem.examples

    @property
    def reference(self) -> Callable[..., Outputs]:
        return self.problem.reference

    @property
    def rtol(self) -> float:
        return self.problem.rtol

    @property
    def atol(self) -> float:
        return self.problem.atol


def dense(generator: np.random.Generator, inputs: int, outputs: int) -> NDArray[np.float32]:
    """A random kernel [inputs, outputs] that keeps magnitudes about as they are."""
    return generator.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)


def bias(generator: np.random.Generator, outputs: int) -> NDArray[np.float32]:
    """A small random bias [outputs]."""
    return generator.normal(0, 0.1, outputs).astype(np.float32)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), as numpy lacks it."""
    return 1 / (1 + np.exp(-x))
