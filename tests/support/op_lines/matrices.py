"""Products, and linear algebra."""

import numpy as np
import tensorflow as tf

from tests.support.op_lines.line import Line, below_one, f, raw, usual


def products():
    for a, b_ in ((False, False), (True, False), (False, True), (True, True)):
        left, right = ([3, 2] if a else [2, 3]), ([4, 3] if b_ else [3, 4])
        for dtype in (tf.float32, tf.float64, tf.int32):
            specs = (f(*left, dtype=dtype), f(*right, dtype=dtype))
            yield Line(
                "MatMul",
                lambda x, y, a=a, b=b_: tf.raw_ops.MatMul(a=x, b=y, transpose_a=a, transpose_b=b),
                specs,
            )
        for lead_left, lead_right in (
            ([2], [2]),
            ([2], []),
            ([], [2]),
            ([2, 1], [3]),
            ([1], [2]),
            ([2, 3], [1, 1]),
        ):
            yield Line(
                "BatchMatMulV2 BatchMatMulV3",
                lambda x, y, a=a, b=b_: (
                    tf.raw_ops.BatchMatMulV2(x=x, y=y, adj_x=a, adj_y=b),
                    tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_x=a, adj_y=b),
                ),
                (f(*lead_left, *left), f(*lead_right, *right)),
                rtol=1e-4,
            )
        yield Line(
            "BatchMatMul",
            lambda x, y, a=a, b=b_: tf.raw_ops.BatchMatMul(x=x, y=y, adj_x=a, adj_y=b),
            (f(2, *left), f(2, *right)),
        )
    yield Line("MatMul", lambda x, y: x @ y, (f(None, 3), f(3, 4)))
    yield Line("MatMul", lambda x, y: x @ y, (f(2, None), f(None, 4)))
    yield Line("MatMul", lambda x, y: tf.matmul(x, y, transpose_a=True), (f(None, 2), f(None, 4)))
    yield Line("BatchMatMulV2", lambda x, y: tf.matmul(x, y), (f(2, None, 3), f(2, 3, 4)))
    yield Line("BatchMatMulV2", lambda x, y: tf.matmul(x, y), (f(None, 2, 3), f(3, 4)))
    yield Line("BatchMatMulV2", lambda x, y: tf.matmul(x, y), (f(None, 2, 3), f(None, 3, 4)))
    equations = {
        "ij,jk->ik": ((2, 3), (3, 4)),
        "ij,kj->ki": ((2, 3), (4, 3)),
        "bij,bjk->bik": ((2, 2, 3), (2, 3, 4)),
        "i,j->ij": ((2,), (3,)),
        "ij,ij->": ((2, 3), (2, 3)),
        "ij,j->i": ((2, 3), (3,)),
        "...ij,...jk->...ik": ((2, 2, 3), (2, 3, 4)),
        "...i,ij->...j": ((2, 4, 3), (3, 2)),
        "...i,...i->...": ((1, 4, 3), (2, 1, 3)),
        "ij,jk": ((2, 3), (3, 4)),
        "bqhd,bkhd->bhqk": ((1, 3, 2, 4), (1, 5, 2, 4)),
    }
    yield Line("Einsum", lambda x: tf.einsum("...i->...", x), (f(1, 3),))
    for equation, (left, right) in equations.items():
        yield Line(
            "Einsum",
            lambda x, y, e=equation: tf.einsum(e, x, y),
            (f(*left), f(*right)),
            rtol=1e-4,
            name=f"einsum_{equation}",
        )
    yield Line("Einsum", lambda x: tf.einsum("ii->i", x), (f(3, 3),))
    yield Line("Einsum", lambda x: tf.einsum("ij->j", x), (f(None, 3),))
    yield Line("Einsum", lambda x, y: tf.einsum("nd,nd->d", x, y), (f(None, 3), f(None, 3)))
    yield Line("Einsum", lambda x, y: tf.einsum("nd,de->en", x, y), (f(None, 3), f(3, 2)))


def spread(generator, spec, shape):
    """Matrices far from singular."""
    values = usual(generator, spec, shape)
    return values + 5 * np.eye(shape[-1], dtype=values.dtype) if len(shape) > 1 and shape[-1] == shape[-2] else values


def gram(x):
    return tf.matmul(x, x, transpose_b=True)


def linear_algebra():
    for dtype in (tf.float32, tf.float64):
        stack = f(2, 3, 3, dtype=dtype)
        yield Line("Cholesky", lambda x: tf.linalg.cholesky(gram(x)), (stack,), spread, rtol=1e-3)
        yield Line("MatrixInverse", tf.linalg.inv, (stack,), spread, rtol=1e-3)
        yield Line("Lu", lambda x: tf.linalg.lu(x), (stack,), spread, rtol=1e-3)
        yield Line("MatrixSolve", tf.linalg.solve, (stack, f(2, 3, 2, dtype=dtype)), spread, rtol=1e-3)
        triangle = lambda x, y: tf.linalg.triangular_solve(x, y, lower=True)
        yield Line("MatrixTriangularSolve", triangle, (stack, f(2, 3, 2, dtype=dtype)), spread, rtol=1e-3)
        yield Line(
            "MatrixDeterminant LogMatrixDeterminant",
            lambda x: (tf.linalg.det(x), tf.linalg.slogdet(x)),
            (stack,),
            spread,
            rtol=1e-3,
        )
        yield Line("SelfAdjointEigV2", lambda x: tf.linalg.eigvalsh(gram(x)), (stack,), spread, rtol=1e-3)
        yield Line("Svd", lambda x: tf.linalg.svd(x, compute_uv=False), (stack,), rtol=1e-3)
        yield Line("Qr", tf.linalg.qr, (stack,), spread, rtol=1e-3)
    spectrum = f(4, 4, 4, dtype=tf.complex64)
    for name in "FFT IFFT FFT2D IFFT2D FFT3D IFFT3D".split():
        yield Line(name, lambda x, n=name: raw(n, x), (spectrum,), rtol=1e-3)
    yield Line("RFFT", lambda x: tf.math.real(tf.signal.rfft(x)), (f(2, 8),), rtol=1e-3)
    yield Line("IRFFT", lambda x: tf.signal.irfft(x), (f(2, 5, dtype=tf.complex64),), rtol=1e-3)
    yield Line("Cross", tf.linalg.cross, (f(2, 3), f(2, 3)))
    yield Line("Cross", tf.linalg.cross, (f(None, 3), f(None, 3)))
    colours = f(None, 4, 3)
    yield Line(
        "RGBToHSV HSVToRGB",
        lambda x: (tf.image.rgb_to_hsv(x), tf.image.hsv_to_rgb(x)),
        (colours,),
        below_one,
        rtol=1e-4,
    )
    changes = "AdjustHue AdjustSaturation AdjustContrastv2"
    yield Line(changes, lambda x: [raw(name, x, 0.3) for name in changes.split()], (f(4, 4, 3),), below_one, rtol=1e-3)
    yield Line("Bucketize", lambda x: raw("Bucketize", x, boundaries=[-1.0, 0.0, 2.0]), (f(None),))


def dominant(generator, spec, shape):
    """Matrices, or three diagonals, far from singular."""
    values = usual(generator, spec, shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        return values + 6 * np.eye(shape[-1], dtype=values.dtype)
    return values + 9 * np.array([[0], [1], [0]], values.dtype) if len(shape) > 1 and shape[-2] == 3 else values


def matrices():
    square, tall, right = f(2, 3, 3), f(2, 4, 3), f(2, 4, 2)
    eigen = lambda x: tf.math.abs(tf.sort(tf.math.abs(tf.linalg.eigvals(x))))
    yield Line("Eig", eigen, (square,), dominant, rtol=1e-3)
    root = lambda x: tf.linalg.sqrtm(tf.matmul(x, x, transpose_b=True))
    yield Line("MatrixSquareRoot", root, (square,), dominant, rtol=1e-3)
    logarithm = lambda x: tf.math.abs(tf.linalg.logm(tf.cast(x, tf.complex64)))
    yield Line("MatrixLogarithm", logarithm, (square,), dominant, rtol=1e-2)
    factor = lambda x, y: raw("CholeskyGrad", tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True)), y)
    yield Line("CholeskyGrad", factor, (square, square), dominant, rtol=1e-2)
    for fast in (True, False):
        least = lambda x, y, fast=fast: raw("MatrixSolveLs", x, y, 0.01, fast=fast)
        yield Line("MatrixSolveLs", least, (tall, right), rtol=1e-2)
    banded = lambda x, y: (
        raw("BandedTriangularSolve", tf.abs(x) + 1, y),
        raw("BandedTriangularSolve", tf.abs(x) + 1, y, lower=False, adjoint=True),
    )
    yield Line("BandedTriangularSolve", banded, (f(2, 2, 4), right), rtol=1e-2)
    three = lambda x, y: raw("TridiagonalSolve", x, y)
    yield Line("TridiagonalSolve", three, (f(2, 3, 4), right), dominant, rtol=1e-3)
    singular = lambda x, y: raw("TridiagonalSolve", x * [[1.0], [0.0], [0.0]], y)
    yield Line("TridiagonalSolve", singular, (f(3, 2), f(2, 1)), name="singular")
    times = lambda x, y: raw("TridiagonalMatMul", x[:, :1], x[:, 1:2], x[:, 2:], y)
    yield Line("TridiagonalMatMul", times, (f(2, 3, 4), right), rtol=1e-3)
    volume = f(2, 4, 6, 5)
    for name, lengths in (("RFFT2D", [6, 5]), ("RFFT3D", [4, 6, 5]), ("RFFT2D", [4, 4])):
        forth = lambda x, n=name, k=lengths: (tf.math.real(raw(n, x, k)), raw(f"I{n}", raw(n, x, k) * 2, k))
        yield Line(f"{name} I{name}", forth, (volume,), rtol=1e-3)


def diagonals():
    vector, square = f(2, 3), f(2, 3, 3)
    yield Line("MatrixDiagV2", lambda x: raw("MatrixDiagV2", x, 1, -1, -1, 0.5), (vector,))
    yield Line("MatrixDiagPartV2", lambda x: raw("MatrixDiagPartV2", x, [-1, 1], 7.0), (square,))
    setting = lambda x, y: (raw("MatrixSetDiag", x, y), raw("MatrixSetDiagV2", x, y, 0))
    yield Line("MatrixSetDiag MatrixSetDiagV2", setting, (square, vector))
    for spec in (vector, f(4)):
        yield Line("Diag DiagPart", lambda x: (raw("Diag", x), raw("DiagPart", raw("Diag", x) * 2)), (spec,))
