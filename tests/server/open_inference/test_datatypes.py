"""Tensors as raw bytes and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from server.errors import InvalidInput
from server.open_inference.datatypes import DATATYPES, array_from_bytes, array_to_bytes
from server.registry import SERVED_DTYPES

SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def test_every_dtype_that_is_served_has_a_name():
    assert set(DATATYPES) == set(SERVED_DTYPES)


@given(st.sampled_from([dtype for dtype in SERVED_DTYPES if dtype != "string"]), SHAPES, st.data())
def test_numbers_come_back_bit_for_bit(dtype, shape, data):
    array = data.draw(arrays.arrays(dtype, shape))
    raw = array_to_bytes(array)
    back = array_from_bytes("x", dtype, shape, memoryview(raw))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, shape, array.tobytes())


@given(SHAPES, st.data())
def test_texts_come_back(shape, data):
    array = data.draw(arrays.arrays(object, shape, elements=st.binary(max_size=20)))
    back = array_from_bytes("x", "string", shape, memoryview(array_to_bytes(array)))
    assert (back.shape, back.tolist()) == (shape, array.tolist())


@given(st.binary(max_size=40), st.integers(0, 4))
def test_any_bytes_are_texts_or_an_error(raw, count):
    try:
        texts = array_from_bytes("x", "string", (count,), memoryview(raw))
    except InvalidInput:
        return
    assert array_to_bytes(texts) == raw


def test_numbers_are_views_and_any_byte_but_zero_is_true():
    raw = bytearray(b"junk" + np.arange(3, dtype=np.float64).tobytes())
    view = array_from_bytes("x", "float64", (3,), memoryview(raw)[4:])
    assert np.shares_memory(view, np.frombuffer(raw, np.uint8))
    assert array_from_bytes("x", "bool", (3,), memoryview(b"\0\1\2")).tolist() == [False, True, True]
    with pytest.raises(InvalidInput, match=r"FP64 of shape \[2\] takes 16 bytes, got 24"):
        array_from_bytes("x", "float64", (2,), memoryview(raw)[4:])
