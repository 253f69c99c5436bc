"""Variable dimensions: every class of op, lengths 0 and 1 included, junk in the padding."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check

R = np.random.default_rng(0)
VECTOR = [tf.TensorSpec([None], tf.float32)]
MATRIX = [tf.TensorSpec([None, 3], tf.float32)]
BOTH = [tf.TensorSpec([None, None], tf.float32)]


def vectors(*lengths):
    return [(R.normal(size=n).astype("f"),) for n in lengths]


def matrices(*lengths):
    return [(R.normal(size=(n, 3)).astype("f"),) for n in lengths]


W = tf.constant(R.normal(size=(3, 4)).astype("f"))

ON_VECTORS = {
    "sum": tf.reduce_sum,
    "mean": tf.reduce_mean,
    "max": tf.reduce_max,
    "min": tf.reduce_min,
    "prod": tf.reduce_prod,
    "logsumexp": tf.reduce_logsumexp,
    "norm": tf.norm,
    "any": lambda x: tf.reduce_any(x > 0),
    "all": lambda x: tf.reduce_all(x > 0),
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "cumsum": tf.cumsum,
    "cumsum_reverse": lambda x: tf.cumsum(x, exclusive=True, reverse=True),
    "cumprod": tf.math.cumprod,
    "reverse": lambda x: x[::-1],
    "reverse_op": lambda x: tf.reverse(x, [0]),
    "tail": lambda x: x[1:],
    "head": lambda x: x[:-1],
    "first_two": lambda x: x[:2],
    "every_other": lambda x: x[::2],
    "middle": lambda x: x[1:-1],
    "sort": tf.sort,
    "shift": lambda x: tf.concat([x[1:], x[:1]], 0),
    "twice": lambda x: tf.concat([x, x], 0),
    "with_constant": lambda x: tf.concat([[9.0, 8.0], x], 0),
    "pad": lambda x: tf.pad(x, [[1, 2]]),
    "tile": lambda x: tf.tile(x, [3]),
    "stack": lambda x: tf.stack([x, x * 2]),
    "stack_last": lambda x: tf.stack([x, x * 2], axis=-1),
    "expand": lambda x: x[:, None] * x[None, :],
    "outer": lambda x: tf.tensordot(x, x, 0),
    "dot": lambda x: tf.tensordot(x, x, 1),
    "shape": tf.shape,
    "size": tf.size,
    "zeros": lambda x: tf.zeros_like(x) + 1.0,
    "range": lambda x: tf.range(tf.shape(x)[0]),
    "range_from_one": lambda x: tf.range(1, tf.shape(x)[0] * 2, 2),
    "fill": lambda x: tf.fill([tf.shape(x)[0], 2], 7.0),
    "ones_of_square": lambda x: tf.ones([tf.shape(x)[0], tf.shape(x)[0]]),
    "reshape_column": lambda x: tf.reshape(x, [-1, 1]),
    "reshape_row": lambda x: tf.reshape(x, [1, -1]),
    "one_hot": lambda x: tf.one_hot(tf.cast(x > 0, tf.int32), 3),
    "where": lambda x: tf.where(x > 0, x, -x),
    "mask": lambda x: tf.boolean_mask(x, x > 0),
    "positions": lambda x: tf.where(x > 0),
    "normalised": lambda x: (x - tf.reduce_mean(x)) / (tf.math.reduce_std(x) + 1.0),
    "clip": lambda x: tf.clip_by_value(x, -0.5, 0.5),
    "diff": lambda x: x[1:] - x[:-1],
    "broadcast": lambda x: tf.broadcast_to(x, [2, tf.shape(x)[0]]),
    "gather_reversed": lambda x: tf.gather(x, tf.range(tf.shape(x)[0])[::-1]),
}


@pytest.mark.parametrize("name", ON_VECTORS)
def test_vectors(name):
    check(ON_VECTORS[name], VECTOR, vectors(0, 1, 2, 5, 3), jit=name not in ("mask", "positions", "range_from_one"))


NEEDS_ONE = {
    "argmax": lambda x: tf.argmax(x),
    "argmin": lambda x: tf.argmin(x),
    "last": lambda x: x[-1],
    "first": lambda x: x[0],
    "last_by_size": lambda x: x[tf.shape(x)[0] - 1],
    "top_k": lambda x: tf.math.top_k(x, 2).values,
    "gather": lambda x: tf.gather(x, [0, 2, 0]),
    "slice": lambda x: tf.slice(x, [1], [2]),
    "unstack": lambda x: tf.add_n(tf.unstack(x, 3)),
}


@pytest.mark.parametrize("name", NEEDS_ONE)
def test_what_needs_elements_flags_rows_that_are_too_short(name):
    check(NEEDS_ONE[name], VECTOR, vectors(0, 1, 2, 5, 3))


ON_MATRICES = {
    "matmul": lambda x: x @ W,
    "gram": lambda x: tf.matmul(x, x, transpose_b=True),
    "covariance": lambda x: tf.matmul(x, x, transpose_a=True),
    "attention": lambda x: tf.nn.softmax(x @ tf.transpose(x)) @ x,
    "einsum": lambda x: tf.einsum("nd,de->en", x, W),
    "einsum_contract": lambda x: tf.einsum("nd,nd->d", x, x),
    "transpose": tf.transpose,
    "flatten": lambda x: tf.reshape(x, [-1]),
    "split_last": lambda x: tf.reshape(x, [-1, 3, 1]),
    "explicit": lambda x: tf.reshape(x, [tf.shape(x)[0] * 3]),
    "regroup": lambda x: tf.reshape(tf.tile(x, [2, 1]), [-1, 6]),
    "mean_rows": lambda x: tf.reduce_mean(x, 0),
    "mean_all": lambda x: tf.reduce_mean(x),
    "mean_cols_kept": lambda x: tf.reduce_mean(x, 1, keepdims=True),
    "column": lambda x: x[:, 1],
    "columns_reversed": lambda x: x[:, ::-1],
    "layer_norm": lambda x: (x - tf.reduce_mean(x, -1, keepdims=True)) * tf.math.rsqrt(tf.math.reduce_variance(x, -1, keepdims=True) + 1e-3),
    "bias": lambda x: tf.nn.bias_add(x, [1.0, 2.0, 3.0]),
    "conv1d_same": lambda x: tf.nn.conv1d(x[None], tf.reshape(W, [1, 3, 4]) * tf.ones([3, 1, 1]), 1, "SAME")[0],
    "conv1d_valid_stride": lambda x: tf.nn.conv1d(tf.pad(x, [[0, 2], [0, 0]])[None], tf.ones([2, 3, 4]), 2, "VALID")[0],
    "max_pool_same": lambda x: tf.nn.max_pool1d(x[None], 3, 1, "SAME")[0],
    "avg_pool_same": lambda x: tf.nn.avg_pool1d(x[None], 3, 1, "SAME")[0],
    "l2_loss": tf.nn.l2_loss,
    "softmax_0": lambda x: tf.nn.softmax(x, axis=0),
    "concat_columns": lambda x: tf.concat([x, x * 2], 1),
    "unstack_columns": lambda x: tf.stack(tf.unstack(x, axis=1)),
    "reverse_both": lambda x: x[::-1, ::-1],
    "repeat": lambda x: tf.repeat(x, 2, axis=0),
}


@pytest.mark.parametrize("name", ON_MATRICES)
def test_matrices(name):
    check(ON_MATRICES[name], MATRIX, matrices(0, 1, 4, 2))


TWO_DIMENSIONS = {
    "sum": tf.reduce_sum,
    "transpose": tf.transpose,
    "flatten": lambda x: tf.reshape(x, [-1]),
    "swap_reshape": lambda x: tf.reshape(x, [tf.shape(x)[1], tf.shape(x)[0]]),
    "gram": lambda x: x @ tf.transpose(x),
    "rows": lambda x: tf.reduce_sum(x, 1),
    "softmax": tf.nn.softmax,
    "conv2d": lambda x: tf.nn.conv2d(x[None, :, :, None], tf.ones([3, 3, 1, 2]), 1, "SAME")[0],
}


@pytest.mark.parametrize("name", TWO_DIMENSIONS)
def test_two_variable_dimensions(name):
    shapes = [(2, 3), (1, 1), (4, 2), (0, 2), (3, 0)]
    check(TWO_DIMENSIONS[name], BOTH, [(R.normal(size=shape).astype("f"),) for shape in shapes])


def test_two_ragged_inputs_must_agree_row_by_row():
    examples = [(np.ones(n, "f"), np.ones(m, "f")) for n, m in [(3, 3), (2, 3), (1, 4), (4, 1), (0, 1), (0, 0)]]
    check(lambda x, y: x + y, VECTOR * 2, examples)
    check(lambda x, y: tf.tensordot(x, y, 1), VECTOR * 2, examples)


def test_a_ragged_dimension_against_a_fixed_one():
    check(lambda x: x + tf.constant([1.0, 2.0, 3.0]), VECTOR, vectors(3, 1, 2))
