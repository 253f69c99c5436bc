"""Linear algebra, transforms and colours: kernels that take stacks of matrices (vectors, images) as they are.

Those that raise for a matrix they can't handle are given the identity instead, and the row fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, any_per_row
from vectorizer.converters.alignment import align
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, dimension, shared

_INNER = {"FFT2D": 2, "IFFT2D": 2, "FFT3D": 3, "IFFT3D": 3, "RFFT2D": 2, "IRFFT2D": 2, "RFFT3D": 3, "IRFFT3D": 3}


def _no_ragged(inputs: Sequence[Value], inner: int) -> None:
    for value in inputs:
        if any(axis >= value.rank - inner for axis in value.sizes):
            raise NotConvertible("matrices or vectors of ragged shape")


@converts("FFT IFFT FFT2D IFFT2D FFT3D IFFT3D")
def convert_fourier(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Transforms over the innermost axes."""
    _no_ragged(inputs, _INNER.get(op.type, 1))
    (tensor,) = replay(op, [inputs[0].tensor])
    return [batched(tensor, inputs[0].sizes)]


@converts("RFFT IRFFT RFFT2D IRFFT2D RFFT3D IRFFT3D")
def convert_real_fourier(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Transforms over the innermost axes, of lengths that are the same for all."""
    value, length = inputs
    _no_ragged([value], _INNER.get(op.type, 1))
    if length.batched:
        raise NotConvertible("a transform whose length differs between examples")
    (tensor,) = replay(op, [value.tensor, length.tensor])
    return [batched(tensor, value.sizes)]


@converts("Cholesky Qr")
@converts("Svd", compilable=lambda op: not op.attrs["compute_uv"])  # XLA's vectors may have the other sign
@converts("MatrixDeterminant LogMatrixDeterminant", compilable=False)
def convert_factors(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Factors and determinants of each matrix; a Cholesky factor that doesn't exist is NaN."""
    _no_ragged(inputs, 2)
    return [batched(tensor, inputs[0].sizes) for tensor in replay(op, [inputs[0].tensor])]


@converts(
    "SelfAdjointEigV2",
    checks="an element is NaN or infinite",
    compilable=lambda op: not op.attrs["compute_v"],  # XLA's vectors may have the other sign
)
def convert_eigen(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Eigenvalues and vectors of each self-adjoint matrix."""
    _no_ragged(inputs, 2)
    safe = _checked(inputs[0], lambda matrix: tf.reduce_all(tf.math.is_finite(matrix), [-2, -1]), batch)
    return [Value(tensor, safe.batched) for tensor in replay(op, [safe.tensor])]


@converts("MatrixInverse Lu", checks="the matrix is singular, or an element NaN or infinite", compilable=False)
def convert_inverse(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The inverse, or the factors with pivots, of each square matrix."""
    _no_ragged(inputs, 2)
    safe = _checked(inputs[0], _regular, batch)
    return [Value(tensor, safe.batched) for tensor in replay(op, [safe.tensor])]


@converts("MatrixSolve", checks="the matrix is singular, or an element NaN or infinite", compilable=False)
def convert_solve(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Solutions of each system of equations."""
    return [_solved(op, _checked(inputs[0], _regular, batch), inputs[1], batch)]


@converts("MatrixTriangularSolve")
def convert_triangular_solve(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Solutions of each triangular system; of a singular one infinite."""
    return [_solved(op, inputs[0], inputs[1], batch)]


def _solved(op: Op, matrix: Value, right: Value, batch: Batch) -> Value:
    _no_ragged([matrix, right], 2)
    if not matrix.batched and not right.batched:
        return shared(replay(op, [matrix.tensor, right.tensor])[0])
    if matrix.sizes or right.sizes or matrix.rank != right.rank:
        raise NotConvertible("systems of equations in stacks that broadcast")
    (tensor,) = replay(op, [batch.rows(matrix), batch.rows(right)])
    return batched(tensor)


def _regular(matrix: Any) -> Any:
    determinant = tf.linalg.det(matrix)
    return tf.logical_and(determinant != 0, tf.math.is_finite(_magnitude(determinant)))


def _magnitude(tensor: Any) -> Any:
    return tf.abs(tensor) if tensor.dtype.is_complex else tensor


def _checked(value: Value, rule: Any, batch: Batch) -> Value:
    """Fail rows with a matrix for which `rule` (`[..., n, n]` to bool `[...]`) is false, and put the identity there."""
    good = rule(value.tensor)
    if value.sizes:
        raise NotConvertible("a ragged stack of matrices")
    batch.check(tf.logical_not(any_per_row(tf.logical_not(good), value.batched)))
    size = dimension(value.tensor, value.tensor.shape.rank - 1)
    identity = tf.eye(size, dtype=value.tensor.dtype)
    return Value(tf.where(good[..., None, None], value.tensor, identity), value.batched)


@converts("Cross")
def convert_cross(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Products of vectors of three."""
    tensors, sizes = align([Value(batch.rows(value), True, value.sizes) for value in inputs], batch)
    (tensor,) = replay(op, tensors)
    return [batched(tensor, sizes)]


@converts("RGBToHSV HSVToRGB")
def convert_colours(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Colours along the last axis."""
    (tensor,) = replay(op, [inputs[0].tensor])
    return [batched(tensor, inputs[0].sizes)]


@converts("Bucketize")
def convert_bucketize(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The bucket of each element."""
    (tensor,) = replay(op, [inputs[0].tensor])
    return [batched(tensor, inputs[0].sizes)]
