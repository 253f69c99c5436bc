"""Shapes, joining and cutting, padding, rolling."""

import tensorflow as tf

from tests.support.op_lines.gradients import gradient
from tests.support.op_lines.line import Line, f, i, raw


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


def rearrangements():
    for shape in ([4], [2, 3], [None], [None, 3], [2, None]):
        x = f(*shape)
        for axis in range(-len(shape), len(shape)):
            yield Line("Roll", lambda x, a=axis: (tf.roll(x, 1, a), tf.roll(x, -2, a)), (x,))
            yield Line("Roll", lambda x, k, a=axis: tf.roll(x, k - 1, a), (x, i()))
    yield Line("Roll", lambda x, k: tf.roll(x, k, [0, 1]), (f(3, 4), i(2)))
    for mode in ("REFLECT", "SYMMETRIC"):
        mirrored = lambda x, mode=mode: tf.pad(x, [[1, 2], [0, 1]], mode)
        yield Line("MirrorPadGrad", gradient(mirrored, 0), (f(3, 4),))
    yield Line("LinSpace", lambda x, y: (raw("LinSpace", x, y, 5), raw("LinSpace", x, y, 1)), (f(), f()), rtol=1e-4)
    yield Line("LinSpace", lambda x, y, k: raw("LinSpace", x, y, k + 1), (f(), f(), i()), rtol=1e-4, fixed=False)
    yield Line("Concat", lambda x, y: raw("Concat", 1, [x, y]), (f(2, 3), f(2, 1)))
    replaced = lambda x, y: (
        tf.raw_ops.TensorStridedSliceUpdate(input=x, begin=[1, 0], end=[3, 4], strides=[1, 2], value=y),
        tf.raw_ops.TensorStridedSliceUpdate(
            input=x, begin=[2, 0], end=[0, 0], strides=[1, 1], value=y[0], shrink_axis_mask=1, begin_mask=2, end_mask=2
        ),
    )
    yield Line("TensorStridedSliceUpdate", lambda x, y: replaced(x, y)[0], (f(3, 4), f(2, 2)))


def paddings():
    for shape in ([4], [None], [2, 3], [None, 3]):
        x = f(*shape)
        pads = lambda x, k, c: tf.pad(x, [[k, 2 - k + k]] + [[0, 1]] * (x.shape.rank - 1), constant_values=c)
        yield Line("PadV2", pads, (x, i(), f()), fixed=False)
        yield Line("Pad", lambda x, k: tf.pad(x, tf.concat([k, 0 * k], 0)[: x.shape.rank]), (x, i(2, 2)), fixed=False)
    to_length = lambda x: tf.pad(x, [[0, 8 - tf.shape(x)[0]], [0, 0]], constant_values=-1.0)
    yield Line("PadV2", to_length, (f(None, 2),))
    yield Line("SplitV", lambda x, k: tf.split(x, [k, 5 - k, -1], 0), (f(7, 2), i()))
    yield Line("SplitV", lambda x: tf.split(x, [1, tf.shape(x)[0] - 1], 0), (f(None, 2),), least=1)
