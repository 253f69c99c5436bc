"""`vectorized_map` and `pfor` inside of programs: graphs, XLA, tapes, each other; and when programs are kept."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from tests.vectorizer.test_drop_ins import W, X, equal, tf_pfor
from vectorizer import pfor, vectorize, vectorized_map

# -- in graphs --------------------


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("shape", [(4, 3), (None, 3), (None, None)], ids=str)
def test_inside_a_graph_of_known_and_unknown_sizes(jit, shape):
    def fn(x):
        h = tf.while_loop(lambda t, h: t < 3, lambda t, h: (t + 1, tf.tanh(h + x)), (0, x))[1]
        return tf.nn.softmax(h), tf.reduce_sum(x[1:]), tf.cond(x[0] > 0, lambda: x, lambda: -x)

    graph = tf.function(
        lambda x: vectorized_map(fn, x), input_signature=[tf.TensorSpec(shape, tf.float32)], jit_compile=jit
    )
    equal(graph(X), tf.vectorized_map(fn, X))
    assert graph.get_concrete_function().output_shapes[0].as_list()[0] == shape[0]


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])
def test_pfor_inside_a_graph(jit):
    fn = lambda i: tf.gather(X, i) * tf.cast(i, tf.float32)
    equal(tf.function(lambda: pfor(fn, 4), jit_compile=jit)(), tf_pfor(fn, 4))
    if not jit:
        graph = tf.function(lambda n: pfor(fn, n))
        equal(graph(tf.constant(2)), tf_pfor(fn, 2))
        assert graph(tf.constant(0)).shape == (0, 3)


def test_python_control_flow_becomes_tensorflows():
    def fn(x):
        for _ in tf.range(2):
            if x[0] > 0:
                x = x - 1.0
        return x

    equal(vectorized_map(fn, X), tf.stack([tf.function(fn)(row) for row in X]))


def test_in_a_loop_of_a_graph():
    @tf.function
    def program(x):
        for _ in tf.range(3):
            x = vectorized_map(lambda row: tf.linalg.matvec(W, row), x)
        return x

    np.testing.assert_allclose(program(X), X @ tf.linalg.matrix_transpose(W @ W @ W), rtol=1e-4)


def test_ragged_and_sparse_in_a_graph():
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    out = tf.function(lambda x: vectorized_map(lambda row: row * 2.0, x))(ragged)
    assert out.to_list() == [[2.0, 4.0], [], [6.0]]
    total = tf.function(lambda x: vectorized_map(lambda row: tf.reduce_sum(row.values), x))
    np.testing.assert_array_equal(total(tf.sparse.from_dense([[0.0, 1.0], [2.0, 3.0]])), [1.0, 5.0])


# -- nested in each other --------------------


def gram(outer, inner):
    return lambda x: outer(lambda a: inner(lambda b: tf.tensordot(a, b, 1), x), x)


PAIRS = [
    (vectorized_map, vectorized_map),
    (tf.vectorized_map, vectorized_map),
    (vectorized_map, tf.vectorized_map),
    (vectorized_map, tf.map_fn),
    (tf.map_fn, vectorized_map),
]


@pytest.mark.parametrize("pair", PAIRS, ids=["ours", "in theirs", "theirs in ours", "map_fn in ours", "in map_fn"])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_one_in_another(pair, graph):
    program = gram(*pair)
    np.testing.assert_allclose((tf.function(program) if graph else program)(X), X @ tf.transpose(X), rtol=1e-5)


def test_pfor_in_pfor():
    fn = lambda i: pfor(lambda j: tf.gather(X, i) * tf.gather(X, j)[0], 4)
    equal(pfor(fn, 4), tf_pfor(lambda i: tf_pfor(lambda j: tf.gather(X, i) * tf.gather(X, j)[0], 4), 4))


def test_pfor_of_a_number_of_iterations_that_differs():
    out = pfor(lambda i: pfor(lambda j: i * j, i), 4)
    assert out.to_list() == [[], [0], [0, 2], [0, 3, 6]]


def test_inside_a_vectorized_program():
    check(
        lambda x, k: vectorized_map(lambda row: row * k, x),
        [tf.TensorSpec([2, 3]), tf.TensorSpec([])],
        [(np.full((2, 3), n, "f"), np.float32(n)) for n in (1, 2, 3)],
    )


# -- gradients --------------------


def fn_of(x):
    return tf.reduce_sum(tf.sin(x) * x)


def test_under_a_tape():
    with tf.GradientTape() as tape:
        tape.watch(X)
        total = tf.reduce_sum(vectorized_map(fn_of, X))
    np.testing.assert_allclose(tape.gradient(total, X), tf.cos(X) * X + tf.sin(X), rtol=1e-5, atol=1e-6)


def test_gradient_of_what_is_captured():
    scale, weight = tf.Variable(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        total = tf.reduce_sum(vectorized_map(lambda x: x * scale * weight, X))
    for found, wanted in zip(tape.gradient(total, (scale, weight)), (3.0, 2.0), strict=True):
        np.testing.assert_allclose(found, wanted * tf.reduce_sum(X), rtol=1e-5)


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])
def test_gradient_in_the_same_graph_and_second_order(jit):
    @tf.function(jit_compile=jit)
    def program(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                total = tf.reduce_sum(vectorized_map(fn_of, x))
            first = inner.gradient(total, x)
        return first, outer.gradient(first, x)

    first, second = program(X)
    np.testing.assert_allclose(first, tf.cos(X) * X + tf.sin(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, 2 * tf.cos(X) - X * tf.sin(X), rtol=1e-5, atol=1e-6)


def test_gradient_inside_through_a_loop():
    def fn(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda t, y: t < 3, lambda t, y: (t + 1, tf.sin(y) * x), (0, x))[1]
        return tape.gradient(y, x)

    wanted = tf.stack([fn(row) for row in X])
    np.testing.assert_allclose(vectorized_map(fn, X), wanted, rtol=1e-5, atol=1e-6)


def test_a_jacobian_by_pfor():
    x = X[0]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.tanh(tf.linalg.matvec(W, x))
        parts = tf.unstack(y)
    rows = tf.stack([tape.gradient(part, x) for part in parts])

    @tf.function
    def ours(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.tanh(tf.linalg.matvec(W, x))
        return pfor(lambda i: tape.gradient(y, x, output_gradients=tf.one_hot(i, 3)), 3)

    np.testing.assert_allclose(ours(x), rows, rtol=1e-5)


# -- programs that are kept --------------------


def counting(count, name):
    def fn(x):
        count.append(name)
        return x * 2.0

    return fn


CALLS = {
    "vectorized_map": lambda fn: vectorized_map(fn, X),
    "another number of elements": lambda fn: [vectorized_map(fn, X[:n]) for n in (1, 2, 3)],
    "a function of a function": lambda fn: vectorized_map(lambda x: fn(x) + 1.0, X),
    "pfor": lambda fn: pfor(lambda i: fn(tf.gather(X, i)), 3),
    "ragged": lambda fn: vectorized_map(fn, tf.RaggedTensor.from_row_lengths(X[0], [1, 2])),
}


@pytest.mark.parametrize("name", CALLS)
def test_eager_calls_never_trace_again(name):
    traced = []
    fn = counting(traced, name)
    CALLS[name](fn)
    count = len(traced)
    for _ in range(3):
        CALLS[name](fn)
    assert len(traced) == count == 1


def test_vectorized_functions_never_trace_again():
    traced = []
    v = vectorize(counting(traced, "v"), [tf.TensorSpec([None], tf.float32)])
    for n in (1, 2, 3):
        v(np.ones([n, n + 1], "f"))
        v(tf.ragged.constant([[1.0], []]))
        v.map([(np.ones([n], "f"),)] * n)
        v.padded(np.ones([n, n], "f"), lengths=[np.full([n], n, np.int32)])
    assert len(traced) == 1


def test_the_same_lambda_made_again_is_not_traced_again():
    traced = []
    for _ in range(3):
        vectorized_map(lambda x: (traced.append(1), x * 2.0)[1], X)
    assert len(traced) == 1


def test_what_a_function_reads_may_change():
    class Scale:
        by = 1.0

        def __init__(self):
            self.own = 1.0

        def __call__(self, x):
            return x * self.own

    scale, factor, table = Scale(), 1.0, np.ones([3], "f")
    fn = lambda x: x * factor * table
    for factor in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(vectorized_map(fn, X), X * factor)
        scale.own = factor
        np.testing.assert_allclose(vectorized_map(scale, X), X * factor)
        np.testing.assert_allclose(vectorized_map(lambda x: scale(x), X), X * factor)
    table[0] = 0.0
    np.testing.assert_allclose(vectorized_map(fn, X), X * factor * table)


def test_programs_are_not_kept_for_ever(monkeypatch):
    from vectorizer import drop_ins

    monkeypatch.setattr(drop_ins, "_programs", drop_ins._Programs(4))

    def call():
        bias = tf.Variable(1.0)
        vectorized_map(lambda x: x + bias, X)
        return weakref.ref(bias)

    held = call()
    for k in range(5):
        vectorized_map(lambda x, k=k: x + k, X)
    gc.collect()
    assert held() is None
