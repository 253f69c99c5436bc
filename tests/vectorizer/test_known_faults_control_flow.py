"""What users of TensorFlow's pfor, JAX's vmap and others reported as wrong: loops, branches and lists."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import VectorizationError, vectorize, vectorized_map
from vectorizer.tf_internals import nested_graph

R = np.random.default_rng(7)
NUMBER, COUNT = tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32)
VECTOR, ROWS = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None, 3], tf.float32)
NUMBERS = [(np.float32(x),) for x in (0.5, -2.0, 3.0, 0.0)]
COUNTS = [(np.int32(n),) for n in (0, 3, 1, 5)]
BATCH = tf.constant([0.5, -1.0, 2.0, -0.3])


def rows(*lengths):
    return [(R.normal(size=(n, 3)).astype("f"),) for n in lengths]


def every_op(graph):
    """The ops of a graph and of its loops and branches."""
    for op in graph.get_operations():
        yield op
        for name in ("cond", "body", "then_branch", "else_branch"):
            if name in op.node_def.attr:
                yield from every_op(nested_graph(graph, op.get_attr(name).name))


def test_loop_with_mixed_stacked_and_shared_state():
    """tensorflow#46559"""
    step = lambda t, a, b, c: (t + 1, a + b, b, c * 2.0)
    f = lambda x: tf.while_loop(lambda t, *_: t < 5, step, (0, x, tf.ones([1]), tf.zeros([1])))
    check(f, [tf.TensorSpec([1])], [(np.float32([x]),) for x in (1.0, -2.0)])


def test_branch_keeps_the_static_batch_size():
    """tensorflow#46818"""
    v = vectorize(lambda z: tf.cond(z > 0, lambda: z, lambda: -z), [NUMBER])
    assert v.compile(4, ()).concrete.structured_outputs[0][0].shape == [4]


@pytest.mark.parametrize("compiled", [None, False, True], ids=["eager", "graph", "xla"])
def test_gradient_outside_through_a_branch_is_dense(compiled):
    """tensorflow#46818, pfor hands back IndexedSlices"""
    v = vectorize(lambda z: tf.cond(z > 0, lambda: z * z, lambda: -z), [NUMBER])
    found = gradient_outside(v, BATCH, compiled)
    np.testing.assert_allclose(found, tf.where(BATCH > 0, 2 * BATCH, -1.0))


def gradient_outside(v, batch, compiled):
    def run(batch):
        with tf.GradientTape() as tape:
            tape.watch(batch)
            total = tf.reduce_sum(v(batch))
        return tape.gradient(total, batch)

    return (run if compiled is None else tf.function(run, jit_compile=compiled))(batch)


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
def test_gradient_of_a_scan_over_shared_data(compiled):
    """tensorflow#41789"""
    data = tf.constant([0.3, -0.5, 0.8])

    def f(z):
        return tf.reduce_sum(tf.scan(lambda a, d: a * z + d, data, initializer=z))

    by_hand = []
    for z in BATCH:
        with tf.GradientTape() as tape:
            tape.watch(z)
            total = f(z)
        by_hand.append(tape.gradient(total, z))
    np.testing.assert_allclose(gradient_outside(vectorize(f, [NUMBER]), BATCH, compiled), by_hand, rtol=1e-5)


def test_gradient_of_a_map_inside_a_loop_under_xla():
    """tensorflow#73367"""

    @tf.function(jit_compile=True)
    def program(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            step = lambda t, x: (t + 1, vectorized_map(tf.sin, x))
            y = tf.while_loop(lambda t, _: t < 2, step, (0, x), maximum_iterations=2)[1]
        return y, tape.gradient(y, x)

    y, slope = program(BATCH)
    np.testing.assert_allclose(y, tf.sin(tf.sin(BATCH)), rtol=1e-5)
    np.testing.assert_allclose(slope, tf.cos(tf.sin(BATCH)) * tf.cos(BATCH), rtol=1e-5)


def test_branch_with_a_scatter_compiles():
    """tensorflow#66535"""
    updated = lambda z: tf.tensor_scatter_nd_update(tf.zeros([4]), [[1]], [z * z])
    check(lambda z: tf.cond(z > 0, lambda: updated(z), lambda: tf.fill([4], z)), [NUMBER], NUMBERS)


def kalman(y, noise):
    """Log-likelihood of a local linear trend."""
    move, see = tf.constant([[1.0, 0.1], [0.0, 1.0]]), tf.constant([[1.0, 0.0]])

    def step(t, mean, cov, total):
        mean, cov = move @ mean, move @ cov @ tf.transpose(move) + noise * tf.eye(2)
        spread, miss = see @ cov @ tf.transpose(see) + 0.5, y[t] - (see @ mean)[0, 0]
        gain = cov @ tf.transpose(see) / spread
        total -= 0.5 * (miss * miss / spread[0, 0] + tf.math.log(spread[0, 0]))
        return t + 1, mean + gain * miss, (tf.eye(2) - gain @ see) @ cov, total

    start = (0, tf.zeros([2, 1]), tf.eye(2), 0.0)
    return tf.while_loop(lambda t, *_: t < tf.shape(y)[0], step, start)[3]


SERIES = [(R.normal(size=n).astype("f"), np.float32(q)) for n, q in ((3, 0.1), (0, 0.2), (4, 1.0))]


def test_kalman_filter_compiles():
    """probability#1767"""
    check(kalman, [VECTOR, NUMBER], SERIES, rtol=1e-4)


def test_gradient_outside_of_a_kalman_filter():
    """probability#1018"""
    noise = tf.constant([q for _, q in SERIES])
    series = tf.ragged.constant([y.tolist() for y, _ in SERIES], dtype=tf.float32, ragged_rank=1)
    v = vectorize(kalman, [VECTOR, NUMBER])
    with tf.GradientTape() as tape:
        tape.watch(noise)
        total = tf.reduce_sum(v(series, noise))
    found = tape.gradient(total, noise)
    for k, (y, q) in enumerate(SERIES):
        q = tf.constant(q)
        with tf.GradientTape() as tape:
            tape.watch(q)
            one = kalman(tf.constant(y), q)
        np.testing.assert_allclose(found[k], tape.gradient(one, q) if len(y) else 0.0, rtol=1e-3, atol=1e-6)


def test_a_loop_variable_as_the_mapped_input():
    """tensorflow#43822"""

    @tf.function
    def program(n):
        total = tf.zeros([3])
        for t in tf.range(n):
            total += vectorized_map(lambda k, t=t: tf.cast(k * t, tf.float32), tf.range(3))
        return total

    np.testing.assert_allclose(program(tf.constant(4)), [0.0, 6.0, 12.0])


def test_case_with_two_outputs():
    branches = [lambda: (1.0, 10), lambda: (2.0, 20), lambda: (3.0, 30)]
    check(lambda k: tf.switch_case(k, branches), [COUNT], COUNTS)


def test_a_write_at_an_index_of_its_own():
    """pfor refuses it even with its fallback"""

    def f(n):
        items = tf.TensorArray(tf.float32, size=6, element_shape=[], clear_after_read=False)
        items = items.write(n, 5.0)
        return items.stack(), items.read(5 - n)

    check(f, [COUNT], [*COUNTS, (np.int32(6),)])


def test_a_loop_that_ends_only_in_the_branch_that_is_taken():
    """jax#2947"""
    search = lambda k: tf.while_loop(lambda t: tf.not_equal(t, k), lambda t: (t + 1,), (0,))[0]
    check(lambda k: tf.cond(k >= 0, lambda: search(k), lambda: -1), [COUNT], [(np.int32(k),) for k in (-1, 2, 5)])


def slot_by_slot(x):
    n = tf.shape(x)[0]
    items = tf.TensorArray(tf.float32, size=n, element_shape=[3], clear_after_read=False)

    def step(t, items):
        return t + 1, tf.cond(x[t, 0] > 0, lambda: items.write(t, x[t]), lambda: items.write(t, -x[t]))

    return tf.while_loop(lambda t, _: t < n, step, (0, items))[1].stack()


def test_an_update_in_a_branch_touches_one_slot():
    """jax#8192: linear, not quadratic"""
    v = check(slot_by_slot, [ROWS], rows(0, 3, 1))
    whole = [
        op for op in every_op(v.compile(2, (7,)).concrete.graph) if op.type == "SelectV2" and 7 in op.outputs[0].shape
    ]
    assert not whole, "a choice between two whole lists in every step"


def test_the_counter_stays_one_number_for_all_rows():
    """jax#1190: x[t] is one slice, no gather"""

    def last(x):
        return tf.while_loop(lambda t, _: t < tf.shape(x)[0], lambda t, h: (t + 1, h + x[t]), (0, tf.zeros([3])))

    kinds = {op.type for op in every_op(vectorize(last, [ROWS]).compile(2, (5,)).concrete.graph)}
    assert "GatherNd" not in kinds
    check(last, [ROWS], rows(0, 3, 1))


def test_a_predicate_of_the_inner_of_two_maps():
    """jax#2960"""
    x = tf.constant(R.normal(size=(3, 2)).astype("f"))
    y = tf.constant(R.normal(size=2).astype("f"))
    f = lambda a, b: tf.cond(a + b > 0, lambda: a * 2.0, lambda: b * 3.0)
    found = vectorized_map(lambda row: vectorized_map(lambda pair: f(*pair), (row, y)), x)
    np.testing.assert_allclose(found, tf.where(x + y > 0, x * 2.0, tf.broadcast_to(y * 3.0, x.shape)), rtol=1e-6)


def test_a_shared_predicate_still_runs_one_branch():
    """jax#8409, jax#7159"""
    switch = tf.Variable(True)
    v = vectorize(lambda x: tf.cond(switch, lambda: tf.sin(x), lambda: tf.cos(x)), [NUMBER])
    assert "one branch runs" in str(v.report)
    kinds = {op.type for op in every_op(v.compile().concrete.graph)}
    assert any(kind in kinds for kind in ("If", "StatelessIf"))
    assert "Select" not in kinds
    assert "SelectV2" not in kinds


def test_writes_to_a_variable_are_refused_by_name():
    """pfor runs them once, with example 0"""
    total = tf.Variable(0.0)

    def f(x):
        total.assign_add(x)
        return x * 2.0

    with pytest.raises(VectorizationError, match="AssignAddVariableOp"):
        vectorize(f, [NUMBER])


def test_an_assertion_holds_for_every_example():
    """pfor checks example 0 only"""

    def f(x):
        tf.debugging.assert_positive(x)
        return x * 2.0

    check(f, [NUMBER], [(np.float32(x),) for x in (1.0, -1.0, 2.0)])
