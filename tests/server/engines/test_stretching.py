"""Examples made as long as a bucket."""

import numpy as np

from server.engines.stretching import stretch
from server.model_description import BoundDescription, TensorDescription

GRID = TensorDescription("grid", "float32", [None, 2])
TEXT = TensorDescription("text", "string", [])
TEXTS = TensorDescription("texts", "string", [None])


def test_content_is_repeated_or_cut():
    bounds = [BoundDescription("grid", 0)]
    grid = np.arange(4, dtype=np.float32).reshape(2, 2)
    (longer,) = stretch((grid,), [GRID], bounds, (5,))
    assert longer.tolist() == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]
    assert longer.dtype == np.float32
    (shorter,) = stretch((grid,), [GRID], bounds, (1,))
    assert shorter.tolist() == [[0, 1]]


def test_nothing_becomes_zeros():
    (made,) = stretch((np.zeros((0, 2), np.float32),), [GRID], [BoundDescription("grid", 0)], (3,))
    assert made.tolist() == [[0, 0]] * 3
    (texts,) = stretch(
        (np.array([], object),), [TEXTS], [BoundDescription("texts", 0), BoundDescription("texts", None)], (2, 3)
    )
    assert texts.tolist() == [b"aaa", b""]


def test_a_text_stays_text():
    def stretched(text, size):
        (made,) = stretch((np.array(text, object),), [TEXT], [BoundDescription("text", None)], (size,))
        return made.item()

    assert stretched(b"ab", 5) == b"ababa"
    assert stretched(b"", 3) == b"aaa"
    assert stretched("é".encode(), 5) == "éé".encode()
    assert stretched(b"\xff", 3) == b"\xff" * 3
    assert stretched(b"abcdef", 2) == b"ab"


def test_one_text_of_several_is_as_long_as_the_bucket():
    bounds = [BoundDescription("texts", 0), BoundDescription("texts", None)]
    (made,) = stretch((np.array([b"ab", b"abcdef"], object),), [TEXTS], bounds, (3, 4))
    assert made.tolist() == [b"abab", b"abcd", b"ab"]
