"""Programs that once broke the promise: a wrong answer, a bad row not flagged, or a batch that raised for one row."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check


def f(*shape):
    return tf.TensorSpec(shape, tf.float32)


def i(*shape, dtype=tf.int32):
    return tf.TensorSpec(shape, dtype)


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("f")


def slots(*values):
    return tf.TensorArray(tf.float32, len(values), element_shape=[], clear_after_read=False).unstack(list(values))


def lists_that_swap(n):
    a, b, t = slots(1.0, 2.0), slots(10.0, 20.0), 0
    while t < n:
        a = a.write(0, a.read(0) + b.read(1))
        a, b = b, a
        t += 1
    return a.stack(), b.stack()


def lists_that_swap_in_an_inner_loop(n):
    a, b, t = slots(1.0, 2.0), slots(10.0, 20.0), 0
    while t < n:
        u = 0
        while u < 3:
            a, b = b, a.write(0, tf.cast(t, tf.float32))
            u += 1
        t += 1
    return a.stack(), b.stack()


def one_list_under_two_names(n):
    a = slots(1.0, 2.0)
    b, t = a.write(0, 5.0), 0
    while t < n:
        a, b = b, a
        t += 1
    return a.stack(), b.stack()


def a_list_made_anew_in_each_step(n):
    items, t = slots(1.0, 2.0), 0
    while t < n:
        items = tf.TensorArray(tf.float32, 2, element_shape=[], clear_after_read=False).unstack(items.stack() * 2.0)
        t += 1
    return items.stack()


def ranges_of_the_counter(n):
    t, s = 0, 0
    while t < n:
        if t >= 2 and n > 3:
            s += tf.reduce_sum(tf.range(t - 2))
        t += 1
    return s


def zeros_of_the_counter(n):
    t, s = 0, 0
    while t < n:
        s += tf.cond(tf.logical_and(t >= 2, n > 3), lambda: tf.size(tf.zeros([t - 2, 2])), lambda: 0)  # noqa: B023
        t += 1
    return s


def hoisted_sum(x, y, n):
    _, s = tf.while_loop(lambda t, _: t < n, lambda t, s: (t + 1, s + tf.reduce_sum(x + y)), (0, 0.0))
    return s


COUNTS = [(0,), (2,), (5,), (1,)]
PAIRS = [(draw(3, 3), draw(3, 3)), (draw(5, 3), draw(2, 3)), (draw(1, 3), draw(4, 3)), (draw(0, 3), draw(0, 3))]
LENGTHS = [(draw(n, 3), k) for n, k in ((0, -1), (1, 0), (3, 2), (2, 1), (2, 3), (0, 0))]
VECTORS = [(draw(n), k) for n, k in ((1, 0), (3, 2), (5, 5), (2, 1), (0, -2))]


def places(x):
    return tf.cast(tf.abs(x[:, :1]), tf.int32) % 4


CASES = {
    # lists in loops: rows that have stopped keep the list that they had
    "list_swap": (lists_that_swap, [i()], COUNTS),
    "list_swap_inner": (lists_that_swap_in_an_inner_loop, [i()], COUNTS),
    "list_alias": (one_list_under_two_names, [i()], COUNTS),
    "list_anew": (a_list_made_anew_in_each_step, [i()], COUNTS),
    # what all rows share may be nonsense while no row is active
    "range_of_counter": (ranges_of_the_counter, [i()], COUNTS),
    "zeros_of_counter": (zeros_of_the_counter, [i()], COUNTS),
    "hoisted_sum": (hoisted_sum, [f(None), f(None), i()], [(draw(2), draw(3), 0), (draw(2), draw(2), 2)]),
    # integers
    "mean_of_integers": (
        lambda x: (tf.reduce_mean(x), tf.reduce_mean(x[:, None] * [2, 3], 0)),
        [i(None)],
        [([1, 2, 4],), ([5],), ([-3, -4],)],
    ),
    "mean_of_complex_numbers": (
        tf.reduce_mean,
        [tf.TensorSpec([None], tf.complex64)],
        [(np.full(n, 1 + 2j, np.complex64),) for n in (0, 1, 3)],
    ),
    "bound_of_a_product": (
        lambda a, b: tf.range(tf.reduce_prod(tf.stack([tf.minimum(a, 1), tf.minimum(b, 1)]))),
        [i(), i()],
        [(-3, -2), (1, 1), (0, 4)],
    ),
    "bound_of_a_quotient": (lambda a: tf.range(tf.minimum(a, -5) // 2 + 10), [i()], [(-9,), (-5,), (0,)]),
    "bound_of_a_byte": (
        lambda a: tf.range(tf.cast(tf.cast(tf.minimum(a, 2), tf.uint8), tf.int32)),
        [i()],
        [(-1,), (1,), (3,)],
    ),
    "slice_far_beyond": (
        lambda x, k: (x[k * 2**33 :], x[: k * 2**33]),
        [f(None), i(dtype=tf.int64)],
        VECTORS,
    ),
    "slice_at_the_largest": (lambda x, k: tf.slice(x, [tf.where(k > 1, 2**31 - 1, 0)], [1]), [f(None), i()], VECTORS),
    # shapes that don't fit
    "broadcast_to_negative": (lambda x, k: tf.broadcast_to(tf.reduce_sum(x, 0), [k, 3]), [f(None, 3), i()], LENGTHS),
    "broadcast_to_other": (lambda x, y: tf.broadcast_to(x, tf.shape(y)), [f(None, 3), f(None, 3)], PAIRS),
    "reverse_sequence": (
        lambda x, k: tf.reverse_sequence(x, tf.stack([k, 1]), seq_axis=1),
        [f(2, 4), i()],
        [(draw(2, 4), 2), (draw(2, 4), 6), (draw(2, 4), -1), (draw(2, 4), 4)],
    ),
    "gather_batch_dims": (
        lambda x, y: tf.gather(x, places(y), batch_dims=1),
        [f(None, 4), f(None, 3)],
        [(draw(3, 4), draw(3, 3)), (draw(5, 4), draw(2, 3)), (draw(2, 4), draw(4, 3))],
    ),
    "scatter_updates": (
        lambda x, y: (tf.tensor_scatter_nd_add(tf.zeros([4]), places(y), x[:, 0]), tf.scatter_nd(places(y), x, [4, 3])),
        [f(None, 3), f(None, 3)],
        PAIRS,
    ),
    "stack_of_other_lengths": (lambda x, y: (tf.stack([x, y]), tf.stack([x, y], 1)), [f(None, 3), f(None, 3)], PAIRS),
    "sum_of_other_lengths": (lambda x, y: tf.add_n([x, y]), [f(None, 3), f(None, 3)], PAIRS),
    "reshape_of_nothing": (lambda x, k: tf.reshape(x, [-1, k]), [f(None, 3), i()], LENGTHS),
    "reshape_with_two_holes": (lambda x, k: tf.reshape(x, [k, -1]), [f(None, 3), i()], LENGTHS),
    "tile_negative": (lambda x, k: tf.tile(x, [k, 2]), [f(None, 3), i()], LENGTHS),
    "search_for_nothing": (
        lambda x: tf.searchsorted([-1.0, 0.0, 1.0], x),
        [f(None)],
        [(draw(1),), (draw(3),), (draw(0),)],
    ),
}
NO_XLA = {"range_of_counter", "zeros_of_counter"}  # a shape that a loop's counter decides
SHORT = {"list_swap", "list_anew", "mean_of_integers", "scatter_updates"}


@pytest.mark.parametrize("name", CASES)
def test_a_program_that_once_broke_the_promise(name):
    function, specs, examples = CASES[name]
    check(function, specs, examples, jit=name in SHORT, slack=20)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in CASES if name not in SHORT | NO_XLA])
def test_a_program_that_once_broke_the_promise_under_xla(name):
    function, specs, examples = CASES[name]
    check(function, specs, examples, slack=20)


def test_a_choice_between_lists_of_different_lengths():
    def choice(x):
        made = lambda n: tf.TensorArray(tf.float32, n, element_shape=[]).unstack(tf.fill([n], x))
        return tf.cond(x > 0, lambda: made(1), lambda: made(5)).stack()

    check(choice, [f()], [(-1.0,), (2.0,), (0.0,)])
