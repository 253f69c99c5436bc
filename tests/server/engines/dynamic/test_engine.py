"""The dynamic engine's answers are the function's, whatever the program; how many launches they take."""

import numpy as np
import pytest
import tensorflow as tf

from server.engines.batch_result import RowError
from tests.support import random_programs
from tests.support.dynamic_engines import answers, engine_of

ENGINES = ["dynamic", "dynamic_depth", "dynamic_hybrid"]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [*(("dynamic", k) for k in range(12)), *(("dynamic_hybrid", k) for k in range(5)), ("dynamic_depth", 0)],
)
def test_random_programs(kind, seed):
    specs = dict(zip(("rows", "vector", "number", "count"), random_programs.SPECS, strict=True))
    program = random_programs.program(seed)
    engine = engine_of(kind, lambda rows, vector, number, count: program(rows, vector, number, count), **specs)
    result = answers(engine, random_programs.examples(seed, 5))
    assert not result.stats.failure
    assert result.stats.isolated == sum(isinstance(row, RowError) for row in result.rows)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_loop_that_the_network_ends(kind):
    """Newton's method until it's near enough: how many steps depends on what is computed."""

    def root(x):
        near = lambda y: tf.abs(y * y - x) > 1e-4 * x
        return tf.while_loop(near, lambda y: [(y + x / y) / 2], [x + 1.0])[0]

    engine = engine_of(kind, root, x=tf.TensorSpec([], tf.float32))
    result = answers(engine, [(np.float32(x),) for x in (1.0, 2.0, 100.0, 1e6, 0.25)])
    assert result.stats.isolated == 0


@pytest.mark.parametrize("kind", ENGINES)
def test_branches_on_values(kind):
    branchy = lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * 2, lambda: x * x)
    engine = engine_of(kind, branchy, x=tf.TensorSpec([3], tf.float32))
    generator = np.random.default_rng(0)
    assert answers(engine, [(generator.normal(size=3).astype("f"),) for _ in range(6)]).stats.isolated == 0


@pytest.mark.parametrize("kind", ENGINES)
def test_one_bad_example_is_answered_alone(kind):
    engine = engine_of(
        kind, lambda x, k: tf.gather(x * 2, k), x=tf.TensorSpec([4], tf.float32), k=tf.TensorSpec([], tf.int32)
    )
    result = answers(engine, [(np.ones(4, "f"), np.int32(k)) for k in (0, 3, 9, 1)])
    assert result.stats.isolated == 1


@pytest.mark.parametrize("kind", ENGINES)
def test_results_whose_shape_depends_on_values(kind):
    positive = lambda x: tf.reduce_sum(tf.boolean_mask(x * 2, x > 0)) + tf.cast(tf.size(tf.unique(x)[0]), tf.float32)
    engine = engine_of(kind, positive, x=tf.TensorSpec([None], tf.float32))
    examples = [([1, -1, 1],), ([],), ([-2],), ([3, 4, 5, 5],)]
    assert answers(engine, [(np.array(*item, "f"),) for item in examples]).stats.isolated == 0


def test_alike_nodes_of_different_lengths_share_launches():
    """Five recurrences of lengths 1 to 5 take as many launches as the longest alone."""
    weight = tf.constant(np.eye(4, dtype="f"))

    def recurrence(x):
        n = tf.shape(x)[0]
        step = lambda t, h: (t + 1, tf.tanh(tf.linalg.matvec(weight, h) + x[t]))
        return tf.while_loop(lambda t, h: t < n, step, (0, tf.zeros([4])))[1]

    engine = engine_of("dynamic", recurrence, x=tf.TensorSpec([None, 4], tf.float32))
    launches = []
    for lengths in ([5], [1, 2, 3, 4, 5]):
        rows = [(np.ones([n, 4], "f"),) for n in lengths]
        launches.append(answers(engine, rows).stats.launches)
    assert launches[0] == launches[1]


@pytest.mark.parametrize("kind", ENGINES)
def test_an_assertion_on_values(kind):
    def checked(x):
        tf.debugging.assert_less(tf.reduce_sum(x), 10.0, "too much")
        return x * 2

    engine = engine_of(kind, checked, x=tf.TensorSpec([None], tf.float32))
    result = answers(engine, [(np.ones(n, "f"),) for n in (3, 12, 0, 9, 10)])
    assert result.stats.isolated == 2
    assert not result.stats.failure


def test_why_a_batch_was_answered_alone():
    def grown(x):
        """A list whose elements differ in shape."""
        items = tf.TensorArray(tf.float32, size=2, infer_shape=False, element_shape=None)
        return tf.reduce_sum(items.write(0, x).write(1, tf.concat([x, x], 0)).concat())

    result = answers(engine_of("dynamic", grown, x=tf.TensorSpec([2], tf.float32)), [(np.ones(2, "f"),)])
    assert result.stats.program == "alone"
    assert "TensorList" in result.stats.failure


def test_ever_new_shapes_dont_fill_memory(monkeypatch):
    monkeypatch.setattr("server.engines.dynamic.expansion._LARGEST_TABLE", 20)
    engine = engine_of("dynamic", lambda x: tf.nn.softmax(x) + tf.cumsum(x), x=tf.TensorSpec([None], tf.float32))
    for length in range(1, 60):
        answers(engine, [(np.ones(length, "f"),)])
    tables = engine._expander.tables()
    assert len(tables.signatures.all) < 40
    assert len(tables.templates) < 40


def test_the_fastest_way_is_kept():
    engine = engine_of("dynamic_auto", lambda x: tf.tanh(x) * 2 + x, x=tf.TensorSpec([3], tf.float32))
    engine.prepare([(np.ones(3, "f"),)] * 4, lambda *step: None)
    answers(engine, [(np.ones(3, "f"),), (np.zeros(3, "f"),)])


@pytest.mark.parametrize("kind", ENGINES)
def test_derivatives_of_a_recurrence(kind):
    """Reverse mode pushes what it needs onto lists, and pops it."""

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            step = lambda t, h: (t + 1, tf.tanh(h * x[t] + 0.5))
            y = tf.while_loop(lambda t, h: t < tf.shape(x)[0], step, (0, tf.constant(0.1)))[1]
        return tape.gradient(y, x)

    engine = engine_of(kind, slope, x=tf.TensorSpec([None], tf.float32))
    result = answers(engine, [(np.linspace(0, 1, n, dtype="f"),) for n in (3, 1, 5, 3)])
    assert result.stats.isolated == 0, result.stats.failure


@pytest.mark.parametrize("kind", ENGINES)
def test_layers_on_each_row_share_launches_whatever_the_length(kind):
    weight = tf.constant(np.linspace(-1, 1, 12, dtype="f").reshape(3, 4))

    def layers(x, segment):
        y = tf.nn.relu(tf.matmul(x, weight) + [1.0, 2.0, 3.0, 4.0])
        sums = tf.math.unsorted_segment_sum(tf.concat([y, tf.square(x)], 1), segment, 3)
        return tf.tanh(sums), tf.gather(y, segment * 0)

    engine = engine_of(kind, layers, x=tf.TensorSpec([None, 3], tf.float32), segment=tf.TensorSpec([None], tf.int32))
    generator = np.random.default_rng(0)
    examples = [(generator.normal(size=(n, 3)).astype("f"), generator.integers(-1, 3, n)) for n in (4, 1, 7, 2, 5)]
    result = answers(engine, examples)
    assert result.stats.isolated == 0, result.stats.failure
    bad = [(np.ones((2, 3), "f"), [0, 1]), (np.ones((3, 3), "f"), [0, 3, 1]), (np.ones((0, 3), "f"), [])]
    assert answers(engine, bad).stats.isolated >= 1
