"""The table of programs that make each registered op: one line per op, or per group of ops that share a function.

`tests/vectorizer/test_ops.py` grows cases from the lines and runs them. Families follow the converters' modules.
"""

import numpy as np
import tensorflow as tf

from tests.support.further_op_lines import further
from tests.support.op_line import (
    Line,
    above_one,
    b,
    below_one,
    each,
    extreme_integers,
    f,
    i,
    numerals,
    positive,
    raw,
    s,
    signed_integers,
    small_shift,
    ties,
    usual,
    with_specials,
    within_one,
)
from tests.support.random_op_lines import random_lines

# -- counting ------------------------------------------------------------------------------------------------


def counts_of_rows(binary, weighted):
    """Two rows, of which the first has a third of the values."""

    def count(values, weights):
        n = tf.cast(tf.shape(values)[0], tf.int64)
        splits = tf.stack([tf.zeros([], tf.int64), n // 3, n])
        none = tf.zeros([0], weights.dtype)
        return raw("RaggedBincount", splits, values, 3, weights if weighted else none, binary_output=binary)

    return count


def counting():
    for binary, weighted in ((False, False), (True, False), (False, True)):
        fn = counts_of_rows(binary, weighted)
        yield Line("RaggedBincount", fn, (i(None), f(None)), signed_or_small, shared=False)
        yield Line("RaggedBincount", fn, (i(5), f(5)))

    def each_in_a_row_of_its_own(values):
        splits = tf.range(tf.cast(tf.shape(values)[0], tf.int64) + 1)
        return raw("RaggedBincount", splits, values, 3, tf.zeros([0]), binary_output=False)

    yield Line("RaggedBincount", each_in_a_row_of_its_own, (i(None),))


def signed_or_small(generator, spec, shape):
    """A negative value fails its row."""
    if spec.dtype.is_integer:
        return generator.integers(-1 if generator.random() < 0.3 else 0, 5, shape).astype(spec.dtype.as_numpy_dtype)
    return usual(generator, spec, shape)


# -- elementwise groups --------------------------------------------------------------------------------------

REAL = """Abs Asinh Atan Ceil Cos Cosh Digamma Elu Erf Erfc Exp Expm1 Floor IsFinite IsInf IsNan LeakyRelu
    Lgamma Neg OnesLike Relu Relu6 Rint Round Selu Sigmoid Sign Sin Sinh Snapshot Softplus Softsign Square
    StopGradient Tan Tanh ZerosLike Inv Reciprocal PreventGradient BesselI0e BesselI1e"""
SPECIAL = """Abs Ceil Floor IsFinite IsInf IsNan Neg Relu Sigmoid Sign Square Tanh Exp ZerosLike OnesLike
    Softsign Atan"""
POSITIVE = "Log Log1p Sqrt Rsqrt"
HOST_ONLY = "BesselI0 BesselI1 Dawsn Expint FresnelCos FresnelSin Spence"
HOST_BESSEL = "BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1"
BINARY_REAL = """Add AddV2 Atan2 Div DivNoNan Equal Greater GreaterEqual Less LessEqual Maximum Minimum
    MulNoNan Mul NotEqual RealDiv SquaredDifference Sub FloorDiv FloorMod"""
BINARY_SPECIAL = "AddV2 Equal Greater Less NotEqual Mul Sub DivNoNan RealDiv Xlogy Xdivy Xlog1py"
GRADIENTS = """EluGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad SeluGrad SigmoidGrad SoftplusGrad
    SoftsignGrad TanhGrad ApproximateEqual"""
ROOT_GRADIENTS = "RsqrtGrad SqrtGrad"
INTEGER = "AddV2 Sub Mul Maximum Minimum Equal Less"
DIVISIONS = "FloorDiv FloorMod TruncateDiv Div"
BITS = "BitwiseAnd BitwiseOr BitwiseXor"
BROADCASTS = [
    ([], []),
    ([3], []),
    ([], [3]),
    ([2, 3], [3]),
    ([3], [2, 3]),
    ([2, 1], [3]),
    ([2, 3], [2, 1]),
    ([1, 3], [2, 3]),
    ([None], [None]),
    ([None, 3], [3]),
    ([None], []),
    ([None, 3], [None, 1]),
    ([3, None], [None]),
]
SHAPES = [[], [3], [2, 3], [None], [None, 3]]


def elementwise():
    for shape in SHAPES:
        for dtype in (tf.float32, tf.float64) if shape in ([3], [None, 3]) else (tf.float32,):
            x = (f(*shape, dtype=dtype),)
            yield Line(REAL, each(REAL), x, rtol=1e-4)
            yield Line(SPECIAL, each(SPECIAL), x, with_specials)
            yield Line(POSITIVE, each(POSITIVE), x, positive)
            yield Line("Acos Asin Atanh Erfinv", each("Acos Asin Atanh Erfinv"), x, within_one, rtol=1e-4)
            yield Line("Acosh", each("Acosh"), x, above_one)
            yield Line("Ndtri", each("Ndtri"), x, below_one, rtol=1e-3)
            yield Line(HOST_ONLY, each(HOST_ONLY), x, rtol=1e-4)
            yield Line(HOST_BESSEL, each(HOST_BESSEL), x, positive, rtol=1e-4)
            yield Line("Cast", lambda x: (tf.cast(x, tf.int32), tf.cast(x, tf.float64), tf.cast(x, tf.bool)), x)
            yield Line("Identity IdentityN", lambda x: tf.raw_ops.IdentityN(input=[x, x + 1]), x)
            yield Line("Complex Real Imag ComplexAbs Conj Angle", complex_numbers, x, rtol=1e-4)
            yield Line("AsString", lambda x: tf.strings.as_string(x, precision=3), x)
        yield Line("LogicalNot", tf.logical_not, (b(*shape),))
        yield Line("Invert PopulationCount", each("Invert PopulationCount"), (i(*shape),), extreme_integers)
        yield Line("Abs Neg Sign Square", each("Abs Neg Sign Square"), (i(*shape),), signed_integers)
        yield Line(
            "ClipByValue",
            lambda x: tf.raw_ops.ClipByValue(t=x, clip_value_min=-1.0, clip_value_max=0.5),
            (f(*shape),),
        )
        yield Line("ClipByValue", lambda x, low: tf.clip_by_value(x, low, low + 1), (f(*shape), f()))
    yield Line("Select", lambda k, x, y: raw("Select", k, x, y), (b(), f(2, 3), f(2, 3)))
    yield Line("Select", lambda k, x, y: raw("Select", k, x, y), (b(2), f(2, 3), f(2, 3)))
    yield Line("Select", lambda k, x, y: raw("Select", k, x, y), (b(None), f(None, 3), f(None, 3)))
    yield Line("SelectV2", lambda k, x, y: tf.where(k, x, y), (b(3), f(2, 1), f()))
    yield Line("SelectV2", lambda k, x: tf.where(k, x, np.nan), (b(None), f()))
    for left, right in BROADCASTS:
        for dtype in (tf.float32, tf.float64) if left in ([2, 3], [None]) else (tf.float32,):
            xy = (f(*left, dtype=dtype), f(*right, dtype=dtype))
            yield Line(BINARY_REAL, each(BINARY_REAL), xy, rtol=1e-4)
            yield Line(BINARY_SPECIAL, each(BINARY_SPECIAL), xy, with_specials)
            yield Line("Xdivy Xlogy Xlog1py Pow", each("Xdivy Xlogy Xlog1py Pow"), xy, positive, rtol=1e-4)
            yield Line("NextAfter", each("NextAfter"), xy)
            yield Line("Igamma Igammac IgammaGradA", each("Igamma Igammac IgammaGradA"), xy, positive, rtol=1e-3)
            yield Line("Zeta", each("Zeta"), xy, above_one, rtol=1e-3)
            yield Line("Polygamma", lambda n, x: tf.math.polygamma(tf.round(n), x), xy, above_one, rtol=1e-3)
            if left == right:
                yield Line("Betainc", lambda x, y: tf.math.betainc(x + 1, y + 1, x), xy, below_one, rtol=1e-3)
            yield Line("SelectV2", lambda x, y: tf.where(x > 0, x, y), xy)
        if left == right:
            yield Line(GRADIENTS, each(GRADIENTS), (f(*left), f(*right)), rtol=1e-4)
            yield Line(ROOT_GRADIENTS, each(ROOT_GRADIENTS), (f(*left), f(*right)), positive, rtol=1e-4)
            yield Line("InvGrad", each("InvGrad"), (f(*left), f(*right)), positive)
            yield Line("Select", lambda x, y: raw("Select", x > 0, x, y), (f(*left), f(*right)))
            yield Line("AddN", lambda x, y: tf.add_n([x, y, x]), (f(*left), f(*right)))
        for dtype in (tf.int32, tf.int64, tf.int8) if left in ([2, 3], [None]) else (tf.int32,):
            xy = (i(*left, dtype=dtype), i(*right, dtype=dtype))
            yield Line(INTEGER, each(INTEGER), xy, extreme_integers)
            yield Line(BITS, each(BITS), xy, extreme_integers)
            yield Line(DIVISIONS, each(DIVISIONS), xy, signed_integers)
            yield Line("LeftShift RightShift", each("LeftShift RightShift"), xy, small_shift)
        yield Line("Mod TruncateMod", each("Mod TruncateMod"), (i(*left), i(*right)), signed_integers)
        yield Line("Pow", each("Pow"), (i(*left), i(*right)))
        yield Line("LogicalAnd LogicalOr", each("LogicalAnd LogicalOr"), (b(*left), b(*right)))


def complex_numbers(x):
    z = tf.complex(x, x * 2)
    conjugate = tf.math.conj(z * z)
    return tf.math.real(conjugate), tf.math.imag(conjugate), tf.abs(conjugate), tf.math.angle(conjugate)


# -- everything else -----------------------------------------------------------------------------------------

IMAGE, SEQUENCE = f(2, 6, 5, 3), f(1, None, 3)
KERNEL = tf.constant(np.random.default_rng(5).normal(size=[3, 2, 3, 4]).astype("f"))
TABLE = tf.Variable(np.random.default_rng(6).normal(size=[4, 3]).astype("f"))
CODES = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "ab12"], [1, 2]), -1)
REDUCTIONS = "Sum Prod Max Min Mean EuclideanNorm"


def reduced(names, axes, keep_dims):
    def apply(x):
        return {name: raw(name, x, tf.constant(axes, tf.int32), keep_dims=keep_dims) for name in names.split()}

    return apply


def reductions():
    every_axis = [([3], [[0], [-1], []]), ([2, 3], [[0], [1], [-1], [0, 1], [-1, -2]]), ([None], [[0]])]
    every_axis += [([None, 3], [[0], [1], [-1, 0]]), ([2, None, 3], [[1], [0, 1], [2], [-2]])]
    for shape, all_axes in every_axis:
        for axes in all_axes:
            for keep_dims in (False, True):
                yield Line(REDUCTIONS, reduced(REDUCTIONS, axes, keep_dims), (f(*shape),), rtol=1e-4)
                yield Line(
                    "Sum Max Min Prod",
                    reduced("Sum Max Min Prod", axes, keep_dims),
                    (i(*shape),),
                    extreme_integers,
                )
                yield Line("All Any", reduced("All Any", axes, keep_dims), (b(*shape),))
                yield Line(
                    "Max Min Sum Mean",
                    reduced("Max Min Sum Mean", axes, keep_dims),
                    (f(*shape),),
                    with_specials,
                )
    for shape in ([3], [2, 3], [None], [None, 3], [3, None]):
        for axis in range(-len(shape), len(shape)):
            for draw in (usual, ties):
                yield Line(
                    "ArgMax ArgMin",
                    lambda x, axis=axis: (tf.argmax(x, axis), tf.argmin(x, axis, output_type=tf.int32)),
                    (f(*shape),),
                    draw,
                    least=1,
                )
            yield Line(
                "ArgMax ArgMin",
                lambda x, axis=axis: (tf.argmax(x, axis), tf.argmin(x, axis)),
                (f(*shape),),
                with_specials,
                least=1,
            )
            yield Line(
                "ArgMax ArgMin",
                lambda x, axis=axis: (tf.argmax(x, axis), tf.argmin(x, axis)),
                (i(*shape),),
                extreme_integers,
                least=1,
            )
            for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True)):
                yield Line(
                    "Cumsum Cumprod CumulativeLogsumexp",
                    lambda x, axis=axis, e=exclusive, r=reverse: (
                        tf.cumsum(x, axis, e, r),
                        tf.math.cumprod(x, axis, e, r),
                        tf.math.cumulative_logsumexp(x, axis, e, r),
                    ),
                    (f(*shape),),
                    rtol=1e-4,
                )
        yield Line("Softmax LogSoftmax", lambda x: (tf.nn.softmax(x), tf.nn.log_softmax(x)), (f(*shape),))
        yield Line("L2Loss", tf.nn.l2_loss, (f(*shape),))
        yield Line("Size Rank Shape", lambda x: (tf.size(x), tf.rank(x), tf.shape(x)), (f(*shape),))
    masked = lambda x: tf.nn.softmax(tf.where(x > 0, x, -np.inf))
    yield Line("Softmax", masked, (f(None),), positive, name="softmax_of_infinities")
    yield Line("Softmax", masked, (f(None, 4),), name="softmax_of_rows_of_infinities")
    yield Line(
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda x, k: tf.nn.sparse_softmax_cross_entropy_with_logits(k, x),
        (f(4, 3), i(4)),
    )
    yield Line(
        "SoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x),
        (f(4, 3), f(4, 3)),
    )


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


def images():
    for padding in ("SAME", "VALID"):
        for stride in (1, 2):
            yield Line("Conv2D", lambda x, p=padding, s=stride: tf.nn.conv2d(x, KERNEL, s, p), (IMAGE,), rtol=1e-4)
            yield Line(
                "DepthwiseConv2dNative",
                lambda x, p=padding, s=stride: tf.nn.depthwise_conv2d(x, KERNEL, [1, s, s, 1], p),
                (IMAGE,),
                rtol=1e-4,
            )
            yield Line(
                "MaxPool AvgPool",
                lambda x, p=padding, s=stride: (tf.nn.max_pool2d(x, 2, s, p), tf.nn.avg_pool2d(x, 3, s, p)),
                (IMAGE,),
            )
            yield Line(
                "MaxPool3D AvgPool3D",
                lambda x, p=padding, s=stride: (tf.nn.max_pool3d(x, 2, s, p), tf.nn.avg_pool3d(x, 2, s, p)),
                (f(1, 4, 3, 4, 2),),
            )
            yield Line(
                "Conv2D MaxPool AvgPool",
                lambda x, p=padding, s=stride: (
                    tf.nn.conv1d(x, KERNEL[:, 0], s, p),
                    tf.nn.max_pool1d(x, 3, s, p),
                    tf.nn.avg_pool1d(x, 3, s, p),
                ),
                (SEQUENCE,),
                rtol=1e-4,
                name="windows_over_time",
            )
        yield Line(
            "Conv2D",
            lambda x, p=padding: tf.nn.conv2d(x, KERNEL, 1, p, dilations=2),
            (f(1, 6, 6, 3),),
            rtol=1e-4,
        )
        yield Line(
            "Conv3D",
            lambda x, p=padding: tf.nn.conv3d(x, tf.ones([2, 2, 2, 2, 3]), [1] * 5, p),
            (f(1, 4, 3, 4, 2),),
        )
        yield Line(
            "Conv2DBackpropInput",
            lambda x, p=padding: tf.nn.conv2d_transpose(x, tf.ones([2, 2, 4, 3]), [2, 12, 10, 4], 2, p),
            (IMAGE,),
        )
    yield Line("Conv2D", lambda x: tf.nn.conv2d(x, KERNEL, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), (IMAGE,), rtol=1e-4)
    channels = [np.random.default_rng(k).uniform(0.5, 2, 3).astype("f") for k in range(4)]
    for name in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        yield Line(name, lambda x, name=name: raw(name, x, *channels, is_training=False)[0], (IMAGE,), rtol=1e-4)
    yield Line("BiasAdd", lambda x, y: tf.nn.bias_add(x, y), (IMAGE, f(3)))
    yield Line("BiasAdd", lambda x, y: tf.nn.bias_add(x, y, data_format="NCHW"), (f(2, 3, 4), f(3)))
    yield Line("BiasAdd", lambda x, y: tf.nn.bias_add(x, y), (f(None, 3), f(3)))
    resize = "ResizeBilinear ResizeNearestNeighbor"
    yield Line(resize, lambda x: [raw(name, x, [4, 7], half_pixel_centers=True) for name in resize.split()], (IMAGE,))
    yield Line(
        "ResizeBicubic ResizeArea",
        lambda x: (raw("ResizeBicubic", x, [4, 7]), raw("ResizeArea", x, [4, 7])),
        (IMAGE,),
        rtol=1e-4,
    )
    yield Line(
        "SpaceToDepth DepthToSpace",
        lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x, 2), 2),
        (f(2, 4, 6, 3),),
    )
    yield Line("LRN", lambda x: tf.nn.lrn(x, 1), (IMAGE,))
    yield Line("SpaceToBatchND", lambda x: tf.space_to_batch(x, [2, 3], [[0, 0], [1, 0]]), (IMAGE,))
    yield Line(
        "BatchToSpaceND",
        lambda x: tf.raw_ops.BatchToSpaceND(input=x, block_shape=[2, 2], crops=[[0, 1], [1, 0]]),
        (f(8, 3, 2, 2),),
    )
    yield Line(
        "SpaceToBatchND BatchToSpaceND",
        lambda x: tf.nn.convolution(x, KERNEL[:, 0], padding="SAME", dilations=[2]),
        (SEQUENCE,),
        rtol=1e-4,
    )


def shapes():
    for shape in ([3], [2, 3], [None], [None, 3], [2, None]):
        x = (f(*shape),)
        for axis in range(-len(shape) - 1, len(shape) + 1):
            yield Line("ExpandDims Squeeze", lambda x, a=axis: tf.squeeze(tf.expand_dims(x, a) * 2, a), x)
            yield Line("Pack", lambda x, y, a=axis: tf.stack([x, y, x], a), x * 2)
        for axis in range(-len(shape), len(shape)):
            yield Line("ConcatV2", lambda x, y, a=axis: tf.concat([x, y, x], a), x * 2)
            yield Line("ReverseV2", lambda x, a=axis: tf.reverse(x, [a]), x)
            yield Line(
                "Unpack",
                lambda x, a=axis: tf.unstack(x, 3, a),
                (f(*[3 if k == axis % len(shape) else n for k, n in enumerate(shape)]),),
            )
            yield Line("Split", lambda x, a=axis: tf.split(x, 1, a), x)
            fitting = tuple(4 if k == axis % len(shape) else n for k, n in enumerate(shape))
            yield Line("Split", lambda x, a=axis: tf.split(x, 2, a), (f(*fitting),))
            yield Line(
                "SplitV",
                lambda x, a=axis: tf.split(x, [1, -1, 2], a),
                (f(*[shape[k] if n == 4 and shape[k] is None else n for k, n in enumerate(fitting)]),),
                least=3,
            )
        pads = [[k, 2 - k] for k in range(len(shape))]
        yield Line("Pad PadV2", lambda x, p=pads: (tf.pad(x, p), tf.pad(x, p, constant_values=7.0)), x)
        yield Line(
            "MirrorPad",
            lambda x: tf.pad(x, [[1, 1]] + [[0, 0]] * (x.shape.rank - 1), "REFLECT"),
            (f(*shape),),
            least=2,
        )
        yield Line(
            "MirrorPad",
            lambda x: tf.pad(x, [[2, 1]] + [[0, 0]] * (x.shape.rank - 1), "SYMMETRIC"),
            (f(*shape),),
            least=2,
        )
        yield Line("Tile", lambda x: tf.tile(x, [2] * x.shape.rank), x)
        yield Line("Tile", lambda x, k: tf.tile(x, tf.stack([k] * x.shape.rank)), (*x, i()), fixed=False)
        yield Line(
            "Reshape",
            lambda x: (
                tf.reshape(x, [-1]),
                tf.reshape(x, [1, -1]),
                tf.reshape(x, tf.reverse(tf.shape(x), [0])),
            ),
            x,
        )
        yield Line("ShapeN", lambda x, y: tf.shape_n([x, y]), x * 2)
        yield Line("Fill", lambda x, y: tf.fill(tf.shape(x), y), (*x, f()))
        yield Line("BroadcastTo", lambda x, y: tf.broadcast_to(y, tf.shape(x)), (*x, f()))
        yield Line("BroadcastTo", lambda x: tf.broadcast_to(x, tf.concat([[2], tf.shape(x)], 0)), x)
        yield Line(
            "BroadcastArgs",
            lambda x: tf.broadcast_dynamic_shape(tf.shape(x), tf.constant([2, *[1] * x.shape.rank])),
            x,
        )
    yield Line("Transpose", lambda x: (tf.transpose(x), tf.transpose(x, [1, 0, 2])), (f(2, None, 3),))
    yield Line(
        "ConjugateTranspose",
        lambda x: tf.transpose(x, [1, 0], conjugate=True),
        (f(2, 3, dtype=tf.complex64),),
    )
    yield Line("Range", lambda k: tf.range(k), (i(),))
    yield Line("Range", lambda k: tf.range(1, k + 4, 2), (i(),))
    yield Line("Range", lambda x: tf.range(0.0, tf.abs(x), 0.7), (f(),))
    yield Line("Squeeze", lambda x: tf.squeeze(x), (f(2, 1, 3, 1),))
    yield Line("Reshape", lambda x: tf.reshape(x, [3, -1, 2]), (f(None, 6),))
    yield Line("Reshape", lambda x: tf.reshape(x, [-1, 2, 3]), (f(2, None, 3),))
    yield Line(
        "MatrixBandPart",
        lambda x: (tf.linalg.band_part(x, 1, 0), tf.linalg.band_part(x, -1, 1)),
        (f(2, 3, 4),),
    )
    yield Line("MatrixBandPart", lambda x, k: tf.linalg.band_part(x, k, 1), (f(3, 4), i()))
    yield Line("MatrixBandPart", lambda x: tf.linalg.band_part(x, 0, -1), (f(None, None),))
    yield Line("MatrixDiag", lambda x: raw("MatrixDiag", x), (f(2, 3),))
    yield Line("MatrixDiagPart", lambda x: raw("MatrixDiagPart", x), (f(2, 3, 3),))
    yield Line(
        "MatrixDiagV3 MatrixDiagPartV3",
        lambda x: (tf.linalg.diag(x), tf.linalg.diag_part(tf.linalg.diag(x))),
        (f(2, 3),),
    )
    yield Line("MatrixSetDiagV3", lambda x, y: tf.linalg.set_diag(x, y), (f(2, 3, 3), f(2, 3)))


def in_order(keys):
    """Distinct coordinates from any integers."""
    return tf.argsort(tf.cast(keys, tf.float32), stable=True)[:, None]


def indexing():
    for dtype in (tf.int32, tf.int64):
        for axis in (0, 1, -1):
            for indices in ((), (4,), (2, 2), (None,)):
                yield Line(
                    "GatherV2",
                    lambda x, k, a=axis: tf.gather(x, k, axis=a),
                    (f(3, 4, 5), i(*indices, dtype=dtype)),
                )
                yield Line(
                    "GatherV2",
                    lambda x, k, a=axis: tf.gather(x, k, axis=a),
                    (f(None, 4, 5), i(*indices, dtype=dtype)),
                    least=3,
                )
        yield Line("GatherV2", lambda x, k: tf.gather(x, k, batch_dims=1), (f(2, 4, 3), i(2, 3, dtype=dtype)))
        yield Line("GatherV2", lambda x, k: tf.gather(x, k, axis=2, batch_dims=1), (f(2, 4, 3), i(2, 3, dtype=dtype)))
        yield Line("GatherV2", lambda x, k: tf.gather(x, k, batch_dims=1), (f(None, 4), i(None, dtype=dtype)))
        yield Line("Gather", lambda x, k: raw("Gather", x, k), (f(3, 4), i(2, dtype=dtype)))
        yield Line("GatherNd", lambda x, k: tf.gather_nd(x, k), (f(3, 4, 5), i(4, 2, dtype=dtype)))
        yield Line("GatherNd", lambda x, k: tf.gather_nd(x, k), (f(3, None), i(4, 1, dtype=dtype)), least=3)
        yield Line("GatherNd", lambda x, k: tf.gather_nd(x, k), (f(3, 3), i(None, 2, dtype=dtype)))
        yield Line("ResourceGather", lambda k: tf.nn.embedding_lookup(TABLE, k), (i(4, dtype=dtype),))
        yield Line("OneHot", lambda k: (tf.one_hot(k - 1, 3), tf.one_hot(k, 2, 5, -5, axis=0)), (i(4, dtype=dtype),))
        yield Line("OneHot", lambda k: tf.one_hot(k, 3), (i(None, dtype=dtype),))
        yield Line(
            "ScatterNd",
            lambda k, x: tf.scatter_nd(k, x, tf.constant([3, 4], k.dtype)),
            (i(5, 1, dtype=dtype), f(5, 4)),
            rtol=1e-4,
        )
        yield Line(
            "ScatterNd",
            lambda k, x: tf.scatter_nd(k, x, tf.constant([3, 4], k.dtype)),
            (i(None, 1, dtype=dtype), f(None, 4)),
            rtol=1e-4,
        )
        scatters = "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin"
        for specs in (
            (f(3, 4), i(5, 1, dtype=dtype), f(5, 4)),
            (f(3, 4), i(None, 1, dtype=dtype), f(None, 4)),
            (f(3, 3), i(4, 2, dtype=dtype), f(4)),
        ):
            yield Line(scatters, each(scatters), specs, rtol=1e-4)
        yield Line(
            "TensorScatterUpdate",
            lambda x, k, y: tf.tensor_scatter_nd_update(x, in_order(k), y),
            (f(5, 2), i(4, dtype=dtype), f(4, 2)),
        )
        yield Line(
            "TensorScatterUpdate",
            lambda x, k, y: tf.tensor_scatter_nd_update(x, in_order(k), y),
            (f(5, 2), i(None, dtype=dtype), f(None, 2)),
        )
        yield Line(
            "TensorScatterUpdate",
            lambda x, k, y: tf.tensor_scatter_nd_update(x, in_order(k), y),
            (f(None, 2), i(None, dtype=dtype), f(None, 2)),
        )
    yield Line("ReverseSequence", lambda x, k: tf.reverse_sequence(x, k, seq_axis=1), (f(3, 4, 2), i(3)))
    yield Line("StridedSlice", lambda x: (x[1:], x[::-1], x[:-1, None], x[..., 1], x[-1], x[0:2, ::2]), (f(3, 4),))
    yield Line("StridedSlice", lambda x, k: (x[k], x[:, k], x[k, None, k], x[k - 3]), (f(3, 4), i()))
    yield Line("StridedSlice", lambda x, k: (x[k:], x[:k], x[k::2], x[-k:]), (f(4, 2), i()))
    yield Line("StridedSlice", lambda x: (x[1:-1], x[::-2], x[:, ::2], x[2:], x[-2:]), (f(None, 3),))
    yield Line("StridedSlice", lambda x, k: (x[k:], x[:k], x[k : k + 1]), (f(None, 3), i()))
    yield Line("Slice", lambda x: tf.slice(x, [1, 0], [2, -1]), (f(3, 4),))
    yield Line("Slice", lambda x, k: tf.slice(x, [k, 1], [1, 2]), (f(3, 4), i()))
    yield Line("Slice", lambda x: tf.slice(x, [0, 1], [-1, 2]), (f(None, 4),))


def ordering():
    for draw in (usual, ties):
        yield Line("TopKV2", lambda x: tf.math.top_k(x, 2), (f(2, 4),), draw)
        yield Line("TopKV2", lambda x: tf.math.top_k(x, 2), (f(None),), draw, least=2)
        yield Line(
            "TopKV2",
            lambda x: (tf.sort(x), tf.argsort(x, direction="DESCENDING", stable=True)),
            (f(None),),
            draw,
        )
        yield Line("TopKV2", lambda x: (tf.sort(x), tf.argsort(x, stable=True), tf.sort(x, axis=0)), (f(2, 4),), draw)
    yield Line("TopKV2", lambda x: tf.math.top_k(x, 2), (i(4),), extreme_integers)
    yield Line(
        "LowerBound UpperBound",
        lambda x, y: (tf.searchsorted(tf.sort(x), y), tf.searchsorted(tf.sort(x), y, "right")),
        (f(2, 4), f(2, 3)),
    )
    yield Line("InvertPermutation", lambda x: tf.math.invert_permutation(tf.argsort(x, stable=True)), (f(4),))
    yield Line("InvertPermutation", lambda x: tf.math.invert_permutation(tf.argsort(x, stable=True)), (f(None),))
    yield Line("Where", lambda x: tf.where(x), (b(4),))
    yield Line("Where", lambda x: tf.boolean_mask(x, x > 0), (f(None),))


def strings():
    for shape in ([], [2], [None]):
        x = (s(*shape),)
        yield Line(
            "StringLength StringLower StringStrip StringUpper EncodeBase64",
            each("StringLength StringLower StringStrip StringUpper EncodeBase64"),
            x,
        )
        yield Line(
            "StringToHashBucket StringToHashBucketFast",
            each("StringToHashBucket StringToHashBucketFast", num_buckets=9),
            x,
        )
        yield Line("StringToHashBucketStrong", each("StringToHashBucketStrong", num_buckets=9, key=[1, 2]), x)
        yield Line("DecodeBase64", lambda x: tf.io.decode_base64(tf.io.encode_base64(x)), x)
        yield Line(
            "StaticRegexReplace RegexReplace",
            lambda x: (
                raw("StaticRegexReplace", x, pattern="[a-l]", rewrite="?"),
                raw("RegexReplace", x, "[a-l]", "?"),
            ),
            x,
        )
        yield Line(
            "StaticRegexFullMatch RegexFullMatch",
            lambda x: (raw("StaticRegexFullMatch", x, pattern="[a-l]+"), raw("RegexFullMatch", x, "[a-l]+")),
            x,
        )
        yield Line("UnicodeTranscode", lambda x: tf.strings.unicode_transcode(x, "UTF-8", "UTF-16-BE"), x)
        yield Line(
            "StringToNumber",
            lambda x: (tf.strings.to_number(x), tf.strings.to_number(x, tf.int64)),
            x,
            numerals,
        )
        yield Line("StringJoin", lambda x, y: tf.strings.join([x, y, "!"], "-"), (*x, s(*shape)))
        yield Line("StringJoin", lambda x, y: x + y, (*x, s()))
        yield Line("LookupTableFindV2", lambda x: CODES.lookup(x), x)
        yield Line("Equal", lambda x, y: x == y, x * 2)
    yield Line("UnicodeDecode", lambda x: tf.strings.unicode_decode(x, "UTF-8"), (s(),))
    yield Line(
        "UnicodeDecode UnicodeScript",
        lambda x: tf.strings.unicode_script(tf.strings.unicode_decode(x, "UTF-8")),
        (s(),),
    )
    yield Line("UnicodeDecode", lambda x: tf.strings.unicode_decode(x, "UTF-8").flat_values, (s(2),), fixed=False)
    yield Line("DecodeRaw", lambda x: tf.io.decode_raw(x, tf.uint8), (s(),))
    yield Line("Substr", lambda x: tf.strings.substr(x, 0, 3), (s(),))
    yield Line("Substr", lambda x, k: tf.strings.substr(x, -tf.minimum(k, tf.strings.length(x)), 2), (s(), i()))
    yield Line("Substr", lambda x: tf.strings.substr(x, 0, 2, unit="UTF8_CHAR"), (s(2),))


def lists():
    def written(x):
        items = tf.TensorArray(tf.float32, 3, element_shape=[2])
        return items.write(0, x[0]).write(2, x[1]).stack()

    yield Line("TensorListReserve TensorListSetItem TensorListStack", written, (f(3, 2),))

    def stacked(x, k):
        items = tf.TensorArray(tf.float32, 3, element_shape=[2]).unstack(x)
        items = items.write(k, items.read(0) + 1).scatter([2, 1], x[:2])
        return items.stack(), items.gather([1, k]), items.size(), items.read(k)

    yield Line(
        "TensorListFromTensor TensorListSetItem TensorListGetItem TensorListStack TensorListGather "
        "TensorListScatterIntoExistingList",
        stacked,
        (f(3, 2), i()),
    )

    def appended(x):
        items = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[2])
        items = items.write(0, x[0]).write(1, x[1])
        handle = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=tf.float32)
        handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=x[2])
        handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=x[0])
        shape = tf.raw_ops.TensorListElementShape(input_handle=handle, shape_type=tf.int32)
        whole = tf.raw_ops.TensorListStack(
            input_handle=handle, element_shape=[2], element_dtype=tf.float32, num_elements=2
        )
        return whole * tf.cast(shape[0] + tf.raw_ops.TensorListLength(input_handle=handle), tf.float32)

    yield Line("EmptyTensorList TensorListPushBack TensorListElementShape TensorListLength", appended, (f(3, 2),))

    def scattered(x):
        handle = tf.raw_ops.TensorListScatterV2(tensor=x, indices=[2, 0, 1], element_shape=[2], num_elements=3)
        return tf.raw_ops.TensorListStack(
            input_handle=handle, element_shape=[2], element_dtype=tf.float32, num_elements=3
        )

    yield Line("TensorListScatterV2", scattered, (f(3, 2),))


def checks():
    def asserted(x):
        with tf.control_dependencies([tf.debugging.assert_less(x, 100.0)]):
            return tf.identity(x) + 1

    yield Line("Assert", asserted, (f(3),))
    yield Line(
        "CheckNumerics CheckNumericsV2",
        lambda x: raw("CheckNumerics", x, message="no") + raw("CheckNumericsV2", x, message="no"),
        (f(None),),
    )
    yield Line("EnsureShape", lambda x: tf.ensure_shape(x, [None, 3]), (f(None, 3),))


def gradient(fn):
    """The gradient of the sum of squares of what `fn` gives, with respect to its first operand."""

    def derivative(*operands):
        with tf.GradientTape() as tape:
            tape.watch(operands[0])
            value = tf.reduce_sum(fn(*operands) ** 2)
        return tape.gradient(value, operands[0])

    return derivative


def gradients():
    image = f(1, 4, 4, 2)
    for padding in ("SAME", "VALID"):
        yield Line("MaxPoolGrad", gradient(lambda x, p=padding: tf.nn.max_pool2d(x, 2, 1, p)), (image,), rtol=1e-4)
        yield Line("AvgPoolGrad", gradient(lambda x, p=padding: tf.nn.avg_pool2d(x, 2, 2, p)), (image,), rtol=1e-4)
        filters = gradient(lambda k, x, p=padding: tf.nn.conv2d(x, k, 1, p))
        yield Line("Conv2DBackpropFilter", filters, (f(2, 2, 2, 3), image), shared=False, rtol=1e-4, fallbacks=None)
    yield Line("BiasAddGrad", gradient(lambda y, x: tf.nn.bias_add(x, y)), (f(3), f(None, 3)), rtol=1e-4)
    yield Line("BroadcastGradientArgs", gradient(lambda x, y: x * y), (f(3), f(None, 3)), rtol=1e-4)
    yield Line("BroadcastGradientArgs", gradient(lambda x, y: x + y), (f(None, 1), f(None, 1)), least=2, rtol=1e-4)
    yield Line("ConcatOffset", gradient(lambda x: tf.concat([x, x * x], 0)), (f(None, 2),), rtol=1e-4)
    yield Line("DynamicStitch", gradient(lambda x: tf.reduce_mean(x, 0)), (f(None, 2),), least=1, rtol=1e-4)
    stitch = lambda x: tf.raw_ops.ParallelDynamicStitch(indices=[[1], [0]], data=[tf.shape(x)[:1], [7]])
    yield Line("ParallelDynamicStitch", stitch, (f(None, 2),))
    side = lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * x, lambda: -x)
    yield Line("OptionalFromValue OptionalNone OptionalGetValue", gradient(side), (f(3),), rtol=1e-4)
    for cut in (lambda x: x[1:], lambda x: x[-1], lambda x: x[::-1], lambda x: x[:, 1], lambda x: x[:2, None, ::2]):
        yield Line("StridedSliceGrad", gradient(cut), (f(4, 3),), rtol=1e-4)
        yield Line("StridedSliceGrad", gradient(cut), (f(None, 3),), least=1, rtol=1e-4)

    def pushed_and_popped(x):
        items = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=5, element_dtype=tf.float32)
        for row in (x, x * 2, x * 3):
            items = tf.raw_ops.TensorListPushBack(input_handle=items, tensor=row)
        items, last = tf.raw_ops.TensorListPopBack(input_handle=items, element_shape=[2], element_dtype=tf.float32)
        return last, tf.raw_ops.TensorListLength(input_handle=items)

    yield Line("TensorListPopBack", pushed_and_popped, (f(2),))


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


LINES = [
    line
    for family in (
        counting,
        elementwise,
        reductions,
        products,
        images,
        shapes,
        indexing,
        ordering,
        strings,
        lists,
        checks,
        gradients,
        linear_algebra,
        random_lines,
        *further,
    )
    for line in family()
]
