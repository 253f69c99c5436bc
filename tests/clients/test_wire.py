"""Values written as JSON and read back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.wire import decode_output, encode_inputs, encode_value, to_json


def through_json(value: Any) -> Any:
    return orjson.loads(to_json(encode_value(value)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32([0.1, 2]), [0.1, 2.0]),
        (np.int64([1, 2]), [1, 2]),
        (np.array([True, False]), [True, False]),
        (np.uint8(7), 7),
        (np.float16([0.5]), [0.5]),
        (np.float64(np.nan), "NaN"),
        (np.float32([1, np.inf, -np.inf, np.nan]), [1.0, "Infinity", "-Infinity", "NaN"]),
        (np.arange(6).reshape(2, 3).T, [[0, 3], [1, 4], [2, 5]]),
        (np.array([1, 2], dtype=">i4"), [1, 2]),
        (np.zeros((0, 3)), []),
        (np.array(["a", "bc"]), ["a", "bc"]),
        (np.array([b"a", "b"], dtype=object), [{"b64": "YQ=="}, "b"]),
        (math.inf, "Infinity"),
        ([1.5, [math.nan]], [1.5, ["NaN"]]),
        (b"\xff", {"b64": "/w=="}),
        ("NaN", "NaN"),
        ([np.float32([1]), np.float32([2, 3])], [[1.0], [2.0, 3.0]]),
        (True, True),
    ],
)
def test_encode(value: Any, expected: Any) -> None:
    assert through_json(value) == expected


def test_float_arrays_keep_their_decimal_point() -> None:
    assert to_json(encode_value(np.float32([1, 2]))) == b"[1.0,2.0]"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (np.complex64(1j), "input 'x': cannot send dtype complex64"),
        (np.array("2020-01-01", dtype="M8[D]"), "input 'x': cannot send dtype datetime64"),
        (object(), "input 'x': cannot send a object"),
        ({1, 2}, "input 'x': cannot send a set"),
    ],
)
def test_what_has_no_json_form_is_refused_by_name(value: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence.replace("[", r"\[")):
        encode_inputs({"x": value})


def test_an_integer_too_wide_for_json_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot write the request as JSON"):
        to_json(encode_inputs({"x": 2**70}))


@pytest.mark.parametrize(
    ("json", "dtype", "shape", "expected"),
    [
        ([1, 2.5], "float32", [None], np.float32([1, 2.5])),
        (["NaN", 1], "float32", [None], np.float32([np.nan, 1])),
        (["NaN"], "string", [None], np.array(["NaN"], dtype=object)),
        (["a", {"b64": "/w=="}], "string", [2], np.array(["a", b"\xff"], dtype=object)),
        ([], "float32", [None, 64], np.zeros((0, 64), np.float32)),
        ([[], []], "int32", [2, None], np.zeros((2, 0), np.int32)),
        ([], "string", [None], np.array([], dtype=object)),
        ([2**63], "uint64", [1], np.uint64([2**63])),
        ([True], "bool", [1], np.array([True])),
        # without a declaration
        ([1, 2], None, None, np.int64([1, 2])),
        ([1, 2.5], None, None, np.float64([1, 2.5])),
        ([], None, None, np.zeros(0)),
        (["NaN", "Infinity"], None, None, np.float64([np.nan, np.inf])),
        (["NaN", "abc"], None, None, np.array(["NaN", "abc"], dtype=object)),
        # a declaration that no longer fits must not truncate
        ([0.5], "int32", [1], np.float64([0.5])),
        (["a"], "float32", [1], np.array(["a"], dtype=object)),
    ],
)
def test_decode_arrays(json: Any, dtype: str | None, shape: Any, expected: Any) -> None:
    decoded = decode_output(json, dtype, shape)
    assert decoded.dtype == expected.dtype
    assert decoded.shape == expected.shape
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(
    ("json", "dtype", "expected"),
    [
        (1, "float32", 1.0),
        (3, "int64", 3),
        (True, "bool", True),
        ("fr", "string", "fr"),
        ({"b64": "/w=="}, "string", b"\xff"),
        ("-Infinity", "float64", -math.inf),
        ("fr", None, "fr"),
        (2, None, 2),
    ],
)
def test_decode_scalars(json: Any, dtype: str | None, expected: Any) -> None:
    decoded = decode_output(json, dtype, [])
    assert decoded == expected
    assert type(decoded) is type(expected)


@settings(deadline=None)
@given(st.lists(st.floats(width=32), max_size=5))
def test_floats_survive_the_round_trip_bit_for_bit(values: list[float]) -> None:
    array = np.array(values, np.float32)
    np.testing.assert_array_equal(decode_output(through_json(array), "float32", [None]), array)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_integers_survive_the_round_trip(values: list[int]) -> None:
    array = np.array(values, np.int64)
    np.testing.assert_array_equal(decode_output(through_json(array), "int64", [None]), array)


@settings(deadline=None)
@given(st.binary(max_size=20) | st.text(max_size=20).filter(lambda text: text.isprintable()))
def test_text_and_bytes_survive_the_round_trip(value: bytes | str) -> None:
    assert decode_output(through_json(value), "string", []) == value
