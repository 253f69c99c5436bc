"""Pass 3: what is each value across the batch? Emits nothing.

Kinds flow forward through the program. A loop is settled by fixpoint: its variables start as what they are before the
loop and are raised until the body hands back no more than it got. The predicate's kind decides whether rows stop at
different times; then a variable that is updated from shared values only, such as the counter, stays *uniform*.

The result is conservative: emission may find a value shared that is called batched here, never the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from vectorizer.effects import DRAWS, Randomness
from vectorizer.kinds import Abstract, Kind, join
from vectorizer.program import CUSTOM_GRADIENT, Op, Program, Var
from vectorizer.reductions import OP_TYPE as REDUCTION


@dataclass
class LoopFacts:
    """A loop's variables: which are handed on unchanged, what the others are, and what the predicate is."""

    invariant: frozenset[int]
    variables: list[Abstract]
    predicate: Kind


@dataclass
class Analysis:
    """Kinds of all values, and facts on loops and branches, nested ones included."""

    values: dict[Var, Abstract] = field(default_factory=dict)
    loops: dict[Op, LoopFacts] = field(default_factory=dict)
    branches: dict[Op, Kind] = field(default_factory=dict)
    draws: Kind = Kind.BATCHED  # what a stateful random op gives

    def kind(self, var: Var) -> Kind:
        """The kind of one value."""
        return self.values[var].kind


def analyse(program: Program, inputs: Mapping[Var, Abstract], randomness: Randomness = "error") -> Analysis:
    """Kinds of every value of `program`, given those of its inputs."""
    analysis = Analysis(draws=Kind.SHARED if randomness == "same" else Kind.BATCHED)
    _Walk(analysis, masked=False).run(program, [inputs[var] for var in program.inputs])
    return analysis


class _Walk:
    """One pass over one program; `masked`: inside a loop or branch that some rows don't take part in."""

    def __init__(self, analysis: Analysis, *, masked: bool) -> None:
        self._analysis = analysis
        self._masked = masked

    def run(self, program: Program, inputs: Sequence[Abstract]) -> list[Abstract]:
        values = self._analysis.values
        values.update(zip(program.inputs, inputs, strict=True))
        for op in program.ops:
            operands = [values[var] for var in op.inputs]
            if op.type == "While":
                results = self._loop(op, operands)
            elif op.bodies:
                results = self._branches(op, operands)
            else:
                results = self._op(op, operands)
            values.update(zip(op.outputs, results, strict=True))
        return [values[var] for var in program.outputs]

    def _op(self, op: Op, operands: Sequence[Abstract]) -> list[Abstract]:
        rule = _RULES.get(op.type)
        if rule is not None:
            special = rule(op, operands, self._masked)
            if special is not None:
                return special
        kind = join(operand.kind for operand in operands)
        if op.type != "Const" and kind == Kind.CONSTANT and not _foldable(op):
            kind = Kind.SHARED
        if op.type in DRAWS:
            kind = max(kind, self._analysis.draws)
        return [Abstract(kind) for _ in op.outputs]

    def _branches(self, op: Op, operands: Sequence[Abstract]) -> list[Abstract]:
        predicate = operands[0].kind
        self._analysis.branches[op] = predicate
        inner = _Walk(self._analysis, masked=self._masked or predicate == Kind.BATCHED)
        outcomes = [inner.run(body, operands[1:]) for body in op.bodies.values()]
        results = []
        for alternatives in zip(*outcomes, strict=True):
            joined = alternatives[0]
            for other in alternatives[1:]:
                joined = joined.join(other)
            results.append(Abstract(max(joined.kind, predicate, Kind.SHARED), joined.parts, joined.element))
        return [_raised(result) if predicate == Kind.BATCHED else result for result in results]

    def _loop(self, op: Op, operands: Sequence[Abstract]) -> list[Abstract]:
        cond, body = op.bodies["cond"], op.bodies["body"]
        invariant = frozenset(k for k, var in enumerate(body.outputs) if var is body.inputs[k])
        variables = [
            value if k in invariant else Abstract(max(value.kind, Kind.SHARED), value.parts, value.element)
            for k, value in enumerate(operands)
        ]
        while True:
            (predicate,) = _Walk(self._analysis, masked=self._masked).run(cond, variables)
            masked = self._masked or predicate.kind == Kind.BATCHED
            outcomes = _Walk(self._analysis, masked=masked).run(body, variables)
            raised = [
                value if k in invariant else value.join(outcome)
                for k, (value, outcome) in enumerate(zip(variables, outcomes, strict=True))
            ]
            if predicate.kind == Kind.BATCHED:
                raised = [
                    value if k in invariant else Abstract(max(value.kind, Kind.UNIFORM), value.parts, value.element)
                    for k, value in enumerate(raised)
                ]
            if raised == variables:
                break
            variables = raised
        self._analysis.loops[op] = LoopFacts(invariant, variables, predicate.kind)
        if predicate.kind != Kind.BATCHED:
            return variables
        return [value if k in invariant else _raised(value) for k, value in enumerate(variables)]


def _raised(value: Abstract) -> Abstract:
    parts = None if value.parts is None else (Kind.BATCHED,) * len(value.parts)
    return Abstract(Kind.BATCHED, parts, value.element)


def _foldable(op: Op) -> bool:
    return all(var.dtype not in (tf.variant, tf.resource) for var in op.outputs)


def _shape_kinds(var: Var, value: Abstract) -> tuple[Kind, ...] | None:
    if var.shape.rank is None:
        return None
    return tuple(Kind.CONSTANT if size is not None else value.kind for size in var.shape.as_list())


def _vector(parts: tuple[Kind, ...] | None, fallback: Kind) -> Abstract:
    return Abstract(join(parts), parts) if parts is not None else Abstract(fallback)


def _shape(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    return [_vector(_shape_kinds(var, value), value.kind) for var, value in zip(op.inputs, operands, strict=True)]


def _size(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    kinds = _shape_kinds(op.inputs[0], operands[0])
    return None if kinds is None else [Abstract(join(kinds))]


def _rank(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    return [Abstract(Kind.CONSTANT)]


def _pack(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    if op.inputs[0].rank != 0:
        return None
    return [_vector(tuple(operand.kind for operand in operands), Kind.BATCHED)]


def _concat(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    parts: list[Kind] = []
    for var, operand in zip(op.inputs[:-1], operands[:-1], strict=True):
        if operand.parts is not None:
            parts += operand.parts
        elif var.rank == 1 and var.shape[0] is not None:
            parts += [operand.kind] * var.shape[0]
        else:
            return None
    return [_vector(tuple(parts), Kind.BATCHED)] if op.outputs[0].rank == 1 else None


def _strided_slice(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    parts = operands[0].parts
    bounds = [op.inputs[k].constant for k in (1, 2, 3)]
    if parts is None or any(bound is None or len(bound) != 1 for bound in bounds):
        return None
    begin, end, stride = (int(bound[0]) for bound in bounds)
    if op.attrs["shrink_axis_mask"] & 1:
        return [Abstract(parts[begin])]
    start = None if op.attrs["begin_mask"] & 1 else begin
    stop = None if op.attrs["end_mask"] & 1 else end
    return [_vector(parts[slice(start, stop, stride)], Kind.CONSTANT)]


def _elementwise(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    if op.outputs[0].rank != 1 or not any(operand.parts is not None for operand in operands):
        return None
    count = op.outputs[0].shape[0]
    columns = []
    for operand in operands:
        parts = operand.parts if operand.parts is not None else (operand.kind,)
        if len(parts) == 1:
            parts = parts * (count or 1)
        if len(parts) != count:
            return None
        columns.append(parts)
    return [_vector(tuple(join(row) for row in zip(*columns, strict=True)), Kind.BATCHED)]


def _list_reserve(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    kind = max(operands[1].kind, Kind.SHARED) if op.type == "TensorListReserve" else Kind.SHARED
    return [Abstract(kind, element=None)]


def _list_from(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    shape = op.inputs[0].shape
    return [Abstract(operands[0].kind, element=_hashable(shape[1:]) if shape.rank else None)]


def _list_write(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    values = operands if op.type != "TensorListScatterV2" else operands[:2]
    compound = any(var.dtype == tf.variant for var in op.inputs[1:])
    kind = Kind.BATCHED if masked or compound else join(operand.kind for operand in values)
    item = {"TensorListSetItem": 2, "TensorListPushBack": 1, "TensorListScatterV2": 0}.get(op.type, 1)
    shape = op.inputs[item].shape
    if op.type.startswith("TensorListScatter"):
        shape = shape[1:] if shape.rank else shape
    element = operands[0].element if op.type != "TensorListScatterV2" else None
    return [Abstract(max(kind, Kind.SHARED), element=element if element is not None else _hashable(shape))]


def _list_pop(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    compound = op.outputs[1].dtype == tf.variant
    kind = Kind.BATCHED if masked or compound else max(operands[0].kind, Kind.SHARED)
    return [Abstract(kind, element=operands[0].element), Abstract(kind)]


def _list_read(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    compound = op.outputs[0].dtype == tf.variant
    return [Abstract(Kind.BATCHED if compound else max(operands[0].kind, operands[1].kind, Kind.SHARED))]


def _hashable(shape: Any) -> tuple[int | None, ...] | None:
    return tuple(shape.as_list()) if shape.rank is not None else None


def _reduction(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    return [Abstract(Kind.SHARED) for _ in op.outputs]


def _custom_gradient(op: Op, operands: Sequence[Abstract], masked: bool) -> list[Abstract] | None:
    return list(operands[: len(op.outputs)])


_RULES = {
    REDUCTION: _reduction,
    CUSTOM_GRADIENT: _custom_gradient,
    "Shape": _shape,
    "ShapeN": _shape,
    "Size": _size,
    "Rank": _rank,
    "Pack": _pack,
    "ConcatV2": _concat,
    "StridedSlice": _strided_slice,
    **dict.fromkeys(("Add", "AddV2", "Sub", "Mul", "FloorDiv", "Maximum", "Minimum", "Cast", "SelectV2"), _elementwise),
    "TensorListReserve": _list_reserve,
    "EmptyTensorList": _list_reserve,
    "TensorListFromTensor": _list_from,
    "TensorListSetItem": _list_write,
    "TensorListPushBack": _list_write,
    "TensorListScatterIntoExistingList": _list_write,
    "TensorListScatterV2": _list_write,
    "TensorListPopBack": _list_pop,
    "TensorListGetItem": _list_read,
    "TensorListGather": _list_read,
}
