"""Gathering, scattering, slicing; sorting and searching; selections; parts of sparse tensors."""

import numpy as np
import tensorflow as tf

from tests.support.op_lines.line import Line, b, each, extreme_integers, f, i, raw, s, ties, usual

TABLE = tf.Variable(np.random.default_rng(6).normal(size=[4, 3]).astype("f"))


def in_order(keys):
    """Distinct coordinates from any integers."""
    return tf.argsort(tf.cast(keys, tf.float32), stable=True)[:, None]


def indexing():
    for dtype in (tf.int32, tf.int64):
        for axis in (0, 1, -1):
            for indices in ((), (4,), (2, 2), (None,)):
                yield Line(
                    "GatherV2",
                    lambda x, k, a=axis: tf.gather(x, k, axis=a),
                    (f(3, 4, 5), i(*indices, dtype=dtype)),
                )
                yield Line(
                    "GatherV2",
                    lambda x, k, a=axis: tf.gather(x, k, axis=a),
                    (f(None, 4, 5), i(*indices, dtype=dtype)),
                    least=3,
                )
        yield Line("GatherV2", lambda x, k: tf.gather(x, k, batch_dims=1), (f(2, 4, 3), i(2, 3, dtype=dtype)))
        yield Line("GatherV2", lambda x, k: tf.gather(x, k, axis=2, batch_dims=1), (f(2, 4, 3), i(2, 3, dtype=dtype)))
        yield Line("GatherV2", lambda x, k: tf.gather(x, k, batch_dims=1), (f(None, 4), i(None, dtype=dtype)))
        yield Line("Gather", lambda x, k: raw("Gather", x, k), (f(3, 4), i(2, dtype=dtype)))
        yield Line("GatherNd", lambda x, k: tf.gather_nd(x, k), (f(3, 4, 5), i(4, 2, dtype=dtype)))
        yield Line("GatherNd", lambda x, k: tf.gather_nd(x, k), (f(3, None), i(4, 1, dtype=dtype)), least=3)
        yield Line("GatherNd", lambda x, k: tf.gather_nd(x, k), (f(3, 3), i(None, 2, dtype=dtype)))
        yield Line("ResourceGather", lambda k: tf.nn.embedding_lookup(TABLE, k), (i(4, dtype=dtype),))
        yield Line("OneHot", lambda k: (tf.one_hot(k - 1, 3), tf.one_hot(k, 2, 5, -5, axis=0)), (i(4, dtype=dtype),))
        yield Line("OneHot", lambda k: tf.one_hot(k, 3), (i(None, dtype=dtype),))
        yield Line(
            "ScatterNd",
            lambda k, x: tf.scatter_nd(k, x, tf.constant([3, 4], k.dtype)),
            (i(5, 1, dtype=dtype), f(5, 4)),
            rtol=1e-4,
        )
        yield Line(
            "ScatterNd",
            lambda k, x: tf.scatter_nd(k, x, tf.constant([3, 4], k.dtype)),
            (i(None, 1, dtype=dtype), f(None, 4)),
            rtol=1e-4,
        )
        scatters = "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin"
        for specs in (
            (f(3, 4), i(5, 1, dtype=dtype), f(5, 4)),
            (f(3, 4), i(None, 1, dtype=dtype), f(None, 4)),
            (f(3, 3), i(4, 2, dtype=dtype), f(4)),
        ):
            yield Line(scatters, each(scatters), specs, rtol=1e-4)
        yield Line(
            "TensorScatterUpdate",
            lambda x, k, y: tf.tensor_scatter_nd_update(x, in_order(k), y),
            (f(5, 2), i(4, dtype=dtype), f(4, 2)),
        )
        yield Line(
            "TensorScatterUpdate",
            lambda x, k, y: tf.tensor_scatter_nd_update(x, in_order(k), y),
            (f(5, 2), i(None, dtype=dtype), f(None, 2)),
        )
        yield Line(
            "TensorScatterUpdate",
            lambda x, k, y: tf.tensor_scatter_nd_update(x, in_order(k), y),
            (f(None, 2), i(None, dtype=dtype), f(None, 2)),
        )
    yield Line("ReverseSequence", lambda x, k: tf.reverse_sequence(x, k, seq_axis=1), (f(3, 4, 2), i(3)))
    yield Line("StridedSlice", lambda x: (x[1:], x[::-1], x[:-1, None], x[..., 1], x[-1], x[0:2, ::2]), (f(3, 4),))
    yield Line("StridedSlice", lambda x, k: (x[k], x[:, k], x[k, None, k], x[k - 3]), (f(3, 4), i()))
    yield Line("StridedSlice", lambda x, k: (x[k:], x[:k], x[k::2], x[-k:]), (f(4, 2), i()))
    yield Line("StridedSlice", lambda x: (x[1:-1], x[::-2], x[:, ::2], x[2:], x[-2:]), (f(None, 3),))
    yield Line("StridedSlice", lambda x, k: (x[k:], x[:k], x[k : k + 1]), (f(None, 3), i()))
    yield Line("Slice", lambda x: tf.slice(x, [1, 0], [2, -1]), (f(3, 4),))
    yield Line("Slice", lambda x, k: tf.slice(x, [k, 1], [1, 2]), (f(3, 4), i()))
    yield Line("Slice", lambda x: tf.slice(x, [0, 1], [-1, 2]), (f(None, 4),))


def ordering():
    for draw in (usual, ties):
        yield Line("TopKV2", lambda x: tf.math.top_k(x, 2), (f(2, 4),), draw)
        yield Line("TopKV2", lambda x: tf.math.top_k(x, 2), (f(None),), draw, least=2)
        yield Line(
            "TopKV2",
            lambda x: (tf.sort(x), tf.argsort(x, direction="DESCENDING", stable=True)),
            (f(None),),
            draw,
        )
        yield Line("TopKV2", lambda x: (tf.sort(x), tf.argsort(x, stable=True), tf.sort(x, axis=0)), (f(2, 4),), draw)
    yield Line("TopKV2", lambda x: tf.math.top_k(x, 2), (i(4),), extreme_integers)
    yield Line(
        "LowerBound UpperBound",
        lambda x, y: (tf.searchsorted(tf.sort(x), y), tf.searchsorted(tf.sort(x), y, "right")),
        (f(2, 4), f(2, 3)),
    )
    yield Line("InvertPermutation", lambda x: tf.math.invert_permutation(tf.argsort(x, stable=True)), (f(4),))
    yield Line("InvertPermutation", lambda x: tf.math.invert_permutation(tf.argsort(x, stable=True)), (f(None),))
    yield Line("Where", lambda x: tf.where(x), (b(4),))
    yield Line("Where", lambda x: tf.boolean_mask(x, x > 0), (f(None),))


def selections():
    parts = lambda x, k: tf.dynamic_partition(x, k, 3)
    yield Line("DynamicPartition", parts, (f(5, 2), i(5)))
    yield Line("DynamicPartition", parts, (f(None, 2), i(None)))
    whole = "Unique UniqueWithCounts"
    sliced = "UniqueV2 UniqueWithCountsV2"
    distinct = lambda x: (raw("Unique", x), raw("UniqueWithCounts", x, out_idx=tf.int64))
    distinct_on_axis = lambda x: (raw("UniqueV2", x, [0]), raw("UniqueWithCountsV2", x, [0]))
    for spec in (i(5), i(None), i(4, dtype=tf.int64), f(None), s(4), s(None)):
        yield Line(whole, distinct, (spec,))
        yield Line(sliced, distinct_on_axis, (spec,))
    for left, right in ((i(5), i(2)), (i(None), i(None)), (s(4), s(2))):
        yield Line("ListDiff", lambda x, y: raw("ListDiff", x, y), (left, right))


PLANES = tf.Variable(np.random.default_rng(6).normal(size=[3, 3, 2]).astype("f"))


def distinct_coordinates(generator, spec, shape):
    """Coordinates of a 3 by 4 matrix in ascending order; other operands as usual."""
    if spec.dtype != tf.int64:
        return usual(generator, spec, shape)
    flat = np.sort(generator.choice(12, shape[0], replace=False))
    return np.stack([flat // 4, flat % 4], -1)


def sparse_parts():
    for count in (4, None):
        specs = (i(count, 2, dtype=tf.int64), f(count))
        dense = lambda k, x: tf.sparse.to_dense(tf.SparseTensor(k, x, [3, 4]), 7.0)
        yield Line("SparseToDense", dense, specs, distinct_coordinates)
        product = lambda k, x, y: tf.sparse.sparse_dense_matmul(tf.SparseTensor(k, x, [3, 4]), y)
        yield Line("SparseTensorDenseMatMul", product, (*specs, f(4, 2)), distinct_coordinates, rtol=1e-4)
        turned = lambda k, x, y: tf.sparse.sparse_dense_matmul(
            tf.SparseTensor(k, x, [3, 4]), y, adjoint_a=True, adjoint_b=True
        )
        yield Line("SparseTensorDenseMatMul", turned, (*specs, f(2, 3)), distinct_coordinates, rtol=1e-4)
    shuffled = lambda k, x: tf.raw_ops.SparseReorder(
        input_indices=tf.reverse(k, [0]), input_values=tf.reverse(x, [0]), input_shape=[3, 4]
    )
    for count in (4, None):
        yield Line("SparseReorder", shuffled, (i(count, 2, dtype=tf.int64), f(count)), distinct_coordinates)
    ranges = lambda k, n: (
        raw("RaggedRange", k, k + n - 2, 1),
        raw("RaggedRange", tf.cast(k, tf.float32), 3.0, 0.5, Tsplits=tf.int32),
        raw("RaggedRange", 5, k, [-1, -2, -3]),
    )
    yield Line("RaggedRange", ranges, (i(3), i()), fixed=False)
    words = lambda x: tf.strings.split(x, "l").to_tensor("?")
    for shape in ([3], [None]):
        yield Line("RaggedTensorToTensor", words, (s(*shape),), fixed=False)
    grouped = lambda x, k: (
        tf.RaggedTensor.from_value_rowids(x, tf.sort(k), 3, validate=False).to_tensor(-1.0),
        tf.RaggedTensor.from_value_rowids(x, tf.sort(k), 3, validate=False).to_tensor(shape=[None, 2]),
    )
    yield Line("RaggedTensorToTensor", grouped, (f(5), i(5)), fixed=False)
    yield Line("RaggedTensorToTensor", grouped, (f(None), i(None)), fixed=False)
    split = lambda x, k: tf.RaggedTensor.from_row_splits(x, tf.concat([[0], tf.sort(k), [5]], 0)).to_tensor()
    yield Line("RaggedTensorToTensor", split, (f(5, 2), i(3)), fixed=False)


def places():
    yield Line("ResourceGatherNd", lambda k: PLANES.gather_nd(k), (i(4, 2),))
    yield Line("ResourceGatherNd", lambda k: PLANES.gather_nd(k), (i(None, 1, dtype=tf.int64),))
    added = lambda x, k, y: raw("ScatterNdNonAliasingAdd", x, k, y)
    yield Line("ScatterNdNonAliasingAdd", added, (f(3, 4), i(5, 1), f(5, 4)), rtol=1e-4)
    for spec in (f(2, 3), f(None, 2), f(2, None)):
        yield Line("Where", lambda x: tf.where(x > 0), (spec,))
        yield Line("Where", lambda x: tf.boolean_mask(x, x > 0), (spec,))
    nth = lambda x: (raw("NthElement", x, 1), raw("NthElement", x, 0, reverse=True))
    yield Line("NthElement", nth, (f(2, 4),))
    among = lambda x, k: (raw("InTopKV2", x, k, 2), raw("InTopK", x, k, k=1))
    yield Line("InTopK InTopKV2", among, (f(4, 3), i(4)))
    stitched = lambda x, y, k: tf.dynamic_stitch([k[:2], k[2:] + 1], [x, y])
    yield Line("DynamicStitch", stitched, (f(2, 3), f(3, 3), i(5)), fixed=False)
    parallel = lambda x, k: raw("ParallelDynamicStitch", [ranks(k), ranks(k) + tf.size(k)], [x, x * 2])
    yield Line("ParallelDynamicStitch", parallel, (f(4, 2), i(4)), fixed=False)
    yield Line("DynamicPartition DynamicStitch", parted_and_joined, (f(None, 2), i(None)), fixed=False)

    def joined(x):
        items = tf.TensorArray(tf.float32, 3, element_shape=[2, 3], infer_shape=True)
        return items.write(0, x).write(1, x + 1).write(2, x * 2).concat()

    yield Line("TensorListConcatV2", joined, (f(2, 3),))


def ranks(keys):
    """Distinct places from any integers."""
    return tf.argsort(keys, stable=True)


def parted_and_joined(x, k):
    parts = tf.dynamic_partition(x, k, 3)
    wheres = tf.dynamic_partition(tf.range(tf.size(k)), k, 3)
    return tf.dynamic_stitch(wheres, [parts[0], parts[1] * 2, parts[2] * 3])
