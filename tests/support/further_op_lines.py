"""More of the table of op lines: segments, selections, sparse and ragged parts, images, matrices, parsing."""

import numpy as np
import tensorflow as tf

from tests.support.op_line import Line, each, f, i, raw, s, usual

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
    yield Line("Bincount DenseBincount", counts, (i(5), f(5)), rtol=1e-4, jit=False)
    yield Line("Bincount DenseBincount", counts, (i(None), f(None)), rtol=1e-4, jit=False)
    present = lambda k: raw("DenseBincount", k, 3, tf.zeros([0]), binary_output=True)
    yield Line("DenseBincount", present, (i(5, dtype=tf.int64),))
    yield Line("DenseBincount", present, (i(2, 5),))
    yield Line("DenseBincount", lambda k: tf.math.bincount(k), (i(5),), fixed=False)
    yield Line("DenseBincount", lambda k, x: tf.math.bincount(k, x, minlength=2), (i(None), f(None)), fixed=False)


def selections():
    parts = lambda x, k: tf.dynamic_partition(x, k, 3)
    yield Line("DynamicPartition", parts, (f(5, 2), i(5)))
    yield Line("DynamicPartition", parts, (f(None, 2), i(None)))
    whole = "Unique UniqueWithCounts"
    sliced = "UniqueV2 UniqueWithCountsV2"
    distinct = lambda x: (raw("Unique", x), raw("UniqueWithCounts", x, out_idx=tf.int64))
    distinct_on_axis = lambda x: (raw("UniqueV2", x, [0]), raw("UniqueWithCountsV2", x, [0]))
    for spec in (i(5), i(None), i(4, dtype=tf.int64), f(None), s(4), s(None)):
        yield Line(whole, distinct, (spec,), jit=spec.dtype != tf.string)
        yield Line(sliced, distinct_on_axis, (spec,), jit=spec.dtype != tf.string)
    for left, right in ((i(5), i(2)), (i(None), i(None)), (s(4), s(2))):
        yield Line("ListDiff", lambda x, y: raw("ListDiff", x, y), (left, right), jit=left.dtype != tf.string)


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
                    yield Line(name, squared_gradient(depthwise, by), (image, kernel), rtol=1e-3)
                for by, name in enumerate(("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")):
                    yield Line(name, squared_gradient(solid, by), (volume, deep), rtol=1e-3)
                for by, name in enumerate(("Conv2DBackpropInput", "Conv2DBackpropFilter")):
                    yield Line(name, squared_gradient(flat, by), (image, kernel), rtol=1e-3)
    margins = [[0, 0], [1, 2], [0, 1], [0, 0]]
    around = lambda x, k: tf.nn.conv2d(x, k, 2, margins)
    yield Line("Conv2D", around, (image, kernel), rtol=1e-3)
    for by, name in enumerate(("Conv2DBackpropInput", "Conv2DBackpropFilter")):
        yield Line(name, squared_gradient(around, by), (image, kernel), rtol=1e-3)
    dilated = lambda x, k: tf.nn.dilation2d(x, k, [1, 1, 1, 1], "SAME", "NHWC", [1, 2, 1, 1])
    yield Line("Dilation2D", dilated, (image, f(3, 2, 4)), jit=False)


def normalisations():
    channels = f(3)
    for name, shape in (("FusedBatchNorm", (2, 4, 5, 3)), ("FusedBatchNormV3", (2, 3, 4, 2, 3))):
        for form in ("NHWC", "NCHW") if len(shape) == 4 else ("NDHWC",):
            own = (shape[0], shape[3], shape[1], shape[2]) if form == "NCHW" else shape
            given = lambda x, g, b, m, v, name=name, form=form: raw(
                name, x, g, b, m, tf.abs(v) + 0.1, is_training=False, data_format=form
            )[0]
            yield Line(name, given, (f(*own), *[channels] * 4), rtol=1e-3, jit=form == "NHWC")
            taken = lambda x, g, b, name=name, form=form: raw(name, x, g, b, [], [], data_format=form)[:3]
            yield Line(name, taken, (f(*own), channels, channels), rtol=1e-3, jit=form == "NHWC")
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


def poolings():
    image, volume = f(2, 6, 5, 3), f(1, 4, 4, 3, 2)
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 1, 1]}
    deep = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 1, 1]}
    for padding in ("SAME", "VALID"):
        pooled = lambda x, p=padding: raw("MaxPoolV2", x, window["ksize"], window["strides"], padding=p)
        yield Line("MaxPoolV2", pooled, (image,))
        back = lambda x, y, p=padding: raw(
            "MaxPoolGradV2", x, (z := pooled(x, p)), tf.ones_like(z) * y, window["ksize"], window["strides"], padding=p
        )
        yield Line("MaxPoolGradV2", back, (image, f()))
        again = lambda x, y, p=padding: (
            raw("MaxPoolGradGrad", x, pooled(x, p), y, **window, padding=p),
            raw("MaxPoolGradGradV2", x, pooled(x, p), y, window["ksize"], window["strides"], padding=p),
        )
        yield Line("MaxPoolGradGrad MaxPoolGradGradV2", again, (image, image))
        solid = lambda x, p=padding: raw("MaxPool3D", x, **deep, padding=p)
        yield Line("MaxPool3DGrad", squared_gradient(solid, 0), (volume,))
        deeper = lambda x, y, p=padding: raw("MaxPool3DGradGrad", x, solid(x, p), y, **deep, padding=p)
        yield Line("MaxPool3DGradGrad", deeper, (volume, volume))
        means = lambda x, p=padding: raw("AvgPool3D", x, **deep, padding=p)
        yield Line("AvgPool3DGrad", squared_gradient(means, 0), (volume,), rtol=1e-4)
        for whole in (False, True):
            placed = lambda x, p=padding, w=whole: raw(
                "MaxPoolWithArgmax", x, **window, padding=p, include_batch_in_index=w
            )
            yield Line("MaxPoolWithArgmax", placed, (image,), jit=False)
            to = lambda x, p=padding, w=whole: squared_gradient(lambda x: placed(x, p, w)[0], 0)(x)
            yield Line("MaxPoolGradWithArgmax", to, (image,), jit=False)
    yield Line("LRNGrad", squared_gradient(lambda x: tf.nn.lrn(x, 1), 0), (image,), rtol=1e-3, jit=False)


further = (segments, selections, filters, normalisations, poolings)
