"""Vectorizing takes less time than `tf.vectorized_map` takes to build the same program. Interleaved, medians of 3."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from vectorizer import vectorize

FEATURES, STATE, LONGEST = 64, 128, 40
pytestmark = [pytest.mark.full, pytest.mark.alone]

_generator = np.random.default_rng(0)
KERNEL, RECURRENT, BIAS = (
    tf.constant(_generator.normal(0, 0.1, shape), tf.float32)
    for shape in ([FEATURES, 4 * STATE], [STATE, 4 * STATE], [4 * STATE])
)


def lstm(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """The last state after the first n rows of x: the sequence of `tests/end_to_end/test_variable_length_lstm.py`."""

    def step(t: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        into = tf.linalg.matvec(KERNEL, x[t], transpose_a=True)
        enter, forget, update, leave = tf.split(into + tf.linalg.matvec(RECURRENT, h, transpose_a=True) + BIAS, 4)
        c = tf.sigmoid(forget) * c + tf.sigmoid(enter) * tf.tanh(update)
        return t + 1, tf.sigmoid(leave) * tf.tanh(c), c

    zeros = tf.zeros([STATE])
    return tf.while_loop(lambda t, h, c: t < n, step, (tf.constant(0), zeros, zeros))[1]


def two_hundred_ops(x: tf.Tensor) -> tf.Tensor:
    for _ in range(29):
        x = tf.sin(x) * 2.0 + tf.reduce_mean(x) - tf.cos(x[0])
    return x


def build_ours(fn: Callable[..., Any], specs: list[tf.TensorSpec]) -> None:
    vectorize(lambda *arguments: fn(*arguments), specs)


def build_theirs(fn: Callable[..., Any], specs: list[tf.TensorSpec]) -> None:
    batch = [tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in specs]
    mapped = tf.function(lambda *rows: tf.vectorized_map(lambda row: fn(*row), rows))
    mapped.get_concrete_function(*batch)


def slower_by(fn: Callable[..., Any], ours: list[tf.TensorSpec], theirs: list[tf.TensorSpec]) -> float:
    """Our time over theirs; the first builds, which import and load, don't count."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(4):
        for name, build, specs in (("ours", build_ours, ours), ("theirs", build_theirs, theirs)):
            started_at = time.perf_counter()
            build(fn, specs)
            seconds[name].append(time.perf_counter() - started_at)
    found = {name: median(times[1:]) for name, times in seconds.items()}
    print(", ".join(f"{name} {second:.2f} s" for name, second in found.items()))
    return found["ours"] / found["theirs"]


def test_a_sequence_of_any_length():
    """TensorFlow's needs one length for all rows of an array."""
    length = tf.TensorSpec([], tf.int32)
    row, padded = tf.TensorSpec([None, FEATURES]), tf.TensorSpec([LONGEST, FEATURES])
    assert slower_by(lstm, [row, length], [padded, length]) < 1


def test_mobilenet():
    network = keras.applications.MobileNetV2(weights=None, input_shape=(96, 96, 3))
    image = [tf.TensorSpec([96, 96, 3])]
    assert slower_by(lambda x: network(x[None])[0], image, image) < 1


def test_two_hundred_ops():
    vector = [tf.TensorSpec([16])]
    program = vectorize(two_hundred_ops, vector)
    assert 180 <= len(program.report.entries) <= 220
    assert slower_by(two_hundred_ops, vector, vector) < 1
