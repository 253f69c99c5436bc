"""The LSTM over sequences of any length that the design is measured by: right, fast, and compiled by XLA."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import vectorize

FEATURES, STATE = 64, 128
SHORTEST, LONGEST = 5, 40
LEAST_GAIN = 3.0

_generator = np.random.default_rng(0)
KERNEL = tf.constant(_generator.normal(0, 0.1, [FEATURES, 4 * STATE]), tf.float32)
RECURRENT = tf.constant(_generator.normal(0, 0.1, [STATE, 4 * STATE]), tf.float32)
BIAS = tf.constant(_generator.normal(0, 0.1, [4 * STATE]), tf.float32)


def lstm(x: tf.Tensor) -> tf.Tensor:
    """The last state [128] after reading x [n, 64]."""
    return lstm_of_length(x, tf.shape(x)[0])


def lstm_of_length(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    def step(t: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        into = tf.linalg.matvec(KERNEL, x[t], transpose_a=True)
        gates = into + tf.linalg.matvec(RECURRENT, h, transpose_a=True) + BIAS
        enter, forget, update, leave = tf.split(gates, 4)
        c = tf.sigmoid(forget) * c + tf.sigmoid(enter) * tf.tanh(update)
        return t + 1, tf.sigmoid(leave) * tf.tanh(c), c

    zeros = tf.zeros([STATE])
    return tf.while_loop(lambda t, h, c: t < n, step, (tf.constant(0), zeros, zeros))[1]


@pytest.fixture(scope="module")
def vectorized() -> Any:
    return vectorize(lstm, [tf.TensorSpec([None, FEATURES], tf.float32)], strict=True)


def padded(lengths: Sequence[int], seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Random sequences [B, 64, 64] (beyond each row's length NaN, which must not be read) and lengths [B]."""
    x = np.random.default_rng(seed).normal(size=[len(lengths), 64, FEATURES]).astype(np.float32)
    for row, length in enumerate(lengths):
        x[row, length:] = np.nan
    return x, np.array(lengths, np.int32)


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("lengths", [[0], [1], [0, 0, 1], [17, 0, 40, 1, 5, 5, 64, 2]], ids=str)
def test_equals_one_at_a_time(vectorized: Any, lengths: list[int], jit: bool) -> None:
    x, sizes = padded(lengths)
    program = vectorized.compile(rows=len(lengths), lengths=(64,), jit=True) if jit else vectorized.compile()
    (states,), _, ok = program([x], [sizes], len(lengths))
    assert ok.numpy().all()
    alone = tf.function(lstm, input_signature=[tf.TensorSpec([None, FEATURES], tf.float32)])
    expected = [alone(tf.constant(x[row, :length])) for row, length in enumerate(lengths)]
    np.testing.assert_allclose(states, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.alone
def test_three_times_as_fast_as_vectorized_map(vectorized: Any) -> None:
    """At batch 8, neither under XLA. Interleaved, medians.

    The cell is written with `tf.linalg.matvec`, the product of a matrix and one example's vector. Written with
    `tensordot`, which TensorFlow itself turns into a product of matrices, `vectorized_map` is only 1.4 to 1.6 times
    slower than `vectorize`: both are then bound by the same small matrix products.
    """
    lengths = np.random.default_rng(2).integers(SHORTEST, LONGEST + 1, 8)
    x, sizes = np.nan_to_num(padded(lengths)[0][:, :LONGEST]), lengths.astype(np.int32)
    theirs = tf.function(lambda x, n: tf.vectorized_map(lambda row: lstm_of_length(*row), (x, n)))
    arguments = (tf.constant(x), tf.constant(sizes))
    ours = vectorized.compile()
    np.testing.assert_allclose(ours([x], [sizes], 8)[0][0], theirs(*arguments), rtol=1e-4, atol=1e-5)
    seconds = [(_seconds(lambda: ours([x], [sizes], 8)), _seconds(lambda: theirs(*arguments))) for _ in range(30)]
    ours_s, theirs_s = (float(np.median(column)) for column in zip(*seconds, strict=True))
    print(f"vectorize {ours_s * 1000:.2f} ms, vectorized_map {theirs_s * 1000:.2f} ms")
    assert theirs_s >= LEAST_GAIN * ours_s


def _seconds(call: Callable[[], Any]) -> float:
    started_at = time.perf_counter()
    tf.nest.map_structure(lambda tensor: tensor.numpy() if tf.is_tensor(tensor) else tensor, call())
    return time.perf_counter() - started_at
