"""One bad row in a batch: it is flagged, its neighbours get their answers, plain and under XLA.

Every case is tried as it is, and guarded, inside a branch and inside a loop: there a bad row that takes no
part must not be flagged.
"""

import inspect
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.support.bad_rows import FURTHER_CASES, FURTHER_UNCOMPILABLE
from tests.support.oracle import check, per_example
from vectorizer import supported_ops, vectorize


def f(*shape):
    return tf.TensorSpec(shape, tf.float32)


def i(*shape, dtype=tf.int32):
    return tf.TensorSpec(shape, dtype)


def text(*shape):
    return tf.TensorSpec(shape, tf.string)


def draw(*shape):
    return np.random.default_rng(sum(shape) + len(shape)).normal(size=shape).astype("f")


TABLE = tf.constant(draw(5, 3))
VARIABLE = tf.Variable(draw(5, 3))
MATRIX = draw(4, 3)


def list_of(x):
    return tf.TensorArray(tf.float32, 4, element_shape=[3]).unstack(x)


def after(assertion, result):
    with tf.control_dependencies([assertion]):
        return tf.identity(result)


REGULAR = [[4.0, 1.0], [1.0, 3.0]]
SINGULAR = [[1.0, 2.0], [2.0, 4.0]]
INDEFINITE = [[1.0, 2.0], [2.0, 1.0]]
NOT_A_NUMBER = [[np.nan, 0.0], [0.0, 1.0]]

# name: (function, specs, good examples, bad examples)
CASES = {
    "inverse": (tf.linalg.inv, [f(2, 2)], [[REGULAR], [INDEFINITE]], [[SINGULAR]]),
    "solve": (lambda a: tf.linalg.solve(a, [[1.0], [2.0]]), [f(2, 2)], [[REGULAR]], [[SINGULAR]]),
    "lu": (lambda a: tf.linalg.lu(a)[0], [f(2, 2)], [[REGULAR]], [[SINGULAR]]),
    "eigenvalues": (tf.linalg.eigvalsh, [f(2, 2)], [[REGULAR], [INDEFINITE]], [[NOT_A_NUMBER]]),
    "gather_shared_params": (
        lambda k: tf.gather(TABLE, k),
        [i(2)],
        [[[0, 4]], [[1, 2]]],
        [[[0, 5]], [[-1, 0]]],
    ),
    "gather_shared_axis_1": (lambda k: tf.gather(TABLE, k, axis=1), [i(2)], [[[0, 2]], [[1, 1]]], [[[0, 3]]]),
    "gather_shared_indices": (
        lambda x: tf.gather(x, [0, 2]),
        [f(None)],
        [[draw(3)], [draw(4)]],
        [[draw(2)], [draw(0)]],
    ),
    "gather_both": (
        lambda x, k: tf.gather(x, k),
        [f(4, 3), i()],
        [[MATRIX, 0], [MATRIX, 3]],
        [[MATRIX, 4], [MATRIX, -1]],
    ),
    "gather_negative_axis": (
        lambda x, k: tf.gather(x, k, axis=-1),
        [f(4, 3), i(2)],
        [[MATRIX, [0, 2]], [MATRIX, [1, 1]]],
        [[MATRIX, [0, 3]]],
    ),
    "gather_batch_dims": (
        lambda x, k: tf.gather(x, k, batch_dims=1),
        [f(4, 3), i(4, 2)],
        [[MATRIX, np.zeros([4, 2])], [MATRIX, np.full([4, 2], 2)]],
        [[MATRIX, np.full([4, 2], 3)]],
    ),
    "gather_own_length": (
        lambda x, k: tf.gather(x, k),
        [f(None), i()],
        [[draw(3), 2], [draw(5), 4]],
        [[draw(3), 3], [draw(5), -1]],
    ),
    "gather_int64": (lambda k: tf.gather(TABLE, k), [i(dtype=tf.int64)], [[4], [0]], [[2**40], [-(2**40)]]),
    "gather_nd_shared": (
        lambda k: tf.gather_nd(TABLE, k),
        [i(2, 2)],
        [[[[0, 0], [4, 2]]]],
        [[[[0, 3], [0, 0]]]],
    ),
    "gather_nd_both": (
        lambda x, k: tf.gather_nd(x, k),
        [f(4, 3), i(2)],
        [[MATRIX, [3, 2]], [MATRIX, [0, 0]]],
        [[MATRIX, [4, 0]], [MATRIX, [0, -1]]],
    ),
    "embedding_lookup": (
        lambda k: tf.nn.embedding_lookup(VARIABLE, k),
        [i(2)],
        [[[0, 4]]],
        [[[5, 0]], [[0, -1]]],
    ),
    "tensor_scatter_update": (
        lambda x, k: tf.tensor_scatter_nd_update(x, k[:, None], tf.ones([2, 3])),
        [f(4, 3), i(2)],
        [[MATRIX, [0, 3]], [MATRIX, [1, 2]]],
        [[MATRIX, [0, 4]], [MATRIX, [-1, 1]]],
    ),
    "tensor_scatter_add": (
        lambda x, k: tf.tensor_scatter_nd_add(x, k[:, None], tf.ones([2, 3])),
        [f(4, 3), i(2)],
        [[MATRIX, [0, 0]], [MATRIX, [1, 2]]],
        [[MATRIX, [0, 4]]],
    ),
    "tensor_scatter_shared_target": (
        lambda k: tf.tensor_scatter_nd_max(TABLE, k[:, None], tf.ones([2, 3])),
        [i(2)],
        [[[0, 4]], [[1, 2]]],
        [[[0, 5]]],
    ),
    "scatter_nd": (
        lambda k, x: tf.scatter_nd(k[:, None], x, [5]),
        [i(3), f(3)],
        [[[0, 4, 0], draw(3)], [[1, 2, 3], draw(3)]],
        [[[0, 5, 0], draw(3)], [[-1, 0, 0], draw(3)]],
    ),
    "pick_own_index": (
        lambda x, k: x[k],
        [f(4), i()],
        [[draw(4), 3], [draw(4), -4]],
        [[draw(4), 4], [draw(4), -5]],
    ),
    "pick_column": (
        lambda x, k: x[:, k],
        [f(4, 3), i()],
        [[MATRIX, 2], [MATRIX, -3]],
        [[MATRIX, 3], [MATRIX, -4]],
    ),
    "pick_from_shared": (lambda k: TABLE[k], [i()], [[4], [-5]], [[5], [-6]]),
    "pick_own_length": (
        lambda x, k: x[k],
        [f(None), i()],
        [[draw(3), 2], [draw(5), -5]],
        [[draw(3), 3], [draw(3), -4], [draw(0), 0]],
    ),
    "pick_constant": (lambda x: x[2], [f(None)], [[draw(3)], [draw(5)]], [[draw(2)], [draw(0)]]),
    "slice_begin": (
        lambda x, k: tf.slice(x, [k], [2]),
        [f(4), i()],
        [[draw(4), 2], [draw(4), 0]],
        [[draw(4), 3], [draw(4), -1]],
    ),
    "slice_size": (
        lambda x, k: tf.reduce_sum(tf.slice(x, [1], [k])),
        [f(4), i()],
        [[draw(4), 3], [draw(4), 0], [draw(4), -1]],
        [[draw(4), 4]],
    ),
    "slice_own_length": (
        lambda x: tf.slice(x, [1], [2]),
        [f(None)],
        [[draw(3)], [draw(5)]],
        [[draw(2)], [draw(0)]],
    ),
    "floordiv": (lambda a, b: a // b, [i(), i()], [[7, 2], [-7, 2], [7, -2]], [[7, 0]]),
    "floordiv_vector": (lambda a: 6 // a, [i(3)], [[[1, 2, 3]], [[-1, -2, -5]]], [[[1, 0, 3]]]),
    "floormod": (lambda a, b: a % b, [i(), i()], [[7, 2], [-7, 2], [7, -2]], [[7, 0]]),
    "truncatediv": (tf.truncatediv, [i(), i()], [[7, 2], [-7, 2]], [[7, 0]]),
    "truncatemod": (tf.truncatemod, [i(), i()], [[7, 2], [-7, 2]], [[7, 0]]),
    "div_int64": (lambda a, b: a // b, [i(dtype=tf.int64)] * 2, [[2**40, 2]], [[2**40, 0]]),
    "floordiv_own_length": (lambda a: 6 // a, [i(None)], [[[1, 2, 3]], [[]], [[5]]], [[[1, 0]]]),
    "integer_power": (lambda a, b: a**b, [i(), i()], [[2, 3], [-3, 2]], [[2, -1]]),
    "assert_positive": (
        lambda x: after(tf.debugging.assert_positive(x), x * 2),
        [f(3)],
        [[[1, 2, 3]]],
        [[[1, 0, 3]]],
    ),
    "assert_less": (
        lambda x, y: after(tf.debugging.assert_less(x, y), x + y),
        [f(), f()],
        [[1, 2], [0, 3]],
        [[2, 2]],
    ),
    "assert_equal_lengths": (
        lambda x, y: after(tf.debugging.assert_equal(tf.shape(x), tf.shape(y)), tf.reduce_sum(x) + tf.reduce_sum(y)),
        [f(None), f(None)],
        [[draw(2), draw(2)], [draw(3), draw(3)]],
        [[draw(2), draw(3)]],
    ),
    "check_numerics": (
        lambda x: tf.debugging.check_numerics(x, "bad"),
        [f(3)],
        [[[1, 2, 3]]],
        [[[1, np.nan, 3]], [[np.inf, 0, 0]]],
    ),
    "check_numerics_own_length": (
        lambda x: tf.debugging.check_numerics(x, "bad"),
        [f(None)],
        [[[1, 2, 3]], [[]]],
        [[[1, np.nan]]],
    ),
    "ensure_shape": (
        lambda x: tf.ensure_shape(x, [3]),
        [f(None)],
        [[draw(3)], [draw(3) + 1]],
        [[draw(2)], [draw(0)]],
    ),
    "list_read": (
        lambda x, k: list_of(x).read(k),
        [f(4, 3), i()],
        [[MATRIX, 0], [MATRIX, 3]],
        [[MATRIX, 4], [MATRIX, -1]],
    ),
    "list_write": (
        lambda x, k: list_of(x).write(k, [1.0, 2.0, 3.0]).stack(),
        [f(4, 3), i()],
        [[MATRIX, 0], [MATRIX, 3]],
        [[MATRIX, 4], [MATRIX, -1]],
    ),
    "list_gather": (
        lambda x, k: list_of(x).gather(k),
        [f(4, 3), i(2)],
        [[MATRIX, [0, 3]], [MATRIX, [1, 1]]],
        [[MATRIX, [0, 4]]],
    ),
    "string_to_number": (
        lambda s: tf.strings.to_number(s),
        [text()],
        [["1.5"], ["-2e3"], [" 7 "], ["+.5"], ["nan"], ["inf"], ["0x1A"]],
        [["one"], [""], ["1 2"], ["1e"]],
    ),
    "string_to_integer": (
        lambda s: tf.strings.to_number(s, tf.int32),
        [text()],
        [["15"], ["-2"], ["2147483647"], ["-2147483648"], ["0000000000012"]],
        [["1.5"], [""], ["2147483648"], ["99999999999999999999"]],
    ),
    "string_to_long": (
        lambda s: tf.strings.to_number(s, tf.int64),
        [text(2)],
        [[["15", "9223372036854775807"]]],
        [[["15", "9223372036854775808"]]],
    ),
    "decode_raw": (
        lambda s: tf.reduce_sum(tf.cast(tf.io.decode_raw(s, tf.int16), tf.float32)),
        [text()],
        [["ab"], ["abcd"], [""]],
        [["abc"]],
    ),
    "substr": (
        lambda s, k: tf.strings.length(tf.strings.substr(s, k, 2)),
        [text(), i()],
        [["hello", 1], ["abc", -2], ["abc", 3]],
        [["abc", 4], ["abc", -4]],
    ),
    "reshape": (
        lambda x: tf.reshape(x, [2, 2]),
        [f(None)],
        [[draw(4)], [draw(4) + 1]],
        [[draw(3)], [draw(5)], [draw(0)]],
    ),
    "reshape_rest": (
        lambda x: tf.reduce_sum(tf.reshape(x, [-1, 2]), 0),
        [f(None)],
        [[draw(4)], [draw(2)], [draw(0)]],
        [[draw(3)]],
    ),
    "reshape_by_value": (
        lambda x, k: tf.reduce_sum(tf.reshape(x, [k, -1]), 1)[0],
        [f(6), i()],
        [[draw(6), 2], [draw(6), 3]],
        [[draw(6), 4], [draw(6), -2]],
    ),
    "squeeze": (
        lambda x: tf.squeeze(x, 0),
        [f(None, 3)],
        [[draw(1, 3)], [draw(1, 3) + 1]],
        [[draw(2, 3)], [draw(0, 3)]],
    ),
    "unstack": (lambda x: tf.unstack(x, 2)[1], [f(None, 3)], [[draw(2, 3)]], [[draw(1, 3)], [draw(3, 3)]]),
    "range_step": (
        lambda a, b, c: tf.reduce_sum(tf.range(a, b, c)),
        [i(), i(), i()],
        [[0, 5, 2], [5, 0, -2], [3, 3, 1]],
        [[0, 5, 0], [0, 5, -1], [5, 0, 1]],
    ),
    "range_limit": (lambda n: tf.reduce_sum(tf.range(n)), [i()], [[0], [3]], [[-1]]),
    "fill": (lambda n: tf.reduce_sum(tf.fill([n, 2], 3.0)), [i()], [[0], [3]], [[-1]]),
    "top_k": (
        lambda x: tf.math.top_k(x, 3).indices,
        [f(None)],
        [[draw(3)], [draw(5)]],
        [[draw(2)], [draw(0)]],
    ),
    "argmax": (lambda x: tf.argmax(x), [f(None)], [[draw(3)], [draw(1)]], [[draw(0)]]),
    "band_part": (
        lambda x, k: tf.linalg.band_part(x, k, 0),
        [f(4, 3), i()],
        [[MATRIX, 2], [MATRIX, -1], [MATRIX, 4]],
        [[MATRIX, 5]],
    ),
    "mirror_pad": (
        lambda x: tf.pad(x, [[2, 0]], "REFLECT"),
        [f(None)],
        [[draw(3)], [draw(4)]],
        [[draw(2)], [draw(0)]],
    ),
    "valid_window": (
        lambda x: tf.nn.max_pool1d(x[None, :, None], 3, 1, "VALID")[0],
        [f(None)],
        [[draw(3)], [draw(2)], [draw(5)]],
        [[draw(1)], [draw(0)]],
    ),
    "decode_base64": (
        lambda s: tf.strings.length(tf.io.decode_base64(s)),
        [text()],
        [["YQ"], ["YQ=="], ["YWI="], [""]],
        [["YQ="], ["Y"], ["YW+j"]],
    ),
    "space_to_batch": (
        lambda x: tf.space_to_batch(x[None, :, None], [2], [[0, 0]])[0],
        [f(None)],
        [[draw(4)], [draw(6)]],
        [[draw(3)]],
    ),
    "add_lengths": (
        lambda x, y: x + y,
        [f(None), f(None)],
        [[draw(3), draw(3)], [draw(1), draw(4)]],
        [[draw(2), draw(3)]],
    ),
    "concat_columns": (
        lambda x, y: tf.concat([x, y], 1),
        [f(None, 2), f(None, 3)],
        [[draw(3, 2), draw(3, 3)]],
        [[draw(2, 2), draw(3, 3)]],
    ),
    "matmul_inner": (
        lambda x, y: tf.linalg.matvec(x, y),
        [f(2, None), f(None)],
        [[draw(2, 3), draw(3)], [draw(2, 1), draw(1)]],
        [[draw(2, 3), draw(1)], [draw(2, 1), draw(3)]],
    ),
    "one_hot_is_never_out_of_range": (lambda k: tf.one_hot(k, 3), [i()], [[0], [3], [-1], [100]], []),
    "invert_permutation": (
        lambda p: tf.math.invert_permutation(p),
        [i(3)],
        [[[2, 0, 1]], [[0, 1, 2]]],
        [[[0, 0, 1]], [[0, 1, 3]]],
    ),
    "split_by_sizes": (
        lambda x: tf.split(x, [1, -1, 2])[1],
        [f(None)],
        [[draw(4)], [draw(3)]],
        [[draw(2)], [draw(0)]],
    ),
    "split_own_length": (
        lambda x: tf.split(x, 2)[1],
        [f(None)],
        [[draw(4)], [draw(2)], [draw(0)]],
        [[draw(3)]],
    ),
    **FURTHER_CASES,
}

QUICK = """gather_both gather_nd_both embedding_lookup tensor_scatter_update pick_own_length slice_begin
    floordiv assert_less check_numerics list_write string_to_number reshape range_step top_k""".split()
UNCOMPILABLE = {
    "range_step",
    "range_limit",
    "fill",
    "slice_size",
    "reshape_by_value",
    *FURTHER_UNCOMPILABLE,
}  # sizes that only the data tells


def mixed(good, bad):
    """Bad rows between good ones."""
    rows = list(good) + list(bad) + list(good[:1])
    return [rows[k] for k in np.random.default_rng(0).permutation(len(rows))]


@pytest.mark.parametrize("name", CASES)
def test_bad_rows_are_flagged_alone(name):
    function, specs, good, bad = CASES[name]
    v = vectorize(function, specs)
    for example in good:
        assert not isinstance(per_example(v, example), Exception), f"{example} was meant to be good"
    for example in bad:
        assert isinstance(per_example(v, example), Exception), f"{example} was meant to be bad"
    check(v, None, mixed(good, bad), jit=name not in UNCOMPILABLE)


def guarded_tiers():
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in CASES if CASES[name][3]]


def as_number(result):
    parts = [tf.reduce_sum(tf.cast(part, tf.float32)) for part in tf.nest.flatten(result)]
    return tf.add_n(parts)


@pytest.mark.parametrize("name", guarded_tiers())
def test_bad_rows_that_take_no_part(name):
    """In a branch that the row doesn't take, and in a loop after (or before) its own end."""
    function, specs, good, bad = CASES[name]

    def guarded(flag, count, *operands):
        branch = tf.cond(flag, lambda: as_number(function(*operands)), lambda: 0.5)
        _, loop = tf.while_loop(
            lambda k, _: k < count,
            lambda k, total: (k + 1, total + as_number(function(*operands))),
            (0, 0.0),
        )
        return branch, loop

    examples = [(True, 2, *row) for row in good[:2]]
    for row in bad:
        examples += [(False, 0, *row), (True, 0, *row), (False, 1, *row)]
    check(guarded, [tf.TensorSpec([], tf.bool), i(), *specs], examples, jit=name not in UNCOMPILABLE)


def test_a_row_that_fails_in_a_loop_stops_there():
    """It would go on for ever with a harmless operand; the others take their own number of steps."""

    def halve(n):
        return tf.while_loop(lambda n, _: n != 1, lambda n, k: (20 // (n - 3) + n, k + 1), (n, 0))[1]

    v = vectorize(halve, [i()])
    assert isinstance(per_example(v, [3]), Exception)
    check(v, None, [[3], [1]])


def test_an_assertion_inside_a_loop():
    def total(x):
        result = tf.constant(0.0)
        for k in tf.range(tf.shape(x)[0]):
            tf.debugging.assert_greater(x[k], 0.0)
            result += x[k]
        return result

    check(total, [f(None)], [[[1.0, 2.0]], [[1.0, -2.0, 3.0]], [[]], [[1.0, 2.0, 3.0, -1.0]], [[5.0]]])


def test_spare_rows_never_count():
    """Rows beyond the real ones repeat the first: here a bad one."""
    check(lambda k: tf.gather(TABLE, k), [i()], [[9], [0], [1]])


def test_converters_that_check_say_so():
    """Loops and branches carry `ok` only where an op inside is registered as one that can fail."""
    checking = re.compile(r"batch\.check\(|fail_where\(|check_index\(|_checked\w*\(|gather_rows\(")
    silent = [op.name for op in supported_ops() if checking.search(inspect.getsource(op.function)) and not op.checks]
    assert not silent, silent
