"""Lists that autograph's loops and branches make longer in some rows only."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import autograph_programs as programs
from tests.support.oracle import check


def vectors(*lengths):
    generator = np.random.default_rng(0)
    return [(generator.normal(size=n).astype("f"),) for n in lengths]


@pytest.mark.parametrize("name", ["appends", "appends_from_nested_loops"])
def test_lists_that_grow_by_numbers(name):
    """How long they get isn't known before they run, which XLA must know."""
    examples = [(np.int32(n),) for n in (7, 3, 1, 6, 12, 2)]
    check(getattr(programs, name), [tf.TensorSpec([], tf.int32)], examples)


@pytest.mark.parametrize("name", ["filters_a_fixed_number", "one_list_or_the_other"])
def test_lists_of_different_lengths(name):
    check(getattr(programs, name), [tf.TensorSpec([4], tf.float32)], vectors(4, 4, 4, 4))


def test_one_or_two_or_none_a_step():
    check(programs.appends_twice_or_not, [tf.TensorSpec([None], tf.float32)], vectors(5, 1, 8, 3, 0))


def test_stack_machine():
    codes = [[3, 4, -1], [1, 2, 3, -1, -1], [5, 0, 7], [1, 0], [2, 2, -1, 9, -1, -1], []]
    check(programs.stack_machine, [tf.TensorSpec([None], tf.int32)], [(np.array(row, "int32"),) for row in codes])
