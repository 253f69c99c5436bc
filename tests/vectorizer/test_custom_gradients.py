"""`tf.custom_gradient` and override maps: the gradient is the user's, inside and outside of the vectorized function."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import grad, vectorize

X = tf.TensorSpec([3], tf.float32)
XS = np.random.default_rng(3).normal(size=(5, 3)).astype("f")


@tf.custom_gradient
def clip_gradient(x):
    return tf.identity(x), lambda dy: tf.clip_by_norm(dy, 0.5)


@tf.custom_gradient
def lopsided(x, y):
    """The product, with made-up gradients that read both arguments."""
    product = x * y

    def gradient(dy):
        return dy * 5.0 * tf.reduce_sum(x), dy * tf.sin(product)

    return product, gradient


def outside(fn, x):
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x)
    return tape.gradient(y, x)


def clipped(x):
    return tf.reduce_sum(clip_gradient(x) ** 2 * 3.0)


def in_control_flow(x):
    for k in tf.range(3):
        x = lopsided(x, tf.cast(k + 1, tf.float32) * x)
        if tf.reduce_sum(x) > 0:
            x = clip_gradient(tf.sin(x))
    return x


@tf.function
def summed_control_flow(x):
    return tf.reduce_sum(in_control_flow(x))


def with_a_swish(x):
    return tf.nn.silu(x) * tf.nn.gelu(lopsided(x, tf.nn.relu(x)))


@pytest.mark.parametrize("fn", [clipped, in_control_flow, with_a_swish], ids=lambda fn: fn.__name__)
def test_outside(fn):
    v = vectorize(fn, [X], strict=True)
    wanted = [outside(v.per_example, row) for row in XS]
    np.testing.assert_allclose(outside(v, XS), wanted, rtol=1e-4, atol=1e-5)
    compiled = tf.function(lambda x: outside(v, x), autograph=False, jit_compile=fn is not in_control_flow)
    np.testing.assert_allclose(compiled(tf.constant(XS)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fn", [clipped, summed_control_flow])
def test_inside(fn):
    v = vectorize(grad(fn), [X], strict=True)
    np.testing.assert_allclose(v(XS), [outside(fn, row) for row in XS], rtol=1e-4, atol=1e-5)


def test_the_norm_is_clipped_for_each_row():
    norms = np.linalg.norm(outside(vectorize(clipped, [X]), XS * 100), axis=1)
    np.testing.assert_allclose(norms, 0.5, rtol=1e-5)


def test_rows_of_different_length():
    v = vectorize(lambda x: tf.reduce_sum(clip_gradient(x) ** 2), [tf.TensorSpec([None])], strict=True)
    rows = [[1.0, 2.0, 3.0], [4.0], [], [5.0, 6.0]]
    found = outside(lambda x: v(tf.RaggedTensor.from_tensor(x, [3, 1, 0, 2])), tf.ragged.constant(rows).to_tensor())
    for row, gradient in zip(rows, found, strict=True):
        wanted = outside(lambda x: tf.reduce_sum(clip_gradient(x) ** 2), tf.constant(row, tf.float32))
        np.testing.assert_allclose(gradient[: len(row)], wanted, rtol=1e-5)
        np.testing.assert_array_equal(gradient[len(row) :], 0)


def test_rows_of_the_other_branch_get_none():
    @tf.custom_gradient
    def constant_slope(x):
        return tf.identity(x), lambda dy: tf.fill(tf.shape(x), 7.0)

    def fn(x):
        return constant_slope(x) if x[0] > 0 else x * 2

    v = vectorize(fn, [X])
    wanted = [outside(v.per_example, row) for row in XS]
    np.testing.assert_allclose(outside(v, XS), wanted)


def test_second_derivatives():
    def fn(x):
        return tf.reduce_sum(lopsided(x, x) ** 2)

    def twice(fn, x):
        return outside(lambda x: outside(fn, x), x)

    v = vectorize(fn, [X])
    np.testing.assert_allclose(twice(v, XS), [twice(tf.function(fn), row) for row in XS], rtol=1e-4)


def test_variables_get_the_sum():
    weights = tf.Variable([1.0, 2.0, 3.0], name="weights")

    @tf.custom_gradient
    def scaled(x):
        def gradient(dy, variables):
            return dy * 3.0, [dy * x * 11.0]

        return x * weights, gradient

    v = vectorize(lambda x: tf.reduce_sum(scaled(x) ** 2), [X])
    with tf.GradientTape() as tape:
        y = v(XS)
    found = tape.gradient(y, weights)
    wanted = np.zeros(3)
    for row in XS:
        with tf.GradientTape() as tape:
            y = v.per_example(row)
        wanted += tape.gradient(y, weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_ordinary_variables_get_their_gradient():
    weights = tf.Variable([1.0, 2.0, 3.0])
    v = vectorize(lambda x: tf.reduce_sum(x * weights), [X])
    with tf.GradientTape() as tape:
        y = v(XS)
    np.testing.assert_allclose(tape.gradient(y, weights), XS.sum(axis=0), rtol=1e-5)


def test_a_value_that_all_rows_share_is_told():
    weights = tf.Variable([1.0, 2.0, 3.0])
    v = vectorize(lambda x: tf.reduce_sum(x * clip_gradient(weights)), [X])
    with warnings.catch_warnings(record=True) as told, tf.GradientTape(persistent=True) as tape:
        warnings.simplefilter("always")
        x = tf.Variable(XS)
        y = v(x)
    with warnings.catch_warnings(record=True) as more:
        warnings.simplefilter("always")
        assert np.isnan(tape.gradient(y, weights)).all()
        np.testing.assert_allclose(tape.gradient(y, x), np.tile([1.0, 2.0, 3.0], (5, 1)))
    assert any("all rows share" in str(item.message) for item in [*told, *more])


def test_an_override_map():
    @tf.RegisterGradient("TestStraightThrough")
    def straight_through(op, gradient):
        return gradient * (1.0 + op.inputs[0])

    def fn(x):
        with tf.compat.v1.get_default_graph().gradient_override_map({"Sign": "TestStraightThrough"}):
            return tf.sign(x)

    v = vectorize(fn, [X])
    np.testing.assert_array_equal(v(XS), np.sign(XS))
    np.testing.assert_allclose(outside(v, XS), 1 + XS, rtol=1e-6)


def test_what_cannot_be_vectorized_refuses_the_gradient_only():
    @tf.custom_gradient
    def by_python(x):
        return x * 2, lambda dy: tf.py_function(lambda item: item * 3, [dy], tf.float32)

    v = vectorize(by_python, [X])
    np.testing.assert_allclose(v(XS), XS * 2)
    with pytest.raises(ValueError, match="calls back into Python"):
        outside(v, XS)


def test_a_swish_is_an_ordinary_product():
    """Its custom gradient only saves memory; an image model has dozens, and tracing each would take seconds."""
    v = vectorize(lambda x: tf.nn.silu(x, beta=1.5), [X])
    assert "CustomGradient" not in {entry.op_type for entry in v.report.entries}
    np.testing.assert_allclose(outside(v, XS), [outside(v.per_example, row) for row in XS], rtol=1e-5)
