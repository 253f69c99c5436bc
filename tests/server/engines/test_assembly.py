import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.engines.assembly import Assembly
from server.model_description import TensorDescription

TEXT = TensorDescription("text", "string", [])
WORDS = TensorDescription("words", "string", [None])
GRID = TensorDescription("grid", "float32", [None, 2, None])
POINT = TensorDescription("point", "int32", [2])


def words(*items):
    return np.array([*items, None], object)[:-1]


def test_fixed_shapes_are_stacked_and_row_0_repeated():
    batch = Assembly([POINT], []).stack([(np.array([1, 2]),), (np.array([3, 4]),)], 4, None)
    np.testing.assert_array_equal(batch.inputs[0], [[1, 2], [3, 4], [1, 2], [1, 2]])
    assert batch.inputs[0].dtype == np.int32
    assert (batch.rows, batch.rows_padded, batch.padding_ratio) == (2, 2, 0.5)


def test_variable_dimensions_are_padded_and_their_lengths_kept():
    assembly = Assembly([GRID, WORDS], [])
    assert assembly.input_dims == [(0, 0), (0, 2), (1, 0)]
    rows = [
        (np.ones((2, 2, 1), np.float32), words(b"a")),
        (np.full((0, 2, 3), 2, np.float32), words(b"b", b"cc", b"")),
    ]
    batch = assembly.stack(rows, 3, [4, 4, 8])
    assert [array.shape for array in batch.inputs] == [(3, 4, 2, 4), (3, 8)]
    assert [sizes.tolist() for sizes in batch.lengths] == [[2, 0, 2], [1, 3, 1], [1, 3, 1]]
    assert batch.inputs[1][1].tolist() == [b"b", b"cc", b"", b"", b"", b"", b"", b""]
    exact = assembly.stack(rows, 2, None)
    assert [array.shape for array in exact.inputs] == [(2, 2, 2, 3), (2, 3)]


def test_padding_is_known_before_it_is_added():
    assembly = Assembly([GRID, WORDS, POINT], [])
    rows = [
        (np.ones((2, 2, 1), np.float32), words(b"a"), np.array([1, 2], np.int32)),
        (np.ones((0, 2, 3), np.float32), words(), np.array([3, 4], np.int32)),
    ]
    assert assembly.padding_bytes(rows) == (2 * 12 - 4) * 4 + (2 - 1) * 8
    assert assembly.padding_bytes(rows[:1]) == 0


def test_scalar_strings():
    batch = Assembly([TEXT], []).stack([(np.array(b"x\x00", object),), (np.array(b"", object),)], 2, None)
    assert batch.inputs[0].tolist() == [b"x\x00", b""]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=6), st.integers(0, 3))
def test_what_is_stacked_splits_into_the_same_rows(shapes, spare):
    assembly = Assembly([GRID], [GRID], [(0, 0), (0, 2)])
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((n, 2, m)).astype("float32"),) for n, m in shapes]
    batch = assembly.stack(rows, len(rows) + spare, None)
    back = assembly.split(batch.inputs, batch.lengths, len(rows))
    assert len(back) == len(rows)
    for (got,), (array,) in zip(back, rows, strict=True):
        np.testing.assert_array_equal(got, array)


def test_outputs_of_fixed_shape_split_into_arrays_even_where_scalar():
    scalar = TensorDescription("y", "float32", [])
    (first,), (second,) = Assembly([], [scalar]).split([np.array([1.0, 2.0, 3.0], np.float32)], [], 2)
    assert isinstance(first, np.ndarray)
    assert (first.shape, float(second)) == ((), 2.0)
    ((text,),) = Assembly([], [TEXT]).split([np.array([b"a"], object)], [], 1)
    assert (text.shape, text.item()) == ((), b"a")
