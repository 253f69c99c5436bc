"""Programs with Python control flow, for `tests/vectorizer/test_autograph.py`.

They stand in a file of their own since pytest rewrites the asserts of test files before autograph sees them.
"""

import tensorflow as tf


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
        if n % 2 == 0:  # noqa: SIM108
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
def break_and_continue(n):
    seen = 0
    while n > -5:
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
def appends_twice_or_not(x):
    found = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[])
    for item in x:
        if item > 0:
            found = found.write(found.size(), item)
            found = found.write(found.size(), -item)
        elif item < -1:
            found = found.write(found.size(), 0.0)
    return found.stack()


@tf.function
def appends_from_nested_loops(n):
    found = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[])
    for row in tf.range(n):
        for column in tf.range(row):
            if (row + column) % 2 == 0:
                found = found.write(found.size(), row * 10 + column)
    return found.stack()


@tf.function
def filters_a_fixed_number(x):
    found = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[])
    for k in tf.range(4):
        if x[k] > 0:
            found = found.write(found.size(), x[k])
    return found.stack(), found.size()


@tf.function
def one_list_or_the_other(x):
    if tf.reduce_sum(x) > 0:
        items = tf.TensorArray(tf.float32, size=2).unstack([1.0, 2.0])
    else:
        items = tf.TensorArray(tf.float32, size=3).unstack([3.0, 4.0, 5.0])
    return items.stack()


@tf.function
def stack_machine(codes):
    """Positive: push; 0: pop; negative: add the last two."""
    memory = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[], clear_after_read=False)
    depth = 0
    for code in codes:
        if code > 0:
            memory = memory.write(depth, code)
            depth += 1
        elif code == 0:
            depth = tf.maximum(depth - 1, 0)
        elif depth > 1:
            memory = memory.write(depth - 2, memory.read(depth - 2) + memory.read(depth - 1))
            depth -= 1
    return memory.read(0) if depth > 0 else -1


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


@tf.function(experimental_autograph_options=tf.autograph.experimental.Feature.ASSERT_STATEMENTS)
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


@tf.function
def spells(codes):
    """XLA knows no text: a list of it can't cross into a compiled part."""
    parts = tf.TensorArray(tf.string, tf.shape(codes)[0], element_shape=[])
    total = tf.zeros([3])
    for k in tf.range(tf.shape(codes)[0]):
        total = tf.tanh(tf.linalg.matvec(tf.ones([3, 3]), total + tf.cast(codes[k], tf.float32)))
        parts = parts.write(k, tf.strings.as_string(codes[k]))
    return parts.stack(), total
