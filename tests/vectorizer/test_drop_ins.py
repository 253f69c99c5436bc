"""`vectorized_map` and `pfor` in the place of TensorFlow's: where these are right, the results are theirs."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import VectorizationError, pfor, vectorized_map

R = np.random.default_rng(3)
X = tf.constant(R.normal(size=(4, 3)).astype("f"))
W = tf.constant(R.normal(size=(3, 3)).astype("f"))
Pair = collections.namedtuple("Pair", "left right")


def equal(ours, theirs):
    tf.nest.assert_same_structure(ours, theirs)
    for mine, other in zip(tf.nest.flatten(ours, True), tf.nest.flatten(theirs, True), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def same(fn, elems):
    equal(vectorized_map(fn, elems), tf.vectorized_map(fn, elems))


def same_pfor(fn, iters):
    equal(pfor(fn, iters), tf_pfor(fn, iters))


def tf_pfor(fn, iters):
    from tensorflow.python.ops.parallel_for import control_flow_ops

    return control_flow_ops.pfor(fn, iters)


# -- elements --------------------


def test_a_tensor_a_tuple_a_dict_and_a_namedtuple():
    same(lambda x: tf.linalg.matvec(W, x), X)
    same(lambda pair: pair[0] * pair[1], (X, X + 1))
    same(lambda d: {"sum": tf.reduce_sum(d["x"]), "x": d["x"]}, {"x": X})
    same(lambda pair: Pair(pair.right, [pair.left["a"], 2.0]), Pair({"a": X}, X * 2))


def test_arrays_variables_and_numbers():
    same(lambda x: x * 2, np.arange(6).reshape(3, 2))
    same(lambda x: x + 1.0, tf.Variable(X))
    same(lambda x: (x, 3, np.float32(2.0)), X)


def test_a_first_dimension_of_one_fits_any_number():
    same(lambda pair: pair[0] + pair[1], (X, X[:1]))
    with pytest.raises(ValueError, match=r"differ in their number of elements: \[3, 4\]"):
        vectorized_map(lambda pair: pair[0], (X, X[:3]))


def test_what_has_no_elements_is_refused():
    with pytest.raises(ValueError, match="can't map over a scalar"):
        vectorized_map(lambda x: x, 3.0)
    with pytest.raises(ValueError, match="at least one tensor"):
        vectorized_map(lambda x: x, ())


def test_rows_of_a_ragged_tensor():
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    out = vectorized_map(lambda x: (tf.reduce_sum(x), x * 2.0), ragged)
    np.testing.assert_array_equal(out[0], [3.0, 0.0, 3.0])
    assert out[1].to_list() == [[2.0, 4.0], [], [6.0]]


def test_rows_that_are_ragged_themselves():
    ragged = tf.ragged.constant([[[1.0, 2.0], [3.0]], [], [[], [4.0]]])
    out = vectorized_map(lambda x: (x.flat_values * 2.0, x.row_lengths(), x), ragged)
    assert out[0].to_list() == [[2.0, 4.0, 6.0], [], [8.0]]
    assert out[1].to_list() == [[2, 1], [], [0, 1]]
    assert out[2].to_list() == ragged.to_list()


def test_rows_of_a_sparse_tensor():
    dense = tf.constant([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    out = vectorized_map(lambda row: (tf.reduce_sum(row.values), row), tf.sparse.from_dense(dense))
    np.testing.assert_array_equal(out[0], [3.0, 0.0, 3.0])
    np.testing.assert_array_equal(tf.sparse.to_dense(out[1]), dense)


def test_captured_tensors_and_variables_are_shared():
    bias, scale = tf.constant([1.0, 2.0, 3.0]), tf.Variable(2.0)
    same(lambda x: x * scale + bias, X)


# -- results --------------------


def test_pfor_over_a_number_of_iterations():
    same_pfor(lambda i: tf.gather(X, i) * 2.0, 4)
    same_pfor(lambda i: tf.cast(i, tf.float32), tf.constant(3))
    same_pfor(lambda i: i, tf.constant(3, tf.int64))


@pytest.mark.parametrize("iters", [0, tf.constant(0)], ids=["int", "tensor"])
def test_no_iterations(iters):
    out = pfor(lambda i: (tf.gather(X, i), i), iters)
    assert [tuple(item.shape) for item in out] == [(0, 3), (0,)]


def test_results_that_are_none_or_operations():
    first, nothing, second = pfor(lambda i: (tf.gather(X, i), None, {"none": None}), 4)
    np.testing.assert_allclose(first, X)
    assert nothing is None
    assert second == {"none": None}


def test_results_of_different_size():
    out = vectorized_map(lambda n: tf.range(n), tf.constant([2, 0, 3]))
    assert out.to_list() == [[0, 1], [], [0, 1, 2]]
    out = vectorized_map(lambda n: tf.ones([2, n, 1]), tf.constant([2, 0]))
    assert out.to_list() == [[[[1.0], [1.0]]] * 2, [[], []]]


def test_a_sparse_result():
    def fn(x):
        return tf.SparseTensor([[0, 1], [1, 2]], x[:2], [2, 3])

    same(fn, X)


def test_sparse_results_of_different_size_take_the_largest():
    def fn(n):
        count = tf.cast(n, tf.int64)
        return tf.SparseTensor(tf.range(count)[:, None], tf.ones([n]), count[None])

    out = vectorized_map(fn, tf.constant([2, 0, 3]))
    np.testing.assert_array_equal(tf.sparse.to_dense(out), [[1, 1, 0], [0, 0, 0], [1, 1, 1]])


def test_a_ragged_result():
    out = vectorized_map(lambda x: tf.RaggedTensor.from_row_lengths(x, [1, 0, 2]), tf.constant([[1, 2, 3], [4, 5, 6]]))
    assert out.to_list() == [[[1], [], [2, 3]], [[4], [], [5, 6]]]
    out = vectorized_map(lambda n: tf.RaggedTensor.from_row_lengths(tf.range(n), [1, n - 1]), tf.constant([2, 1, 3]))
    assert out.to_list() == [[[0], [1]], [[0], []], [[0], [1, 2]]]


def test_indexed_slices_become_dense():
    def fn(x):
        return tf.IndexedSlices(x[None], tf.constant([1]), tf.constant([3, 3]))

    same(fn, X)


def test_the_gradient_of_an_embedding():
    table = tf.Variable(R.normal(size=(5, 2)).astype("f"))

    def fn(k):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, k) ** 2)
        return tape.gradient(loss, table)

    same(fn, tf.constant([[0, 1], [4, 4], [2, 0]]))


# -- errors and fallbacks --------------------


def test_the_first_rejected_element_raises_its_own_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        vectorized_map(lambda k: tf.gather([1.0, 2.0], k), tf.constant([0, 5]))


def test_in_a_graph_a_rejected_element_fails_the_run():
    graph = tf.function(lambda k: vectorized_map(lambda k: tf.gather([1.0, 2.0], k), k))
    np.testing.assert_array_equal(graph(tf.constant([0, 1])), [1.0, 2.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="rejects an element"):
        graph(tf.constant([0, 5]))


def test_fallbacks_are_named_or_refused():
    loop = lambda x: tf.linalg.expm(tf.linalg.diag(x))
    unique = lambda x: tf.size(tf.raw_ops.UniqueV2(x=x[:, None], axis=[0]).y)
    with pytest.warns(UserWarning, match="UniqueV2"):
        vectorized_map(unique, X)
    with pytest.raises(VectorizationError, match="UniqueV2"):
        vectorized_map(unique, X, fallback_to_while_loop=False)
    same(loop, X)


def test_parallel_iterations_are_checked():
    np.testing.assert_array_equal(pfor(lambda i: i, 5, parallel_iterations=2), range(5))
    with pytest.raises(ValueError, match="above 1"):
        pfor(lambda i: i, 5, parallel_iterations=1)
    with pytest.raises(ValueError, match="pfor_config"):
        pfor(lambda i, pfor_config: i, 5, parallel_iterations=2)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_every_element_draws_its_own_random_numbers(wrap):
    draw = wrap(lambda: vectorized_map(lambda x: x + tf.random.uniform([]), tf.zeros([50])))
    first, second = draw(), draw()
    assert len({float(item) for item in tf.concat([first, second], 0)}) == 100


# -- reductions over the iterations --------------------


def test_sum_mean_and_stack_over_the_iterations():
    def fn(i, pfor_config):
        x = tf.gather(X, i)
        total, mean = pfor_config.reduce_sum(x), pfor_config.reduce_mean(x)
        return x - mean, total, tf.gather(pfor_config.reduce_concat(x), 3 - i)

    same_pfor(fn, 4)
    equal(tf.function(lambda n: pfor(fn, n))(tf.constant(4)), pfor(fn, 4))


def test_any_reduction_over_the_iterations():
    def fn(i, pfor_config=None):
        x = tf.gather(X, i)
        low, high = pfor_config.reduce(lambda rows, k: (tf.reduce_min(rows, 0), tf.reduce_sum(k)), x, i)
        return low, high * i

    same_pfor(fn, 4)


def test_a_reduction_that_some_iterations_do_not_reach_is_refused():
    def fn(i, pfor_config):
        return tf.cond(i > 1, lambda: pfor_config.reduce_sum(i), lambda: i)

    with pytest.raises(VectorizationError, match="some iterations don't take part in"):
        pfor(fn, 4)


def test_a_reduction_takes_tensors():
    with pytest.raises(ValueError, match="takes tensors"):
        pfor(lambda i, pfor_config: pfor_config.reduce_sum(3.0), 4)


# -- kept programs --------------------


class Scaler:
    def __init__(self):
        self.factors = {"deep": [1.0, 2.0]}
        self.table = np.ones(3)

    def __call__(self, x):
        return x * self.factors["deep"][1] + self.table[0]


def test_what_changes_deep_inside_is_seen():
    scaler, ones = Scaler(), tf.ones([2])
    np.testing.assert_array_equal(vectorized_map(scaler, ones), [3.0, 3.0])
    scaler.factors["deep"][1] = 5.0
    np.testing.assert_array_equal(vectorized_map(scaler, ones), [6.0, 6.0])
    scaler.table[0] = 10.0
    np.testing.assert_array_equal(vectorized_map(scaler, ones), [15.0, 15.0])


def test_a_large_array_that_is_written_to_is_read_again():
    large, ones = np.zeros(2**19), tf.ones([2], tf.float64)
    read = lambda x: x + large[7]
    np.testing.assert_array_equal(vectorized_map(read, ones), [1.0, 1.0])
    large[7] = 1.0
    np.testing.assert_array_equal(vectorized_map(read, ones), [2.0, 2.0])
