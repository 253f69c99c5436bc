"""Ops on values that are known while the graphs grow: the part of a program that in DyNet is the user's own Python.

For all examples at once where numpy can, else example by example, by numpy or by TensorFlow's own kernel, eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic.indexing import numpy_index
from server.engines.dynamic.launching import alone
from server.engines.dynamic.values import ExamplesFailed, Kind, OpFailed, Shape
from vectorizer.program import Op

Array = np.ndarray[Any, Any]
Batched = Callable[[Sequence[Any], Any], Any]
"""(data of the operands, numbers of the examples) -> data of the result."""

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Abs": np.absolute,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not,
    "SelectV2": np.where,
}
_DIVISIONS: dict[str, Callable[..., Any]] = {"FloorDiv": np.floor_divide, "FloorMod": np.mod}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "All": np.all,
    "Any": np.any,
    "Sum": np.sum,
    "Max": np.max,
    "Min": np.min,
    "Prod": np.prod,
}


def stays_on_host(op: Op) -> bool:
    """Whether `op` on host values is bookkeeping; arithmetic on numbers is left to nodes, which are batched."""
    return not any(_is_number(var.dtype) for var in (*op.inputs, *op.outputs))


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_complex or dtype in (tf.variant, tf.resource))


def compute(op: Op, operands: Sequence[Array]) -> list[Array]:
    """The results for one example. Raises OpFailed where the op would raise."""
    if not any(operand.dtype.kind in "OSU" for operand in operands):
        with np.errstate(all="ignore"):
            try:
                quick = _by_numpy(op, operands)
            except ValueError as error:
                raise OpFailed(str(error)) from error
        if quick is not None:
            return [np.asarray(quick, op.outputs[0].dtype.as_numpy_dtype)]
    try:
        return alone(op, operands)
    except (tf.errors.OpError, ValueError) as error:
        raise OpFailed(str(error)) from error


def _by_numpy(op: Op, operands: Sequence[Array]) -> Any:
    kind = op.type
    if kind in _ELEMENTWISE:
        return _ELEMENTWISE[kind](*operands)
    if kind in _DIVISIONS and np.all(operands[1]):
        return _DIVISIONS[kind](*operands)
    if kind in _REDUCTIONS and (operands[0].size or kind in ("All", "Any", "Sum", "Prod")):
        axes = tuple(np.ravel(operands[1]).tolist())
        return _REDUCTIONS[kind](operands[0], axis=axes, keepdims=bool(op.attrs.get("keep_dims")))
    if kind == "Range" and operands[2] != 0:
        return np.arange(*(operand.item() for operand in operands))
    if kind == "Reshape":
        return operands[0].reshape(operands[1])
    if kind == "ExpandDims":
        return np.expand_dims(operands[0], int(operands[1]))
    if kind == "Pack":
        return np.stack(operands, int(op.attrs.get("axis", 0)))
    if kind == "ConcatV2":
        return np.concatenate(operands[:-1], int(operands[-1]))
    if kind == "Cast" and operands[0].dtype.kind in "biu":
        return operands[0]
    if kind == "GatherV2" and operands[2] == 0 and not op.attrs.get("batch_dims", 0):
        if ((operands[1] < 0) | (operands[1] >= len(operands[0]))).any():
            raise OpFailed("an index is out of range")
        return operands[0][operands[1]]
    if kind in ("StridedSlice", "Slice"):
        index = numpy_index(op, operands, operands[0].shape)
        return None if index is None else operands[0][index]
    return None


# -- all examples at once ---------------------------------------------------------------------------------------------


def batched(op: Op, kinds: Sequence[Kind], content: Sequence[Any]) -> Batched:
    """The op for all examples. `kinds` are fixed, const and host, one of them host; `content` has what is fixed, else
    None. The result is `[E, ...]`."""
    shapes = [kind.shape for kind in kinds]
    per_example = [kind.what == "host" for kind in kinds]
    quick = (
        None if any(kind.dtype == tf.string for kind in kinds) else _batched_by_numpy(op, shapes, per_example, content)
    )
    dtype = object if op.outputs[0].dtype == tf.string else op.outputs[0].dtype.as_numpy_dtype
    if quick is not None:
        found = quick
        return lambda data, examples: np.asarray(found(data), dtype)

    def one_by_one(data: Sequence[Any], examples: Any) -> Any:
        rows = []
        for row, example in enumerate(examples.tolist()):
            own = [item[row] if mine else item for item, mine in zip(data, per_example, strict=True)]
            try:
                rows.append(
                    compute(op, [np.asarray(item, _text(kind)) for item, kind in zip(own, kinds, strict=True)])[0]
                )
            except OpFailed as error:
                raise ExamplesFailed(example, str(error)) from error
        return np.stack(rows)

    return one_by_one


def _text(kind: Kind) -> Any:
    return object if kind.dtype == tf.string else None


def _batched_by_numpy(
    op: Op, shapes: Sequence[Shape], own: Sequence[bool], content: Sequence[Any]
) -> Callable[[Sequence[Any]], Any] | None:
    kind = op.type
    if kind in _ELEMENTWISE:
        return _aligned(_ELEMENTWISE[kind], shapes, own)
    if kind in _DIVISIONS and content[1] is not None and np.all(content[1]):
        return _aligned(_DIVISIONS[kind], shapes, own)
    if kind == "Cast" and op.inputs[0].dtype != tf.string:
        return lambda data: data[0]
    if kind == "Pack" and all(shape == () for shape in shapes):
        return lambda data: np.stack(np.broadcast_arrays(*data), axis=-1)
    if not own[0] or any(item is None for item in content[1:]):
        return None
    if kind in _REDUCTIONS and 0 not in shapes[0]:
        axes = tuple(int(axis) % max(len(shapes[0]), 1) + 1 for axis in np.ravel(content[1]))
        keep = bool(op.attrs.get("keep_dims"))
        return lambda data: _REDUCTIONS[kind](data[0], axis=axes, keepdims=keep)
    if kind in ("StridedSlice", "Slice"):
        index = numpy_index(op, content, shapes[0])
        return None if index is None else lambda data: data[0][(slice(None), *index)]
    if kind == "ExpandDims":
        axis = int(content[1])
        return lambda data: np.expand_dims(data[0], axis + 1 if axis >= 0 else axis)
    if kind == "Reshape" and op.outputs[0].shape.is_fully_defined():
        shape = op.outputs[0].shape.as_list()
        return lambda data: data[0].reshape(len(data[0]), *shape)
    return None


def _aligned(compute_all: Callable[..., Any], shapes: Sequence[Shape], own: Sequence[bool]) -> Callable[..., Any]:
    rank = max(map(len, shapes))
    if rank == 0:
        return lambda data: compute_all(*data)
    between = [(1,) * (rank - len(shape)) if mine else None for shape, mine in zip(shapes, own, strict=True)]

    def compute_aligned(data: Sequence[Any]) -> Any:
        return compute_all(
            *(
                item if ones is None else item.reshape(len(item), *ones, *item.shape[1:])
                for item, ones in zip(data, between, strict=True)
            )
        )

    return compute_aligned
