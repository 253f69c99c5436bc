"""One model: y = 3x + 1, refusing negative x."""

import tensorflow as tf

from server import model


@model(inputs={"x": tf.TensorSpec([], tf.float32)}, samples=[0.0, 1.0, 2.0], max_batch_size=4)
def affine(x):
    tf.debugging.assert_non_negative(x, message="x must not be negative")
    return 3.0 * x + 1.0
