"""The contract of every engine: row i of the result is the function's answer to, or error for, row i."""

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from server.engines import ENGINES, build_engine
from server.engines.batch_result import RowError, as_array
from server.engines.certify import certify
from server.engines.compile_watch import CompileWatch
from server.engines.measure import longest, smallest_bucket
from server.engines.samples import draw_samples
from server.engines.settings import EngineSettings
from server.engines.warmup import warm_up
from server.loading import load_models

SERVICES = Path(__file__).parents[2] / "services"


def ignore_step(phase, done, total):
    pass


@functools.cache
def models():
    return {spec.name: spec for spec in load_models(str(SERVICES / "obvious.py"))}


@functools.cache
def prepared(kind, model):
    """An engine of kind "static", "static:xla", ... ready to serve `model` of services/obvious.py."""
    name, _, program = kind.partition(":")
    settings = EngineSettings(engine=name, xla={"xla": "only", "plain": "off"}.get(program, "auto"))
    spec = models()[model]
    engine = build_engine(name, spec, settings)
    samples = draw_samples(spec, engine, seed=0)
    engine.prepare([sample.example for sample in samples if sample.usable], ignore_step)
    certify(spec, engine, samples, ignore_step)
    warm_up(engine, samples, ignore_step)
    return engine


KINDS = ["static:plain", "static:xla", *(name for name in ENGINES if name != "static")]


@pytest.fixture(params=KINDS)
def engine_for(request):
    return lambda model: prepared(request.param, model)


def example(engine, *values):
    return tuple(as_array(value, t.dtype) for value, t in zip(values, engine.inputs, strict=True))


def run(engine, examples):
    """Runs one batch in the smallest bucket that holds it, or the largest."""
    rows = [example(engine, *values) for values in examples]
    buckets = [timed.bucket for timed in engine.buckets()]
    bucket = smallest_bucket(buckets, len(rows), longest(map(engine.measure, rows))) or max(buckets)
    return engine.run(rows, bucket)


def values(result):
    return [row if isinstance(row, RowError) else tuple(a.tolist() for a in row) for row in result.rows]


def test_scalars_in_every_batch_size(engine_for):
    engine = engine_for("double")
    for rows in range(1, 9):
        result = run(engine, [(float(i),) for i in range(rows)])
        assert values(result) == [(2.0 * i,) for i in range(rows)]
        assert all(array.dtype == np.float32 and array.shape == () for (array,) in result.rows)


def test_a_maximum_that_is_no_power_of_two(engine_for):
    engine = engine_for("sum_and_difference")
    assert [timed.bucket.rows for timed in engine.buckets()] == [1, 2, 4, 5]
    rows = [([float(i)] * 3, [1.0, 2.0, 3.0]) for i in range(5)]
    expected = [([i + 1.0, i + 2.0, i + 3.0], [i - 1.0, i - 2.0, i - 3.0]) for i in range(5)]
    assert values(run(engine, rows)) == expected
    assert [output.name for output in engine.outputs] == ["output_0", "output_1"]


def test_lengths_zero_one_and_mixed(engine_for):
    engine = engine_for("total")
    for lengths in ([0], [1], [0, 0], [3, 0, 17, 1], [19] * 8, [5, 1, 2, 3, 0, 4, 9, 16]):
        rows = [(np.arange(n, dtype=np.float32),) for n in lengths]
        np.testing.assert_allclose(
            [row[0] for row in run(engine, rows).rows], [n * (n - 1) / 2 for n in lengths], rtol=1e-6
        )


def test_outputs_have_each_rows_own_length(engine_for):
    engine = engine_for("square_each")
    result = run(engine, [(np.arange(n),) for n in (3, 0, 1, 7)])
    assert [output.name for output in engine.outputs] == ["count", "squares"]
    assert values(result) == [
        (3, [0, 1, 4]),
        (0, []),
        (1, [0]),
        (7, [0, 1, 4, 9, 16, 25, 36]),
    ]
    assert result.rows[1][1].dtype == np.int32


def test_an_example_longer_than_every_bucket_is_answered(engine_for):
    engine = engine_for("square_each")
    result = run(engine, [(np.arange(200),), (np.arange(2),)])
    assert values(result) == [(200, [i * i for i in range(200)]), (2, [0, 1])]


def test_a_tall_row_beside_a_wide_one_costs_nobody_an_answer(engine_for):
    engine = engine_for("sum_of_grid")
    tall, wide = np.ones((300_000, 1), np.float32), np.ones((1, 300_000), np.float32)
    result = run(engine, [(tall,), ([[2.0]],), (wide,)])
    assert values(result) == [(300_000.0,), (2.0,), (300_000.0,)]


def test_strings_in_and_out(engine_for):
    engine = engine_for("greet")
    names = ["Ada", "", "名前", b"\xff\x00", "x" * 100]
    for rows in range(1, 6):
        expected = [b"hello " + (n if isinstance(n, bytes) else n.encode()) for n in names[:rows]]
        result = run(engine, [(name,) for name in names[:rows]])
        assert values(result) == [(text,) for text in expected]
        assert result.rows[0][0].dtype == object


def test_booleans_and_int64(engine_for):
    engine = engine_for("is_even")
    result = run(engine, [(2**40,), (2**40 + 1,), (-3,)])
    assert values(result) == [(True,), (False,), (False,)]
    assert result.rows[0][0].dtype == np.bool_


@pytest.mark.parametrize("bad", range(8))
def test_a_bad_id_fails_alone(engine_for, bad):
    engine = engine_for("pick")
    result = run(engine, [(9,) if row == bad else (row % 5,) for row in range(8)])
    answers = values(result)
    assert isinstance(answers[bad], RowError)
    assert "9 is not in [0, 5)" in answers[bad].message
    assert "node" not in answers[bad].message
    for row in range(8):
        if row != bad:
            assert answers[row] == ([row % 5, row % 5 + 0.5],)


def test_failed_asserts_fail_alone_with_their_message(engine_for):
    engine = engine_for("below_five")
    answers = values(run(engine, [(1.0,), (5.0,), (2.0,), (float("inf"),), (4.0,)]))
    assert [answers[row] for row in (0, 2, 4)] == [(2.0,), (3.0,), (5.0,)]
    assert answers[1] == answers[3] == RowError("x must be below five")


def test_a_batch_of_bad_rows_only(engine_for):
    assert values(run(engine_for("below_five"), [(6.0,)])) == [RowError("x must be below five")]
    assert values(run(engine_for("below_five"), [(6.0,)] * 3)) == [RowError("x must be below five")] * 3


def test_isolated_rows_are_counted(engine_for):
    engine = engine_for("pick")
    if engine.name == "per_request":
        assert run(engine, [(9,), (1,)]).stats.isolated == 0
    else:
        assert run(engine, [(0,), (1,)]).stats.isolated == 0
        assert run(engine, [(9,), (1,)]).stats.isolated >= 1


def test_nan_and_infinity_stay_in_their_row(engine_for):
    answers = [row[0] for row in run(engine_for("double"), [(np.nan,), (1.0,), (np.inf,), (-np.inf,)]).rows]
    np.testing.assert_array_equal(answers, [np.nan, 2.0, np.inf, -np.inf])


def test_rows_keep_their_order_under_concurrent_batches(engine_for):
    engine = engine_for("total")

    def batch(start):
        lengths = [(start + i) % 20 for i in range(1 + start % 8)]
        rows = [(np.full(n, start, np.float32),) for n in lengths]
        return [float(row[0]) for row in run(engine, rows).rows], [float(n * start) for n in lengths]

    with ThreadPoolExecutor(4) as pool:
        for got, expected in pool.map(batch, range(60)):
            assert got == expected


@pytest.mark.complaint(16)
def test_nothing_is_traced_after_warm_up(engine_for):
    engine = engine_for("square_each")
    watch = CompileWatch()
    for rows in range(1, 9):
        run(engine, [(np.arange((rows * 5 + i) % 13),) for i in range(rows)])
    run(engine, [(np.arange(100),)])
    assert watch.count() == 0


def test_every_bucket_is_timed(engine_for):
    for model in ("double", "square_each", "greet"):
        engine = engine_for(model)
        assert all(timed.seconds > 0 for timed in engine.buckets())
        assert max(timed.bucket.rows for timed in engine.buckets()) == 8
        assert all(len(timed.bucket.lengths) == len(engine.bounds) for timed in engine.buckets())


def test_an_unknown_engine_is_refused():
    with pytest.raises(Exception, match="there is no engine 'magic'; choose one of static"):
        build_engine("magic", models()["double"], EngineSettings())
