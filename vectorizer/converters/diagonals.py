"""Diagonals: of matrices in a stack, and of tensors (`tf.linalg.tensor_diag`)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, dimension

_SETTERS = ("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")


@converts("MatrixDiag MatrixDiagV3 MatrixDiagPart MatrixDiagPartV3 MatrixSetDiag MatrixSetDiagV3")
@converts("MatrixDiagV2 MatrixDiagPartV2 MatrixSetDiagV2")
def convert_diagonal(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Kernels that take stacks of matrices as they are."""
    stacks = 2 if op.type in _SETTERS else 1
    if any(value.sizes for value in inputs) or any(value.batched for value in inputs[stacks:]):
        raise NotConvertible("diagonals of ragged or per-example extent")
    operands = [batch.rows(value) for value in inputs[:stacks]]
    (tensor,) = replay(op, [*operands, *(value.tensor for value in inputs[stacks:])])
    return [batched(tensor)]


@converts("Diag")
def convert_tensor_diagonal(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A tensor of twice the rank with the operand on its diagonal."""
    (value,) = inputs
    if value.sizes:
        raise NotConvertible("a diagonal of ragged extent")
    tensor = value.tensor
    dims = [dimension(tensor, axis) for axis in range(tensor.shape.rank)]
    matrices = tf.linalg.diag(tf.reshape(tensor, [dims[0], tf.reduce_prod(dims[1:])]))
    result = tf.reshape(matrices, [*dims, *dims[1:]])
    result.set_shape([tensor.shape[0], *tensor.shape[1:], *tensor.shape[1:]])
    return [batched(result)]


@converts("DiagPart")
def convert_tensor_diagonal_part(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The diagonal of a tensor whose first half of dimensions equals the second."""
    (value,) = inputs
    if value.sizes:
        raise NotConvertible("a diagonal of ragged extent")
    tensor = value.tensor
    dims = [dimension(tensor, axis) for axis in range(1 + value.rank // 2)]
    count = tf.reduce_prod(dims[1:])
    result = tf.reshape(tf.linalg.diag_part(tf.reshape(tensor, [dims[0], count, count])), dims)
    result.set_shape(tensor.shape[: 1 + value.rank // 2])
    return [batched(result)]
