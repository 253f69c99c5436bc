"""Programs of fixed shapes: compiled, fed with padded batches, and read row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from server.engines.assembly import Assembled, Assembly
from server.engines.batch_result import Array, Example, Outputs
from server.engines.measure import Lengths
from server.model_description import BoundDescription, TensorDescription

Kind: TypeAlias = Literal["xla", "plain"]

Observed: TypeAlias = Outputs | None
"""What a program says of one row: all it returns, witnesses behind the outputs; None where it refuses the row."""


@dataclass(frozen=True, eq=False)
class FixedProgram:
    """A program for batches of `rows` rows, padded to `lengths`."""

    kind: Kind
    rows: int
    lengths: Lengths
    call: Callable[[list[Array], list[Array], int], tuple[Sequence[Any], Sequence[Any], Any]]


class Programs:
    """Makes and runs the fixed programs of one function, a `Vectorized` that reveals what `witnesses` describe."""

    def __init__(
        self,
        vectorized: Any,
        inputs: Sequence[TensorDescription],
        outputs: Sequence[TensorDescription],
        witnesses: Sequence[TensorDescription],
        bounds: Sequence[BoundDescription],
    ) -> None:
        self.vectorized = vectorized
        self.outputs = (*outputs, *witnesses)
        self._count = len(outputs)
        dims = vectorized.output_dims
        self._served_dims = [position for position, (output, _) in enumerate(dims) if output < self._count]
        self._serving = Assembly(inputs, outputs, [dims[position] for position in self._served_dims])
        self._observing = Assembly(inputs, self.outputs, dims)
        self.input_dims = self._serving.input_dims
        self.bound_of_dim = [
            list(bounds).index(BoundDescription(inputs[index].name, axis)) for index, axis in self.input_dims
        ]

    def compile(self, kind: Kind, rows: int, lengths: Lengths) -> FixedProgram:
        """Raises what TensorFlow or XLA raises."""
        made = self.vectorized.compile(rows=rows, lengths=tuple(lengths), jit=kind == "xla")
        return FixedProgram(kind, rows, lengths, made)

    def pad(self, rows: Sequence[Example], program: FixedProgram) -> Assembled:
        """Pads and stacks; rows that are missing repeat the first."""
        return self._serving.stack(rows, program.rows, [program.lengths[bound] for bound in self.bound_of_dim])

    def answer(self, program: FixedProgram, batch: Assembled) -> tuple[list[Outputs], list[bool]]:
        """Returns the real rows' outputs, without witnesses, and which of them hold. Raises what the program does."""
        outputs, lengths, ok = program.call(batch.inputs, batch.lengths, batch.rows)
        served = [_numpy(tensor) for tensor in outputs[: self._count]]
        sizes = [_numpy(lengths[position]) for position in self._served_dims]
        return self._serving.split(served, sizes, batch.rows), _numpy(ok)[: batch.rows].tolist()

    def observe(self, program: FixedProgram, batch: Assembled) -> list[Observed]:
        """Returns everything that the program says of each real row."""
        outputs, lengths, ok = program.call(batch.inputs, batch.lengths, batch.rows)
        rows = self._observing.split([_numpy(x) for x in outputs], [_numpy(x) for x in lengths], batch.rows)
        return [row if fine else None for row, fine in zip(rows, _numpy(ok).tolist(), strict=False)]


def _numpy(value: Any) -> Array:
    return value if isinstance(value, np.ndarray) else np.asarray(value.numpy())
