"""A reproducible model's answers have the same bits in whatever traffic they come; or it isn't served."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import random
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from prometheus_client import CollectorRegistry

from server.dispatcher import Dispatcher
from server.engines import ENGINES, build_engine
from server.engines.batch_result import RowError, as_array
from server.engines.certify import certify
from server.engines.reproducible import choosing
from server.engines.reproducible.programs import Programs
from server.engines.reproducible.trials import bits_equal
from server.engines.reproducible.witnesses import find_witnesses
from server.engines.samples import draw_samples
from server.engines.settings import EngineSettings
from server.engines.static import StaticEngine
from server.errors import CertificationError, ExampleRejected, ModelLoadError
from server.loading import load_models
from server.metrics import Metrics
from server.model_description import Bucket, TensorDescription
from server.prediction import PredictRequest
from server.process.in_thread import EngineThread
from server.process.messages import ModelSource
from server.provenance import headers_of
from vectorizer import vectorize

SERVICE = Path(__file__).parents[2] / "services" / "steady.py"


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch):
    monkeypatch.setattr(choosing, "CERTIFY_S", 1.0)


@functools.cache
def models():
    return {spec.name: spec for spec in load_models(str(SERVICE))}


def ignore_step(phase, done, total):
    pass


def prepare(spec, kind="static", **settings):
    engine = build_engine(kind, spec, EngineSettings(engine=kind, **settings))
    samples = draw_samples(spec, engine, seed=0)
    engine.prepare([sample.example for sample in samples if sample.usable], ignore_step)
    return engine, samples


@functools.cache
def prepared(name, **settings):
    return prepare(models()[name], **settings)


def function_of(fn, spec, **changes):
    """The perceptron's spec with another function of one vector of 7."""
    return dataclasses.replace(
        models()["bessel"], name="m", function=fn, inputs={"x": spec}, max_batch_size=4, samples=None, **changes
    )


def example_of(engine, *values):
    return tuple(as_array(value, tensor.dtype) for value, tensor in zip(values, engine.inputs, strict=True))


def same(one, other):
    if isinstance(one, RowError) or isinstance(other, RowError):
        return type(one) is type(other)
    return all(bits_equal(a, b) for a, b in zip(one, other, strict=True))


def examples_for(name, engine, rng):
    """Examples of several lengths, some that the function refuses."""
    if name == "text":
        return [example_of(engine, word) for word in ("", "a", "hello", "hellö w", b"\xff\x00", "abcdefgh")]
    if name == "lookup":
        lists = [rng.integers(0, 50, n) for n in (1, 2, 3, 7, 12)]
        return [example_of(engine, ids) for ids in [*lists, np.array([3, 99]), np.array([-1])]]
    shape = [8 if size is None else size for size in engine.inputs[0].shape]
    whole = [rng.standard_normal(shape) for _ in range(8)]
    if engine.bounds:
        whole = [x[: int(rng.integers(1, 9))] for x in whole]
    return [example_of(engine, x) for x in [*whole, whole[0] * np.nan, whole[0] * 1e30]]


MODELS = ["perceptron", "attention", "lstm", "convolution", "text", "lookup"]


@pytest.mark.parametrize("name", MODELS)
def test_an_example_gets_the_same_bits_in_any_batch(name):
    engine, samples = prepared(name)
    certify(models()[name], engine, samples, ignore_step)
    assert engine.reproducible.program == "xla"
    rng = np.random.default_rng(1)
    examples = examples_for(name, engine, rng)
    buckets = [timed.bucket for timed in engine.buckets()]
    alone = [engine.run([example], buckets[0]).rows[0] for example in examples]
    for _ in range(60):
        members = rng.integers(0, len(examples), int(rng.integers(1, 9)))
        result = engine.run([examples[member] for member in members], buckets[int(rng.integers(len(buckets)))])
        for member, answer in zip(members, result.rows, strict=True):
            assert same(alone[member], answer), (name, member)


def test_plain_tensorflow_where_xla_is_off():
    engine, _ = prepared("perceptron", xla="off")
    assert engine.reproducible.header().startswith("plain; rows=")
    assert 16 in engine.reproducible.rows


def test_the_header_names_function_and_machine():
    first, _ = prepared("convolution")
    second, _ = prepare(models()["convolution"])
    assert first.reproducible.header() == second.reproducible.header()
    assert first.reproducible.header().startswith("xla; rows=")
    image = example_of(first, np.random.default_rng(2).standard_normal((6, 6)))
    assert same(first.run([image], Bucket(1)).rows[0], second.run([image] * 3, Bucket(4)).rows[2])
    attention, _ = prepared("attention")
    *_, lengths, function, machine, threads = attention.reproducible.header().split("; ")
    assert lengths.startswith("lengths=")
    assert function != f"function={first.reproducible.function}"
    assert machine == f"machine={first.reproducible.machine}"
    assert threads == f"threads={first.reproducible.threads}"


def test_a_bad_id_in_company_costs_nobody_a_bit():
    engine, _ = prepared("lookup")
    good, bad = example_of(engine, [1, 2]), example_of(engine, [1, 99])
    alone = engine.run([good], Bucket(1, engine.reproducible.lengths[0])).rows[0]
    result = engine.run([bad, good, bad, good], Bucket(4, engine.reproducible.lengths[0]))
    assert [type(row) for row in result.rows[::2]] == [RowError, RowError]
    assert same(result.rows[1], alone)
    assert same(result.rows[3], alone)
    assert result.stats.isolated == 2


def test_the_longest_allowed_is_answered_and_what_is_longer_refused():
    engine, _ = prepared("lookup")
    assert engine.reproducible.lengths[-1] == (12,)
    fits, long = example_of(engine, [1] * 12), example_of(engine, [1] * 13)
    answer, refusal = engine.run([fits, long], Bucket(2, (13,))).rows
    assert not isinstance(answer, RowError)
    assert refusal.message == (
        "input 'ids' has size 13 along axis 0; this model is reproducible, and 12 is the most that was certified; "
        "a max_length= of the model raises that"
    )
    text, _ = prepared("text")
    (refusal,) = text.run([example_of(text, "x" * 100)], Bucket(1, (100,))).rows
    assert "input 'text' has 100 bytes" in refusal.message


def test_an_op_that_depends_on_the_row_is_named():
    line = next(n for n, text in enumerate(SERVICE.read_text().splitlines(), 1) if "bessel_j0" in text)
    with pytest.raises(CertificationError) as caught:
        prepare(models()["bessel"])
    message = caught.value.message
    assert "model 'bessel' can't be served reproducibly" in message
    assert f"`BesselJ0` at steady.py:{line}" in message
    assert "output 'output' of the same example has other bits alone" in message
    assert "engine='per_request' answers each example alone" in message


def test_one_example_at_a_time_is_reproducible_unless_the_function_draws():
    engine, samples = prepare(models()["bessel"], "per_request")
    assert engine.reproducible.header().startswith("per_request; function=")
    rows = [sample.example for sample in samples[:5]]
    assert same(engine.run(rows, Bucket(4)).rows[4], engine.run(rows[4:], Bucket(1)).rows[0])
    draws = function_of(lambda x: x + tf.random.uniform([7]), tf.TensorSpec([7], tf.float32))
    with pytest.raises(CertificationError, match="run alone, gives one example other bits"):
        prepare(draws, "per_request")
    with pytest.raises(ModelLoadError, match="RandomUniform"):
        prepare(draws)


@pytest.mark.parametrize("kind", sorted(set(ENGINES) - {"static", "per_request"}))
def test_other_engines_refuse(kind):
    with pytest.raises(ModelLoadError, match=f"which engine '{kind}' can't be"):
        build_engine(kind, models()["perceptron"], EngineSettings(engine=kind))


def test_the_setting_overrides_the_model():
    spec = models()["convolution"]
    assert type(build_engine("static", spec, EngineSettings(reproducible=False))) is StaticEngine
    other = dataclasses.replace(spec, reproducible=False)
    assert build_engine("static", other, EngineSettings(reproducible=True)).lengths_apart
    assert type(build_engine("static", other, EngineSettings())) is StaticEngine


def spoiled(monkeypatch, kinds, spoil):
    """Programs of these kinds whose outputs go through `spoil(output, rows)`."""
    compile = Programs.compile

    def compile_spoiled(self, kind, rows, lengths):
        program = compile(self, kind, rows, lengths)
        if kind not in kinds:
            return program

        def call(inputs, sizes, real):
            outputs, lengths, ok = program.call(inputs, sizes, real)
            return [spoil(output.numpy(), real) for output in outputs], lengths, ok

        return dataclasses.replace(program, call=call)

    monkeypatch.setattr(Programs, "compile", compile_spoiled)


def last_row_one_bit_off(output, real):
    if real > 1:
        output[-1] = np.nextafter(output[-1], np.float32(np.inf))
    return output


def test_one_bit_in_one_row_is_found(monkeypatch):
    spoiled(monkeypatch, {"xla"}, last_row_one_bit_off)
    spec = function_of(lambda x: 3.0 * x, tf.TensorSpec([7], tf.float32))
    engine, _ = prepare(spec)
    assert engine.reproducible.program == "plain"
    assert "depends on the row" in engine.reproducible.note
    spoiled(monkeypatch, {"plain"}, last_row_one_bit_off)
    with pytest.raises(CertificationError, match="run op by op, no op differs"):
        prepare(spec)


def test_a_size_that_gives_other_bits_is_left_out(monkeypatch):
    spoiled(
        monkeypatch, {"xla"}, lambda output, real: np.nextafter(output, np.float32(9)) if len(output) < 4 else output
    )
    engine, _ = prepare(function_of(lambda x: 3.0 * x, tf.TensorSpec([7], tf.float32)))
    assert engine.reproducible.rows == (4,)
    assert engine.reproducible.note == "xla: 2 rows don't give the bits of 4"
    assert engine.run([example_of(engine, np.ones(7))], Bucket(1)).stats.rows_padded == 3


def test_rows_of_a_batch_that_fails_run_through_the_same_program():
    engine, _ = prepare(function_of(lambda x: tf.exp(x), tf.TensorSpec([7], tf.float32)))
    rng = np.random.default_rng(3)
    rows = [example_of(engine, rng.standard_normal(7)) for _ in range(4)]
    expected = engine.run(rows, Bucket(4)).rows
    for key, program in engine._chosen.programs.items():

        def call(inputs, sizes, real, program=program):
            if real > 1:
                raise RuntimeError("as a whole")
            return program.call(inputs, sizes, real)

        engine._chosen.programs[key] = dataclasses.replace(program, call=call)
    result = engine.run(rows, Bucket(4))
    assert all(same(one, other) for one, other in zip(result.rows, expected, strict=True))
    assert (result.stats.failure, result.stats.isolated) == ("as a whole", 0)


def test_what_decides_an_integer_is_compared_too():
    v = vectorize(
        lambda x: tf.argmax(tf.nn.softmax(x) * 2.0) + tf.cast(tf.shape(x)[0], tf.int64),
        [tf.TensorSpec([3], tf.float32)],
    )
    (witness,) = find_witnesses(v.program)
    assert next(op.type for op in v.program.ops if witness in op.outputs) == "Mul"
    plain = vectorize(lambda x: tf.nn.softmax(x), [tf.TensorSpec([3], tf.float32)])
    assert find_witnesses(plain.program) == []


def test_bits():
    one = np.array([0.0, np.nan, 1.0], np.float32)
    assert bits_equal(one, one.copy())
    assert bits_equal(one, np.array([0.0, -np.nan, 1.0], np.float32))
    assert not bits_equal(one, np.array([-0.0, np.nan, 1.0], np.float32))
    assert not bits_equal(one, one.astype(np.float64))
    assert not bits_equal(one, one[:2])
    assert bits_equal(np.array([b"a", b""], object), np.array([b"a", b""], object))
    assert not bits_equal(np.array(1), np.array(2))


async def send_traffic(name, seconds, clients):
    """Random traffic of a few examples through a dispatcher; returns the replies that differ from the first ones."""
    host = EngineThread(ModelSource(str(SERVICE), name), EngineSettings())
    description = await host.start()
    engine, _ = prepared(name)
    examples = examples_for(name, engine, np.random.default_rng(5))
    dispatcher = Dispatcher(
        queue_limit_examples=1000, queue_limit_bytes=10**8, batch_timeout_s=60.0, metrics=Metrics(CollectorRegistry())
    )
    dispatcher.attach(description, host)
    first, differing, batches = {}, [], set()
    ends_at = time.monotonic() + seconds

    async def client(seed):
        rng = random.Random(seed)
        while time.monotonic() < ends_at:
            members = [rng.randrange(len(examples)) for _ in range(rng.choice((1, 1, 2, 5)))]
            request = PredictRequest(name, "predict", [examples[m] for m in members], time.monotonic() + 30.0)
            try:
                reply = await dispatcher.predict(request)
            except ExampleRejected:
                continue
            batches.add((reply.provenance.batch_size, reply.provenance.bucket.lengths))
            headers = dict(headers_of(reply.provenance))
            assert headers[b"x-batchd-reproducible"].decode() == description.reproducible["predict"].header()
            for member, row in zip(members, reply.rows, strict=True):
                if not same(first.setdefault(member, row), row):
                    differing.append(member)

    await asyncio.gather(*(client(seed) for seed in range(clients)))
    await host.close()
    return len(first), differing, batches


@pytest.mark.parametrize("name", ["attention"])
async def test_random_traffic_gives_everyone_the_same_bits(name):
    seen, differing, batches = await send_traffic(name, seconds=2.0, clients=6)
    assert seen == 10
    assert not differing
    assert len({lengths for _, lengths in batches}) > 1


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
async def test_long_random_traffic_gives_everyone_the_same_bits(name):
    seen, differing, _ = await send_traffic(name, seconds=15.0, clients=12)
    assert seen >= 5
    assert not differing


def test_where_a_loop_might_never_end_the_company_is_samples_only():
    def collatz(x):
        steps = tf.constant(0)
        while x != 1:
            x = tf.where(x % 2 == 0, x // 2, 3 * x + 1)
            steps += 1
        return steps

    samples = [1, 7, 27, 97, 6]
    spec = dataclasses.replace(
        models()["convolution"],
        name="collatz",
        function=collatz,
        inputs={"x": tf.TensorSpec([], tf.int32)},
        input_tensors=(TensorDescription("x", "int32", []),),
        samples=samples,
    )
    engine, _ = prepare(spec)
    answers = engine.run([example_of(engine, x) for x in samples], Bucket(4)).rows
    assert [int(steps) for (steps,) in answers] == [0, 16, 111, 118, 8]
