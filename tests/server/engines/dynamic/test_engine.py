"""The dynamic engine's answers are the function's, whatever the program; how many launches they take."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from server.engines import build_engine
from server.engines.batch_result import RowError, as_array
from server.engines.settings import EngineSettings
from server.registry import collect_models, model
from tests.support import random_programs

NUMBER = itertools.count()
ENGINES = ["dynamic", "dynamic_depth", "dynamic_hybrid"]


def engine_of(kind, function, **inputs):
    with collect_models() as registered:
        model(f"program{next(NUMBER)}", inputs=inputs)(function)
    return build_engine(kind, registered[0], EngineSettings(engine=kind))


def answers(engine, examples):
    rows = [
        tuple(as_array(value, tensor.dtype) for value, tensor in zip(example, engine.inputs, strict=True))
        for example in examples
    ]
    result = engine.run(rows, engine.buckets()[-1].bucket)
    for row, got in zip(rows, result.rows, strict=True):
        try:
            wanted = engine.per_example(row)
        except tf.errors.OpError:
            assert isinstance(got, RowError)
            continue
        for one, other in zip(got, wanted, strict=True):
            assert one.shape == other.shape
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_array_equal(one, other)
    return result


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("seed", range(12))
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
