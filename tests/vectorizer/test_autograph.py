"""`tf.function`s with Python control flow: autograph makes loops and branches of it, and the batch answers the same."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check, per_example
from vectorizer import vectorize

VECTOR = tf.TensorSpec([None], tf.float32)
NUMBER = tf.TensorSpec([], tf.int32)
SCALAR = tf.TensorSpec([], tf.float32)


def vectors(*lengths, seed=0):
    generator = np.random.default_rng(seed)
    return [(generator.normal(size=n).astype("f"),) for n in lengths]


def numbers(*values):
    return [(np.int32(value),) for value in values]


@tf.function
def sum_over_elements(x):
    total = 0.0
    for item in x:
        total += item * item
    return total


@tf.function
def sum_over_a_range(n):
    total = 0
    for k in tf.range(n):
        if k % 3 != 0:
            total += k
    return total


@tf.function
def nested_loops(n):
    total = 0
    for row in tf.range(n):
        for column in tf.range(row):
            total += row * column
    return total


@tf.function
def collatz(n):
    steps = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@tf.function
def breaks_early(x):
    total, position = 0.0, -1
    for k in tf.range(tf.shape(x)[0]):
        if x[k] < -0.5:
            position = k
            break
        total += x[k]
    return total, position


@tf.function
def skips_negative(x):
    total = 0.0
    for item in x:
        if item < 0:
            continue
        total += item
    return total


@tf.function
def break_and_continue_in_while(n):
    seen = 0
    while True:
        n -= 1
        if n % 4 == 0:
            continue
        if n < 2:
            break
        seen += n
    return seen


@tf.function
def returns_from_a_branch(x):
    if tf.reduce_sum(x) > 0:
        return tf.reduce_max(x)
    return tf.cast(tf.shape(x)[0], tf.float32)


@tf.function
def returns_from_a_loop(x):
    for k in tf.range(tf.shape(x)[0]):
        if x[k] > 1:
            return k
    return -1


@tf.function
def chain_of_conditions(n):
    if n < 0:
        name = -1.0
    elif n == 0:
        name = 0.5
    elif n < 10:
        name = tf.sqrt(tf.cast(n, tf.float32))
    else:
        name = 10.0
    return name


@tf.function
def short_circuits(x):
    n = tf.shape(x)[0]
    if n > 0 and x[n - 1] > 0:  # the right side would fail for no elements
        return 1
    return 0 if n > 2 or n == 0 else 2


@tf.function
def conditional_expression(n):
    return (n * 2 if n > 2 else -n) + (1 if n % 2 == 0 else 0)


@tf.function
def appends(n):
    found = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[])
    for k in tf.range(n):
        if k % 2 == 0:
            found = found.write(found.size(), k * k)
    return found.stack()


@tf.function
def appends_to_a_list(x):
    seen = []
    tf.autograph.experimental.set_element_type(seen, tf.float32, [])
    for item in x:
        seen.append(item + 1.0)
    return tf.autograph.stack(seen)


@tf.function
def unrolled_python_list(x):
    parts = []
    for k in range(3):
        parts.append(tf.reduce_sum(x) * k)
    return tf.stack(parts)


@tf.function
def running_maximum(x):
    best = tf.TensorArray(tf.float32, size=tf.shape(x)[0])
    highest = tf.float32.min
    for k in tf.range(tf.shape(x)[0]):
        if x[k] > highest:
            highest = x[k]
        best = best.write(k, highest)
    return best.stack()


@tf.function
def two_pointers(x):
    left, right, swaps = 0, tf.shape(x)[0] - 1, 0
    while left < right:
        if x[left] > x[right]:
            swaps += 1
        left += 1
        right -= 1
    return swaps


@tf.function
def bubble_sort(x):
    n = tf.shape(x)[0]
    for last in tf.range(n):
        for k in tf.range(n - 1 - last):
            if x[k] > x[k + 1]:
                x = tf.tensor_scatter_nd_update(x, [[k], [k + 1]], [x[k + 1], x[k]])
    return x


def norm(x):
    total = tf.constant(0.0)
    for item in x:
        total += item**2
    return tf.sqrt(total)


@tf.function
def calls_another_function(x):
    if norm(x) > 1:
        return x / norm(x)
    return x


@tf.function
def newton(value):
    guess = value / 2 + 0.5
    while tf.abs(guess * guess - value) > 1e-3 * value:
        guess = (guess + value / guess) / 2
    return guess


@tf.function
def loop_over_rows(matrix):
    state = tf.zeros([3])
    for row in matrix:
        state = tf.tanh(state + row)
        if tf.reduce_sum(state) > 2.0:
            state = state * 0.5
    return state


@tf.function
def enumerates_and_zips(x):
    total = 0.0
    for k, item in enumerate(x):
        total += tf.cast(k, tf.float32) * item
    return total


SEQUENCES = [
    sum_over_elements,
    breaks_early,
    skips_negative,
    returns_from_a_branch,
    returns_from_a_loop,
    short_circuits,
    appends_to_a_list,
    unrolled_python_list,
    running_maximum,
    two_pointers,
    bubble_sort,
    calls_another_function,
    enumerates_and_zips,
]
COUNTS = [
    sum_over_a_range,
    nested_loops,
    collatz,
    break_and_continue_in_while,
    chain_of_conditions,
    conditional_expression,
    appends,
]


@pytest.mark.parametrize("fn", SEQUENCES, ids=lambda fn: fn.__name__)
def test_sequences(fn):
    examples = vectors(5, 1, 8, 3, 0) if fn not in (returns_from_a_branch,) else vectors(5, 1, 8, 3)
    check(fn, [VECTOR], examples)


@pytest.mark.parametrize("fn", COUNTS, ids=lambda fn: fn.__name__)
def test_counts(fn):
    check(fn, [NUMBER], numbers(7, 3, 1, 6, 12, 2))


def test_newton():
    check(newton, [SCALAR], [(np.float32(value),) for value in (2, 9, 0.25, 1000)])


def test_loop_over_rows():
    generator = np.random.default_rng(0)
    examples = [(generator.normal(size=[n, 3]).astype("f"),) for n in (4, 1, 6, 0)]
    check(loop_over_rows, [tf.TensorSpec([None, 3], tf.float32)], examples)


@tf.function
def asserts_in_a_loop(x):
    total = 0.0
    for item in x:
        assert item < 1.5, "too large"
        total += item
    return total


@tf.function
def asserts_in_a_branch(x):
    if tf.shape(x)[0] > 2:
        tf.debugging.assert_positive(tf.reduce_sum(x))
        return x[2]
    return 0.0


@pytest.mark.parametrize("fn", [asserts_in_a_loop, asserts_in_a_branch], ids=lambda fn: fn.__name__)
def test_asserts_fail_their_own_row(fn):
    examples = [([1.0, 0.5, 1.0],), ([1.0, 2.0, -9.0],), ([-4.0, 0.0],), ([0.0, 0.5, -0.25, 1.0],)]
    examples = [(np.array(x, "f"),) for (x,) in examples]
    v = check(fn, [VECTOR], examples)
    assert [isinstance(per_example(v, example), Exception) for example in examples] == [False, True, False, False]


def test_a_method_with_state_of_its_own():
    class Model(tf.Module):
        def __init__(self):
            self.weight = tf.Variable([0.5, -1.0, 2.0])

        @tf.function
        def __call__(self, matrix):
            state = tf.zeros([3])
            for row in matrix:
                if tf.reduce_sum(row) > 0:
                    state += row * self.weight
            return state

    generator = np.random.default_rng(0)
    examples = [(generator.normal(size=[n, 3]).astype("f"),) for n in (4, 1, 6, 0)]
    check(Model(), [tf.TensorSpec([None, 3], tf.float32)], examples)


def test_source_lines_are_the_users():
    v = vectorize(collatz, [NUMBER])
    assert all(entry.source and entry.source.startswith("test_autograph.py") for entry in v.report.loops)
