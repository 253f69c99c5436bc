"""Models whose answers must not depend on traffic, bit for bit; and one of which they do."""

import numpy as np
import tensorflow as tf

from server import model

_RNG = np.random.default_rng(0)


def _weights(*shape):
    return tf.constant(_RNG.standard_normal(shape) / 4, tf.float32)


IN, RECURRENT, OUT = _weights(16, 64), _weights(16, 64), _weights(16, 5)
TABLE = _weights(50, 16)
FILTER = _weights(3, 3, 1, 4)


def sequences(rng):
    return rng.standard_normal((int(rng.integers(1, 9)), 16)).astype("float32")


@model(name="perceptron", inputs={"x": tf.TensorSpec([16], tf.float32)}, max_batch_size=16, reproducible=True)
def perceptron(x):
    return tf.nn.softmax(tf.linalg.matvec(OUT, tf.tanh(3.0 * x), transpose_a=True))


@model(
    name="attention",
    inputs={"x": tf.TensorSpec([None, 16], tf.float32)},
    samples=sequences,
    max_batch_size=4,
    reproducible=True,
)
def attention(x):
    keys = x @ IN
    return tf.nn.softmax(keys @ tf.transpose(keys)) @ x


@model(
    name="lstm",
    inputs={"x": tf.TensorSpec([None, 16], tf.float32)},
    samples=lambda rng: rng.standard_normal((int(rng.integers(5, 9)), 16)).astype("float32"),
    max_batch_size=4,
    reproducible=True,
)
def lstm(x):
    """Which of 16 cells is highest: an integer, made of floats that must have the same bits."""
    cell, hidden = tf.zeros([16]), tf.zeros([16])
    for t in tf.range(tf.shape(x)[0]):
        gates = tf.linalg.matvec(IN, x[t], transpose_a=True) + tf.linalg.matvec(RECURRENT, hidden, transpose_a=True)
        let_in, forget, new, out = tf.split(gates, 4)
        cell = tf.sigmoid(forget) * cell + tf.sigmoid(let_in) * tf.tanh(new)
        hidden = tf.sigmoid(out) * tf.tanh(cell)
    return tf.argmax(hidden)


@model(name="convolution", inputs={"image": tf.TensorSpec([6, 6], tf.float32)}, max_batch_size=4, reproducible=True)
def convolution(image):
    return tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(image[None, :, :, None], FILTER, 1, "SAME")), [0, 1, 2])


@model(
    name="text",
    inputs={"text": tf.TensorSpec([], tf.string)},
    samples=["hello", "wörld!"],
    max_batch_size=4,
    reproducible=True,
)
def text(text):
    """Strings in front, which XLA can't compile, and a text behind."""
    codes = tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32)
    scores = tf.nn.softmax(tf.reduce_mean(tf.gather(TABLE, codes % 50), 0))
    return {"scores": scores, "best": tf.strings.as_string(tf.argmax(scores))}


@model(
    name="lookup",
    inputs={"ids": tf.TensorSpec([None], tf.int32)},
    samples=lambda rng: rng.integers(0, 50, int(rng.integers(3, 5))).astype("int32"),
    max_batch_size=4,
    max_length=12,
    reproducible=True,
)
def lookup(ids):
    return tf.nn.softmax(tf.reduce_sum(tf.gather(TABLE, ids), 0))


@model(
    name="bessel",
    inputs={"x": tf.TensorSpec([7], tf.float32)},
    samples=lambda rng: (20 * rng.standard_normal(7)).astype("float32"),
    max_batch_size=3,
    reproducible=True,
)
def bessel(x):
    """TensorFlow's kernel takes what fills a vector register otherwise than what is left over; XLA has none."""
    doubled = 2.0 * x
    return tf.math.special.bessel_j0(doubled) + 1.0
