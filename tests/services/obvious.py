"""Tiny models whose right answers are obvious; one for each thing that an engine has to get right."""

import tensorflow as tf

from server import model

TABLE = tf.constant([[0.0, 0.5], [1.0, 1.5], [2.0, 2.5], [3.0, 3.5], [4.0, 4.5]])


@model(name="double", inputs={"x": tf.TensorSpec([], tf.float32)}, max_batch_size=8)
def double(x):
    return 2.0 * x


@model(
    name="total",
    inputs={"values": tf.TensorSpec([None], tf.float32)},
    samples=lambda rng: rng.standard_normal(rng.integers(0, 20)).astype("float32"),
    max_batch_size=8,
)
def total(values):
    """Variable length in, fixed out."""
    return tf.reduce_sum(values)


@model(
    name="square_each",
    inputs={"values": tf.TensorSpec([None], tf.int32)},
    samples=lambda rng: rng.integers(0, 9, rng.integers(0, 12)),
    max_batch_size=8,
)
def square_each(values):
    """Variable length in and out."""
    return {"squares": values * values, "count": tf.shape(values)[0]}


@model(
    name="sum_of_grid",
    inputs={"grid": tf.TensorSpec([None, None], tf.float32)},
    samples=lambda rng: rng.standard_normal(rng.integers(1, 4, 2)).astype("float32"),
    max_batch_size=8,
)
def sum_of_grid(grid):
    """Two variable dimensions."""
    return tf.reduce_sum(grid)


@model(
    name="pick",
    inputs={"id": tf.TensorSpec([], tf.int32)},
    samples=[0, 1, 2, 3, 4],
    max_batch_size=8,
)
def pick(id):
    """Raises "... 9 is not in [0, 5)" for an id out of range."""
    return tf.gather(TABLE, id)


@model(
    name="below_five",
    inputs={"x": tf.TensorSpec([], tf.float32)},
    samples=[0.5, 1.5, 2.5, 4.5, 7.0],
    max_batch_size=8,
)
def below_five(x):
    """Raises "x must be below five" for others; one of the samples is such."""
    tf.debugging.assert_less(x, 5.0, message="x must be below five")
    return x + 1.0


@model(
    name="greet",
    inputs={"name": tf.TensorSpec([], tf.string)},
    samples=["Ada", "", "Grace", "名前"],
    max_batch_size=8,
)
def greet(name):
    """Strings in and out."""
    return tf.strings.join(["hello ", name])


@model(
    name="sum_and_difference",
    inputs={"a": tf.TensorSpec([3], tf.float64), "b": tf.TensorSpec([3], tf.float64)},
    max_batch_size=5,
)
def sum_and_difference(a, b):
    """Two inputs, a tuple out, a maximum that is no power of two."""
    return a + b, a - b


@model(name="is_even", inputs={"n": tf.TensorSpec([], tf.int64)}, max_batch_size=4)
def is_even(n):
    return n % 2 == 0
