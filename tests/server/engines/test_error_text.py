"""Messages of real TensorFlow errors, as callers get them."""

import numpy as np
import pytest
import tensorflow as tf

from server.engines.error_text import row_message, tracing_message


def message_of(function, value):
    concrete = tf.function(function).get_concrete_function(tf.TensorSpec([], np.asarray(value).dtype))
    with pytest.raises(Exception) as caught:  # noqa: PT011
        concrete(tf.constant(value))
    return row_message(caught.value)


def after(check):
    def function(x):
        check(x)
        return x

    return function


def loop(x):
    turn = tf.constant(0)
    while turn < 3:
        tf.debugging.assert_less(x, 5, message="in the loop")
        turn += 1
    return x


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        (lambda x: tf.gather(tf.range(5), x), np.int32(9), "indices = 9 is not in [0, 5)"),
        (lambda x: 5 // x, np.int32(0), "Integer division by zero"),
        (
            after(lambda x: tf.debugging.assert_less(x, 5, message="below 5, please")),
            np.int32(9),
            "below 5, please",
        ),
        (
            after(lambda x: tf.debugging.assert_non_negative(x, message="not negative")),
            np.int32(-1),
            "not negative",
        ),
        (after(lambda x: tf.debugging.Assert(x < 5, ["too big:", x])), np.int32(9), "too big: 9"),
        (
            after(lambda x: tf.debugging.assert_less(x, 5)),
            np.int32(9),
            "Condition x < y did not hold element-wise: x = 9 y = 5",
        ),
        (loop, np.int32(9), "in the loop"),
        (
            lambda x: tf.debugging.check_numerics(x, "bad x"),
            np.float32(np.nan),
            "bad x : Tensor had NaN values",
        ),
    ],
)
def test_only_the_users_sentence_is_left(function, value, message):
    assert message_of(function, value) == message


def test_an_error_while_tracing_names_the_users_line():
    def wrong(x):
        return x.nonsense

    with pytest.raises(AttributeError) as caught:
        tf.function(wrong).get_concrete_function(tf.TensorSpec([]))
    message = tracing_message(caught.value)
    assert "no attribute 'nonsense'" in message
    assert "test_error_text.py:" in message
    assert "\n" not in message
