"""Loops, branches and lists: rows that stop at different times, take different branches, touch different slots."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import vectorize

R = np.random.default_rng(1)
SCALAR_INT = [tf.TensorSpec([], tf.int32)]
SCALAR = [tf.TensorSpec([], tf.float32)]
SEQUENCE = [tf.TensorSpec([None, 3], tf.float32)]
COUNTED = [tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([], tf.int32)]
W = tf.constant(R.normal(size=(3, 3)).astype("f"))


def sequences(*lengths):
    return [(R.normal(size=(n, 3)).astype("f"),) for n in lengths]


def counted(*pairs):
    return [(R.normal(size=(n, 3)).astype("f"), np.int32(m)) for n, m in pairs]


INTS = [(np.int32(k),) for k in (0, 1, 7, 3)]
FLOATS = [(np.float32(x),) for x in (0.5, -2.0, 3.0, 0.0, np.nan)]


def cell(h, x):
    return tf.tanh(tf.linalg.matvec(W, h) + x)


def test_counter_to_a_per_example_limit():
    check(
        lambda n: tf.while_loop(lambda t, a: t < n, lambda t, a: (t + 1, a * 2.0 + 1.0), (0, 1.0))[1],
        SCALAR_INT,
        INTS,
    )


def test_the_counter_itself_read_after_the_loop():
    check(lambda n: tf.while_loop(lambda t, a: t < n, lambda t, a: (t + 2, a + 1.0), (0, 0.0)), SCALAR_INT, INTS)


def test_limit_with_equality_and_reversed_comparison():
    check(
        lambda n: tf.while_loop(lambda t, a: t <= n, lambda t, a: (t + 1, a + 1.0), (0, 0.0))[1],
        SCALAR_INT,
        INTS,
    )
    check(
        lambda n: tf.while_loop(lambda t, a: n > t, lambda t, a: (t + 1, a + 1.0), (0, 0.0))[1],
        SCALAR_INT,
        INTS,
    )


def test_counting_down():
    check(lambda n: tf.while_loop(lambda t, a: t > 0, lambda t, a: (t - 1, a + 1.0), (n, 0.0)), SCALAR_INT, INTS)


def test_rnn_over_a_variable_length():
    def rnn(x):
        n = tf.shape(x)[0]
        return tf.while_loop(lambda t, h: t < n, lambda t, h: (t + 1, cell(h, x[t])), (0, tf.zeros([3])))[1]

    v = check(rnn, SEQUENCE, sequences(0, 1, 5, 3))
    assert "masked by its bound" in str(v.report)


def test_rnn_over_slices_whose_size_only_tensorflow_knows():
    def rnn(x):
        n = tf.shape(x)[0]
        join = lambda t, h: tf.tanh(tf.concat([x[t : t + 1], h], 1) @ tf.concat([W, W], 0))
        return tf.while_loop(lambda t, h: t < n, lambda t, h: (t + 1, join(t, h)), (0, tf.zeros([1, 3])))[1]

    check(rnn, SEQUENCE, sequences(0, 1, 5, 3))


def test_rnn_whose_count_is_an_input():
    def rnn(x, n):
        return tf.while_loop(lambda t, h: t < n, lambda t, h: (t + 1, cell(h, x[t])), (0, tf.zeros([3])))[1]

    check(rnn, COUNTED, counted((5, 5), (5, 2), (3, 0), (1, 1), (0, 0)))
    check(rnn, COUNTED, counted((5, 6), (5, 2), (0, 1)))  # reads beyond its own end: flagged, neighbours right


def test_a_failed_row_with_a_huge_count_holds_up_nobody():
    def rnn(x, n):
        return tf.while_loop(lambda t, h: t < n, lambda t, h: (t + 1, cell(h, x[t])), (0, tf.zeros([3])))[1]

    check(rnn, COUNTED, counted((5, 5), (2, 2_000_000_000), (3, 1)))


def test_all_states_through_a_tensor_array():
    def rnn(x):
        n = tf.shape(x)[0]
        states = tf.TensorArray(tf.float32, size=n)

        def step(t, h, states):
            h = cell(h, x[t])
            return t + 1, h, states.write(t, h)

        _, h, states = tf.while_loop(lambda t, *_: t < n, step, (0, tf.zeros([3]), states))
        return states.stack(), h

    check(rnn, SEQUENCE, sequences(0, 1, 5, 3))


def test_tensor_array_of_fixed_size_keeps_zeros_where_nobody_wrote():
    def f(n):
        states = tf.TensorArray(tf.float32, size=8, element_shape=[])
        step = lambda t, s: (t + 1, s.write(t, tf.cast(t, tf.float32) + 1.0))
        return tf.while_loop(lambda t, s: t < n, step, (0, states))[1].stack()

    check(f, SCALAR_INT, INTS)


def test_tensor_array_slots_that_differ_between_rows():
    def f(n):
        a = tf.TensorArray(tf.float32, size=8, element_shape=[], clear_after_read=False)
        a = a.write(n, 5.0).write(7 - n, 6.0)
        return a.stack(), a.read(n), a.gather([0, n, 7])

    check(f, SCALAR_INT, INTS)
    check(f, SCALAR_INT, [(np.int32(k),) for k in (0, 9, -1, 3)])


def test_tree_through_gathered_states():
    def tree(x, children):
        n = tf.shape(x)[0]
        states = tf.TensorArray(tf.float32, size=n, element_shape=[3], clear_after_read=False)

        def step(t, states):
            kids = children[t]
            present = tf.cast(kids >= 0, tf.float32)[:, None]
            h = tf.reduce_sum(states.gather(tf.maximum(kids, 0)) * present, 0)
            return t + 1, states.write(t, cell(h, x[t]))

        return tf.while_loop(lambda t, s: t < n, step, (0, states))[1].read(n - 1)

    specs = [tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None, 2], tf.int32)]
    examples = []
    for n in (1, 4, 7, 2):
        kids = np.array([[R.integers(-1, t) if t else -1 for _ in range(2)] for t in range(n)], np.int32)
        examples.append((R.normal(size=(n, 3)).astype("f"), kids))
    check(tree, specs, examples)


def test_state_matrix_updated_slot_by_slot():
    def f(x):
        n = tf.shape(x)[0]
        step = lambda t, m: (t + 1, tf.tensor_scatter_nd_update(m, [[t]], [tf.reduce_sum(m, 0) + x[t]]))
        return tf.while_loop(lambda t, m: t < n, step, (0, tf.zeros([6, 3])))[1]

    check(f, SEQUENCE, sequences(0, 1, 5, 3))


def test_ragged_state_updated_in_place():
    def f(x):
        n = tf.shape(x)[0]
        step = lambda t, m: (t + 1, tf.tensor_scatter_nd_update(m, [[t]], [m[t] * 2.0 + 1.0]))
        return tf.while_loop(lambda t, m: t < n, step, (0, x))[1]

    check(f, SEQUENCE, sequences(1, 5, 3))


def test_ragged_state_of_constant_size():
    def f(x):
        return tf.while_loop(lambda t, m: t < 3, lambda t, m: (t + 1, tf.nn.softmax(m, 0) + x), (0, x))[1]

    check(f, SEQUENCE, sequences(1, 5, 0, 3))


def test_ragged_state_that_grows():
    def f(n):
        start = (0, tf.zeros([0, 2]))
        grow = lambda t, m: (t + 1, tf.concat([m, tf.fill([1, 2], tf.cast(t, tf.float32))], 0))
        shapes = (tf.TensorShape([]), tf.TensorShape([None, 2]))
        return tf.while_loop(lambda t, m: t < n, grow, start, shape_invariants=shapes)[1]

    check(f, SCALAR_INT, INTS)


def test_condition_on_a_float_state_newton():
    def root(a):
        step = lambda x, n: (0.5 * (x + a / x), n + 1)
        return tf.while_loop(lambda x, n: tf.abs(x * x - a) > 1e-3, step, (a, 0))

    v = check(root, SCALAR, [(np.float32(a),) for a in (2.0, 9.0, 100.0, 1.0)])
    assert "until no row is active" in str(v.report)


def test_python_control_flow_through_autograph():
    @tf.function
    def f(x):
        total = tf.zeros([3])
        for row in x:
            total += row
            if tf.reduce_sum(total) > 2.0:
                break
            if row[0] < 0.0:
                continue
            total *= 1.5
        return total

    check(f, SEQUENCE, sequences(0, 1, 5, 8))


def test_nested_loops_with_per_example_bounds():
    def f(n):
        inner = lambda t, a: (
            t + 1,
            tf.while_loop(lambda s, b: s < t, lambda s, b: (s + 1, b + 1.0), (0, a))[1],
        )
        return tf.while_loop(lambda t, a: t < n, inner, (0, 0.0))[1]

    check(f, SCALAR_INT, INTS)


def test_inner_loop_bounded_by_state():
    def f(n):
        collatz = lambda k, c: (tf.where(k % 2 == 0, k // 2, 3 * k + 1), c + 1)
        count = lambda t, s: (t + 1, s + tf.while_loop(lambda k, c: k > 1, collatz, (t, 0))[1])
        return tf.while_loop(lambda t, s: t < n, count, (1, 0))[1]

    check(f, SCALAR_INT, INTS)


def test_loop_with_a_shared_bound():
    f = lambda x: tf.while_loop(lambda t, h: t < 4, lambda t, h: (t + 1, h * 0.5 + x), (0, x))[1]
    v = check(f, SCALAR, FLOATS)
    assert "all rows together" in str(v.report)


def test_maximum_iterations():
    f = lambda n: tf.while_loop(lambda t: t < n, lambda t: (t + 1,), (0,), maximum_iterations=2)[0]
    check(f, SCALAR_INT, INTS)


def test_swapped_variables():
    f = lambda n: tf.while_loop(lambda t, a, b: t < n, lambda t, a, b: (t + 1, b, a + b), (0, 0, 1))[1:]
    check(f, SCALAR_INT, INTS)


def test_branch_on_the_example():
    check(lambda x: tf.cond(x > 0, lambda: tf.sqrt(x), lambda: x * x), SCALAR, FLOATS)


def test_branches_with_several_results_of_different_size():
    f = lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: (x[:, 0], 1), lambda: (x[1:, 1], 2))
    check(f, SEQUENCE, sequences(1, 5, 3, 2))


def test_branch_that_would_raise_where_not_taken():
    table = tf.constant([1.0, 2.0, 3.0])
    f = lambda k: tf.cond(k < 3, lambda: tf.gather(table, k), lambda: -1.0)
    check(f, SCALAR_INT, [(np.int32(k),) for k in (0, 2, 5, 3)])
    g = lambda k: tf.cond(tf.equal(k, 0), lambda: 0, lambda: 12 // k)
    check(g, SCALAR_INT, [(np.int32(k),) for k in (0, 2, 5, 3)])


def test_branch_that_would_hang_where_not_taken():
    loop = lambda k: tf.while_loop(lambda t: tf.not_equal(t, k), lambda t: (t + 1,), (0,))[0]
    check(
        lambda k: tf.cond(k >= 0, lambda: loop(k), lambda: -1),
        SCALAR_INT,
        [(np.int32(k),) for k in (-1, 2, 5)],
    )


def test_assert_inside_a_branch_and_a_loop():
    def f(n):
        def step(t):
            tf.debugging.assert_less(t, 4, "too far")
            return (t + 1,)

        return tf.cond(n > 0, lambda: tf.while_loop(lambda t: t < n, step, (0,))[0], lambda: 0)

    check(f, SCALAR_INT, [(np.int32(k),) for k in (0, 2, 5, 4)])


def test_case_with_several_outputs():
    branches = [lambda: (1.0, 10), lambda: (2.0, 20), lambda: (3.0, 30)]
    check(lambda k: tf.switch_case(k, branches), SCALAR_INT, [(np.int32(k),) for k in (0, 2, 1, 7, -1)])


def test_branch_with_a_shared_predicate_runs_one_side():
    switch = tf.Variable(True)
    f = lambda x: tf.cond(switch, lambda: x + 1.0, lambda: x - 1.0)
    v = check(f, SCALAR, FLOATS)
    assert "one branch runs" in str(v.report)
    switch.assign(False)
    assert v(np.array([1.0, 2.0], "f")).numpy().tolist() == [0.0, 1.0]


def test_branch_on_a_shared_predicate_with_ragged_results():
    switch = tf.Variable(True)
    f = lambda x: tf.cond(switch, lambda: x[1:], lambda: tf.concat([x, x], 0))
    v = check(f, SEQUENCE, sequences(1, 5, 3), slack=6)
    switch.assign(False)
    check(v, None, sequences(1, 5, 3), slack=6)


def test_loop_inside_a_branch_inside_a_loop():
    def f(x):
        n = tf.shape(x)[0]

        def step(t, h):
            more = lambda: tf.while_loop(lambda k, g: k < t, lambda k, g: (k + 1, cell(g, x[k])), (0, h))[1]
            return t + 1, tf.cond(x[t, 0] > 0, more, lambda: h * 0.5)

        return tf.while_loop(lambda t, h: t < n, step, (0, tf.ones([3])))[1]

    check(f, SEQUENCE, sequences(0, 1, 5, 7))


def test_map_fn_and_scan_inside():
    check(lambda x: tf.map_fn(lambda row: tf.reduce_sum(row) * row, x), SEQUENCE, sequences(1, 5, 3))
    check(lambda x: tf.scan(lambda a, row: a * 0.5 + row, x), SEQUENCE, sequences(1, 5, 3))
    check(lambda x: tf.foldl(lambda a, row: a * 0.5 + row, x), SEQUENCE, sequences(1, 5, 3))


def test_nested_functions_are_followed():
    @tf.function
    def twice(x):
        return x * 2.0

    check(lambda x: twice(twice(x)) + twice(tf.ones([])), SCALAR, FLOATS)


def test_list_appended_by_autograph():
    @tf.function
    def f(x):
        rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[])
        for t in tf.range(3):
            rows = rows.write(t, x * tf.cast(t, tf.float32))
        return rows.stack()

    check(f, SCALAR, FLOATS)


def test_list_appended_by_some_rows_longer_than_by_others():
    @tf.function
    def f(x):
        kept = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[3])
        for t in tf.range(tf.shape(x)[0]):
            kept = kept.write(kept.size(), x[t] * 2.0)
        return kept.stack(), kept.size()

    check(f, SEQUENCE, sequences(2, 0, 5, 1))


@pytest.mark.parametrize("batch", [0, 1, 2, 5])
def test_batch_sizes_never_retrace(batch):
    v = vectorize(lambda n: tf.while_loop(lambda t, a: t < n, lambda t, a: (t + 1, a + 1.0), (0, 0.0))[1], SCALAR_INT)
    assert v(np.arange(batch, dtype=np.int32)).numpy().tolist() == [float(k) for k in range(batch)]
