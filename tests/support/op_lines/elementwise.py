"""Ops on each element: functions of one and two numbers, comparisons, bits, quantisation."""

import numpy as np
import tensorflow as tf

from tests.support.op_lines.line import (
    Line,
    above_one,
    b,
    below_one,
    each,
    extreme_integers,
    f,
    i,
    positive,
    raw,
    signed_integers,
    small_shift,
    with_specials,
    within_one,
)

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


def quantisations():
    for shape in ([2, 3], [None], []):
        elementwise = lambda x, y: (
            raw("FakeQuantWithMinMaxArgs", x, min=-2, max=1),
            raw("FakeQuantWithMinMaxArgsGradient", y, x, min=-2, max=1),
        )
        both = "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient"
        yield Line(both, elementwise, (f(*shape), f(*shape)))
        yield Line("FakeQuantWithMinMaxVars", lambda x: raw("FakeQuantWithMinMaxVars", x, -2.0, 1.5), (f(*shape),))
        yield Line("DataFormatDimMap", lambda k: raw("DataFormatDimMap", k), (i(*shape),))
        bits = lambda x: (
            tf.bitcast(x, tf.int32),
            tf.bitcast(x, tf.uint8),
            tf.bitcast(tf.bitcast(x, tf.uint8), tf.int32),
        )
        yield Line("Bitcast", bits, (f(*shape),))
    channels = lambda x: raw("FakeQuantWithMinMaxVarsPerChannel", x, [-1.0, -2.0, 0.0], [1.0, 2.0, 3.0])
    yield Line("FakeQuantWithMinMaxVarsPerChannel", channels, (f(2, 3),))
    yield Line("FakeQuantWithMinMaxVarsPerChannel", channels, (f(None, 3),))
    for given in (True, False):
        rounded = lambda x, given=given: (
            raw("QuantizeAndDequantizeV2", x, -0.7, 1.1, range_given=given),
            raw("QuantizeAndDequantizeV3", x, -0.7, 1.1, 6, range_given=given),
            raw("QuantizeAndDequantizeV4", x, -0.7, 1.1, range_given=given),
        )
        names = "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4"
        yield Line(names, rounded, (f(2, 3),))
    yield Line("BiasAddV1", lambda x, y: raw("BiasAddV1", x, y), (f(2, 4, 3), f(3)))
