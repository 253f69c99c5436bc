"""More of the table of op lines: segments, selections, sparse and ragged parts, images, matrices, parsing."""

from functools import partial

import numpy as np
import tensorflow as tf

from tests.support.op_line import Line, below_one, each, f, i, raw, s, usual

NUMBER_OF_SEGMENTS = 4


def sorted_ids(generator, spec, shape):
    """Segments in ascending order, with gaps; other operands as usual."""
    if not spec.dtype.is_integer:
        return usual(generator, spec, shape)
    return np.sort(generator.integers(0, NUMBER_OF_SEGMENTS, shape), -1).astype(spec.dtype.as_numpy_dtype)


def segments():
    unsorted = "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin"
    for data, ids in (([5, 2], [5]), ([None, 2], [None]), ([2, 3, 2], [2, 3]), ([4], [4])):
        for dtype in (tf.int32, tf.int64):
            to = lambda x, k: [raw(name, x, k - 1, NUMBER_OF_SEGMENTS) for name in unsorted.split()]
            yield Line(unsorted, to, (f(*data), i(*ids, dtype=dtype)), rtol=1e-4)
    of_counted = lambda x, k, n: [raw(name, x, k - 1, n + 2) for name in unsorted.split()]
    yield Line(unsorted, of_counted, (f(5, 2), i(5), i()), rtol=1e-4, fixed=False)
    ordered = "SegmentSum SegmentProd SegmentMax SegmentMin SegmentMean"
    for data, ids in (([5, 2], [5]), ([None, 2], [None]), ([4], [4])):
        for dtype in (tf.float32, tf.float64, tf.int32):
            specs = (f(*data, dtype=dtype), i(*ids))
            yield Line(ordered, each(ordered), specs, sorted_ids, rtol=1e-4, fixed=False)
    fixed_ids = lambda x: [raw(name, x, [0, 0, 1, 3, 3]) for name in ordered.split()]
    yield Line(ordered, fixed_ids, (f(5, 2),), rtol=1e-4, name="segments_known_when_built")
    sparse = "SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN"
    numbered = " ".join(name + "WithNumSegments" for name in sparse.split())
    by_gather = lambda x, k: [raw(name, x, k, tf.sort(k)) for name in sparse.split()]
    yield Line(sparse, by_gather, (f(4, 2), i(5)), rtol=1e-4, fixed=False)
    yield Line(sparse, by_gather, (f(4, 2), i(None)), rtol=1e-4, fixed=False)
    into = lambda x, k: [raw(name, x, k, tf.sort(k), NUMBER_OF_SEGMENTS) for name in numbered.split()]
    yield Line(numbered, into, (f(4, 2), i(5)), rtol=1e-4)
    yield Line(numbered, into, (f(4, 2), i(None)), rtol=1e-4)
    gradients = " ".join(name + "Grad" for name in sparse.split())
    back = lambda x, k: [raw(name, x, k, tf.sort(k), 4) for name in gradients.split()]
    yield Line(gradients, back, (f(3, 2), i(5)), rtol=1e-4)
    yield Line(gradients, back, (f(3, 2), i(None)), rtol=1e-4, least=1)  # of none, TensorFlow 2.21 clears no memory
    counts = lambda k, x: (raw("Bincount", k, 3, x), raw("DenseBincount", k, 2, x), raw("Bincount", k, 4, []))
    yield Line("Bincount DenseBincount", counts, (i(5), f(5)), rtol=1e-4)
    yield Line("Bincount DenseBincount", counts, (i(None), f(None)), rtol=1e-4)
    present = lambda k: raw("DenseBincount", k, 3, tf.zeros([0]), binary_output=True)
    yield Line("DenseBincount", present, (i(5, dtype=tf.int64),))
    yield Line("DenseBincount", present, (i(2, 5),))
    yield Line("DenseBincount", lambda k: tf.math.bincount(k), (i(5),), fixed=False)
    yield Line("DenseBincount", lambda k, x: tf.math.bincount(k, x, minlength=2), (i(None), f(None)), fixed=False)
    bins = lambda x, y: (
        tf.histogram_fixed_width(x, [-1.0, 1.5], 4),
        tf.histogram_fixed_width(x, tf.stack([y, y + 1.0]), 3, tf.int64),
    )
    for spec in (f(7), f(None), f(2, 3)):
        yield Line("HistogramFixedWidth", bins, (spec, f()))


def selections():
    parts = lambda x, k: tf.dynamic_partition(x, k, 3)
    yield Line("DynamicPartition", parts, (f(5, 2), i(5)))
    yield Line("DynamicPartition", parts, (f(None, 2), i(None)))
    whole = "Unique UniqueWithCounts"
    sliced = "UniqueV2 UniqueWithCountsV2"
    distinct = lambda x: (raw("Unique", x), raw("UniqueWithCounts", x, out_idx=tf.int64))
    distinct_on_axis = lambda x: (raw("UniqueV2", x, [0]), raw("UniqueWithCountsV2", x, [0]))
    for spec in (i(5), i(None), i(4, dtype=tf.int64), f(None), s(4), s(None)):
        yield Line(whole, distinct, (spec,))
        yield Line(sliced, distinct_on_axis, (spec,))
    for left, right in ((i(5), i(2)), (i(None), i(None)), (s(4), s(2))):
        yield Line("ListDiff", lambda x, y: raw("ListDiff", x, y), (left, right))


def squared_gradient(fn, by):
    """The gradient of the sum of squares of what `fn` gives, with respect to one operand."""

    def derivative(*operands):
        with tf.GradientTape() as tape:
            tape.watch(operands[by])
            value = tf.reduce_sum(fn(*operands) ** 2)
        return tape.gradient(value, operands[by])

    return derivative


def filters():
    image, volume = f(2, 6, 5, 4), f(1, 4, 5, 3, 2)
    kernel, grouped, deep = f(3, 2, 4, 3), f(3, 2, 2, 6), f(2, 2, 2, 2, 3)
    for padding in ("SAME", "VALID"):
        for stride, dilation in ((1, 1), (2, 1), (1, 2)):
            flat = lambda x, k, p=padding, s=stride, d=dilation: tf.nn.conv2d(x, k, s, p, dilations=d)
            depthwise = lambda x, k, p=padding, s=stride, d=dilation: tf.nn.depthwise_conv2d(
                x, k, [1, s, s, 1], p, dilations=[d, d]
            )
            solid = lambda x, k, p=padding, s=stride: tf.nn.conv3d(x, k, [1, s, s, s, 1], p)
            yield Line("Conv2D", flat, (image, kernel), rtol=1e-3)
            yield Line("DepthwiseConv2dNative", depthwise, (image, kernel), rtol=1e-3)
            back = "DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter"
            if dilation == 1:
                yield Line("Conv2D", flat, (image, grouped), rtol=1e-3)
                yield Line("Conv3D", solid, (volume, deep), rtol=1e-3)
                for by, name in enumerate(back.split()):
                    yield Line(name, squared_gradient(depthwise, by), (image, kernel), rtol=1e-3, atol=1e-3)
                for by, name in enumerate(("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")):
                    yield Line(name, squared_gradient(solid, by), (volume, deep), rtol=1e-3, atol=1e-3)
                for by, name in enumerate(("Conv2DBackpropInput", "Conv2DBackpropFilter")):
                    yield Line(name, squared_gradient(flat, by), (image, kernel), rtol=1e-3, atol=1e-3)
    margins = [[0, 0], [1, 2], [0, 1], [0, 0]]
    around = lambda x, k: tf.nn.conv2d(x, k, 2, margins)
    yield Line("Conv2D", around, (image, kernel), rtol=1e-3)
    for by, name in enumerate(("Conv2DBackpropInput", "Conv2DBackpropFilter")):
        yield Line(name, squared_gradient(around, by), (image, kernel), rtol=1e-3, atol=1e-3)
    dilated = lambda x, k: tf.nn.dilation2d(x, k, [1, 1, 1, 1], "SAME", "NHWC", [1, 2, 1, 1])
    yield Line("Dilation2D", dilated, (image, f(3, 2, 4)))


def normalisations():
    channels = f(3)
    for name, shape in (("FusedBatchNorm", (2, 4, 5, 3)), ("FusedBatchNormV3", (2, 3, 4, 2, 3))):
        for form in ("NHWC", "NCHW") if len(shape) == 4 else ("NDHWC",):
            own = (shape[0], shape[3], shape[1], shape[2]) if form == "NCHW" else shape
            given = lambda x, g, b, m, v, name=name, form=form: raw(
                name, x, g, b, m, tf.abs(v) + 0.1, is_training=False, data_format=form
            )[0]
            yield Line(name, given, (f(*own), *[channels] * 4), rtol=1e-3)
            taken = lambda x, g, b, name=name, form=form: raw(name, x, g, b, [], [], data_format=form)[:3]
            yield Line(name, taken, (f(*own), channels, channels), rtol=1e-3)
    for training in (True, False):
        for by in range(3):
            image = lambda x, g, b, t=training: tf.compat.v1.nn.fused_batch_norm(
                x, g, b, *([] if t else [g * 0.5, tf.abs(b) + 1]), is_training=t
            )[0]
            yield Line(
                "FusedBatchNormGradV3", squared_gradient(image, by), (f(2, 4, 5, 3), channels, channels), rtol=1e-2
            )
    for name in ("FusedBatchNormGrad", "FusedBatchNormGradV2"):
        back = lambda y, x, g, m, v, name=name: raw(name, y, x, g, m, tf.abs(v) + 1)[:3]
        yield Line(name, back, (f(2, 4, 3, 3), f(2, 4, 3, 3), channels, channels, channels), rtol=1e-2)


WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 1, 1]}
DEEP_WINDOW = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 1, 1]}


def pooled(x, padding):
    return raw("MaxPoolV2", x, WINDOW["ksize"], WINDOW["strides"], padding=padding)


def pooled_deep(x, padding):
    return raw("MaxPool3D", x, **DEEP_WINDOW, padding=padding)


def pooled_with_places(x, padding, whole):
    return raw("MaxPoolWithArgmax", x, **WINDOW, padding=padding, include_batch_in_index=whole)


def pool_gradient(x, y, padding):
    maxima = pooled(x, padding)
    return raw("MaxPoolGradV2", x, maxima, y * maxima, WINDOW["ksize"], WINDOW["strides"], padding=padding)


def pool_second_gradient(x, y, padding):
    maxima = pooled(x, padding)
    return (
        raw("MaxPoolGradGrad", x, maxima, y, **WINDOW, padding=padding),
        raw("MaxPoolGradGradV2", x, maxima, y, WINDOW["ksize"], WINDOW["strides"], padding=padding),
    )


def poolings():
    image, volume = f(2, 6, 5, 3), f(1, 4, 4, 3, 2)
    for padding in ("SAME", "VALID"):
        yield Line("MaxPoolV2", partial(pooled, padding=padding), (image,))
        yield Line("MaxPoolGradV2", partial(pool_gradient, padding=padding), (image, f()))
        again = partial(pool_second_gradient, padding=padding)
        yield Line("MaxPoolGradGrad MaxPoolGradGradV2", again, (image, image))
        solid = partial(pooled_deep, padding=padding)
        yield Line("MaxPool3DGrad", squared_gradient(solid, 0), (volume,))
        deeper = lambda x, y, p=padding: raw("MaxPool3DGradGrad", x, pooled_deep(x, p), y, **DEEP_WINDOW, padding=p)
        yield Line("MaxPool3DGradGrad", deeper, (volume, volume))
        means = lambda x, p=padding: raw("AvgPool3D", x, **DEEP_WINDOW, padding=p)
        yield Line("AvgPool3DGrad", squared_gradient(means, 0), (volume,), rtol=1e-4)
        for whole in (False, True):
            placed = partial(pooled_with_places, padding=padding, whole=whole)
            yield Line("MaxPoolWithArgmax", placed, (image,))
            maxima = lambda x, p=padding, w=whole: pooled_with_places(x, p, w)[0]
            yield Line("MaxPoolGradWithArgmax", squared_gradient(maxima, 0), (image,))
    yield Line("LRNGrad", squared_gradient(lambda x: tf.nn.lrn(x, 1), 0), (image,), rtol=1e-3)


def unit_boxes(generator, spec, shape):
    """Corners within the image, of boxes of some extent; images and scores as usual."""
    if not spec.dtype.is_floating or not shape or shape[-1] != 4:
        return usual(generator, spec, shape)
    low, extent = generator.uniform(0, 0.5, [*shape[:-1], 2]), generator.uniform(0.2, 0.5, [*shape[:-1], 2])
    return np.concatenate([low, low + extent], -1).astype("f")


def pictures():
    image, boxes = f(3, 6, 5, 2), f(4, 4)
    patches = lambda x: tf.image.extract_patches(x, [1, 2, 3, 1], [1, 2, 1, 1], [1, 2, 1, 1], "SAME")
    yield Line("ExtractImagePatches", patches, (image,))
    solid = lambda x: tf.extract_volume_patches(x, [1, 2, 2, 1, 1], [1, 1, 2, 1, 1], "VALID")
    yield Line("ExtractVolumePatches", solid, (f(1, 4, 4, 3, 2),))
    dilated = lambda x, k: tf.nn.dilation2d(x, k, [1, 1, 1, 1], "SAME", "NHWC", [1, 2, 1, 1])
    yield Line("Dilation2D", dilated, (image, f(3, 2, 2)))
    for name, size in (("Bilinear", (4, 7)), ("NearestNeighbor", (4, 7)), ("Bicubic", (9, 4))):
        resized = lambda x, name=name, size=size: raw(f"Resize{name}", x, size)
        yield Line(f"Resize{name}Grad", squared_gradient(resized, 0), (image,), rtol=1e-3)
    plane = tf.constant([1, 0, 0, 0, 1, 0, 0, 0.0])
    for count in (1, 3):
        moved = lambda x, t: (
            raw("ImageProjectiveTransformV2", x, plane + t * 0.01, [5, 4], interpolation="BILINEAR"),
            raw("ImageProjectiveTransformV3", x, plane + t * 0.01, [5, 4], 0.5, interpolation="NEAREST"),
        )
        names = "ImageProjectiveTransformV2 ImageProjectiveTransformV3"
        yield Line(names, moved, (image, f(count, 8)), rtol=1e-3)
    cropped = lambda x, box, k: raw("CropAndResize", x, box, k, [3, 2])
    for count in (4, None):
        yield Line("CropAndResize", cropped, (image, f(count, 4), i(count)), unit_boxes, rtol=1e-3)
    for by, name in enumerate(("CropAndResizeGradImage", "CropAndResizeGradBoxes")):
        specs = (image, boxes, i(4))
        yield Line(name, squared_gradient(cropped, by), specs, unit_boxes, rtol=1e-2)
    for count in (6, None):
        best = lambda box, score: (
            tf.image.non_max_suppression(box, score, 3, 0.3, 0.1),
            raw("NonMaxSuppressionV4", box, score, 3, 0.2, 0.0, pad_to_max_output_size=True),
        )
        yield Line("NonMaxSuppressionV3 NonMaxSuppressionV4", best, (f(count, 4), f(count)), unit_boxes)
    for changes in ("AdjustHue", "AdjustSaturation", "AdjustContrastv2"):
        changed = lambda x, k, name=changes: raw(name, x, k)
        yield Line(changes, changed, (f(2, 4, 3, 3), f()), below_one, rtol=1e-3)
    together = lambda box, score: raw(
        "CombinedNonMaxSuppression", box[:, :, None], score, 2, 3, 0.3, 0.1, pad_per_class=False
    )
    yield Line("CombinedNonMaxSuppression", together, (f(2, 5, 4), f(2, 5, 3)), unit_boxes)


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


def rearrangements():
    for shape in ([4], [2, 3], [None], [None, 3], [2, None]):
        x = f(*shape)
        for axis in range(-len(shape), len(shape)):
            yield Line("Roll", lambda x, a=axis: (tf.roll(x, 1, a), tf.roll(x, -2, a)), (x,))
            yield Line("Roll", lambda x, k, a=axis: tf.roll(x, k - 1, a), (x, i()))
    yield Line("Roll", lambda x, k: tf.roll(x, k, [0, 1]), (f(3, 4), i(2)))
    for mode in ("REFLECT", "SYMMETRIC"):
        mirrored = lambda x, mode=mode: tf.pad(x, [[1, 2], [0, 1]], mode)
        yield Line("MirrorPadGrad", squared_gradient(mirrored, 0), (f(3, 4),))
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


def csv_records(generator, spec, shape):
    fields = [["1", "-7", " 3 "], ["0.5", "", "1e3"], ["a", "", '"x, ""y"""'], ["", "9", "n/a"]]
    texts = [
        ",".join(generator.choice(np.array(field, object)) for field in fields) for _ in range(int(np.prod(shape)))
    ]
    return np.array(texts, object).reshape(shape) if shape else texts[0]


def some_examples(generator, spec, shape):
    """Serialized tf.train.Examples; "b" and "c" may be absent."""
    numbers = tf.train.Feature(float_list=tf.train.FloatList(value=generator.normal(size=2)))
    features = {"a": numbers}
    if generator.random() < 0.7:
        features["b"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(generator.integers(9))]))
    words = [str(k).encode() for k in range(generator.integers(0, 4))]
    features["c"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=words))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def parsed(text):
    features = {
        "a": tf.io.FixedLenFeature([2], tf.float32),
        "b": tf.io.FixedLenFeature([], tf.int64, -1),
        "c": tf.io.VarLenFeature(tf.string),
    }
    found = tf.io.parse_single_example(text, features)
    return found["a"], found["b"], found["c"].indices, found["c"].values, found["c"].dense_shape


def parsed_by_attributes(text):
    return tf.raw_ops.ParseSingleExample(
        serialized=text,
        dense_defaults=[tf.zeros([0]), tf.constant(-1, tf.int64)],
        num_sparse=1,
        sparse_keys=["c"],
        dense_keys=["a", "b"],
        sparse_types=[tf.string],
        dense_shapes=[[2], []],
    )


def records():
    for shape in ([], [2], [None]):
        columns = lambda x: tf.io.decode_csv(x, [[0], [0.25], ["none"], tf.constant([7], tf.int64)], na_value="n/a")
        yield Line("DecodeCSV", columns, (s(*shape),), csv_records)
        chosen = lambda x: tf.io.decode_csv(x, [tf.constant([], tf.int32), ["?"]], select_cols=[0, 2])
        yield Line("DecodeCSV", chosen, (s(*shape),), csv_records)
        raw_bytes = lambda x: (
            tf.io.decode_raw(x, tf.uint8, fixed_length=3),
            tf.io.decode_raw(x, tf.int16, fixed_length=4),
        )
        yield Line("DecodePaddedRaw", raw_bytes, (s(*shape),))
    yield Line("ParseExampleV2", parsed, (s(),), some_examples)
    yield Line("ParseSingleExample", parsed_by_attributes, (s(),), some_examples)


def texts():
    parts = lambda x: tf.raw_ops.StringSplitV2(input=x, sep="")
    others = lambda x: tf.raw_ops.StringSplitV2(input=x, sep="l", maxsplit=1)
    for shape in ([3], [None]):
        yield Line("StringSplitV2", parts, (s(*shape),))
        yield Line("StringSplitV2", others, (s(*shape),))
        flat = lambda x: (tf.strings.split(x, "l").values, tf.strings.split(x, "l").row_splits)
        yield Line("StringSplitV2", flat, (s(*shape),), fixed=False)
    yield Line("StringSplitV2", lambda x: tf.strings.split(x), (s(),))
    yield Line("ReduceJoin", lambda x: tf.strings.reduce_join(x, 1, separator="-"), (s(2, 3),))
    yield Line("ReduceJoin", lambda x: tf.strings.reduce_join(x, -1, keepdims=True), (s(2, None),))
    yield Line("ReduceJoin", lambda x: tf.strings.reduce_join(x, [0, 1]), (s(2, 3),))
    spaced = lambda x: tf.strings.reduce_join(x, 0, separator=", ")
    yield Line("ReduceJoin", spaced, (s(None),))
    yield Line("ReduceJoin", spaced, (s(None, 2),))
    offsets = lambda x: tf.strings.unicode_decode_with_offsets(x, "UTF-8")
    yield Line("UnicodeDecodeWithOffsets", offsets, (s(),))
    strict = lambda x: tf.strings.unicode_decode(x, "UTF-8", errors="strict")
    yield Line("UnicodeDecode", strict, (s(),))
    again = lambda x: tf.strings.unicode_transcode(x, "UTF-8", "UTF-16-BE", errors="strict")
    yield Line("UnicodeTranscode", again, (s(2),))


TABLE = tf.Variable(np.random.default_rng(6).normal(size=[3, 3, 2]).astype("f"))


def distinct_coordinates(generator, spec, shape):
    """Coordinates of a 3 by 4 matrix in ascending order; other operands as usual."""
    if spec.dtype != tf.int64:
        return usual(generator, spec, shape)
    flat = np.sort(generator.choice(12, shape[0], replace=False))
    return np.stack([flat // 4, flat % 4], -1)


def sparse_parts():
    for count in (4, None):
        specs = (i(count, 2, dtype=tf.int64), f(count))
        dense = lambda k, x: tf.sparse.to_dense(tf.SparseTensor(k, x, [3, 4]), 7.0)
        yield Line("SparseToDense", dense, specs, distinct_coordinates)
        product = lambda k, x, y: tf.sparse.sparse_dense_matmul(tf.SparseTensor(k, x, [3, 4]), y)
        yield Line("SparseTensorDenseMatMul", product, (*specs, f(4, 2)), distinct_coordinates, rtol=1e-4)
        turned = lambda k, x, y: tf.sparse.sparse_dense_matmul(
            tf.SparseTensor(k, x, [3, 4]), y, adjoint_a=True, adjoint_b=True
        )
        yield Line("SparseTensorDenseMatMul", turned, (*specs, f(2, 3)), distinct_coordinates, rtol=1e-4)
    shuffled = lambda k, x: tf.raw_ops.SparseReorder(
        input_indices=tf.reverse(k, [0]), input_values=tf.reverse(x, [0]), input_shape=[3, 4]
    )
    for count in (4, None):
        yield Line("SparseReorder", shuffled, (i(count, 2, dtype=tf.int64), f(count)), distinct_coordinates)
    ranges = lambda k, n: (
        raw("RaggedRange", k, k + n - 2, 1),
        raw("RaggedRange", tf.cast(k, tf.float32), 3.0, 0.5, Tsplits=tf.int32),
        raw("RaggedRange", 5, k, [-1, -2, -3]),
    )
    yield Line("RaggedRange", ranges, (i(3), i()), fixed=False)
    words = lambda x: tf.strings.split(x, "l").to_tensor("?")
    for shape in ([3], [None]):
        yield Line("RaggedTensorToTensor", words, (s(*shape),), fixed=False)
    grouped = lambda x, k: (
        tf.RaggedTensor.from_value_rowids(x, tf.sort(k), 3, validate=False).to_tensor(-1.0),
        tf.RaggedTensor.from_value_rowids(x, tf.sort(k), 3, validate=False).to_tensor(shape=[None, 2]),
    )
    yield Line("RaggedTensorToTensor", grouped, (f(5), i(5)), fixed=False)
    yield Line("RaggedTensorToTensor", grouped, (f(None), i(None)), fixed=False)
    split = lambda x, k: tf.RaggedTensor.from_row_splits(x, tf.concat([[0], tf.sort(k), [5]], 0)).to_tensor()
    yield Line("RaggedTensorToTensor", split, (f(5, 2), i(3)), fixed=False)


def places():
    yield Line("ResourceGatherNd", lambda k: TABLE.gather_nd(k), (i(4, 2),))
    yield Line("ResourceGatherNd", lambda k: TABLE.gather_nd(k), (i(None, 1, dtype=tf.int64),))
    added = lambda x, k, y: raw("ScatterNdNonAliasingAdd", x, k, y)
    yield Line("ScatterNdNonAliasingAdd", added, (f(3, 4), i(5, 1), f(5, 4)), rtol=1e-4)
    for spec in (f(2, 3), f(None, 2), f(2, None)):
        yield Line("Where", lambda x: tf.where(x > 0), (spec,))
        yield Line("Where", lambda x: tf.boolean_mask(x, x > 0), (spec,))
    nth = lambda x: (raw("NthElement", x, 1), raw("NthElement", x, 0, reverse=True))
    yield Line("NthElement", nth, (f(2, 4),))
    among = lambda x, k: (raw("InTopKV2", x, k, 2), raw("InTopK", x, k, k=1))
    yield Line("InTopK InTopKV2", among, (f(4, 3), i(4)))
    stitched = lambda x, y, k: tf.dynamic_stitch([k[:2], k[2:] + 1], [x, y])
    yield Line("DynamicStitch", stitched, (f(2, 3), f(3, 3), i(5)), fixed=False)
    parallel = lambda x, k: raw("ParallelDynamicStitch", [in_order(k), in_order(k) + tf.size(k)], [x, x * 2])
    yield Line("ParallelDynamicStitch", parallel, (f(4, 2), i(4)), fixed=False)
    yield Line("DynamicPartition DynamicStitch", parted_and_joined, (f(None, 2), i(None)), fixed=False)

    def joined(x):
        items = tf.TensorArray(tf.float32, 3, element_shape=[2, 3], infer_shape=True)
        return items.write(0, x).write(1, x + 1).write(2, x * 2).concat()

    yield Line("TensorListConcatV2", joined, (f(2, 3),))


def in_order(keys):
    """Distinct places from any integers."""
    return tf.argsort(keys, stable=True)


def parted_and_joined(x, k):
    parts = tf.dynamic_partition(x, k, 3)
    wheres = tf.dynamic_partition(tf.range(tf.size(k)), k, 3)
    return tf.dynamic_stitch(wheres, [parts[0], parts[1] * 2, parts[2] * 3])


further = (
    segments,
    selections,
    filters,
    normalisations,
    poolings,
    pictures,
    matrices,
    diagonals,
    quantisations,
    rearrangements,
    paddings,
    records,
    texts,
    sparse_parts,
    places,
)
