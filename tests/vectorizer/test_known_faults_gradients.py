"""What users of TensorFlow's pfor reported as wrong or slow: gradients, jacobians, hessians."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import drop_ins, grad, hessian, jacobian, vectorize, vectorized_map

R = np.random.default_rng(11)
NUMBER, COUNT = tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32)
VECTOR, ROWS = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None, 3], tf.float32)
NUMBERS = [(np.float32(x),) for x in (0.5, -2.0, 3.0)]
W = tf.constant(R.normal(size=(3, 3)).astype("f"))


def draw(*shape):
    return R.normal(size=shape).astype("f")


def rows(*lengths):
    return [(draw(n, 3),) for n in lengths]


def test_jacobian_over_a_ragged_input():
    """tensorflow#56300"""
    check(jacobian(lambda x: x * x), [VECTOR], [(draw(n),) for n in (3, 0, 2)], fallbacks=None, slack=9)


def test_jacobian_of_a_convolution_in_its_weights():
    """tensorflow#34496, #57144"""
    layer = keras.layers.Conv2D(2, 3)
    layer.build((None, 4, 4, 1))

    def f(image):
        with tf.GradientTape() as tape:
            y = layer(image[None])[0]
        return tape.jacobian(y, layer.trainable_variables[0].value)

    check(f, [tf.TensorSpec([4, 4, 1])], [(draw(4, 4, 1),) for _ in range(2)], fallbacks=None, rtol=1e-4)


def test_hessian_of_a_one_dimensional_convolution():
    """tensorflow#38391"""
    layer = keras.layers.Conv1D(1, 3, activation="tanh")
    layer.build((None, 5, 1))
    f = hessian(lambda x: tf.reduce_sum(layer(x[None]) ** 2))
    check(f, [tf.TensorSpec([5, 1])], [(draw(5, 1),) for _ in range(2)], rtol=1e-3, atol=1e-4)


def test_jacobian_with_many_outputs():
    """tensorflow#36227, #32460"""
    first, second = tf.constant(draw(4, 8)), tf.constant(draw(8, 50))
    f = jacobian(lambda x: tf.linalg.matvec(second, tf.nn.relu(tf.linalg.matvec(first, x, transpose_a=True)), True))
    check(f, [tf.TensorSpec([4])], [(draw(4),) for _ in range(3)], rtol=1e-4)


def test_jacobians_of_no_rows():
    """tensorflow#37795"""
    v = vectorize(jacobian(lambda x: tf.nn.softmax(x)), [tf.TensorSpec([4])])
    assert v(np.zeros((0, 4), "f")).shape == [0, 4, 4]


def test_jacobian_twice_in_one_graph():
    """tensorflow#42845"""
    v = vectorize(jacobian(lambda x: x**3), [tf.TensorSpec([2])])

    @tf.function
    def both(x):
        return v(x) + v(2.0 * x)

    x = tf.constant(draw(3, 2))
    np.testing.assert_allclose(both(x), tf.linalg.diag(3 * x**2 + 12 * x**2), rtol=1e-5)


def test_gradients_of_an_embedding_for_each_example():
    """tensorflow#29984"""
    table = tf.Variable(draw(5, 2))

    def f(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    examples = [(R.integers(0, 5, size=n).astype(np.int32),) for n in (2, 0, 3)]
    check(f, [tf.TensorSpec([None], tf.int32)], examples, fallbacks=None)


def test_gradients_of_a_convolution_for_each_example_run_in_no_loop():
    """privacy#86, #162: the filters' gradients"""
    kernel = tf.Variable(draw(2, 2, 1, 3))

    def f(image):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.conv2d(image[None], kernel, 1, "SAME") ** 2)
        return tape.gradient(loss, kernel)

    v = check(f, [tf.TensorSpec([4, 4, 1])], [(draw(4, 4, 1),) for _ in range(3)], rtol=1e-4)
    kinds = {op.type for op in v.compile().concrete.graph.get_operations()}
    assert not kinds & {"While", "StatelessWhile"}


def test_gradients_of_ops_that_had_none():
    """tensorflow#33919, #36256, PR#21716: leaky relu, softplus, the gradient's gradient of pooling"""
    check(
        grad(lambda x: tf.reduce_sum(tf.nn.leaky_relu(x) + tf.nn.softplus(x))), [tf.TensorSpec([3])], [(draw(3),)] * 2
    )
    f = hessian(lambda x: tf.reduce_sum(tf.nn.max_pool2d(x[None, :, :, None], 2, 2, "VALID") ** 3))
    check(f, [tf.TensorSpec([2, 2])], [(draw(2, 2),) for _ in range(2)], fallbacks=None, rtol=1e-4)


def test_gradient_of_batch_normalization_in_its_scale():
    """tensorflow#107705"""

    layer = keras.layers.BatchNormalization()
    layer.build((None, 3, 3, 3))

    def f(image):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(image[None], training=False) ** 3)
        return tape.gradient(loss, layer.gamma.value)

    check(f, [tf.TensorSpec([3, 3, 3])], [(draw(3, 3, 3),) for _ in range(2)], rtol=1e-3)


def test_no_trace_after_the_first_call():
    """tensorflow#43710, #42835, #52001, #48314"""
    traced = []

    def f(x):
        traced.append(1)
        return tf.reduce_sum(x * x)

    x = tf.constant(draw(4, 3))
    vectorized_map(f, x)
    before = len(traced)
    for _ in range(3):
        vectorized_map(f, x)
    assert len(traced) == before
    v = vectorize(jacobian(lambda x: (traced.append(1), x * x)[1]), [tf.TensorSpec([3])])
    before = len(traced)
    for _ in range(3):
        v(x)
    assert len(traced) == before


def test_a_custom_gradient_inside():
    """tensorflow#53726"""

    @tf.custom_gradient
    def times_five(x):
        return x * 1.0, lambda d: d * 5.0

    check(grad(lambda x: times_five(x) ** 2), [NUMBER], NUMBERS)


# -- through loops and branches, inside the function ------------------------------------------------------------------


def step_or_halve(x):
    """A branch in a loop of variable length."""
    n = tf.shape(x)[0]

    def step(t, h):
        return t + 1, tf.cond(x[t, 0] > 0, lambda: tf.tanh(tf.linalg.matvec(W, h) + x[t]), lambda: h * 0.5 * x[t])

    return tf.reduce_sum(tf.while_loop(lambda t, _: t < n, step, (0, tf.ones([3])))[1])


def loop_in_a_loop(x):
    """The inner one runs t + 1 times."""
    inner = lambda t, h: tf.while_loop(lambda s, _: s <= t, lambda s, h: (s + 1, tf.tanh(h + x[s])), (0, h))[1]
    return tf.reduce_sum(
        tf.while_loop(lambda t, _: t < tf.shape(x)[0], lambda t, h: (t + 1, inner(t, h)), (0, tf.ones([3])))[1]
    )


def counted_loop_in_a_loop(x):
    inner = lambda h: tf.while_loop(lambda s, _: s < 2, lambda s, h: (s + 1, tf.sin(h) * x), (0, h))[1]
    return tf.while_loop(lambda t, _: t < 2, lambda t, h: (t + 1, inner(h)), (0, x))[1]


def branch_in_a_branch(x):
    return tf.cond(x > 0, lambda: tf.cond(x > 1, lambda: tf.sin(x), lambda: x * x), lambda: -x * 3.0)


def loop_in_a_branch(x):
    loop = lambda: tf.while_loop(lambda t, _: t < 3, lambda t, h: (t + 1, tf.sin(h) * x), (0, x))[1]
    return tf.cond(x > 0, loop, lambda: x * x)


def branch_of_the_counter(x):
    """All rows take the same branch in each step."""
    step = lambda t, h: (t + 1, tf.cond(t > 1, lambda: tf.sin(h) * x, lambda: h * 0.5 * x))
    return tf.while_loop(lambda t, _: t < 3, step, (0, 1.0))[1]


INSIDE = {
    "branch_in_a_branch": (branch_in_a_branch, [NUMBER], NUMBERS),
    "loop_in_a_branch": (loop_in_a_branch, [NUMBER], NUMBERS),
    "branch_of_the_counter": (branch_of_the_counter, [NUMBER], NUMBERS),
    "counted_loop_in_a_loop": (counted_loop_in_a_loop, [NUMBER], NUMBERS),
    "step_or_halve": (step_or_halve, [ROWS], rows(0, 3, 1)),
    "loop_in_a_loop": (loop_in_a_loop, [ROWS], rows(0, 3, 1)),
}
QUICK = ("branch_in_a_branch", "branch_of_the_counter")


@pytest.mark.parametrize("name", QUICK)
def test_gradient_inside_through(name):
    function, specs, examples = INSIDE[name]
    check(grad(function), specs, examples, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", INSIDE)
def test_gradient_inside_through_under_xla_too(name):
    function, specs, examples = INSIDE[name]
    check(grad(function), specs, examples, slack=12, rtol=1e-4)


def test_gradient_inside_through_a_case_with_two_outputs():
    def f(k, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            branches = [lambda: (x * x, x), lambda: (tf.sin(x), x * 3.0), lambda: (x, x**3)]
            left, right = tf.switch_case(k, branches)
            y = left * right
        return left, right, tape.gradient(y, x)

    check(f, [COUNT, NUMBER], [(k, x) for k, x in ((0, 1.0), (1, 2.0), (2, -1.0), (5, 0.5))])


@pytest.mark.parametrize("name", ["branch_in_a_branch", "loop_in_a_branch"])
def test_second_derivatives_outside(name):
    function = INSIDE[name][0]
    batch = tf.constant([0.5, -1.0, 2.0])

    def second(fn, x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                total = tf.reduce_sum(fn(x))
            slope = inner.gradient(total, x)
        return outer.gradient(slope, x)

    each = tf.stack([second(tf.function(function), x) for x in batch])
    np.testing.assert_allclose(second(vectorize(function, [NUMBER]), batch), each, rtol=1e-4, atol=1e-5)


def test_a_custom_gradient_outside():
    """pfor drops it without a word"""

    @tf.custom_gradient
    def times_five(x):
        return x * 1.0, lambda d: d * 5.0

    v, batch = vectorize(lambda x: times_five(x) + 1.0, [NUMBER]), tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(batch)
        total = tf.reduce_sum(v(batch))
    np.testing.assert_allclose(tape.gradient(total, batch), [5.0, 5.0])


def test_jacobian_through_a_switch_between_training_and_inference():
    """tensorflow#25469: whether it trains is itself a tensor, the same for all rows or not"""

    def normalised(x, training):
        def of_the_rows():
            mean, variance = tf.nn.moments(x, [0])
            return (x - mean) / tf.sqrt(variance + 1e-3)

        return tf.cond(training, of_the_rows, lambda: x * 0.5 + 1.0)

    examples = [(draw(4, 3), flag) for flag in (True, False, True)]
    specs = [tf.TensorSpec([4, 3]), tf.TensorSpec([], tf.bool)]
    check(jacobian(normalised), specs, examples, fallbacks=None, rtol=1e-4)


def test_a_program_that_nobody_holds_any_more_is_freed():
    """tensorflow#43593: memory that grows with every step of a training loop"""
    table = tf.ones([10])
    programs = []
    for _ in range(3):
        v = vectorize(lambda x: x * tf.reduce_sum(table), [NUMBER])
        v(tf.ones([4]))
        programs.append(weakref.ref(v))
    del v
    gc.collect()
    assert [program() for program in programs] == [None] * 3


def test_every_step_of_a_training_loop_uses_the_same_program():
    """tensorflow#43593, of the drop-in: a new lambda of the same code and values adds nothing to what is kept"""
    weight, kept = tf.Variable(2.0), drop_ins._programs._kept
    kept.clear()
    sizes = []
    for _ in range(4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(vectorized_map(lambda x: x * weight, tf.ones([3])))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        sizes.append(len(kept))
    assert sizes[0] >= 1
    assert set(sizes) == {sizes[0]}


def test_the_programs_of_many_functions_are_not_all_kept():
    programs = drop_ins._Programs(limit=2)
    for name in "abc":
        programs.add(name, name)
    assert [programs.get(name) for name in "abc"] == [None, "b", "c"]
