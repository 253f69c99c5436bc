"""Which op is to blame when the same example gets other bits in another batch.

The plan is emitted eagerly, twice, with the batches that gave different answers; the same rules, the same kernels, one
op at a time, through every step of every loop. The op to blame is the first whose result differs, for the row in
question, although its operands don't. Kernels that TensorFlow fuses in a graph run apart here, and XLA's don't run at
all: there may be a difference that is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vectorizer.batch import Batch
from vectorizer.emission import Emitter
from vectorizer.program import Op
from vectorizer.values import Value
from vectorizer.vectorized import Vectorized


@dataclass(frozen=True)
class PaddedBatch:
    """Dense `[B, P, ...]` inputs, int32 `[B]` lengths for each variable dimension, how many rows are real.

    `compiled_for`: the lengths that the program was compiled for; None: any.
    """

    inputs: Sequence[Any]
    lengths: Sequence[Any]
    rows: int
    compiled_for: Sequence[int] | None = None


def first_difference(
    vectorized: Vectorized, one: PaddedBatch, row: int, other: PaddedBatch, other_row: int
) -> Op | None:
    """The first op that gives row `row` of one batch other bits than row `other_row` of the other, or None.

    Both rows hold the same example. NaNs are equal to each other.
    """
    pairs = zip(_events(vectorized, one, row), _events(vectorized, other, other_row), strict=False)
    for (op, operands, results), (other_op, other_operands, other_results) in pairs:
        if op is not other_op:
            return None  # the rows went different ways: something before was not looked at
        if _same(operands, other_operands) and not _same(results, other_results):
            return op
    return None


class _Recorder(Emitter):
    """Keeps, of each op that runs, what one row puts in and gets out."""

    def __init__(self, row: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.row = row
        self.events: list[tuple[Op, list[Any], list[Any]]] = []

    def emit(self, op: Op, inputs: Sequence[Any], batch: Batch) -> Sequence[Any]:
        results = super().emit(op, inputs, batch)
        if not op.bodies:
            self.events.append((op, [self._of_row(x) for x in inputs], [self._of_row(x) for x in results]))
        return results

    def _of_row(self, value: Any) -> Any:
        """What a value is for the row, as an array; None where it can't be looked at."""
        if not isinstance(value, Value):
            return None
        try:
            whole = value.tensor.numpy()
        except (AttributeError, NotImplementedError, ValueError):
            return None  # symbolic, as in the trial of a loop's body, or a resource
        if not value.batched:
            return whole
        item = whole[self.row]
        cut = [slice(None)] * item.ndim if isinstance(item, np.ndarray) else []
        for axis, size in value.sizes.items():
            cut[axis] = slice(0, int(size.lengths[self.row]))
        return item[tuple(cut)] if cut else item


def _events(vectorized: Vectorized, batch: PaddedBatch, row: int) -> Iterator[tuple[Op, list[Any], list[Any]]]:
    recorder: list[_Recorder] = []

    def make(*arguments: Any) -> Emitter:
        recorder.append(_Recorder(row, *arguments))
        return recorder[-1]

    vectorized.run_eagerly(batch.inputs, batch.lengths, batch.rows, batch.compiled_for, make)
    return iter(recorder[0].events)


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(_equal(x, y) for x, y in zip(one, other, strict=True))


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "fc":
        return bool(np.all((one.view(_bits(one)) == other.view(_bits(other))) | (np.isnan(one) & np.isnan(other))))
    return np.array_equal(one, other)


def _bits(array: Any) -> Any:
    """Unsigned integers as wide; of complex numbers, themselves."""
    return array.dtype if array.dtype.kind == "c" else f"u{array.dtype.itemsize}"
