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


def stays_on_host(op: Op, operands: Sequence[Array]) -> bool:
    """Whether `op` on these arrays is bookkeeping; arithmetic on numbers is left to nodes, which are batched."""
    if op.type in _MOVES_ONLY:
        return True
    values = [*(operand.dtype.kind for operand in operands), *(var.dtype.as_numpy_dtype for var in op.outputs)]
    return not any(kind == "f" or (not isinstance(kind, str) and np.dtype(kind).kind in "fcV") for kind in values)


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
