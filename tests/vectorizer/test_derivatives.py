"""Derivatives taken inside the per-example function, and outside of the vectorized one."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import grad, hessian, jacobian, vectorize

R = np.random.default_rng(2)
VECTOR = [tf.TensorSpec([3], tf.float32)]
SEQUENCE = [tf.TensorSpec([None, 3], tf.float32)]
W = tf.constant(R.normal(size=(3, 3)).astype("f"))
KERNEL = tf.constant(R.normal(size=(2, 2, 1, 2)).astype("f"))


def vectors(count=4):
    return [(R.normal(size=3).astype("f"),) for _ in range(count)]


def sequences(*lengths):
    return [(R.normal(size=(n, 3)).astype("f"),) for n in lengths]


SCALARS = {
    "quadratic": lambda x: tf.reduce_sum(tf.linalg.matvec(W, x) * x),
    "softmax": lambda x: tf.nn.softmax(x)[1],
    "logsumexp": lambda x: tf.reduce_logsumexp(x),
    "layer_norm": lambda x: tf.reduce_sum(
        (x - tf.reduce_mean(x)) * tf.math.rsqrt(tf.math.reduce_variance(x) + 0.1) * [1.0, 2.0, 3.0]
    ),
    "slices": lambda x: x[0] * x[2] + tf.reduce_sum(x[1:] * x[:-1]),
    "gather": lambda x: tf.reduce_sum(tf.gather(x, [0, 0, 2]) ** 2),
    "concat_split": lambda x: tf.reduce_sum(tf.concat(tf.split(x, 3)[::-1], 0) * [1.0, 4.0, 9.0]),
    "broadcast": lambda x: tf.reduce_sum(x[:, None] * tf.ones([3, 2]) * tf.tanh(x)[:, None]),
    "max": lambda x: tf.reduce_max(x) * tf.reduce_min(x),
    "cond": lambda x: tf.cond(x[0] > 0, lambda: tf.sin(x[1]), lambda: x[2] * x[2]),
    "where": lambda x: tf.reduce_sum(tf.where(x > 0, tf.sqrt(tf.abs(x) + 1.0), x * x)),
    "loop": lambda x: tf.reduce_sum(tf.while_loop(lambda t, a: t < 3, lambda t, a: (t + 1, tf.sin(a) * x), (0, x))[1]),
    "conv": lambda x: tf.reduce_sum(tf.nn.conv2d(tf.tensordot(x, x, 0)[None, :, :, None], KERNEL, 1, "SAME") ** 2),
    "pool": lambda x: tf.reduce_sum(tf.nn.max_pool2d(tf.tensordot(x, x, 0)[None, :, :, None], 2, 1, "VALID") ** 2),
    "mean_pool": lambda x: tf.reduce_sum(tf.nn.avg_pool2d(tf.tensordot(x, x, 0)[None, :, :, None], 2, 1, "VALID") ** 2),
}


@pytest.mark.parametrize("name", SCALARS)
def test_gradient_inside(name):
    check(grad(SCALARS[name]), VECTOR, vectors(), rtol=1e-4)


def test_gradient_with_respect_to_a_filter():
    def loss(image, kernel):
        return tf.reduce_sum(tf.nn.conv2d(image[None, :, :, None], kernel, 1, "SAME") ** 2)

    specs = [tf.TensorSpec([4, 4]), tf.TensorSpec([2, 2, 1, 3])]
    shared_kernel = tf.Variable(R.normal(size=(2, 2, 1, 3)).astype("f"))

    def per_example_gradient(image):
        with tf.GradientTape() as tape:
            value = loss(image, shared_kernel)
        return tape.gradient(value, shared_kernel)

    check(per_example_gradient, specs[:1], [(R.normal(size=(4, 4)).astype("f"),) for _ in range(3)], rtol=1e-4)


RAGGED = {
    "sum_of_squares": lambda x: tf.reduce_sum(x * x),
    "attention": lambda x: tf.reduce_sum(tf.nn.softmax(x @ tf.transpose(x)) @ x),
    "mean": lambda x: tf.reduce_sum(tf.reduce_mean(tf.concat([x, x * x], 0), 0)),
    "tail": lambda x: tf.reduce_sum(x[1:] * x[:-1]),
    "reversed": lambda x: tf.reduce_sum(x[::-1] * x),
    "bias": lambda x: tf.reduce_sum(tf.tanh(x + [1.0, 2.0, 3.0])),
    "flat": lambda x: tf.reduce_sum(tf.sin(tf.reshape(x, [-1]))),
}


@pytest.mark.parametrize("name", RAGGED)
def test_gradient_inside_over_a_variable_length(name):
    check(grad(RAGGED[name]), SEQUENCE, sequences(1, 4, 0, 2), rtol=1e-4)


def rnn(x):
    n = tf.shape(x)[0]
    step = lambda t, h: (t + 1, tf.tanh(tf.linalg.matvec(W, h) + x[t]))
    return tf.reduce_sum(tf.while_loop(lambda t, h: t < n, step, (0, tf.zeros([3])))[1])


def test_gradient_inside_through_a_loop_of_variable_length():
    check(grad(rnn), SEQUENCE, sequences(0, 1, 5, 3), rtol=1e-4)


def test_jacobian_and_hessian():
    check(jacobian(lambda x: tf.tanh(tf.linalg.matvec(W, x))), VECTOR, vectors(), rtol=1e-4)
    check(hessian(lambda x: tf.reduce_sum(tf.sin(x) * tf.linalg.matvec(W, x))), VECTOR, vectors(), rtol=1e-4)


@pytest.mark.parametrize("fn", [rnn, RAGGED["attention"], RAGGED["tail"]], ids=["rnn", "attention", "tail"])
def test_gradient_outside(fn):
    v = vectorize(fn, SEQUENCE)
    batch = tf.ragged.constant(
        [[[1.0, 2.0, 3.0]], [], [[0.5, 0.1, -1.0], [2.0, 0.0, 1.0]]], ragged_rank=1, inner_shape=(3,)
    )
    with tf.GradientTape() as tape:
        tape.watch(batch.flat_values)
        total = tf.reduce_sum(v(batch))
    found = tf.convert_to_tensor(tape.gradient(total, batch.flat_values))
    expected = tf.concat([vectorize(grad(fn), SEQUENCE).per_example(row) for row in batch], 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
