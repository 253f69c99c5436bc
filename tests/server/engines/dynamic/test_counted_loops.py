"""Loops whose steps grow at once give what they give step by step: lists read and written, in any order of places."""

import numpy as np
import pytest
import tensorflow as tf

from server.engines.dynamic.counted_loops import as_counted
from tests.support.dynamic_engines import answers, engine_of, loop_of

KINDS = ["dynamic", "dynamic_hybrid"]
SEQUENCES = [(np.arange(n * 3, dtype="f").reshape(n, 3) / 7 - 1,) for n in (4, 0, 1, 6, 2)]
X = tf.TensorSpec([None, 3], tf.float32)


def new_list(n):
    return tf.TensorArray(tf.float32, size=n, element_shape=[3], clear_after_read=False)


def recurrence(x):
    n = tf.shape(x)[0]
    return tf.while_loop(lambda t, h: t < n, lambda t, h: (t + 1, tf.tanh(h + x[t])), (0, tf.zeros([3])))[1]


def swapped(x):
    """Two carries that change places: the next step's are not the results of this step's nodes in order."""
    n = tf.shape(x)[0]
    step = lambda t, a, b: (t + 1, b, tf.tanh(a + x[t]))
    _, a, b = tf.while_loop(lambda t, a, b: t < n, step, (0, tf.zeros([3]), tf.ones([3])))
    return a - b


def backwards(x):
    """Each step writes at a place that is computed."""
    n = tf.shape(x)[0]
    step = lambda t, h, out: (t + 1, tf.tanh(h + x[n - 1 - t]), out.write(n - 1 - t, h))
    return tf.while_loop(lambda t, h, out: t < n, step, (0, tf.zeros([3]), new_list(n)))[2].stack()


def one_place(x):
    """Every step writes the same element: the last one counts."""
    n = tf.shape(x)[0]
    step = lambda t, out: (t + 1, out.write(0 * t, x[t] * 2.0))
    return tf.while_loop(lambda t, out: t < n, step, (0, new_list(1)))[1].stack()


def earlier(x):
    """Each step reads what the step two before it wrote; the first two read what nobody wrote."""
    n = tf.shape(x)[0]
    step = lambda t, out: (t + 1, out.write(t, x[t] + out.read(tf.maximum(t - 2, 0))))
    return tf.while_loop(lambda t, out: t < n, step, (0, new_list(n)))[1].stack()


def later(x):
    """Each step reads a place that is written in a later one."""
    n = tf.shape(x)[0]
    step = lambda t, out: (t + 1, out.write(t, x[t] + out.read(n - 1 - t)))
    return tf.while_loop(lambda t, out: t < n, step, (0, new_list(n)))[1].stack()


def mapped(x):
    return tf.map_fn(lambda row: tf.reduce_sum(tf.sin(row) * row), x)


def branching(x):
    """Steps that don't need each other, but whose body isn't straight-line."""
    return tf.map_fn(lambda row: tf.cond(row[0] > 0, lambda: row * 2, lambda: -row), x)


def limited(x):
    n = tf.shape(x)[0]
    body = lambda t, h: (t + 1, h * 0.5 + x[t])
    return tf.while_loop(lambda t, h: tf.logical_and(t < n, t < 3), body, (0, tf.ones([3])))[1]


PROGRAMS = [recurrence, swapped, backwards, one_place, earlier, later, mapped, branching, limited]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_all_steps_at_once(kind, program):
    result = answers(engine_of(kind, lambda x: program(x), x=X), SEQUENCES)
    assert result.stats.isolated == 0
    assert not result.stats.failure


def test_which_loops_count():
    assert as_counted(loop_of(recurrence, X)).values
    assert as_counted(loop_of(mapped, X)).independent
    assert as_counted(loop_of(backwards, X)).writes[0].counter is None
    halved = lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) > 1, lambda y: [y / 2], [x])[0]
    assert as_counted(loop_of(halved, X)) is None
    by_two = lambda x: tf.while_loop(lambda t, y: t < 6, lambda t, y: (t + 2, y + x[0]), (0, x[0]))[1]
    assert as_counted(loop_of(by_two, X)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_out_of_range_fails_alone(kind):
    n = 3
    body = lambda t, h, x: (t + 1, h + x[t], x)
    program = lambda x: tf.while_loop(lambda t, h, x: t < n, body, (0, tf.zeros([3]), x))[1]
    assert answers(engine_of(kind, program, x=X), SEQUENCES).stats.isolated == 3
