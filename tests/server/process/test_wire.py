import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from server.engines.batch_result import as_array
from server.process.framing import Unframer, frame
from server.process.messages import Run
from server.process.wire import Arena, read_rows, write_rows


@pytest.fixture
def arenas():
    """An arena, and the same memory as another process sees it."""
    writer = Arena.create()
    reader = Arena(os.dup(writer.descriptor))
    yield writer, reader
    writer.close()
    reader.close()


def round_trip(arenas, rows, dtypes):
    return read_rows(arenas[1], write_rows(arenas[0], rows, dtypes))


def assert_same(got, rows):
    assert len(got) == len(rows)
    for got_row, row in zip(got, rows, strict=True):
        for a, b in zip(got_row, row, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            np.testing.assert_array_equal(a, b)


NUMERIC = ["bool", "int8", "int64", "uint16", "float16", "float32", "float64"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_numbers_of_any_dtype_and_shape_cross_unchanged(data):
    dtypes = data.draw(st.lists(st.sampled_from(NUMERIC), min_size=1, max_size=3))
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    rows = [
        tuple(data.draw(hnp.arrays(dtype, shapes)) for dtype in dtypes) for _ in range(data.draw(st.integers(1, 5)))
    ]
    writer = Arena.create()
    reader = Arena(os.dup(writer.descriptor))
    assert_same(round_trip((writer, reader), rows, dtypes), rows)
    writer.close()
    reader.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=20), max_size=4), min_size=1, max_size=5))
def test_strings_cross_unchanged(texts):
    rows = [(as_array(np.array([*items, None], object)[:-1], "string"),) for items in texts]
    writer = Arena.create()
    reader = Arena(os.dup(writer.descriptor))
    assert_same(round_trip((writer, reader), rows, ["string"]), rows)
    writer.close()
    reader.close()


def test_scalar_strings_with_zero_bytes_and_none_at_all(arenas):
    rows = [(as_array(text, "string"),) for text in (b"a\x00b\x00", b"", "é", b"\xff")]
    assert_same(round_trip(arenas, rows, ["string"]), rows)


def test_the_arena_grows_and_what_was_read_before_stays(arenas):
    small = [(np.arange(10, dtype=np.int32),)]
    before = round_trip(arenas, small, ["int32"])
    large = [(np.random.default_rng(0).standard_normal(400_000),) for _ in range(3)]
    assert_same(round_trip(arenas, large, ["float64"]), large)
    assert_same(round_trip(arenas, small, ["int32"]), small)
    assert_same(before, small)


def test_views_that_are_not_contiguous_cross(arenas):
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert_same(round_trip(arenas, [(matrix.T,), (matrix.T + 1,)], ["float32"]), [(matrix.T,), (matrix.T + 1,)])
    for rows in ([(matrix.T,), (matrix.T + 1,)], [(matrix.T,), (matrix,)]):
        assert_same(round_trip(arenas, rows, ["float32"]), rows)


def test_no_rows(arenas):
    assert round_trip(arenas, [], ["float32"]) == []


def test_messages_are_found_however_the_bytes_arrive(arenas):
    from server.model_description import Bucket
    from server.process.messages import Tensors

    framed = b"".join(frame(Run(i, "predict", Bucket(1), Tensors(0, []))) for i in range(3))
    whole = Unframer().feed(framed)
    unframer = Unframer()
    bytewise = [body for i in range(len(framed)) for body in unframer.feed(framed[i : i + 1])]
    assert len(whole) == 3
    assert bytewise == whole
