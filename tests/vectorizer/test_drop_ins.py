"""`vectorized_map` and `pfor` in the place of TensorFlow's."""

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import VectorizationError, pfor, vectorized_map

R = np.random.default_rng(3)
X = tf.constant(R.normal(size=(4, 3)).astype("f"))
W = tf.constant(R.normal(size=(3, 3)).astype("f"))


def same(fn, elems):
    ours, theirs = vectorized_map(fn, elems), tf.vectorized_map(fn, elems)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, theirs)


def test_a_tensor_a_tuple_and_a_dict():
    same(lambda x: tf.linalg.matvec(W, x), X)
    same(lambda pair: pair[0] * pair[1], (X, X + 1))
    same(lambda d: {"sum": tf.reduce_sum(d["x"]), "x": d["x"]}, {"x": X})


def test_captured_tensors_are_shared():
    bias = tf.constant([1.0, 2.0, 3.0])
    same(lambda x: x + bias, X)


def test_pfor_over_a_number_of_iterations():
    np.testing.assert_allclose(pfor(lambda i: tf.gather(X, i) * 2.0, 4), X * 2.0)
    np.testing.assert_allclose(pfor(lambda i: tf.cast(i, tf.float32), tf.constant(3)), [0.0, 1.0, 2.0])


def test_results_that_are_none():
    first, nothing = pfor(lambda i: (tf.gather(X, i), None), 4)
    np.testing.assert_allclose(first, X)
    assert nothing is None


def test_inside_a_graph_and_nested():
    @tf.function
    def gram(x):
        return vectorized_map(lambda a: vectorized_map(lambda b: tf.tensordot(a, b, 1), x), x)

    np.testing.assert_allclose(gram(X), tf.matmul(X, X, transpose_b=True), rtol=1e-5)


def test_under_a_tape():
    with tf.GradientTape() as tape:
        tape.watch(X)
        total = tf.reduce_sum(vectorized_map(lambda x: tf.reduce_sum(x * x), X))
    np.testing.assert_allclose(tape.gradient(total, X), 2 * X, rtol=1e-6)


def test_eager_calls_never_trace_again():
    traced = []

    def fn(x):
        traced.append(1)
        return x * 2.0

    vectorized_map(fn, X)
    count = len(traced)
    for _ in range(3):
        vectorized_map(fn, X)
    assert len(traced) == count


def test_the_first_rejected_element_raises_its_own_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        vectorized_map(lambda k: tf.gather([1.0, 2.0], k), tf.constant([0, 5]))


def test_fallbacks_are_named_or_refused():
    unique = lambda x: tf.size(tf.raw_ops.UniqueV2(x=x[:, None], axis=[0]).y)
    with pytest.warns(UserWarning, match="Unique"):
        vectorized_map(unique, X)
    with pytest.raises(VectorizationError, match="Unique"):
        vectorized_map(unique, X, fallback_to_while_loop=False)


def test_results_of_different_size():
    out = vectorized_map(lambda n: tf.range(n), tf.constant([2, 0, 3]))
    assert out.to_list() == [[0, 1], [], [0, 1, 2]]
