"""Effects of a function: what it writes is refused or summed, what it prints is printed for each example once."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import VectorizationError, vectorize

X = tf.TensorSpec([2], tf.float32)
XS = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def count():
    return tf.Variable(0.0, name="count")


# -- writes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "op_type"),
    [
        (lambda v, x: v.assign(x), "AssignVariableOp"),
        (lambda v, x: v.assign_add(x), "AssignAddVariableOp"),
        (lambda v, x: v.assign_sub(x), "AssignSubVariableOp"),
        (lambda v, x: v.scatter_add(tf.IndexedSlices(x[:1], [0])), "ResourceScatterAdd"),
        (lambda v, x: v.scatter_mul(tf.IndexedSlices(x[:1], [0])), "ResourceScatterMul"),
        (lambda v, x: v.scatter_nd_update([[0]], x[:1]), "ResourceScatterNdUpdate"),
        (lambda v, x: v[:1].assign(x[:1]), "ResourceStridedSliceAssign"),
    ],
)
def test_a_write_is_refused_with_variable_op_and_line(write, op_type):
    weights = tf.Variable([1.0, 2.0], name="weights")

    def fn(x):
        write(weights, x)
        return x

    with pytest.raises(VectorizationError) as caught:
        vectorize(fn, [X])
    (finding,) = caught.value.findings
    assert finding.op.type == op_type
    assert "'weights'" in str(finding)
    assert "test_state.py:" in str(finding)
    assert (weights.numpy() == [1, 2]).all()


def test_a_write_in_a_loop_in_a_branch_names_its_variable(count):
    def fn(x):
        if x[0] > 0:
            for _ in tf.range(2):
                count.assign(x[1])
        return x

    with pytest.raises(VectorizationError, match="'count'"):
        vectorize(fn, [X])


def test_a_table_that_is_filled_is_refused():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)

    def fn(x):
        table.insert(tf.cast(x, tf.int64), tf.cast(x, tf.int64))
        return x

    with pytest.raises(VectorizationError, match="LookupTableInsertV2"):
        vectorize(fn, [X])


def test_an_unknown_effect_is_refused_not_dropped(tmp_path):
    def fn(x):
        tf.io.write_file(str(tmp_path / "file"), "text")
        return x

    with pytest.raises(VectorizationError, match="has side effects"):
        vectorize(fn, [X])


def test_a_summary_is_refused_not_dropped(tmp_path):
    with tf.summary.create_file_writer(str(tmp_path)).as_default(step=0):

        def fn(x):
            tf.summary.write("norm", tf.norm(x))
            return x

        with pytest.raises(VectorizationError, match="has side effects"):
            vectorize(fn, [X])


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [False, True])
def test_sums_are_of_real_rows_that_are_ok(count, jit):
    def fn(x):
        count.assign_add(x[0])
        count.assign_sub(1.0)
        tf.debugging.assert_less(x[1], 7.0)
        return x * 2

    v = vectorize(fn, [X], sum_assign_add=True)
    program = v.compile(6, [], jit=jit)
    batch = np.concatenate([XS, XS[:1], XS[:1]])
    (doubled,), _, ok = program([batch], [], 4)
    assert list(ok.numpy()) == [True, True, True, False, True, True]  # row 3 has a 7
    np.testing.assert_array_equal(doubled[:3], XS[:3] * 2)
    assert count.numpy() == XS[:3, 0].sum() - 3


def test_a_sum_reads_before_it_writes(count):
    count.assign(5.0)

    def fn(x):
        before = count + x[0]
        count.assign_add(x[0])
        return before

    np.testing.assert_array_equal(vectorize(fn, [X], sum_assign_add=True)(XS), 5 + XS[:, 0])
    assert count.numpy() == 5 + XS[:, 0].sum()


def test_what_is_added_to_and_then_read_is_refused(count):
    with pytest.raises(VectorizationError, match="reads 'count' after adding to it"):
        vectorize(lambda x: count.assign_add(x[0]) + x, [X], sum_assign_add=True)


def test_a_sum_in_a_loop_is_refused(count):
    def fn(x):
        for _ in tf.range(3):
            count.assign_add(x[0])
        return x

    with pytest.raises(VectorizationError, match="inside a loop or branch"):
        vectorize(fn, [X], sum_assign_add=True)


def test_other_writes_stay_refused(count):
    def fn(x):
        count.assign(x[0])
        return x

    with pytest.raises(VectorizationError, match="AssignVariableOp"):
        vectorize(fn, [X], sum_assign_add=True)


def test_integers_are_summed():
    seen = tf.Variable(0, name="seen")

    def fn(x):
        seen.assign_add(1)
        return x

    vectorize(fn, [X], sum_assign_add=True).padded(XS, rows=3)
    assert seen.numpy() == 3


# -- prints -----------------------------------------------------------------------------------------------------------


def test_each_example_prints_its_line_once(capfd):
    def fn(x):
        tf.print("row", x, "is", x[0])
        return x

    v = vectorize(fn, [X], strict=True)
    for row in XS[:3]:
        fn(tf.constant(row))
    wanted = capfd.readouterr().err
    v.compile(5, [])([np.concatenate([XS, XS[:1]])], [], 3)
    assert capfd.readouterr().err == wanted


def test_a_constant_text_is_printed_for_each_example(capfd):
    def fn(x):
        tf.print("here", output_stream=sys.stdout)
        return x

    v = vectorize(fn, [X], strict=True)
    capfd.readouterr()
    v.padded(XS, rows=2)
    assert capfd.readouterr().out == "here\n" * 2
    v.compile(5, [], jit=True)([np.concatenate([XS, XS[:1]])], [], 4)
    assert capfd.readouterr().out == "here\n" * 4


def test_only_rows_that_get_there_print(capfd):
    def fn(x):
        k = 0
        while tf.cast(k, tf.float32) < x[0]:
            tf.print("step", k, "of", x[0])
            k += 1
        if x[0] > 5.0:
            tf.print("large", x[0])
        return x

    v = vectorize(fn, [X], strict=True)
    capfd.readouterr()
    v(np.array([[2, 0], [0, 0], [6, 0]], np.float32))
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("step 0 of 2") == lines.count("step 1 of 2") == lines.count("large 6") == 1
    assert sum(line.endswith("of 6") for line in lines) == 6
    assert len(lines) == 9


def test_ragged_rows_print_what_they_have(capfd):
    def fn(x):
        tf.print(x)
        return x

    v = vectorize(fn, [tf.TensorSpec([None])], strict=True)
    capfd.readouterr()
    v(tf.ragged.constant([[1.0], [1.0, 2.0, 3.0], []]))
    assert capfd.readouterr().err.splitlines() == ["[1]", "[1 2 3]", "[]"]


def test_texts_are_formatted_for_each_example():
    def fn(x):
        return tf.strings.format("{}: {}", (x[0], x))[None]

    check(fn, [X], [[row] for row in XS])
