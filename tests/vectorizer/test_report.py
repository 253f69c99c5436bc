"""What the report says, and that a refusal names everything at once."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import VectorizationError, vectorize

ROWS = tf.TensorSpec([None, 8], tf.float32)
VECTOR = tf.TensorSpec([None], tf.float32)
FLOAT, TEXT = tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.string)
TABLE = tf.Variable(np.ones([5, 8], "f"))


def network(text, rows):
    width = tf.strings.length(text)
    n = tf.shape(rows)[0]
    h = tf.while_loop(lambda t, h: t < n, lambda t, h: (t + 1, tf.tanh(h + rows[t])), (0, TABLE[0]))[1]
    h = tf.cond(tf.reduce_sum(h) > 0, lambda: h, lambda: -h)
    return tf.nn.relu(rows) + h, tf.unique(h).y, width


@pytest.fixture(scope="module")
def report():
    return vectorize(network, {"text": TEXT, "rows": ROWS}).report


def entry(report, op_type):
    return next(item for item in report.entries if item.op_type == op_type)


def test_kinds_across_the_batch(report):
    kinds = {name: entry(report, name).kind for name in ("ReadVariableOp", "StringLength", "Relu", "While")}
    assert kinds == {"ReadVariableOp": "shared", "StringLength": "batched", "Relu": "ragged", "While": "batched"}


def test_strategies_and_reasons(report):
    strategies = {name: entry(report, name).strategy for name in ("ReadVariableOp", "While", "If", "Relu")}
    assert strategies == {
        "ReadVariableOp": "once for all rows",
        "While": "loop to the longest row, masked by its bound",
        "If": "both branches run, each row takes its own",
        "Relu": "native",
    }
    assert entry(report, "Tanh").depth == 1


def test_how_many_steps_a_loop_takes(report):
    (loop,) = report.loops
    assert loop.reason.startswith("as many steps as the longest 'rows' has elements")
    general = vectorize(lambda x: tf.while_loop(lambda x: x < 10.0, lambda x: (x * 2.0,), (x,)), [FLOAT]).report
    assert general.loops[0].strategy == "loop until no row is active, masked"
    same = vectorize(lambda x: tf.while_loop(lambda t, x: t < 3, lambda t, x: (t + 1, x * 2.0), (0, x)), [FLOAT]).report
    assert (same.loops[0].strategy, same.loops[0].reason) == (
        "loop, all rows together",
        "as many steps as the function alone takes",
    )

    def twice(n):
        most = n * 2
        return tf.while_loop(lambda t, x: t < most, lambda t, x: (t + 1, x * 2), (0, n))[1]

    counted = vectorize(twice, [tf.TensorSpec([], tf.int32)]).report
    assert re.search(r"most, whose limit is the Mul of test_report.py:\d+$", counted.loops[0].reason)


def test_what_xla_compiles(report):
    assert entry(report, "Tanh").xla
    assert not entry(report, "StringLength").xla
    assert "XLA compiles all of it" in str(vectorize(lambda x: tf.sin(x) + 1.0, [VECTOR]).report)
    assert "XLA compiles none of it" in str(vectorize(lambda x: tf.strings.upper(x), [TEXT]).report)
    assert re.search(r"XLA compiles \d+ of \d+ ops, not StringLength", str(report))


def test_the_largest_value():
    report = vectorize(lambda rows: tf.reduce_sum(rows[:, None] * rows[None]), [ROWS]).report
    report.length = 100
    largest = report.as_dict()["largest_intermediate"]
    assert largest["op_type"] == "Mul"
    assert largest["bytes"] == {str(batch): batch * 100 * 100 * 8 * 4 for batch in (1, 8, 64)}
    assert "if variable sizes are 100: 312 KiB at batch 1, 2.44 MiB at batch 8, 19.5 MiB at batch 64 (Mul of" in str(
        report
    )


def test_a_shared_value_is_counted_once():
    table = tf.Variable(tf.zeros([1000, 250]))
    report = vectorize(lambda k: tf.gather(table, k)[0], [tf.TensorSpec([], tf.int32)]).report
    assert report.largest_intermediate.bytes_by_batch_size[64] in (1_000_000, 64_000)


def test_json_is_plain(report):
    found = json.loads(json.dumps(report.as_dict()))
    assert [item["op_type"] for item in found["fallbacks"]] == [item.op_type for item in report.fallbacks]
    assert set(found) == {"function", "fallbacks", "loops", "ops", "largest_intermediate"}


def test_the_text_is_short(report):
    lines = str(report).splitlines()
    assert re.fullmatch(r"network: \d+ ops, \d looped over rows", lines[0])
    assert max(map(len, lines)) <= 130
    assert len(lines) < 25
    assert any(re.match(r"test_report.py:\d+ +batched +loop to the longest row +While$", line) for line in lines)


# -- refusals name everything at once --------------------


def test_ops_that_nothing_can_stand_in_for_are_all_named():
    def f(x):
        first = tf.TensorArray(tf.float32, size=2, infer_shape=False).write(0, x).write(1, x[None])
        state.assign_add(1.0)
        second = tf.TensorArray(tf.float32, size=2, infer_shape=False).write(0, x[2:]).write(1, x[None])
        looped = tf.while_loop(lambda t, y: t < 3, lambda t, y: (t + 1, y + tf.ensure_shape(inner(y), [])), (0, 0.0))[1]
        return first.read(1), second.read(0), looped

    def inner(y):
        return (
            tf.TensorArray(tf.float32, size=1, infer_shape=False)
            .write(0, y + tf.zeros([tf.cast(y, tf.int32)]))
            .read(0)[0]
        )

    state = tf.Variable(0.0)
    with pytest.raises(VectorizationError) as caught:
        vectorize(f, [VECTOR])
    lines = [int(finding.op.source.split(":")[1]) for finding in caught.value.findings]
    first = f.__code__.co_firstlineno
    assert {line - first for line in lines} >= {1, 2, 3}
    assert len(lines) == len({finding.op for finding in caught.value.findings})
    assert caught.value.as_dict()["findings"][0]["source"].startswith("test_report.py:")


def test_strict_names_loops_and_refusals_together():
    def f(x):
        state.assign(x)
        return tf.raw_ops.UniqueV2(x=[[x]], axis=[0]).y, tf.raw_ops.UniqueV2(x=[[x, x]], axis=[0]).y

    state = tf.Variable(0.0)
    with pytest.raises(VectorizationError, match="cannot vectorize 'f': 3 ops") as caught:
        vectorize(f, [FLOAT], strict=True)
    assert [finding.op.type for finding in caught.value.findings].count("UniqueV2") == 2
