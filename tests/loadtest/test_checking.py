"""Right, wrong, or tied: the judgement over single replies."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from loadtest.attack import Exchange
from loadtest.checking import difference_from_expected, judge
from loadtest.targets import Example, ExampleSet

DTYPES = {"scores": "float32", "label": "string", "best": "int64", "deep": "float64", "half": "float16"}


@pytest.mark.parametrize(
    ("expected", "answered", "difference"),
    [
        ({"scores": [1.0, 2.0]}, {"scores": [1.000005, 2.0]}, None),
        ({"scores": [1.0, 2.0]}, {"scores": [1.0001, 2.0]}, "output 'scores'[0]: expected 1.0, got 1.0001"),
        ({"scores": [1000.0, 0.0]}, {"scores": [1000.0, 0.005]}, None),
        ({"scores": 0.5}, {"scores": 0.6}, "output 'scores': expected 0.5, got 0.6"),
        ({"scores": ["NaN", "Infinity"]}, {"scores": ["NaN", "Infinity"]}, None),
        ({"scores": ["NaN"]}, {"scores": [0.0]}, "output 'scores'[0]: expected nan, got 0.0"),
        ({"scores": [1.0]}, {"scores": [1.0, 2.0]}, "output 'scores': expected shape [1], got [2]"),
        ({"scores": [1.0]}, {"scores": ["one"]}, "output 'scores': expected numbers, got ['one']"),
        ({"deep": [1.0]}, {"deep": [1.000001]}, "output 'deep'[0]: expected 1.0, got 1.000001"),
        ({"half": [1.0]}, {"half": [1.005]}, None),
        ({"best": 3}, {"best": 4}, "output 'best': expected 3, got 4"),
        ({"best": [3, 4]}, {"best": [3]}, "output 'best': expected [3, 4], got [3]"),
        ({"label": "fr"}, {"label": "de"}, "output 'label': expected 'fr', got 'de'"),
        ({"label": "fr"}, {"label": "fr"}, None),
        ({"label": {"b64": "/w=="}}, {"label": {"b64": "/w=="}}, None),
        ({"label": "fr"}, {"language": "fr"}, "expected outputs ['label'], got ['language']"),
        # ties: the two largest scores are nearer than the tolerance, so either label is right
        ({"label": "fr", "scores": [0.5, 0.500001, 0.1]}, {"label": "de", "scores": [0.5, 0.5, 0.1]}, None),
        (
            {"label": "fr", "scores": [0.4, 0.6]},
            {"label": "de", "scores": [0.4, 0.6]},
            "output 'label': expected 'fr', got 'de'",
        ),
    ],
)
def test_answers(expected: Any, answered: Any, difference: str | None) -> None:
    body = orjson.dumps({"outputs": answered})
    assert difference_from_expected(body, Example({}, outputs=expected), DTYPES) == difference


def test_a_model_may_have_a_tolerance_of_its_own() -> None:
    body = b'{"outputs": {"scores": [1.01]}}'
    assert difference_from_expected(body, Example({}, outputs={"scores": [1.0]}), DTYPES, rtol=0.1) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>"])
def test_a_body_without_outputs_is_wrong(body: bytes) -> None:
    assert difference_from_expected(body, Example({}, outputs={}), {}) == "the body has no outputs"


GOOD, BAD, UNCHECKED = 0, 1, 2
EXAMPLES = ExampleSet(
    "double",
    [Example({}, outputs={"y": 1}), Example({}, error="assertion failed"), Example({})],
    {"y": "int32"},
)
RIGHT = b'{"outputs": {"y": 1}}'


@pytest.mark.parametrize(
    ("exchange", "outcome"),
    [
        (Exchange(0, GOOD, 0, status=200, body=RIGHT), "ok"),
        (Exchange(0, GOOD, 0, status=200, body=b'{"outputs": {"y": 2}}'), "wrong"),
        (Exchange(0, GOOD, 0, status=400, body=b"{}"), "error"),
        (Exchange(0, BAD, 0, status=400, body=b"{}"), "ok"),
        (Exchange(0, BAD, 0, status=200, body=RIGHT), "wrong"),
        (Exchange(0, UNCHECKED, 0, status=200, body=b"anything"), "ok"),
        (Exchange(0, GOOD, 0, status=503), "shed"),
        (Exchange(0, GOOD, 0, status=504), "timeout"),
        (Exchange(0, GOOD, 0, failure="no reply within 1 s", timed_out=True), "timeout"),
        (Exchange(0, GOOD, 0, failure="no reply within 0.01 s", left=True), "left"),
        (Exchange(0, GOOD, 0, failure="the server closed the connection"), "error"),
        (Exchange(0, GOOD, 0, status=500, body=b"boom"), "error"),
    ],
)
def test_outcomes(exchange: Exchange, outcome: str) -> None:
    (record,) = judge([exchange], EXAMPLES)
    assert record.outcome == outcome
    assert record.status == exchange.status


def test_provenance_is_kept() -> None:
    headers = {"x-batchd-batch-size": "7", "x-batchd-queue-ms": "0.25", "x-batchd-compute-ms": "2"}
    (record,) = judge([Exchange(0, GOOD, 0, status=200, headers=headers, body=RIGHT)], EXAMPLES)
    assert (record.batch_size, record.queue_ms, record.compute_ms) == (7, 0.25, 2.0)
