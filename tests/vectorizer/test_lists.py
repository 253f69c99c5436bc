"""Lists whose length or whose elements differ between rows, in branches, nested loops and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import grad

R = np.random.default_rng(19)
NUMBER, COUNT = tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32)
ROWS, IDS = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None], tf.int32)
COUNTS = [(np.int32(n),) for n in (0, 1, 5, 3)]
SEQUENCES = [(R.normal(size=(n, 3)).astype("f"),) for n in (0, 1, 4, 3)]


def growing(dtype=tf.float32, shape=()):
    return tf.TensorArray(dtype, size=0, dynamic_size=True, element_shape=shape, clear_after_read=False)


@tf.function
def appended_in_a_branch(x):
    kept = growing(shape=[3])
    for t in tf.range(tf.shape(x)[0]):
        if x[t, 0] > 0:
            kept = kept.write(kept.size(), x[t])
    return kept.stack()


@tf.function
def appended_in_a_nested_loop(x):
    kept = growing(shape=[3])
    for t in tf.range(tf.shape(x)[0]):
        for s in tf.range(t):
            kept = kept.write(kept.size(), x[s])
    return kept.stack()


@tf.function
def appended_in_a_branch_of_a_loop_in_a_branch(x):
    kept = growing(shape=[3])
    for t in tf.range(tf.shape(x)[0]):
        if x[t, 1] > 0:
            for s in tf.range(t + 1):
                if x[s, 0] > 0:
                    kept = kept.write(kept.size(), x[s])
        else:
            kept = kept.write(kept.size(), x[t])
    return kept.stack()


@tf.function
def appended_every_other_step(x):
    kept = growing()
    for t in tf.range(6):
        if t % 2 == 0:
            kept = kept.write(kept.size(), x)
    return kept.stack()


@tf.function
def appended_while_large(x):
    kept = growing()
    while x > 0.5:
        kept = kept.write(kept.size(), x)
        x = x * 0.7
    return kept.stack()


@tf.function
def stack_machine(ops):
    stack, top = growing(), 0
    for t in tf.range(tf.shape(ops)[0]):
        if ops[t] >= 0:
            stack = stack.write(top, tf.cast(ops[t], tf.float32))
            top += 1
        elif top >= 2:
            stack = stack.write(top - 2, stack.read(top - 1) + stack.read(top - 2) * 2.0)
            top -= 1
    return top, stack.stack()


@tf.function
def elements_of_different_length(x):
    parts = tf.TensorArray(tf.float32, size=0, dynamic_size=True, infer_shape=False, element_shape=[None])
    total = 0.0
    for t in tf.range(tf.shape(x)[0]):
        parts = parts.write(parts.size(), tf.concat([x[t], x[t]], 0) if x[t, 0] > 0 else x[t, :1])
    for t in tf.range(parts.size()):
        total += tf.reduce_sum(parts.read(t)) * tf.cast(tf.size(parts.read(t)), tf.float32)
    return total


def two_in_one_step(n):
    step = lambda t, a: (t + 1, a.write(a.size(), t).write(a.size() + 1, t * 10))
    return tf.while_loop(lambda t, _: t < n, step, (0, growing(tf.int32)))[1].stack()


def every_other_slot(n):
    step = lambda t, a: (t + 1, a.write(2 * t, t))
    return tf.while_loop(lambda t, _: t < n, step, (0, growing(tf.int32)))[1].stack()


def swapped_in_a_branch(n):
    def step(t, a, b):
        v = tf.cast(t, tf.float32)
        return t + 1, *tf.cond(t % 3 == n % 3, lambda: (a.write(a.size(), v), b), lambda: (b.write(b.size(), -v), a))

    _, a, b = tf.while_loop(lambda t, *_: t < n, step, (0, growing(), growing()))
    return a.stack(), b.stack(), a.size()


def swapped_of_other_length(n):
    made = lambda *items: tf.TensorArray(tf.float32, size=len(items), element_shape=[]).unstack(list(items))
    start = (0, made(1.0, 2.0), made(3.0, 4.0, 5.0))
    _, a, b = tf.while_loop(lambda t, *_: t < n, lambda t, a, b: (t + 1, b, a), start)
    return a.stack(), b.stack()


def written_or_not(x):
    items = growing()
    return tf.cond(x > 0, lambda: items.write(0, x).write(1, x), lambda: items).stack()


FLOATS = [(np.float32(x),) for x in (0.4, -1.0, 3.0)]
CASES = {
    "appended_in_a_branch": (appended_in_a_branch, [ROWS], SEQUENCES),
    "appended_in_a_nested_loop": (appended_in_a_nested_loop, [ROWS], SEQUENCES),
    "appended_in_a_branch_of_a_loop_in_a_branch": (appended_in_a_branch_of_a_loop_in_a_branch, [ROWS], SEQUENCES),
    "appended_every_other_step": (appended_every_other_step, [NUMBER], FLOATS),
    "appended_while_large": (appended_while_large, [NUMBER], FLOATS),
    "stack_machine": (
        stack_machine,
        [IDS],
        [(np.array(ops, np.int32),) for ops in ([], [1, 2, -1], [3, 4, 5, -1, -1, -1])],
    ),
    "elements_of_different_length": (elements_of_different_length, [ROWS], SEQUENCES),
    "two_in_one_step": (two_in_one_step, [COUNT], COUNTS),
    "every_other_slot": (every_other_slot, [COUNT], COUNTS),
    "swapped_in_a_branch": (swapped_in_a_branch, [COUNT], COUNTS),
    "swapped_of_other_length": (swapped_of_other_length, [COUNT], COUNTS),
    "written_or_not": (written_or_not, [NUMBER], FLOATS),
}
COMPILED = (
    "appended_in_a_branch",
    "appended_in_a_branch_of_a_loop_in_a_branch",
    "appended_every_other_step",
    "stack_machine",
)


@pytest.mark.parametrize("name", CASES)
def test_a_list(name):
    function, specs, examples = CASES[name]
    check(function, specs, examples, slack=20)


@pytest.mark.full
@pytest.mark.parametrize("name", COMPILED)
def test_a_list_under_xla(name):
    function, specs, examples = CASES[name]
    check(function, specs, examples, slack=20)


def through_a_tensor_array(x):
    n = tf.shape(x)[0]
    items = tf.TensorArray(tf.float32, size=n, element_shape=[3])
    step = lambda t, items, h: (t + 1, items.write(t, h * x[t]), tf.tanh(h + x[t]))
    _, items, h = tf.while_loop(lambda t, *_: t < n, step, (0, items, tf.ones([3])))
    return tf.reduce_sum(items.stack() ** 2) + tf.reduce_sum(h)


def through_a_ragged_state(x):
    n = tf.shape(x)[0]
    return tf.reduce_sum(tf.while_loop(lambda t, _: t < n, lambda t, h: (t + 1, tf.tanh(h * x)), (0, x))[1])


@pytest.mark.full
@pytest.mark.parametrize("function", [through_a_tensor_array, through_a_ragged_state])
def test_gradient_inside(function):
    check(grad(function), [ROWS], SEQUENCES, rtol=1e-4)


def test_branches_of_different_fixed_size():
    """Neither is stretched to the other's size."""
    check(lambda x: tf.cond(x > 0, lambda: tf.fill([6], x), lambda: tf.fill([1], x)), [NUMBER], FLOATS, slack=8)
