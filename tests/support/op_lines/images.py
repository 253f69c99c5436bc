"""Convolution, pooling, normalisation, and what is done to pictures."""

from functools import partial

import numpy as np
import tensorflow as tf

from tests.support.op_lines.gradients import gradient
from tests.support.op_lines.line import Line, below_one, f, i, raw, usual

IMAGE, SEQUENCE = f(2, 6, 5, 3), f(1, None, 3)


KERNEL = tf.constant(np.random.default_rng(5).normal(size=[3, 2, 3, 4]).astype("f"))


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
                    yield Line(name, gradient(depthwise, by), (image, kernel), rtol=1e-3, atol=1e-3)
                for by, name in enumerate(("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")):
                    yield Line(name, gradient(solid, by), (volume, deep), rtol=1e-3, atol=1e-3)
                for by, name in enumerate(("Conv2DBackpropInput", "Conv2DBackpropFilter")):
                    yield Line(name, gradient(flat, by), (image, kernel), rtol=1e-3, atol=1e-3)
    margins = [[0, 0], [1, 2], [0, 1], [0, 0]]
    around = lambda x, k: tf.nn.conv2d(x, k, 2, margins)
    yield Line("Conv2D", around, (image, kernel), rtol=1e-3)
    for by, name in enumerate(("Conv2DBackpropInput", "Conv2DBackpropFilter")):
        yield Line(name, gradient(around, by), (image, kernel), rtol=1e-3, atol=1e-3)
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
            yield Line("FusedBatchNormGradV3", gradient(image, by), (f(2, 4, 5, 3), channels, channels), rtol=1e-2)
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
        yield Line("MaxPool3DGrad", gradient(solid, 0), (volume,))
        deeper = lambda x, y, p=padding: raw("MaxPool3DGradGrad", x, pooled_deep(x, p), y, **DEEP_WINDOW, padding=p)
        yield Line("MaxPool3DGradGrad", deeper, (volume, volume))
        means = lambda x, p=padding: raw("AvgPool3D", x, **DEEP_WINDOW, padding=p)
        yield Line("AvgPool3DGrad", gradient(means, 0), (volume,), rtol=1e-4)
        for whole in (False, True):
            placed = partial(pooled_with_places, padding=padding, whole=whole)
            yield Line("MaxPoolWithArgmax", placed, (image,))
            maxima = lambda x, p=padding, w=whole: pooled_with_places(x, p, w)[0]
            yield Line("MaxPoolGradWithArgmax", gradient(maxima, 0), (image,))
    yield Line("LRNGrad", gradient(lambda x: tf.nn.lrn(x, 1), 0), (image,), rtol=1e-3)


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
        yield Line(f"Resize{name}Grad", gradient(resized, 0), (image,), rtol=1e-3)
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
        yield Line(name, gradient(cropped, by), specs, unit_boxes, rtol=1e-2)
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
