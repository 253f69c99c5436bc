"""`tf.function`s with Python control flow: autograph makes loops and branches of it, and the batch answers the same."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import autograph_programs as programs
from tests.support.oracle import check, per_example
from vectorizer import vectorize

VECTOR = tf.TensorSpec([None], tf.float32)
NUMBER = tf.TensorSpec([], tf.int32)
SCALAR = tf.TensorSpec([], tf.float32)


def vectors(*lengths, seed=0):
    generator = np.random.default_rng(seed)
    return [(generator.normal(size=n).astype("f"),) for n in lengths]


def numbers(*values):
    return [(np.int32(value),) for value in values]


SEQUENCES = """sum_over_elements breaks_early skips_negative returns_from_a_branch short_circuits
    unrolled_python_list running_maximum two_pointers bubble_sort calls_another_function""".split()
COUNTS = """sum_over_a_range nested_loops collatz break_and_continue chain_of_conditions
    conditional_expression""".split()


LONG = ("bubble_sort", "two_pointers")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in LONG else []) for name in SEQUENCES]
)
def test_sequences(name):
    check(getattr(programs, name), [VECTOR], vectors(5, 1, 8, 3, 0))


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    check(getattr(programs, name), [NUMBER], numbers(7, 3, 1, 6, 12, 2))


def test_texts_written_in_a_loop():
    rows = [[3, 14], [1, 5, 9], [2]]
    v = check(programs.spells, [tf.TensorSpec([None], tf.int32)], [(np.array(row, "int32"),) for row in rows])
    assert not v.compilable


def test_a_loop_over_a_range_is_bounded_by_it():
    v = vectorize(programs.sum_over_a_range, [NUMBER])
    assert [entry.strategy for entry in v.report.loops] == ["loop to the longest row, masked by its bound"]


def test_newton():
    check(programs.newton, [SCALAR], [(np.float32(value),) for value in (2, 9, 0.25, 1000)])


def test_loop_over_rows():
    generator = np.random.default_rng(0)
    examples = [(generator.normal(size=[n, 3]).astype("f"),) for n in (4, 1, 6, 0)]
    check(programs.loop_over_rows, [tf.TensorSpec([None, 3], tf.float32)], examples)


@pytest.mark.parametrize("name", ["asserts_in_a_loop", "asserts_in_a_branch"])
def test_asserts_fail_their_own_row(name):
    examples = [([1.0, 0.5, 1.0],), ([1.0, 2.0, -9.0],), ([-4.0, 0.0],), ([0.0, 0.5, -0.25, 1.0],)]
    examples = [(np.array(x, "f"),) for (x,) in examples]
    v = check(getattr(programs, name), [VECTOR], examples)
    assert [isinstance(per_example(v, example), Exception) for example in examples] == [False, True, False, False]


def test_a_method_with_state_of_its_own():
    class Model(tf.Module):
        def __init__(self):
            self.weight = tf.Variable([0.5, -1.0, 2.0])

        @tf.function
        def __call__(self, matrix):
            state = tf.zeros([3])
            for row in matrix:
                if tf.reduce_sum(row) > 0:
                    state += row * self.weight
            return state

    generator = np.random.default_rng(0)
    examples = [(generator.normal(size=[n, 3]).astype("f"),) for n in (4, 1, 6, 0)]
    check(Model(), [tf.TensorSpec([None, 3], tf.float32)], examples)


def test_source_lines_are_the_users():
    v = vectorize(programs.collatz, [NUMBER])
    assert all(entry.source and entry.source.startswith("autograph_programs.py") for entry in v.report.loops)
