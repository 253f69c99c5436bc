"""JSON to arrays and back: every dtype, every rank, every refusal."""

from __future__ import annotations

import base64
import contextlib
import json

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from server.errors import InvalidInput
from server.http.codec import TensorReader, to_json
from server.model_description import TensorDescription


def read(text: str, dtype: str, shape: list[int | None]):
    return TensorReader(TensorDescription("x", dtype, shape)).read(msgspec.Raw(text.encode()))


def write(array: np.ndarray) -> str:
    return orjson.dumps(to_json(array), option=orjson.OPT_SERIALIZE_NUMPY).decode()


NAN, INF = float("nan"), float("inf")
GOOD = [
    ("1", "float32", [], np.float32(1)),
    ("[1, 2.5]", "float32", [None], np.array([1, 2.5], np.float32)),
    ("[[1, 2], [3, 4]]", "float64", [2, None], np.array([[1.0, 2], [3, 4]])),
    ('[1, "NaN", "-Infinity", "Infinity"]', "float32", [None], np.array([1, NAN, -INF, INF], np.float32)),
    ('"NaN"', "float64", [], np.array(NAN)),
    ("3.4028235e38", "float32", [], np.float32(3.4028235e38)),
    ('["NaN", 3.4028235e38]', "float32", [2], np.array([NAN, 3.4028235e38], np.float32)),
    ("[-128, 127]", "int8", [2], np.array([-128, 127], np.int8)),
    ("18446744073709551615", "uint64", [], np.uint64(2**64 - 1)),
    ("[9223372036854775807]", "int64", [None], np.array([2**63 - 1])),
    ("[true, false]", "bool", [2], np.array([True, False])),
    ("true", "bool", [], np.array(True)),
    ("[]", "float32", [None], np.zeros((0,), np.float32)),
    ("[]", "float32", [None, 4], np.zeros((0, 4), np.float32)),
    ("[]", "int32", [0, 4], np.zeros((0, 4), np.int32)),
    ("[]", "int32", [None, None], np.zeros((0, 0), np.int32)),
    ("[[], []]", "float32", [2, None], np.zeros((2, 0), np.float32)),
    ("[[], []]", "float32", [2, 0, 3], np.zeros((2, 0, 3), np.float32)),
    ('"true"', "string", [], np.array(b"true", object)),
    ('["a", "\u00fc"]', "string", [None], np.array([b"a", "ü".encode()], object)),
    ('[["a"], ["b"]]', "string", [None, 1], np.array([[b"a"], [b"b"]], object)),
    ("[]", "string", [None], np.zeros((0,), object)),
    ('{"b64": "/w=="}', "string", [], np.array(b"\xff", object)),
    ('[{"b64": "/w=="}, "a"]', "string", [2], np.array([b"\xff", b"a"], object)),
    ('""', "string", [], np.array(b"", object)),
]


@pytest.mark.parametrize(("text", "dtype", "shape", "expected"), GOOD)
def test_reading(text, dtype, shape, expected):
    array = read(text, dtype, shape)
    assert isinstance(array, np.ndarray)
    assert array.dtype == expected.dtype
    assert array.shape == np.shape(expected)
    np.testing.assert_array_equal(array, expected)


BAD = [
    ("[[1.5, 2], [3, 4]]", "int32", [None], "expected int32 of shape [length], got float of shape [2, 2]"),
    ("1", "float32", [None, None], "expected float32 of shape [length_0, length_1], got int"),
    ("[1, 2]", "float32", [3], "expected float32 of shape [3], got int of shape [2]"),
    ("[1]", "float32", [], "expected a single float32, got int of shape [1]"),
    ("[]", "float32", [4], "expected float32 of shape [4], got an empty list of shape [0]"),
    ("[1, 2.0]", "int32", [None], "expected int32 of shape [length], got float at [1]"),
    ("1.0", "int32", [], "expected a single int32, got float"),
    ("[[1, 2], [3, true]]", "int32", [2, 2], "expected int32 of shape [2, 2], got bool at [1, 1]"),
    ("true", "float32", [], "expected a single float32, got bool"),
    ("1", "bool", [], "expected a single bool, got int"),
    ("[null]", "float32", [None], "got null at [0]"),
    ('["1.5"]', "float32", [None], 'got string at [0] (allowed strings are "NaN", "Infinity", "-Infinity")'),
    ('"NaN"', "int32", [], "expected a single int32, got string"),
    ("[[1, 2], [3]]", "float32", [None, None], "got ragged lists: 1 elements at [1], 2 in the lists before"),
    ("[1, [2]]", "float32", [None], "with a list at [1]"),
    ("[[1], 2]", "float32", [None, None], "with a single int at [1], where a list belongs"),
    ('[["a"], ["b", "c"]]', "string", [None, None], "ragged lists"),
    ('["a", ["b"]]', "string", [None], "with a list at [1]"),
    ("[127, 128]", "int8", [None], "128 at [1] is out of range for int8 (-128 to 127)"),
    ("-1", "uint8", [], "-1 is out of range for uint8 (0 to 255)"),
    ("99999999999999999999", "int64", [], "99999999999999999999 is out of range for int64"),
    ("[1, 1e39]", "float32", [None], "1e+39 at [1] is out of range for float32"),
    ("70000", "float16", [], "70000 is out of range for float16"),
    ("1e400", "float64", [], "input 'x': not valid JSON: Number out of range"),
    ("3", "string", [], 'expected a single string, got int (bytes go as {"b64": "..."})'),
    ('{"b64": "?"}', "string", [], "invalid base64"),
    ('{"b64": "/w==", "more": 1}', "string", [], "got object"),
    ('"\\ud800"', "string", [], "not valid JSON"),
]


@pytest.mark.parametrize(("text", "dtype", "shape", "sentence"), BAD)
def test_refusing(text, dtype, shape, sentence):
    with pytest.raises(InvalidInput) as refused:
        read(text, dtype, shape)
    assert refused.value.message.startswith("input 'x': ")
    assert sentence in refused.value.message


def test_names_of_nonfinite_numbers_are_suggested_only_where_they_are_allowed():
    with pytest.raises(InvalidInput) as refused:
        read('"1"', "int64", [])
    assert refused.value.message == "input 'x': expected a single int64, got string"


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.array(0.1, np.float32), "0.1"),
        (np.array([0.1, 1e-7, 1], np.float32), "[0.1,1e-7,1.0]"),
        (np.array([0.1, NAN, INF, -INF], np.float32), '[0.1,"NaN","Infinity","-Infinity"]'),
        (np.array([[0.1, NAN]]), '[[0.1,"NaN"]]'),
        (np.array(NAN, np.float32), '"NaN"'),
        (np.array(-INF), '"-Infinity"'),
        (np.array([[1, 2], [3, 4]], np.int8).T, "[[1,3],[2,4]]"),
        (np.array(2**63 - 1), "9223372036854775807"),
        (np.array([2**64 - 1], np.uint64), "[18446744073709551615]"),
        (np.array([True, False]), "[true,false]"),
        (np.array(True), "true"),
        (np.zeros((0, 4)), "[]"),
        (np.zeros((2, 0)), "[[],[]]"),
        (np.array(b"a", object), '"a"'),
        (np.array([b"a", b"\xff"], object), '["a",{"b64":"/w=="}]'),
        (np.array([["ü".encode()]], object), '[["ü"]]'),
        (np.zeros((2, 0), object), "[[],[]]"),
    ],
)
def test_writing(array, text):
    assert write(array) == text


numbers = st.sampled_from(["float16", "float32", "float64", "int8", "int64", "uint64", "bool"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4))
)


@given(numbers)
def test_numbers_survive_the_round_trip_exactly(array):
    shape = [None] * array.ndim
    back = read(write(array), str(array.dtype), shape)
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype


@given(st.lists(st.binary(max_size=6), max_size=4))
def test_texts_survive_the_round_trip_exactly(texts):
    array = np.array([*texts, b""], object)[:-1]
    np.testing.assert_array_equal(read(write(array), "string", [None]), array)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)


@given(junk, st.sampled_from(["float32", "int8", "bool", "string"]), st.sampled_from([[], [None], [2, None]]))
def test_anything_is_read_or_refused_in_a_sentence(value, dtype, shape):
    with contextlib.suppress(InvalidInput):
        array = read(json.dumps(value), dtype, shape)
        assert array.ndim == len(shape)
        assert array.dtype == (object if dtype == "string" else dtype)


def test_base64_is_read_back():
    assert read(json.dumps({"b64": base64.b64encode(b"\x00\xff").decode()}), "string", []).item() == b"\x00\xff"


def test_what_is_longer_than_the_model_allows_is_refused_in_a_sentence():
    vector = TensorReader(TensorDescription("x", "int32", [None, 2]), max_length=2)
    assert vector.read(msgspec.Raw(b"[[1, 2], [3, 4]]")).shape == (2, 2)
    with pytest.raises(InvalidInput, match="input 'x': 3 elements, of at most 2, along axis 0"):
        vector.read(msgspec.Raw(b"[[1, 2], [3, 4], [5, 6]]"))
    text = TensorReader(TensorDescription("t", "string", []), max_length=4)
    assert text.read(msgspec.Raw('"aü"'.encode())) == "aü".encode()
    with pytest.raises(InvalidInput, match="input 't': a text of 5 bytes, of at most 4"):
        text.read(msgspec.Raw(b'"abcde"'))
