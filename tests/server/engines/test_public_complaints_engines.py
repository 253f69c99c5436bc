"""What users of other servers have complained about, where it concerns computing a batch: none of it happens here.

Each test has the complaint for a name. Engines are real.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.engines import build_engine
from server.engines.certify import certify
from server.engines.compile_watch import CompileWatch
from server.engines.measure import longest, smallest_bucket
from server.engines.samples import draw_samples
from server.engines.settings import EngineSettings
from server.engines.warmup import warm_up
from server.model_description import Bucket
from server.registry import collect_models, model

PROGRAMS = ["off", pytest.param("only", marks=pytest.mark.full)]
WEIGHTS = tf.constant(np.linspace(-1, 1, 24).reshape(3, 8), tf.float32)


def attention(x: Any) -> Any:
    """Everything that zeros would spoil: a softmax over the length, a mean, a maximum, the last element."""
    hidden = tf.tanh(x @ WEIGHTS) + 0.5
    share = tf.nn.softmax(tf.reduce_sum(hidden, axis=1))
    pooled = tf.reduce_sum(share[:, tf.newaxis] * hidden, axis=0)
    return tf.concat([pooled, tf.reduce_mean(hidden, axis=0), -tf.reduce_max(-hidden, axis=0), hidden[-1]], axis=0)


def one_at_a_time(x: Any) -> Any:
    """Its author has put "a batch of one" into the shapes."""
    hidden = tf.reshape(x, [1, 2, 3]) @ tf.reshape(WEIGHTS, [1, 3, 8])
    return tf.reshape(tf.squeeze(tf.nn.relu(hidden), axis=0), [16]) / tf.cast(tf.shape(hidden)[0], tf.float32)


def prepare(function: Any, spec: Any, xla: str, **options: Any) -> Any:
    """Returns an engine for a function, certified and warm."""
    with collect_models() as registered:
        model(name=f"{function.__name__}_{xla}", inputs={"x": spec}, max_batch_size=8, **options)(function)
    [registration] = registered
    settings = EngineSettings(xla=xla)
    engine = build_engine("static", registration, settings)
    samples = draw_samples(registration, engine, seed=0)
    engine.prepare([sample.example for sample in samples if sample.usable], lambda *_: None)
    certify(registration, engine, samples, lambda *_: None)
    warm_up(engine, samples, lambda *_: None)
    return engine


@functools.cache
def attending(xla: str) -> Any:
    """The engine of `attention`, with buckets for lengths up to 40."""
    samples = [np.random.default_rng(length).normal(size=(length, 3)).astype(np.float32) for length in range(1, 41)]
    return prepare(attention, tf.TensorSpec([None, 3], tf.float32), xla, samples=samples)


def answers(engine: Any, examples: list[np.ndarray], bucket: Bucket | None = None) -> list[np.ndarray]:
    """The outputs of one batch, in the bucket that holds it, or in this one."""
    rows = [(example,) for example in examples]
    if bucket is None:
        buckets = [timed.bucket for timed in engine.buckets()]
        bucket = smallest_bucket(buckets, len(rows), longest(map(engine.measure, rows)))
    assert bucket is not None
    return [outputs[0] for outputs in engine.run(rows, bucket).rows]


@pytest.mark.complaint(8)
@pytest.mark.parametrize("xla", PROGRAMS)
def test_padding_gives_garbage_for_short_sequences(xla: str) -> None:
    """tensor2tensor#1489; bentoml/BentoML#2913"""
    engine = attending(xla)
    rng = np.random.default_rng(3)
    longest_bucket = max(timed.bucket for timed in engine.buckets())
    assert longest_bucket.lengths[0] >= 40
    for length in (1, 2, 7):
        short = rng.normal(size=(length, 3)).astype(np.float32)
        company = [rng.normal(size=(40, 3)).astype(np.float32) for _ in range(longest_bucket.rows - 1)]
        expected = attention(tf.constant(short)).numpy()
        first = answers(engine, [short, *company], longest_bucket)[0]
        last = answers(engine, [*company, short], longest_bucket)[-1]
        for got in (first, last, *answers(engine, [short], longest_bucket)):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.complaint(11)
def test_a_model_that_is_written_for_one_example_fails_in_batches() -> None:
    """triton-inference-server/server#5334: "expected batch size at least 2, got 1"; tensorflow/serving#276, #1305"""
    engine = prepare(one_at_a_time, tf.TensorSpec([6], tf.float32), "off")
    examples = list(np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32))
    for size in range(1, 9):
        for example, got in zip(examples, answers(engine, examples[:size]), strict=False):
            np.testing.assert_allclose(got, one_at_a_time(tf.constant(example)).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.complaint(16)
@pytest.mark.parametrize("xla", PROGRAMS)
def test_the_first_request_of_each_size_is_slow(xla: str) -> None:
    """triton-inference-server/server#7776, #4503, #5326, #7468; tensorflow/serving#385, #733"""
    engine = attending(xla)
    watch = CompileWatch()
    for timed in engine.buckets():
        answers(engine, [np.ones((timed.bucket.lengths[0], 3), np.float32)] * timed.bucket.rows, timed.bucket)
    assert watch.count() == 0
