"""Functions of matrices, and systems of equations of special form: the kernels take stacks of matrices as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, dimension


def _rows(inputs: Sequence[Value], batch: Batch) -> list[Any]:
    """Stacks of one number of dimensions, as `[B, ...]`."""
    if any(value.sizes for value in inputs) or len({value.rank for value in inputs}) > 1:
        raise NotConvertible("ragged matrices, or stacks of matrices that broadcast")
    return [batch.rows(value) for value in inputs]


def _check(good: Any, tensor: Any, batch: Batch) -> Any:
    """Fail rows with a matrix that isn't good (bool, one for each matrix); there, the identity takes its place."""
    batch.check(tf.reduce_all(good, list(range(1, good.shape.rank))))
    rows, columns = (dimension(tensor, tensor.shape.rank - k) for k in (2, 1))
    return tf.where(good[..., None, None], tensor, tf.eye(rows, columns, dtype=tensor.dtype))


def _finite(tensor: Any) -> Any:
    parts = [tf.math.real(tensor), tf.math.imag(tensor)] if tensor.dtype.is_complex else [tensor]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(part), [-2, -1]) for part in parts], 0)


@converts("Eig MatrixSquareRoot", checks="an element is NaN or infinite", compilable=False)
def convert_matrix_function(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Eigenvalues and vectors, or the square root, of each square matrix."""
    if not inputs[0].batched:
        return _for_all(op, inputs, batch)
    (matrix,) = _rows(inputs, batch)
    return [batched(tensor) for tensor in replay(op, [_check(_finite(matrix), matrix, batch)])]


def _for_all(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """One matrix that all rows share; it may be a bad one where no row is active."""
    good = _finite(inputs[0].tensor)
    batch.check(tf.reduce_all(good))
    eye = tf.eye(tf.shape(inputs[0].tensor)[-1], dtype=inputs[0].dtype)
    safe = tf.where(good[..., None, None], inputs[0].tensor, eye)
    return [Value(tensor, False) for tensor in replay(op, [safe])]


@converts("TridiagonalMatMul")
@converts("MatrixLogarithm CholeskyGrad TridiagonalSolve", compilable=False)
def convert_stacked_matrices(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Kernels that treat each matrix of a stack alone; a singular tridiagonal system is answered with NaN."""
    return [batched(tensor) for tensor in replay(op, _rows(inputs, batch))]


@converts("MatrixSolveLs", checks="the columns depend on each other (fast method only)", compilable=False)
def convert_least_squares(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Least-squares solutions of each system of equations."""
    matrix, right, regularizer = inputs
    if regularizer.batched:
        raise NotConvertible("a regularizer that differs between examples")
    if not matrix.batched and not right.batched:
        return [Value(tensor, False) for tensor in replay(op, [value.tensor for value in inputs])]
    left, rest = _rows(inputs[:2], batch)
    if op.attrs["fast"]:
        wide = left.shape[-2] is not None and left.shape[-1] is not None and left.shape[-2] < left.shape[-1]
        gram = tf.matmul(left, left, adjoint_a=not wide, adjoint_b=wide)
        weight = tf.cast(regularizer.tensor, gram.dtype)
        factor = tf.linalg.cholesky(gram + weight * tf.eye(tf.shape(gram)[-1], dtype=gram.dtype))
        left = _check(_finite(factor), left, batch)
    return [batched(replay(op, [left, rest, regularizer.tensor])[0])]


@converts("BandedTriangularSolve", checks="the matrix is singular", compilable=False)
def convert_banded_solve(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Solutions of each banded triangular system."""
    if not any(value.batched for value in inputs):
        return [Value(tensor, False) for tensor in replay(op, [value.tensor for value in inputs])]
    bands, right = _rows(inputs, batch)
    diagonal = bands[..., 0 if op.attrs["lower"] else -1, :]
    good = tf.reduce_all(diagonal != tf.zeros([], diagonal.dtype), -1)
    batch.check(tf.reduce_all(good, list(range(1, good.shape.rank))))
    safe = tf.where(good[..., None, None], bands, tf.ones([], bands.dtype))
    return [batched(replay(op, [safe, right])[0])]
