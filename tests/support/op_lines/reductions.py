"""Reductions, running totals, softmax, counting, segments."""

import numpy as np
import tensorflow as tf

from tests.support.op_lines.line import Line, b, each, extreme_integers, f, i, positive, raw, ties, usual, with_specials

REDUCTIONS = "Sum Prod Max Min Mean EuclideanNorm"


def reduced(names, axes, keep_dims):
    def apply(x):
        return {name: raw(name, x, tf.constant(axes, tf.int32), keep_dims=keep_dims) for name in names.split()}

    return apply


def reductions():
    every_axis = [([3], [[0], [-1], []]), ([2, 3], [[0], [1], [-1], [0, 1], [-1, -2]]), ([None], [[0]])]
    every_axis += [([None, 3], [[0], [1], [-1, 0]]), ([2, None, 3], [[1], [0, 1], [2], [-2]])]
    for shape, all_axes in every_axis:
        for axes in all_axes:
            for keep_dims in (False, True):
                yield Line(REDUCTIONS, reduced(REDUCTIONS, axes, keep_dims), (f(*shape),), rtol=1e-4)
                yield Line(
                    "Sum Max Min Prod",
                    reduced("Sum Max Min Prod", axes, keep_dims),
                    (i(*shape),),
                    extreme_integers,
                )
                yield Line("All Any", reduced("All Any", axes, keep_dims), (b(*shape),))
                yield Line(
                    "Max Min Sum Mean",
                    reduced("Max Min Sum Mean", axes, keep_dims),
                    (f(*shape),),
                    with_specials,
                )
    for shape in ([3], [2, 3], [None], [None, 3], [3, None]):
        for axis in range(-len(shape), len(shape)):
            for draw in (usual, ties):
                yield Line(
                    "ArgMax ArgMin",
                    lambda x, axis=axis: (tf.argmax(x, axis), tf.argmin(x, axis, output_type=tf.int32)),
                    (f(*shape),),
                    draw,
                    least=1,
                )
            yield Line(
                "ArgMax ArgMin",
                lambda x, axis=axis: (tf.argmax(x, axis), tf.argmin(x, axis)),
                (f(*shape),),
                with_specials,
                least=1,
            )
            yield Line(
                "ArgMax ArgMin",
                lambda x, axis=axis: (tf.argmax(x, axis), tf.argmin(x, axis)),
                (i(*shape),),
                extreme_integers,
                least=1,
            )
            for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True)):
                yield Line(
                    "Cumsum Cumprod CumulativeLogsumexp",
                    lambda x, axis=axis, e=exclusive, r=reverse: (
                        tf.cumsum(x, axis, e, r),
                        tf.math.cumprod(x, axis, e, r),
                        tf.math.cumulative_logsumexp(x, axis, e, r),
                    ),
                    (f(*shape),),
                    rtol=1e-4,
                )
        yield Line("Softmax LogSoftmax", lambda x: (tf.nn.softmax(x), tf.nn.log_softmax(x)), (f(*shape),))
        yield Line("L2Loss", tf.nn.l2_loss, (f(*shape),))
        yield Line("Size Rank Shape", lambda x: (tf.size(x), tf.rank(x), tf.shape(x)), (f(*shape),))
    masked = lambda x: tf.nn.softmax(tf.where(x > 0, x, -np.inf))
    yield Line("Softmax", masked, (f(None),), positive, name="softmax_of_infinities")
    yield Line("Softmax", masked, (f(None, 4),), name="softmax_of_rows_of_infinities")
    yield Line(
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda x, k: tf.nn.sparse_softmax_cross_entropy_with_logits(k, x),
        (f(4, 3), i(4)),
    )
    yield Line(
        "SoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x),
        (f(4, 3), f(4, 3)),
    )


def counts_of_rows(binary, weighted):
    """Two rows, of which the first has a third of the values."""

    def count(values, weights):
        n = tf.cast(tf.shape(values)[0], tf.int64)
        splits = tf.stack([tf.zeros([], tf.int64), n // 3, n])
        none = tf.zeros([0], weights.dtype)
        return raw("RaggedBincount", splits, values, 3, weights if weighted else none, binary_output=binary)

    return count


def counting():
    for binary, weighted in ((False, False), (True, False), (False, True)):
        fn = counts_of_rows(binary, weighted)
        yield Line("RaggedBincount", fn, (i(None), f(None)), signed_or_small, shared=False)
        yield Line("RaggedBincount", fn, (i(5), f(5)))

    def each_in_a_row_of_its_own(values):
        splits = tf.range(tf.cast(tf.shape(values)[0], tf.int64) + 1)
        return raw("RaggedBincount", splits, values, 3, tf.zeros([0]), binary_output=False)

    yield Line("RaggedBincount", each_in_a_row_of_its_own, (i(None),))


def signed_or_small(generator, spec, shape):
    """A negative value fails its row."""
    if spec.dtype.is_integer:
        return generator.integers(-1 if generator.random() < 0.3 else 0, 5, shape).astype(spec.dtype.as_numpy_dtype)
    return usual(generator, spec, shape)


NUMBER_OF_SEGMENTS = 4


def sorted_ids(generator, spec, shape):
    """Segments in ascending order, with gaps; other operands as usual."""
    if not spec.dtype.is_integer:
        return usual(generator, spec, shape)
    return np.sort(generator.integers(0, NUMBER_OF_SEGMENTS, shape), -1).astype(spec.dtype.as_numpy_dtype)


def segments():
    unsorted = "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin"
    for data, ids in (([5, 2], [5]), ([None, 2], [None]), ([2, 3, 2], [2, 3]), ([4], [4])):
        for dtype in (tf.int32, tf.int64):
            to = lambda x, k: [raw(name, x, k - 1, NUMBER_OF_SEGMENTS) for name in unsorted.split()]
            yield Line(unsorted, to, (f(*data), i(*ids, dtype=dtype)), rtol=1e-4)
    of_counted = lambda x, k, n: [raw(name, x, k - 1, n + 2) for name in unsorted.split()]
    yield Line(unsorted, of_counted, (f(5, 2), i(5), i()), rtol=1e-4, fixed=False)
    ordered = "SegmentSum SegmentProd SegmentMax SegmentMin SegmentMean"
    for data, ids in (([5, 2], [5]), ([None, 2], [None]), ([4], [4])):
        for dtype in (tf.float32, tf.float64, tf.int32):
            specs = (f(*data, dtype=dtype), i(*ids))
            yield Line(ordered, each(ordered), specs, sorted_ids, rtol=1e-4, fixed=False)
    fixed_ids = lambda x: [raw(name, x, [0, 0, 1, 3, 3]) for name in ordered.split()]
    yield Line(ordered, fixed_ids, (f(5, 2),), rtol=1e-4, name="segments_known_when_built")
    sparse = "SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN"
    numbered = " ".join(name + "WithNumSegments" for name in sparse.split())
    by_gather = lambda x, k: [raw(name, x, k, tf.sort(k)) for name in sparse.split()]
    yield Line(sparse, by_gather, (f(4, 2), i(5)), rtol=1e-4, fixed=False)
    yield Line(sparse, by_gather, (f(4, 2), i(None)), rtol=1e-4, fixed=False)
    into = lambda x, k: [raw(name, x, k, tf.sort(k), NUMBER_OF_SEGMENTS) for name in numbered.split()]
    yield Line(numbered, into, (f(4, 2), i(5)), rtol=1e-4)
    yield Line(numbered, into, (f(4, 2), i(None)), rtol=1e-4)
    gradients = " ".join(name + "Grad" for name in sparse.split())
    back = lambda x, k: [raw(name, x, k, tf.sort(k), 4) for name in gradients.split()]
    yield Line(gradients, back, (f(3, 2), i(5)), rtol=1e-4)
    yield Line(gradients, back, (f(3, 2), i(None)), rtol=1e-4, least=1)  # of none, TensorFlow 2.21 clears no memory
    counts = lambda k, x: (raw("Bincount", k, 3, x), raw("DenseBincount", k, 2, x), raw("Bincount", k, 4, []))
    yield Line("Bincount DenseBincount", counts, (i(5), f(5)), rtol=1e-4)
    yield Line("Bincount DenseBincount", counts, (i(None), f(None)), rtol=1e-4)
    present = lambda k: raw("DenseBincount", k, 3, tf.zeros([0]), binary_output=True)
    yield Line("DenseBincount", present, (i(5, dtype=tf.int64),))
    yield Line("DenseBincount", present, (i(2, 5),))
    yield Line("DenseBincount", lambda k: tf.math.bincount(k), (i(5),), fixed=False)
    yield Line("DenseBincount", lambda k, x: tf.math.bincount(k, x, minlength=2), (i(None), f(None)), fixed=False)
    bins = lambda x, y: (
        tf.histogram_fixed_width(x, [-1.0, 1.5], 4),
        tf.histogram_fixed_width(x, tf.stack([y, y + 1.0]), 3, tf.int64),
    )
    for spec in (f(7), f(None), f(2, 3)):
        yield Line("HistogramFixedWidth", bins, (spec, f()))
