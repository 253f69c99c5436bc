"""Two models that share a device: a batch of `heavy` takes tens of milliseconds, one of `light` next to nothing."""

import tensorflow as tf

from server import model

SIZE = 512
LAYERS = 300
KERNEL = tf.random.stateless_normal([SIZE, SIZE], seed=(1, 2), stddev=SIZE**-0.5)


@model(inputs={"seed": tf.TensorSpec([], tf.float32)}, max_batch_size=8)
def heavy(seed):
    x = tf.sin(seed * tf.range(1.0, SIZE + 1.0))
    for _ in tf.range(LAYERS):
        x = tf.tanh(tf.linalg.matvec(KERNEL, x, transpose_a=True))
    return tf.reduce_sum(x)


@model(inputs={"x": tf.TensorSpec([], tf.float32)}, samples=[0.0, 1.0, 2.0], max_batch_size=16)
def light(x):
    return 3.0 * x + 1.0
