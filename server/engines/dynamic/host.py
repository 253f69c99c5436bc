"""Ops on values that are known while the graph grows: the part of a program that in DyNet is the user's own Python.

Common ones by numpy, the others by TensorFlow's own kernel, eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic.values import ExampleFailed
from vectorizer.program import Op
from vectorizer.registry import replay

Array = np.ndarray[Any, Any]

_BY_NUMPY: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Neg": np.negative,
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
    "Shape": np.shape,
    "Size": np.size,
    "Rank": np.ndim,
}
_MOVES_ONLY = frozenset(
    {"Shape", "Size", "Rank", "GatherV2", "StridedSlice", "Reshape", "ExpandDims", "Squeeze", "ShapeN"}
)


def stays_on_host(op: Op) -> bool:
    """Whether `op` on arrays is bookkeeping; arithmetic on numbers is left to nodes, which are batched."""
    return op.type in _MOVES_ONLY or not any(_is_number(var.dtype) for var in (*op.inputs, *op.outputs))


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_complex or dtype == tf.variant)


def as_host(value: Any, dtype: Any) -> Array:
    """A tensor's value as a host array; text as objects, which keep trailing zero bytes."""
    return np.asarray(value, object if dtype == tf.string else None)


def compute(op: Op, operands: Sequence[Array]) -> list[Array]:
    """The results. Raises ExampleFailed where the op would raise."""
    simple = _BY_NUMPY.get(op.type)
    if simple is not None and not any(operand.dtype.kind in "OSU" for operand in operands):
        with np.errstate(all="ignore"):
            try:
                result = np.asarray(simple(*operands), op.outputs[0].dtype.as_numpy_dtype)
            except ValueError as error:
                raise ExampleFailed(str(error)) from error
        return [result]
    if op.type == "GatherV2" and operands[1].ndim == 0 and operands[2] == 0 and not op.attrs.get("batch_dims", 0):
        index = int(operands[1])
        if not 0 <= index < len(operands[0]):
            raise ExampleFailed(f"index {index} is out of range")
        return [as_host(operands[0][index], op.outputs[0].dtype)]
    try:
        tensors = [tf.constant(operand, var.dtype) for operand, var in zip(operands, op.inputs, strict=True)]
        return [as_host(tensor.numpy(), tensor.dtype) for tensor in replay(op, tensors)]
    except (tf.errors.OpError, ValueError) as error:
        raise ExampleFailed(str(error)) from error


def compiled(op: Op, constants: Sequence[Array | None]) -> Callable[[Sequence[Array]], list[Array]]:
    """`compute` for one op, with what can be decided beforehand decided. `constants`: operands that never change."""
    simple = _BY_NUMPY.get(op.type)
    if simple is not None and not any(var.dtype == tf.string for var in op.inputs):
        dtype = op.outputs[0].dtype.as_numpy_dtype

        def quick(operands: Sequence[Array]) -> list[Array]:
            return [np.asarray(simple(*operands), dtype)]

        return quick
    if op.type == "GatherV2" and constants[2] == 0 and not op.attrs.get("batch_dims", 0) and op.inputs[1].rank == 0:
        kind = object if op.outputs[0].dtype == tf.string else None

        def row(operands: Sequence[Array]) -> list[Array]:
            array, index = operands[0], int(operands[1])
            if not 0 <= index < len(array):
                raise ExampleFailed(f"index {index} is out of range")
            return [np.asarray(array[index], kind)]

        return row
    if op.type == "StridedSlice" and all(item is not None for item in constants[1:]):
        index = _numpy_index(op, *(item.tolist() for item in constants[1:] if item is not None))
        if index is not None:
            return lambda operands: [np.asarray(operands[0][index])]
    return lambda operands: compute(op, operands)


def _numpy_index(op: Op, begins: list[int], ends: list[int], strides: list[int]) -> Any:
    """numpy's index for TensorFlow's masks; None where an index could be out of range."""
    masks = {name: int(op.attrs[f"{name}_mask"]) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    index: list[Any] = []
    for position, (begin, end, stride) in enumerate(zip(begins, ends, strides, strict=True)):
        flags = {name: mask >> position & 1 for name, mask in masks.items()}
        if flags["shrink_axis"] and not flags["ellipsis"] and not flags["new_axis"]:
            return None
        if flags["ellipsis"]:
            index.append(Ellipsis)
        elif flags["new_axis"]:
            index.append(None)
        else:
            index.append(slice(None if flags["begin"] else begin, None if flags["end"] else end, stride))
    return tuple(index)
