"""What every way of running a batch has in common; imported by workers."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from loadtest.workloads.problem import Problem
from server.engines.assembly import Assembled, Assembly
from server.engines.batch_result import Array, Example, Outputs


class Unavailable(Exception):
    """This way doesn't exist for this workload; the message says why."""


class Way(Protocol):
    """Answers batches of one workload and one size."""

    def answer(self, examples: Sequence[Example]) -> list[Outputs]:
        """One batch, from rows of numpy arrays to rows of numpy arrays; all of that is timed."""
        ...

    def figures(self) -> dict[str, float]:
        """What else is known about the latest batch: launches, padding, seconds of each part."""
        ...


@dataclass(frozen=True)
class Trial:
    """Batches of one size with their right answers. The first is for checking and warming; each other is timed once."""

    rows: int
    batches: Sequence[Sequence[Example]]
    answers: Sequence[Sequence[Outputs]]

    def write(self, path: Path) -> None:
        path.write_bytes(pickle.dumps((self.rows, self.batches, self.answers)))

    @classmethod
    def read(cls, path: Path) -> Trial:
        """What `write` wrote; a worker reads only what its own parent has written."""
        return cls(*pickle.loads(path.read_bytes()))

    def longest(self, problem: Problem) -> list[int]:
        """The largest size of each variable dimension over all batches."""
        rows = [row for batch in self.batches for row in batch]
        return [max(row[index].shape[axis] for row in rows) for index, axis in problem.variable_dims]


class Padding:
    """Rows to padded arrays and back, as the engines do it, for ways that take a dense batch."""

    def __init__(self, problem: Problem, limits: Sequence[int] | None = None) -> None:
        """limits: what every variable dimension is padded to; None for the batch's own longest row."""
        self._assembly = Assembly(problem.inputs, problem.outputs, tuple(problem.output_lengths))
        self._limits = limits
        self._length_of_output = [problem.variable_dims.index(like) for like in problem.output_lengths.values()]
        self.ratio = 0.0

    def stack(self, examples: Sequence[Example]) -> Assembled:
        batch = self._assembly.stack(examples, len(examples), self._limits)
        self.ratio = batch.padding_ratio
        return batch

    def split(self, outputs: Sequence[Any], batch: Assembled) -> list[Outputs]:
        arrays: list[Array] = [np.asarray(output) for output in outputs]
        lengths = [batch.lengths[index] for index in self._length_of_output]
        return self._assembly.split(arrays, lengths, batch.rows)
