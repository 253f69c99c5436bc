"""The passes one by one: tracing and normalising, analysis, plan, regions, report, fallback, refusals."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import VectorizationError, convert, supported_ops, tf_internals, trace, vectorize
from vectorizer.analysis import analyse
from vectorizer.batch import Batch
from vectorizer.kinds import Abstract, Kind
from vectorizer.plan import make_plan
from vectorizer.values import batched, shared

FLOAT, INT, TEXT = (tf.TensorSpec([], dtype) for dtype in (tf.float32, tf.int32, tf.string))
VECTOR = tf.TensorSpec([None], tf.float32)


def types(program):
    return [op.type for op in program.ops if op.type != "Const"]


def counting_loop(n):
    return tf.while_loop(lambda t, a: t < n, lambda t, a: (t + 1, a + 1.0), (0, 0.0))[1]


# -- trace and normalise --------------------


def test_calls_are_inlined_and_identities_dropped():
    inner = tf.function(lambda x: tf.identity(x) * 2.0)
    assert types(trace(lambda x: inner(inner(x)), [FLOAT])) == ["Mul", "Mul"]


def test_a_mapping_of_specs_calls_by_keyword():
    program = trace(lambda *, y, x: x - y, {"x": FLOAT, "y": FLOAT})
    assert len(program.inputs) == 2
    assert program.ops[-1].inputs == (program.inputs[0], program.inputs[1])


def test_the_hidden_counter_of_a_loop_disappears():
    (loop,) = [op for op in trace(counting_loop, [INT]).ops if op.type == "While"]
    assert [var.dtype.name for var in loop.inputs] == ["int32", "float32", "int32"]


def test_unused_results_go_and_effects_stay():
    def f(x):
        tf.exp(x)
        tf.debugging.assert_positive(x)
        return x + 1.0

    assert "Exp" not in types(trace(f, [FLOAT]))
    assert "Assert" in [op.type for op in trace(f, [FLOAT]).walk()]


def test_shape_arithmetic_on_known_shapes_is_folded():
    program = trace(lambda x: tf.reshape(x, [tf.shape(x)[0] * tf.shape(x)[1]]), [tf.TensorSpec([2, 3])])
    assert types(program) == ["Reshape"]


def test_ops_know_the_line_they_came_from():
    program = trace(lambda x: tf.sin(x), [FLOAT])
    assert program.ops[-1].source.startswith("test_passes.py:")


def test_operands_come_before_their_users_whatever_the_order_of_creation():
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda t, a: t < 3, lambda t, a: (t + 1, tf.sin(a)), (0, x))[1]
        return tape.gradient(y, x)

    program = trace(f, [FLOAT])
    done = set(program.inputs)
    for op in program.ops:
        assert set(op.inputs) <= done
        done.update(op.outputs)


# -- analysis and plan --------------------


def planned(fn, specs):
    program = trace(fn, specs)
    kinds = {var: Abstract(Kind.SHARED if var in program.captures else Kind.BATCHED) for var in program.inputs}
    return program, make_plan(program, analyse(program, kinds))


def test_a_counter_stays_uniform_in_a_loop_whose_rows_stop_at_different_times():
    _program, plan = planned(counting_loop, [INT])
    (loop,) = plan.loops
    facts = plan.analysis.loops[loop]
    assert [value.kind for value in facts.variables] == [Kind.UNIFORM, Kind.UNIFORM, Kind.BATCHED]
    assert plan.loops[loop].bound is not None
    assert "masked by its bound" in str(plan)


def test_the_size_of_a_fixed_dimension_is_constant_and_of_a_variable_one_batched():
    program, plan = planned(lambda x: (tf.shape(x)[0], tf.shape(x)[1]), [tf.TensorSpec([None, 3])])
    assert [plan.analysis.kind(var) for var in program.outputs] == [Kind.BATCHED, Kind.CONSTANT]


def test_a_predicate_from_the_example_makes_both_branches_run():
    _, plan = planned(lambda x: tf.cond(x > 0, lambda: x, lambda: -x), [FLOAT])
    assert "both branches run" in str(plan)


def test_a_predicate_from_a_variable_runs_one():
    switch = tf.Variable(True)
    _, plan = planned(lambda x: tf.cond(switch, lambda: x, lambda: -x), [FLOAT])
    assert "one branch runs" in str(plan)


# -- convert as a seam --------------------


def test_convert_runs_one_op_eagerly():
    program = trace(lambda x, y: x + y, [tf.TensorSpec([3]), tf.TensorSpec([3])])
    (result,) = convert(program.ops[-1], [batched(tf.ones([2, 3])), shared(tf.constant([1.0, 2.0, 3.0]))], Batch(2))
    assert result.batched
    assert result.tensor.numpy().tolist() == [[2.0, 3.0, 4.0]] * 2


def test_supported_ops_are_sorted_and_named():
    names = [op.name for op in supported_ops()]
    assert names == sorted(names)
    assert {"MatMul", "GatherV2", "TensorListSetItem"} <= set(names)


# -- fallback, strict, refusals --------------------


def distinct(x):
    """By an op that is looped over rows: distinct rows of a matrix."""
    return tf.raw_ops.UniqueV2(x=x[:, None], axis=[0]).y[:, 0]


def test_an_op_without_converter_is_looped_counted_and_right():
    v = check(distinct, [VECTOR], [(np.array(x, "f"),) for x in ([1, 2, 1], [], [3], [4, 4])], fallbacks=1)
    (entry,) = v.report.fallbacks
    assert entry.op_type == "UniqueV2"
    assert entry.source.startswith("test_passes.py:")
    assert "looped over rows" in str(v.report)


def test_strict_turns_every_fallback_into_one_error():
    with pytest.raises(VectorizationError) as caught:
        vectorize(lambda x: (distinct(x), tf.linalg.expm(tf.linalg.diag(x))), [VECTOR], strict=True)
    assert "`UniqueV2` at test_passes.py:" in str(caught.value)
    assert 'engine="per_request"' in str(caught.value)


def test_a_fallback_inside_a_branch_leaves_rows_alone_that_did_not_take_it():
    f = lambda x: tf.cond(tf.size(x) > 0, lambda: distinct(x)[0], lambda: -1.0)
    check(f, [VECTOR], [(np.array(x, "f"),) for x in ([1, 2, 1], [], [3])], fallbacks=1)


def test_what_nothing_can_stand_in_for_is_named_with_its_line():
    def f(x):
        items = tf.TensorArray(tf.float32, size=2, infer_shape=False)
        return items.write(0, x).write(1, x[:, None]).read(1)

    with pytest.raises(
        VectorizationError, match=r"`TensorListSetItem` at test_passes.py:\d+: a list whose elements differ in rank"
    ):
        vectorize(f, [VECTOR])


def test_all_refused_ops_are_listed_at_once():
    state = tf.Variable(0.0)

    def f(x):
        state.assign_add(x)
        return tf.py_function(lambda a: a, [x], tf.float32) + tf.random.normal([])

    with pytest.raises(VectorizationError) as caught:
        vectorize(f, [FLOAT])
    assert {finding.op.type for finding in caught.value.findings} == {
        "AssignAddVariableOp",
        "EagerPyFunc",
        "RandomStandardNormal",
    }
    assert "cannot vectorize 'f': 3 ops" in str(caught.value)


# -- regions --------------------


def text_program(text):
    points = tf.strings.unicode_decode(text, "UTF-8")
    x = tf.one_hot(points % 5, 5)
    h = tf.while_loop(lambda t, h: t < tf.shape(x)[0], lambda t, h: (t + 1, tf.tanh(h + x[t])), (0, tf.zeros([5])))[1]
    return tf.gather(["a", "b", "c", "d", "e"], tf.argmax(h)), h


TEXTS = [(b"hello",), (b"",), ("zażółć gęślą".encode(),), (b"x",)]


def test_text_goes_before_and_after_the_compiled_region():
    v = check(text_program, [TEXT], TEXTS)
    stages = v._stages
    assert not stages.whole
    assert "UnicodeDecode" in types_of(stages.before)
    assert "While" in types_of(stages.compiled)
    assert types_of(stages.after) == ["GatherV2"]


def types_of(ops):
    return [op.type for op in ops if op.type != "Const"]


def test_a_text_longer_than_the_padding_fails_its_row_only():
    v = vectorize(text_program, [TEXT])
    outputs, _, ok = v.compile(3, (4,), jit=True)([np.array([b"abc", b"toolong", b"x"], object)], [], 3)
    assert ok.numpy().tolist() == [True, False, True]
    assert outputs[0].numpy()[2] == v.per_example(tf.constant(b"x"))[0].numpy()


def test_a_whole_program_without_text_compiles_whole():
    assert vectorize(counting_loop, [INT])._stages.whole


# -- the wrappers ----------------


def test_ragged_in_ragged_out():
    v = vectorize(lambda x: x * 2.0, [VECTOR])
    out = v(tf.ragged.constant([[1.0, 2.0], [], [3.0]]))
    assert out.to_list() == [[2.0, 4.0], [], [6.0]]


def test_dense_in_for_a_variable_dimension():
    v = vectorize(lambda x: tf.reduce_sum(x), [VECTOR])
    assert v(np.ones([2, 3], "f")).numpy().tolist() == [3.0, 3.0]


def test_map_returns_each_examples_own_structure():
    v = vectorize(lambda x: {"twice": x * 2.0, "sum": tf.reduce_sum(x)}, [VECTOR])
    out = v.map([(np.array([1.0, 2.0], "f"),), (np.array([], "f"),)])
    assert out[0]["twice"].numpy().tolist() == [2.0, 4.0]
    assert out[1]["sum"].numpy() == 0.0
    assert v.output_names == ("sum", "twice")


def test_map_and_call_raise_the_rows_own_error():
    v = vectorize(lambda k: tf.gather([1.0, 2.0], k), [INT])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        v.map([(0,), (7,)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        v(np.array([0, 7], np.int32))


def test_padded_returns_outputs_lengths_and_ok():
    v = vectorize(lambda x: x[1:], [VECTOR])
    out, (lengths,), ok = v.padded(np.zeros([3, 4], "f"), lengths=[np.array([4, 0, 2], np.int32)], rows=2)
    assert lengths.numpy()[:2].tolist() == [3, 0]
    assert ok.numpy().all()
    assert out.shape[0] == 3


def test_an_output_that_is_an_input_or_a_constant():
    check(lambda x: (x, tf.constant([1.0, 2.0])), [FLOAT], [(np.float32(k),) for k in (1, 2)])


def test_the_same_program_is_never_traced_again():
    traced = []

    def f(x):
        traced.append(1)
        return x + 1.0

    v = vectorize(f, [VECTOR])
    count = len(traced)
    for n in (0, 1, 5, 9):
        v(np.ones([n + 1, n], "f"))
    assert len(traced) == count


def test_an_input_of_unknown_rank_is_refused_by_name():
    with pytest.raises(ValueError, match="input 'x': its rank must be known"):
        vectorize(lambda x: x, {"x": tf.TensorSpec(None, tf.float32)})


def test_a_program_of_text_alone_has_nothing_to_compile():
    assert not vectorize(lambda text: tf.strings.upper(text), [TEXT]).compilable


def test_a_variable_is_read_inside_the_compiled_region():
    weights = tf.Variable(tf.ones([5]))

    def f(text):
        return tf.tensordot(weights, tf.one_hot(tf.strings.length(text), 5), 1), tf.strings.upper(text)

    check(f, [TEXT], TEXTS)


def test_text_that_is_only_handed_on_stays_outside_what_xla_compiles():
    vectorized = vectorize(lambda x, text: (x @ x, text), [tf.TensorSpec([2, 2]), tf.TensorSpec([], tf.string)])
    assert not vectorized._stages.whole
    program = vectorized.compile(rows=2, lengths=(8,), jit=True)
    (square, text), _, ok = program([np.ones((2, 2, 2), np.float32), np.array([b"a", b"b"], object)], [], 2)
    np.testing.assert_array_equal(square, np.full((2, 2, 2), 2.0))
    assert text.numpy().tolist() == [b"a", b"b"]
    assert ok.numpy().all()


def test_a_table_that_all_rows_share_is_not_copied_for_each():
    """The copies of 2**14 rows would take 64 GiB."""
    table = tf.zeros([4, 2**18]) + tf.range(4.0)[:, None]
    v = vectorize(lambda k: (table[:, k], tf.reshape(table, [-1])[k]), [INT])
    columns, elements = v(tf.range(2**14))
    np.testing.assert_array_equal(columns, np.tile([0.0, 1.0, 2.0, 3.0], (2**14, 1)))
    np.testing.assert_array_equal(elements, np.zeros(2**14))


def test_no_attribute_is_lost_when_an_op_is_run_again():
    """`tf.raw_ops` names some attributes otherwise than the op's definition does."""
    for name in filter(str.isidentifier, dir(tf.raw_ops)):
        definition = tf_internals.definition(name)
        if definition is None:
            continue
        inferred = {
            attr for arg in definition.input_arg for attr in (arg.type_attr, arg.number_attr, arg.type_list_attr)
        }
        known = set(tf_internals.raw_op_arguments(name)) | inferred
        lost = {attr.name for attr in definition.attr} - known - {attr for _, attr in tf_internals.RENAMED_ATTRIBUTES}
        assert not lost, f"{name} is run again without {lost}"


def test_squeeze_of_what_all_rows_share_keeps_the_other_axes():
    ones = tf.Variable(tf.ones([1, 3, 1]))
    check(lambda x: x + tf.squeeze(ones, [0]) * x, [tf.TensorSpec([3, 1])], [(np.ones([3, 1], "f"),)] * 2)
