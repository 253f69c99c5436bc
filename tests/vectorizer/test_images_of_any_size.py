"""Ops that are native on images of different sizes in one batch: spreading, padding, resizing."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check

ANY = tf.TensorSpec([None, None, 2], tf.float32)


def images(*sizes, channels=2):
    generator = np.random.default_rng(0)
    return [(generator.normal(size=[height, width, channels]).astype("f"),) for height, width in sizes]


SIZES = ((3, 4), (1, 1), (5, 2), (2, 7))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("reach", "stride", "other"), [(3, 2, 0), (2, 3, 0), (3, 1, 0), (5, 2, 1), (1, 2, 1)])
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


def test_padding_to_a_fixed_size():
    """By the number that is missing, which differs between examples."""

    def padded(boxes):
        missing = tf.maximum(6 - tf.shape(boxes)[0], 0)
        return tf.reshape(tf.pad(boxes[:6], [[0, missing], [0, 0]], constant_values=-1.0), [6, 4])

    generator = np.random.default_rng(0)
    boxes = [(generator.normal(size=[n, 4]).astype("f"),) for n in (2, 0, 6, 8)]
    check(padded, [tf.TensorSpec([None, 4], tf.float32)], boxes)


@pytest.mark.parametrize("shape", [[None, 3], [2, 3], [0, 3]])
def test_padding_by_numbers_of_its_own(shape):
    def padded(x, amounts, constant):
        return tf.pad(x, [[amounts[0], amounts[1]], [1, amounts[0]]], constant_values=constant), tf.pad(
            x, tf.reshape(tf.concat([amounts, amounts], 0), [2, 2])
        )

    generator = np.random.default_rng(0)
    sizes = (3, 1, 0, 2) if shape[0] is None else (shape[0],) * 4
    amounts = ([1, 2], [0, 0], [3, 1], [-1, 1])  # the last row fails
    examples = [
        (generator.normal(size=[n, 3]).astype("f"), np.array(own, "int32"), np.float32(k))
        for k, (n, own) in enumerate(zip(sizes, amounts, strict=True))
    ]
    specs = [tf.TensorSpec(shape, tf.float32), tf.TensorSpec([2], tf.int32), tf.TensorSpec([], tf.float32)]
    check(padded, specs, examples, slack=6, jit=shape[0] is None)
