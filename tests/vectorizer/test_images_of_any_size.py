"""Ops that are native on images of different sizes in one batch: spreading and resizing."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check

ANY = tf.TensorSpec([None, None, 2], tf.float32)


def images(*sizes, channels=2):
    generator = np.random.default_rng(0)
    return [(generator.normal(size=[height, width, channels]).astype("f"),) for height, width in sizes]


SIZES = ((3, 4), (1, 1), (5, 2), (2, 7))


def long(*values):
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("reach", "stride", "other"), [(5, 2, 1), long(3, 2, 0), long(2, 3, 0), long(3, 1, 0), long(1, 2, 1)]
)
def test_transposed_convolution(padding, reach, stride, other):
    """`other`: several sizes of the result have as many windows; this far from the usual one."""
    kernel = np.random.default_rng(1).normal(size=[reach, reach, 3, 2]).astype("f")

    def spread(image):
        shape = tf.shape(image)
        if padding == "SAME":
            height, width = shape[0] * stride - other, shape[1] * stride - other
        else:
            height, width = (shape[0] - 1) * stride + reach + other, (shape[1] - 1) * stride + reach + other
        return tf.nn.conv2d_transpose(image[None], kernel, [1, height, width, 3], stride, padding)[0]

    check(spread, [ANY], images(*SIZES), rtol=1e-4)


def test_transposed_convolution_over_one_variable_axis():
    kernel = np.random.default_rng(1).normal(size=[3, 2, 3, 2]).astype("f")

    def spread(image):
        return tf.nn.conv2d_transpose(image[None], kernel, [1, tf.shape(image)[0] * 2, 8, 3], 2, "SAME")[0]

    check(spread, [tf.TensorSpec([None, 4, 2], tf.float32)], images((3, 4), (1, 4), (5, 4)), rtol=1e-4)


def test_a_size_that_does_not_fit_fails_its_row():
    kernel = np.ones([3, 3, 3, 2], "f")

    def spread(image, height):
        return tf.nn.conv2d_transpose(image[None], kernel, [1, height, 2 * tf.shape(image)[1], 3], 2, "SAME")[0]

    examples = [(image, np.int32(height)) for (image,), height in zip(images(*SIZES), (6, 3, 9, 4), strict=True)]
    check(spread, [ANY, tf.TensorSpec([], tf.int32)], examples, rtol=1e-4, slack=9)


@pytest.mark.parametrize("method", ["ResizeBilinear", "ResizeNearestNeighbor"])
@pytest.mark.parametrize(
    ("align_corners", "half_pixel_centers"), [(False, True), long(False, False), long(True, False)]
)
def test_resizing(method, align_corners, half_pixel_centers):
    """To a fixed size, to twice the own size, and to a size of its own."""
    how = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}

    def resized(image, size):
        resize = lambda wanted: getattr(tf.raw_ops, method)(images=image[None], size=wanted, **how)[0]
        return resize([5, 4]), resize(tf.shape(image)[:2] * 2), resize(size)

    wanted = ([3, 9], [1, 1], [4, 4], [7, 2])
    examples = [(image, np.array(size, "int32")) for (image,), size in zip(images(*SIZES), wanted, strict=True)]
    check(resized, [ANY, tf.TensorSpec([2], tf.int32)], examples, slack=5)


def test_an_empty_image_cannot_be_resized():
    examples = images((3, 4), (0, 2), (2, 2))
    check(lambda image: tf.image.resize(image, [3, 3]), [ANY], examples)
