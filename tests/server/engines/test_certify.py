"""Certification catches an engine that answers wrongly, whichever way it is wrong."""

import dataclasses

import numpy as np
import pytest

from server.engines.batch_result import BatchResult, BatchStats, RowError
from server.engines.certify import certify
from server.engines.samples import as_example, draw_samples
from server.errors import CertificationError
from server.model_description import BoundDescription, Bucket, BucketTime, TensorDescription
from server.registry import ModelSpec

X = TensorDescription("x", "float32", [2])


def make_spec(**changes):
    spec = ModelSpec(
        max_length=None,
        name="m",
        version="1",
        function=lambda x: x,
        inputs={},
        input_tensors=(X,),
        samples=None,
        max_batch_size=4,
        rtol=None,
        defined_at="here",
    )
    return dataclasses.replace(spec, **changes)


class Engine:
    """Doubles x, refusing x[0] > 1; `spoil(answer, row, rows)` makes the batched answers wrong."""

    name = "static"
    inputs = (X,)
    outputs = (TensorDescription("y", "float32", [2]),)
    bounds = ()
    lengths_apart = False
    reproducible = None

    def __init__(self, spoil=lambda answer, row, rows: answer):
        self.spoil = spoil
        self.batches = []

    def per_example(self, example):
        if example[0][0] > 1:
            raise ValueError("too big")
        return (example[0] * 2,)

    def buckets(self):
        return [BucketTime(Bucket(rows), 0.0) for rows in (1, 2, 4)]

    def measure(self, example):
        return ()

    def run(self, rows, bucket):
        self.batches.append((len(rows), bucket))
        answers = []
        for row, example in enumerate(rows):
            try:
                answers.append(self.spoil(self.per_example(example), row, len(rows)))
            except ValueError as error:
                answers.append(RowError(str(error)))
        return BatchResult(answers, BatchStats(program="plain"))


def check(engine, spec=None):
    spec = spec or make_spec()
    certify(spec, engine, draw_samples(spec, engine, seed=0), lambda *_: None)


def test_a_right_engine_passes_with_full_and_partial_batches_of_every_bucket():
    engine = Engine()
    check(engine)
    assert {(1, Bucket(1)), (2, Bucket(2)), (4, Bucket(4)), (3, Bucket(4))} <= set(engine.batches)


@pytest.mark.complaint(11)
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda y, row, rows: (y[0] + (row == 3),),
            "differs by up to 1 where .* bucket 4 rows|4 rows.*differs by",
        ),
        (lambda y, row, rows: (y[0] * (1 + 1e-3),), "differs by up to"),
        (lambda y, row, rows: (y[0][:1],), r"has shape \[1\] instead of \[2\]"),
        (lambda y, row, rows: (y[0].astype("float64"),), "has dtype float64 instead of float32"),
        (lambda y, row, rows: (y[0] * np.nan,), "differs in where it is NaN"),
        (lambda y, row, rows: RowError("no") if row == 1 else y, "one is an error, the other a value"),
    ],
)
def test_a_wrong_engine_is_refused_with_what_it_did(spoil, sentence):
    with pytest.raises(CertificationError, match=sentence) as caught:
        check(Engine(spoil))
    assert "per example:" in caught.value.message
    assert "x=[" in caught.value.message


def test_rows_that_must_fail_may_not_be_answered():
    class Lenient(Engine):
        def run(self, rows, bucket):
            return BatchResult([(x[0] * 2,) for x in rows], BatchStats())

    with pytest.raises(CertificationError, match="one is an error, the other a value"):
        check(Lenient())


def test_rtol_widens_the_tolerance():
    engine = Engine(lambda y, row, rows: (y[0] * (1 + 1e-3),))
    check(engine, make_spec(rtol=1e-2))


def test_integers_must_agree_but_for_near_ties():
    class Above(Engine):
        """y = x > 0.5; batched rounds the other way at the tie."""

        outputs = (TensorDescription("y", "bool", [2]),)

        def per_example(self, example):
            return (example[0] > np.float32(0.5),)

    def flip(y, row, rows):
        return (~y[0],)

    check(Above(flip), make_spec(samples=[[0.5, 0.5]]))
    with pytest.raises(CertificationError, match="has other values"):
        check(Above(flip), make_spec(samples=[[0.6, 0.6]]))


def test_a_program_that_raises_as_a_whole_is_refused():
    class Broken(Engine):
        def run(self, rows, bucket):
            result = super().run(rows, bucket)
            return BatchResult(result.rows, BatchStats(program="alone", failure="boom"))

    with pytest.raises(CertificationError, match="raises where the function itself doesn't: boom"):
        check(Broken(), make_spec(samples=[[0.0, 1.0]]))


def test_samples_that_are_mostly_refused_are_not_enough():
    with pytest.raises(CertificationError, match=r"raises on 2 of 3 its samples.*give samples=.*too big"):
        draw_samples(make_spec(samples=[[2.0, 0], [3.0, 0], [0.0, 0]]), Engine(), seed=0)


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        ({"x": [1.0, 2.0], "z": 1}, "expected inputs x, got x, z"),
        ([1.0, 2.0, 3.0], r"expected float32 of shape \[2\], got shape \[3\]"),
        ("text", "input 'x'"),
    ],
)
def test_a_sample_that_does_not_fit_is_named(sample, sentence):
    with pytest.raises(CertificationError, match=sentence):
        as_example(make_spec(), sample, "samples[0]")


def test_samples_may_be_dicts_tuples_or_bare_values():
    for sample in ({"x": [1, 2]}, ([1, 2],), [1, 2], np.array([1, 2])):
        (array,) = as_example(make_spec(), sample, "samples[0]")
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, [1, 2])


def test_the_same_seed_gives_the_same_samples():
    first, second = (draw_samples(make_spec(), Engine(), seed=7) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.example[0], b.example[0])


class TakesAnyLength(Engine):
    """Adds up; `wrong_from` is the length from which the sum is one too large."""

    inputs = (TensorDescription("x", "float32", [None]),)
    outputs = (TensorDescription("y", "float32", []),)
    bounds = (BoundDescription("x", 0),)

    def __init__(self, wrong_from):
        super().__init__()
        self.wrong_from = wrong_from

    def per_example(self, example):
        return (example[0].sum(),)

    def buckets(self):
        return [BucketTime(Bucket(rows, (8,)), 0.0) for rows in (1, 2)]

    def measure(self, example):
        return (len(example[0]),)

    def run(self, rows, bucket):
        self.batches.append((len(rows), bucket))
        answers = [(row[0].sum() + np.float32(len(row[0]) >= self.wrong_from),) for row in rows]
        return BatchResult(answers, BatchStats())


def certify_lengths(engine, **changes):
    spec = make_spec(input_tensors=engine.inputs, samples=[[1.0, 2.0], [1.0, 2.0, 3.0]], **changes)
    return certify(spec, engine, draw_samples(spec, engine, 0), lambda *step: None)


@pytest.mark.parametrize("wrong_from", [8, 13])
def test_a_bucket_is_certified_at_its_full_length_and_beyond(wrong_from):
    with pytest.raises(CertificationError, match=r"differs by up to 1 where .* \(relative tolerance 1e-05\)"):
        certify_lengths(TakesAnyLength(wrong_from))


def test_lengths_that_the_model_refuses_are_not_tried():
    engine = TakesAnyLength(wrong_from=13)
    certification = certify_lengths(engine, max_length=8)
    assert (certification.samples, certification.stretched, certification.refused) == (2, 2, 0)


def test_certification_says_what_was_compared_and_how_far_apart_it_was():
    engine = Engine(lambda answer, row, rows: (answer[0] * np.float32(1 + 3e-6),))
    certification = certify(spec := make_spec(), engine, draw_samples(spec, engine, 0), lambda *step: None)
    (output,) = certification.outputs
    assert certification.buckets == 3
    assert certification.batches == len(engine.batches)
    assert certification.rows == sum(rows for rows, _ in engine.batches)
    assert 0 < certification.refused < 64
    assert (output.name, output.tolerance, output.near_ties) == ("y", 1e-5, 0)
    assert 0 < output.largest_difference < output.allowed_difference
    assert output.values >= 40
