"""The kernels of launches on a CPU, by numpy: a launch of a few rows costs mostly the call, and numpy's is cheap.

A kernel is `(count, operands, results)`: it fills `results`, given what each node has of its own. All are `[count,
size]`: an example's value lies flat. It returns None, or bool [count]: which nodes are fine. Only ops on float32 and
float64 that numpy computes as TensorFlow does, to rounding, are here; `launching.py` runs all others by TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from server.engines.dynamic.indexing import numpy_index
from server.engines.dynamic.values import Shape
from vectorizer.program import Op

Array = Any
Kernel = Callable[[int, Sequence[Array], Sequence[Array]], Any]


@dataclass(frozen=True)
class Case:
    """`fixed`: the operands that all nodes share, as numpy; None for those of a node's own. `shapes`, `results`: of
    one example's operands and results."""

    op: Op
    fixed: Sequence[Any]
    shapes: Sequence[Shape]
    results: Sequence[Shape]

    def static(self, position: int) -> Any:
        """A shared operand."""
        return self.fixed[position]


def find(case: Case) -> Kernel | None:
    """The kernel of such nodes, or None where numpy has none."""
    make = _MAKERS.get(case.op.type)
    if make is None:
        return None
    numbers = [var.dtype.as_numpy_dtype for var in case.op.outputs]
    if case.op.type not in _MOVERS and any(number not in (np.float32, np.float64) for number in numbers):
        return None
    return make(case)


def _sigmoid(x: Array, out: Array) -> None:
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, 1, out)
    np.reciprocal(out, out)


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, 0, out=out)


_UNARY: dict[str, Callable[[Array, Array], Any]] = {
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "Relu": _relu,
    "Exp": np.exp,
    "Neg": np.negative,
    "Square": np.square,
    "Sqrt": np.sqrt,
    "Abs": np.absolute,
    "Sin": np.sin,
    "Cos": np.cos,
}
_BINARY: dict[str, Callable[[Array, Array, Array], Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "BiasAdd": np.add,
}
_COMPARE: dict[str, Callable[[Array, Array, Array], Any]] = {
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
}

_LOGIC: dict[str, Callable[..., Any]] = {
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not,
}

_REDUCTIONS: dict[str, Callable[..., Any]] = {"Sum": np.sum, "Max": np.max, "Mean": np.mean}


def _unary(case: Case) -> Kernel:
    compute = _UNARY[case.op.type]

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        compute(operands[0], results[0])

    return kernel


def _binary(case: Case) -> Kernel | None:
    if case.op.type == "BiasAdd" and case.op.attrs.get("data_format", "NHWC") not in ("NHWC", b"NHWC"):
        return None
    compute = _BINARY.get(case.op.type) or _COMPARE[case.op.type]
    (left, right), result = case.shapes, case.results[0]
    size = math.prod(result)
    plain = [
        math.prod(shape) in (1, size) or fixed is not None
        for shape, fixed in zip((left, right), case.fixed, strict=True)
    ]
    if not all(plain):
        return _broadcast(case, compute)
    places: list[Any] = []
    for fixed in case.fixed:
        if fixed is None:
            places.append(None)
        elif fixed.size == 1:
            places.append(fixed.reshape(()))
        else:
            places.append(np.ascontiguousarray(np.broadcast_to(fixed, result)).reshape(1, size))
    first, second = places

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        own = iter(operands)
        compute(first if first is not None else next(own), second if second is not None else next(own), results[0])

    return kernel


def _broadcast(case: Case, compute: Callable[[Array, Array, Array], Any]) -> Kernel:
    result = case.results[0]
    aligned = [(*[1] * (len(result) - len(shape)), *shape) for shape in case.shapes]

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        own = iter(operands)
        left, right = (
            next(own).reshape(count, *shape) if fixed is None else fixed.reshape(1, *shape)
            for shape, fixed in zip(aligned, case.fixed, strict=True)
        )
        compute(left, right, results[0].reshape(count, *result))

    return kernel


def _matmul(case: Case) -> Kernel | None:
    attrs = case.op.attrs
    batched = case.op.type != "MatMul"
    turned = [bool(attrs.get(name)) for name in (("adj_x", "adj_y") if batched else ("transpose_a", "transpose_b"))]
    (left, right), result = case.shapes, case.results[0]
    if len(left) != 2 or len(right) != 2:
        return None
    if case.fixed[1] is not None and not turned[0]:
        weight = np.ascontiguousarray(case.fixed[1].T if turned[1] else case.fixed[1])
        inner, outer = left[1], result[1]

        def by_shared(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
            np.matmul(operands[0].reshape(-1, inner), weight, results[0].reshape(-1, outer))

        return by_shared
    if case.fixed[0] is not None and not turned[1] and result[1] == 1:
        weight_t = np.ascontiguousarray(case.fixed[0] if turned[0] else case.fixed[0].T)

        def by_vector(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
            np.matmul(operands[0], weight_t, results[0])

        return by_vector
    if case.fixed[0] is None and case.fixed[1] is None:

        def each_by_its_own(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
            first, second = operands[0].reshape(count, *left), operands[1].reshape(count, *right)
            first, second = (x.swapaxes(1, 2) if turn else x for x, turn in zip((first, second), turned, strict=True))
            np.matmul(first, second, results[0].reshape(count, *result))

        return each_by_its_own
    return None


def _concat(case: Case) -> Kernel | None:
    axis = int(case.static(len(case.shapes) - 1))
    shapes, result = case.shapes[:-1], case.results[0]
    axis += len(result) if axis < 0 else 0
    outer = math.prod(result[:axis])
    borders = np.cumsum([0, *(math.prod(shape[axis:]) for shape in shapes)]).tolist()
    width = borders[-1]
    spans = list(zip(borders[:-1], borders[1:], case.fixed[:-1], strict=True))

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        out, own = results[0].reshape(count * outer, width), iter(operands)
        for start, stop, fixed in spans:
            if fixed is None:
                out[:, start:stop] = next(own).reshape(count * outer, stop - start)
            else:
                out.reshape(count, outer, width)[:, :, start:stop] = fixed.reshape(1, outer, stop - start)

    return kernel


def _split(case: Case) -> Kernel | None:
    value, axis_at = (1, 0) if case.op.type == "Split" else (0, 2)
    if case.fixed[axis_at] is None or case.fixed[value] is not None:
        return None
    axis, shape = int(case.static(axis_at)), case.shapes[value]
    axis += len(shape) if axis < 0 else 0
    outer, width = math.prod(shape[:axis]), math.prod(shape[axis:])
    borders = np.cumsum([0, *(math.prod(result[axis:]) for result in case.results)]).tolist()
    spans = list(pairwise(borders))

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        whole = operands[0].reshape(count * outer, width)
        for out, (start, stop) in zip(results, spans, strict=True):
            out.reshape(count * outer, stop - start)[:] = whole[:, start:stop]

    return kernel


def as_view(case: Case) -> Callable[[int, Sequence[Array]], Sequence[Array]] | None:
    """For a Split of whole rows: `(count, operands)` -> its results as views."""
    if case.op.type not in ("Split", "SplitV") or _split(case) is None:
        return None
    value, axis_at = (1, 0) if case.op.type == "Split" else (0, 2)
    axis, shape = int(case.static(axis_at)), case.shapes[value]
    if math.prod(shape[: axis + len(shape) if axis < 0 else axis]) != 1:
        return None
    borders = np.cumsum([0, *(math.prod(result) for result in case.results)]).tolist()
    spans = list(pairwise(borders))
    return lambda count, operands: [operands[0][:, start:stop] for start, stop in spans]


def _slice(case: Case) -> Kernel | None:
    if any(fixed is None for fixed in case.fixed[1:]) or case.fixed[0] is not None:
        return None
    index = numpy_index(case.op, case.fixed, case.shapes[0])
    if index is None:
        return None
    shape, result = case.shapes[0], case.results[0]

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        results[0].reshape(count, *result)[:] = operands[0].reshape(count, *shape)[(slice(None), *index)]

    return kernel


def _gather(case: Case) -> Kernel | None:
    table, index, axis = case.fixed
    if axis is None or int(axis) != 0 or case.op.attrs.get("batch_dims", 0) or index is not None:
        return None
    if table is None and len(case.shapes[1]) == 1:
        return _rows_of_own(case)
    if case.shapes[1] != ():
        return None
    if table is not None:
        rows, count_of_rows = table.reshape(len(table), -1), len(table)

        def look_up(count: int, operands: Sequence[Array], results: Sequence[Array]) -> Any:
            places = operands[0].ravel()
            rows.take(places, 0, results[0], "clip")
            fine = (places >= 0) & (places < count_of_rows)
            return None if fine.all() else fine

        return look_up
    length, width = case.shapes[0][0], math.prod(case.shapes[0][1:])

    def pick(count: int, operands: Sequence[Array], results: Sequence[Array]) -> Any:
        places = operands[1].ravel()
        fine = (places >= 0) & (places < length)
        if length:
            results[0][:] = operands[0].reshape(count, length, width)[np.arange(count), np.where(fine, places, 0)]
        return None if fine.all() else fine

    return pick


def _rows_of_own(case: Case) -> Kernel:
    (length, *row), (picked,) = case.shapes[:2]
    width = math.prod(row)

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> Any:
        places = operands[1]
        fine = ((places >= 0) & (places < length)).all(axis=1)
        if length:
            rows = np.arange(count)[:, None] * length + np.clip(places, 0, length - 1)
            rows_of = operands[0].reshape(count * length, width)
            results[0].reshape(count, picked, width)[:] = rows_of.take(rows, 0)
        return None if fine.all() else fine

    return kernel


def _segment_sum(case: Case) -> Kernel | None:
    data, ids = case.shapes[:2]
    if case.fixed[2] is None or case.fixed[0] is not None or case.fixed[1] is not None or len(ids) != 1:
        return None
    segments, length, width = int(case.static(2)), ids[0], math.prod(data[1:])

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> Any:
        fine = (operands[1] < segments).all(axis=1)
        results[0][:] = 0
        for row in np.flatnonzero(fine).tolist():
            order = np.argsort(operands[1][row], kind="stable")
            sorted_ids = operands[1][row][order]
            order, sorted_ids = order[sorted_ids >= 0], sorted_ids[sorted_ids >= 0]
            if len(order):
                starts = np.flatnonzero(np.diff(sorted_ids, prepend=-1))
                sums = np.add.reduceat(operands[0][row].reshape(length, width)[order], starts, axis=0)
                results[0][row].reshape(segments, width)[sorted_ids[starts]] = sums
        return None if fine.all() else fine

    return kernel


def _logic(case: Case) -> Kernel | None:
    if any(fixed is not None for fixed in case.fixed) or len(set(case.shapes)) > 1:
        return None
    compute = _LOGIC[case.op.type]

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        compute(*operands, out=results[0])

    return kernel


def _reduction(case: Case) -> Kernel | None:
    shape = case.shapes[0]
    if case.fixed[1] is None or case.fixed[0] is not None:
        return None
    axes = tuple(sorted({int(axis) % max(len(shape), 1) + 1 for axis in np.ravel(case.fixed[1])}))
    if not axes or 0 in shape or not shape:
        return None
    compute = _REDUCTIONS[case.op.type]
    reduced = (*(size for axis, size in enumerate(shape) if axis + 1 not in axes),)

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        compute(operands[0].reshape(count, *shape), axis=axes, out=results[0].reshape(count, *reduced))

    return kernel


def _softmax(case: Case) -> Kernel | None:
    size = case.shapes[0][-1] if case.shapes[0] else 0
    if not size:
        return None

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        x, out = operands[0].reshape(-1, size), results[0].reshape(-1, size)
        np.subtract(x, x.max(axis=1, keepdims=True), out)
        np.exp(out, out)
        np.divide(out, out.sum(axis=1, keepdims=True), out)

    return kernel


def _transpose(case: Case) -> Kernel | None:
    if case.fixed[1] is None or case.fixed[0] is not None:
        return None
    shape, result = case.shapes[0], case.results[0]
    order = (0, *(int(axis) + 1 for axis in case.fixed[1]))

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        results[0].reshape(count, *result)[:] = operands[0].reshape(count, *shape).transpose(order)

    return kernel


def _select(case: Case) -> Kernel | None:
    result = case.results[0]
    aligned = [(*[1] * (len(result) - len(shape)), *shape) for shape in case.shapes]

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        own = iter(operands)
        condition, yes, no = (
            next(own).reshape(count, *shape) if fixed is None else fixed.reshape(1, *shape)
            for shape, fixed in zip(aligned, case.fixed, strict=True)
        )
        results[0].reshape(count, *result)[:] = np.where(condition, yes, no)

    return kernel


def _pack(case: Case) -> Kernel | None:
    axis, result = int(case.op.attrs.get("axis", 0)), case.results[0]
    axis += len(result) if axis < 0 else 0

    def kernel(count: int, operands: Sequence[Array], results: Sequence[Array]) -> None:
        out, own = results[0].reshape(count, *result), iter(operands)
        for position, (fixed, shape) in enumerate(zip(case.fixed, case.shapes, strict=True)):
            value = next(own).reshape(count, *shape) if fixed is None else fixed.reshape(1, *shape)
            out[(slice(None),) * (axis + 1) + (position,)] = value

    return kernel


_MAKERS: dict[str, Callable[[Case], Kernel | None]] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    "MatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "ConcatV2": _concat,
    "Split": _split,
    "SplitV": _split,
    "StridedSlice": _slice,
    "Slice": _slice,
    "GatherV2": _gather,
    "Sum": _reduction,
    "Max": _reduction,
    "Mean": _reduction,
    "Softmax": _softmax,
    "Transpose": _transpose,
    "SelectV2": _select,
    "Pack": _pack,
    "UnsortedSegmentSum": _segment_sum,
    **dict.fromkeys(_COMPARE, _binary),
    **dict.fromkeys(_LOGIC, _logic),
}
_MOVERS = frozenset(
    {
        "ConcatV2",
        "Split",
        "SplitV",
        "StridedSlice",
        "Slice",
        "GatherV2",
        "Transpose",
        "SelectV2",
        "Pack",
        *_COMPARE,
        *_LOGIC,
    }
)
