"""Bad rows for the further ops, in the form of the cases of `tests/vectorizer/test_errors_are_data.py`.

name: (function, specs, good examples, bad examples)
"""

import numpy as np
import tensorflow as tf

TABLE = tf.constant(np.random.default_rng(3).normal(size=[4, 2]).astype("f"))
VARIABLE = tf.Variable(TABLE)


def f(*shape):
    return tf.TensorSpec(shape, tf.float32)


def i(*shape, dtype=tf.int32):
    return tf.TensorSpec(shape, dtype)


def text(*shape):
    return tf.TensorSpec(shape, tf.string)


IMAGE = np.random.default_rng(4).normal(size=[2, 4, 4, 1]).astype("f")
BOXES = [[0.0, 0.0, 1.0, 1.0], [0.1, 0.1, 0.5, 0.9]]
THREE = [1.0, 2.0, 3.0]
BELOW = [0.0, 1.0, 1.0]

FURTHER_CASES = {
    "segment_sum": (
        lambda k: tf.math.segment_sum(tf.constant(THREE), k),
        [i(3)],
        [[[0, 0, 1]], [[1, 1, 3]]],
        [[[0, 2, 1]], [[-1, 0, 0]]],
    ),
    "segment_mean_ragged": (
        lambda x, k: tf.math.segment_mean(x, k),
        [f(None), i(None)],
        [[THREE, [0, 0, 1]], [[], []]],
        [[THREE, [2, 1, 1]]],
    ),
    "unsorted_segment_sum": (
        lambda k: tf.math.unsorted_segment_sum(tf.constant(THREE), k, 3),
        [i(3)],
        [[[2, -1, 0]], [[1, 1, 1]]],
        [[[0, 3, 1]]],
    ),
    "unsorted_segment_number": (
        lambda k, n: tf.math.unsorted_segment_max(tf.constant(THREE), k, n),
        [i(3), i()],
        [[[0, 1, 1], 2], [[0, 0, 0], 4]],
        [[[0, 1, 2], 2], [[-1, -1, -1], -1]],
    ),
    "sparse_segment_sum": (
        lambda k, s: tf.raw_ops.SparseSegmentSum(data=TABLE, indices=k, segment_ids=s),
        [i(3), i(3)],
        [[[0, 3, 1], [0, 0, 1]]],
        [[[0, 4, 1], [0, 0, 1]], [[0, 1, 1], [1, 0, 0]]],
    ),
    "bincount": (
        lambda k: tf.raw_ops.DenseBincount(input=k, size=3, weights=tf.zeros([0])),
        [i(3)],
        [[[0, 1, 5]], [[2, 2, 2]]],
        [[[0, -1, 1]]],
    ),
    "dynamic_partition": (
        lambda x, k: tf.dynamic_partition(x, k, 2),
        [f(3), i(3)],
        [[THREE, [0, 1, 1]], [THREE, [0, 0, 0]]],
        [[THREE, [0, 2, 1]], [THREE, [-1, 0, 1]]],
    ),
    "dynamic_stitch": (
        lambda k: tf.dynamic_stitch([k], [tf.constant(THREE)]),
        [i(3)],
        [[[2, 0, 1]], [[0, 0, 2]]],
        [[[0, -1, 1]]],
    ),
    "split_one_and_the_rest": (
        lambda x: tf.split(x, [1, tf.shape(x)[0] - 1]),
        [f(None)],
        [[THREE], [[1.0]]],
        [[[]]],
    ),
    "split_by_sizes": (
        lambda x, k: tf.split(x, [k, 2]),
        [f(3), i()],
        [[THREE, 1]],
        [[THREE, 2], [THREE, -3]],
    ),
    "pad_to_length": (
        lambda x: tf.pad(x, [[0, 3 - tf.shape(x)[0]]]),
        [f(None)],
        [[THREE], [[]], [[1.0]]],
        [[[1.0, 2.0, 3.0, 4.0]]],
    ),
    "pad_by_amount": (
        lambda x, k: tf.pad(x, [[k, 1]]),
        [f(3), i()],
        [[THREE, 0], [THREE, 2]],
        [[THREE, -1]],
    ),
    "linspace": (
        lambda x, k: tf.raw_ops.LinSpace(start=x, stop=2.0, num=k),
        [f(), i()],
        [[0.0, 1], [1.0, 4]],
        [[0.0, 0], [0.0, -2]],
    ),
    "unicode_decode_strict": (
        lambda x: tf.strings.unicode_decode(x, "UTF-8", errors="strict"),
        [text()],
        [["abc"], [""], ["äöü\ufffd"]],
        [[b"a\xff"], [b"\xc3"]],
    ),
    "unicode_transcode_strict": (
        lambda x: tf.strings.length(tf.strings.unicode_transcode(x, "UTF-8", "UTF-16-BE", errors="strict")),
        [text(2)],
        [[["abc", ""]], [["ä", "日本"]]],
        [[["a", b"\xff"]]],
    ),
    "csv": (
        lambda x: tf.io.decode_csv(x, [[0], [0.5], tf.constant([], tf.int64)]),
        [text()],
        [["1,2.5,3"], [",,9"], ['"7",1e3,4']],
        [["1,2"], ["1,2,3,4"], ["x,1,1"], ["1,y,1"], ["1,2,"], ['1,"2,3'], [""], ["99999999999,1,1"]],
    ),
    "csv_ragged": (
        lambda x: tf.io.decode_csv(x, [[0], [0.5]], field_delim=";"),
        [text(None)],
        [[["1;2.5", "3;"]], [[]]],
        [[["1;2", "3"]]],
    ),
    "crop_and_resize_box": (
        lambda x, box: tf.image.crop_and_resize(x, box[None], [1], [2, 2]),
        [f(2, 4, 4, 1), f(4)],
        [[IMAGE, BOXES[0]], [IMAGE, BOXES[1]]],
        [[IMAGE, [0.0, np.nan, 1.0, 1.0]], [IMAGE, [0.0, 0.0, np.inf, 1.0]]],
    ),
    "crop_and_resize": (
        lambda x, k: tf.image.crop_and_resize(x, BOXES, k, [2, 2]),
        [f(2, 4, 4, 1), i(2)],
        [[IMAGE, [0, 1]], [IMAGE, [1, 1]]],
        [[IMAGE, [0, 2]], [IMAGE, [-1, 0]]],
    ),
    "non_max_suppression": (
        lambda x, limit: tf.image.non_max_suppression(BOXES, x, 2, limit),
        [f(2), f()],
        [[[0.4, 0.6], 0.5], [[0.9, 0.1], 0.0]],
        [[[0.4, 0.6], 1.5], [[0.4, 0.6], -0.1]],
    ),
    "sparse_to_dense": (
        lambda k, x: tf.sparse.to_dense(tf.SparseTensor(k, x, [2, 3])),
        [i(2, 2, dtype=tf.int64), f(2)],
        [[[[0, 1], [1, 2]], [1.0, 2.0]], [[[0, 0], [0, 1]], [1.0, 2.0]]],
        [
            [[[0, 1], [1, 3]], [1.0, 2.0]],
            [[[1, 0], [0, 1]], [1.0, 2.0]],
            [[[0, 1], [0, 1]], [1.0, 2.0]],
            [[[-1, 0], [0, 1]], [1.0, 2.0]],
        ],
    ),
    "sparse_matmul": (
        lambda k, x: tf.sparse.sparse_dense_matmul(tf.SparseTensor(k, x, [3, 4]), TABLE),
        [i(2, 2, dtype=tf.int64), f(2)],
        [[[[0, 1], [2, 3]], [1.0, 2.0]]],
        [[[[0, 4], [2, 3]], [1.0, 2.0]], [[[3, 0], [2, 3]], [1.0, 2.0]]],
    ),
    "banded_solve": (
        lambda x: tf.linalg.banded_triangular_solve(x, [[1.0], [2.0], [3.0]]),
        [f(2, 3)],
        [[[[4.0, 5.0, 6.0], BELOW]]],
        [[[[4.0, 0.0, 6.0], BELOW]]],
    ),
    "least_squares": (
        lambda x: tf.raw_ops.MatrixSolveLs(matrix=x, rhs=[[1.0], [2.0], [3.0]], l2_regularizer=0.0),
        [f(3, 2)],
        [[[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]],
        [[[[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]]],
    ),
    "histogram": (
        lambda x, y: tf.histogram_fixed_width(x, tf.stack([y, 1.0]), 3),
        [f(3), f()],
        [[THREE, 0.0]],
        [[THREE, 1.0], [THREE, 2.0]],
    ),
    "ragged_range": (
        lambda k: tf.raw_ops.RaggedRange(starts=[0, 1], limits=[3, 4], deltas=k),
        [i(2)],
        [[[1, 2]], [[-1, 1]]],
        [[[0, 1]]],
    ),
    "resource_gather_nd": (
        lambda k: VARIABLE.gather_nd(k),
        [i(2, 1)],
        [[[[0], [3]]]],
        [[[[0], [4]]], [[[-1], [0]]]],
    ),
}
FURTHER_UNCOMPILABLE = {
    "segment_sum",
    "unsorted_segment_number",
    "linspace",
    "dynamic_stitch",
    "sparse_segment_sum",
    "pad_by_amount",
    "ragged_range",
}
