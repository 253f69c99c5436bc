"""What users of TensorFlow's pfor and PyTorch's vmap reported: ragged shapes, texts, data types, maps in maps."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import VectorizationError, jacobian, vectorize, vectorized_map

R = np.random.default_rng(13)
NUMBER, COUNT, TEXT = tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.string)
VECTOR, IDS = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int32)


def draw(*shape):
    return R.normal(size=shape).astype("f")


def test_unique_and_segment_sums_of_different_length():
    """tensorflow#42419"""

    def f(keys, x):
        found = tf.unique_with_counts(keys)
        sums = tf.math.unsorted_segment_sum(x, found.idx, tf.size(found.y))
        return found.y, found.count, sums, tf.repeat(found.y, found.count)

    keys = [np.array(k, np.int32) for k in ([], [1], [2, 1, 2], [3, 3, 0, 3])]
    check(f, [IDS, VECTOR], [(k, draw(len(k))) for k in keys], fallbacks=None, jit=False)


def test_ranges_places_and_tiles_of_different_length():
    """tensorflow#42419"""
    f = lambda n, x: (tf.range(n), tf.where(x > 0), tf.tile(x, [n]), tf.repeat(x, n))
    check(f, [COUNT, VECTOR], [(np.int32(k), draw(m)) for k, m in ((0, 0), (1, 2), (3, 4))], fallbacks=None, slack=9)


def test_least_squares_over_ragged_tasks():
    """tensorflow#51771"""
    specs = [tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])]
    examples = [(draw(n, 2), draw(n, 1)) for n in (3, 5, 2)]
    f = lambda a, b: tf.linalg.lstsq(a, b, l2_regularizer=0.1)
    check(f, specs, examples, fallbacks=None, jit=False, rtol=1e-3, atol=1e-4)


def test_a_ragged_narrow():
    """pytorch#42368, #99558"""
    f = lambda x, begin, count: tf.reduce_sum(x[begin : begin + count])
    examples = [(draw(n), np.int32(b), np.int32(c)) for n, b, c in ((5, 1, 2), (3, 0, 3), (2, 1, 5), (0, 0, 1))]
    check(f, [VECTOR, COUNT, COUNT], examples, slack=4)


def test_images_of_different_size():
    """keras-cv#666"""
    images = [(draw(*size, 3),) for size in ((2, 3), (4, 1), (0, 2))]
    check(tf.image.flip_left_right, [tf.TensorSpec([None, None, 3])], images, fallbacks=None, jit=False)


def test_texts_cut_and_decoded_for_each_example():
    """tensorflow#24774: a different type and a different length for each row"""

    def f(text):
        numbers = tf.strings.to_number(tf.strings.split(text, ","))
        return tf.strings.substr([text], 0, 2), numbers, tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32)

    check(f, [TEXT], [(text,) for text in (b"1.5,2", b"33", b"4,5,6")], fallbacks=None, jit=False, slack=4)


def test_records_parsed_one_by_one_or_at_once():
    """tensorflow#38559, #40386"""
    features = {"x": tf.io.FixedLenFeature([2], tf.float32)}
    value = lambda row: tf.train.Feature(float_list=tf.train.FloatList(value=row))
    record = lambda row: tf.train.Example(features=tf.train.Features(feature={"x": value(row)}))
    texts = [(record(row).SerializeToString(),) for row in ([1.0, 2.0], [-3.0, 0.5])]
    f = lambda text: tf.io.parse_single_example(text, features)["x"] * 2.0
    check(f, [TEXT], texts, fallbacks=None, jit=False)


def test_absolute_value_of_complex_numbers():
    """tensorflow#43322"""
    examples = [(R.normal(size=3) + 1j * R.normal(size=3),) for _ in range(2)]
    check(lambda x: (tf.abs(x), tf.math.conj(x)), [tf.TensorSpec([3], tf.complex128)], examples)


def test_cross_entropy_with_a_label_for_each_example():
    """probability#749"""
    f = lambda scores, label: tf.nn.sparse_softmax_cross_entropy_with_logits(label, scores)
    check(f, [tf.TensorSpec([5]), COUNT], [(draw(5), np.int32(k)) for k in (0, 4, 2)])


def test_ops_that_had_no_converter():
    """tensorflow#33919, #35719, #23397, #31593: blocks, solving, cross product"""
    blocks = lambda x: tf.space_to_batch(x[None], [2, 2], [[0, 0], [0, 0]])
    check(blocks, [tf.TensorSpec([4, 4, 1])], [(draw(4, 4, 1),) for _ in range(2)], fallbacks=None)
    solve = lambda a, b: tf.linalg.solve(a + 3.0 * tf.eye(3), b)
    check(solve, [tf.TensorSpec([3, 3]), tf.TensorSpec([3, 1])], [(draw(3, 3), draw(3, 1))] * 2, rtol=1e-3)
    check(tf.linalg.cross, [tf.TensorSpec([3])] * 2, [(draw(3), draw(3)) for _ in range(2)], fallbacks=None)


def test_a_tensor_product_called_eagerly():
    """probability#639"""
    x, w = tf.constant(draw(3, 4)), tf.constant(draw(4, 2))
    np.testing.assert_allclose(vectorized_map(lambda row: tf.tensordot(row, w, 1), x), x @ w, rtol=1e-5)


def test_maps_in_maps_keep_their_static_shapes():
    """tensorflow#41170, #35073, #35099"""
    x, y = tf.constant(draw(3, 4)), tf.constant(draw(2, 4))
    dot = lambda a, b: tf.reduce_logsumexp(tf.stack([tf.tensordot(a, b, 1), a[0]]))
    shapes = []

    @tf.function
    def table(x, y):
        found = vectorized_map(lambda a: vectorized_map(lambda b: dot(a, b), y), x)
        shapes.append(found.shape)
        return found

    wanted = [[dot(a, b) for b in y] for a in x]
    np.testing.assert_allclose(table(x, y), wanted, rtol=1e-5)
    assert shapes[0].rank == 2


def test_one_element_is_not_stretched_to_many():
    """probability#1071"""
    x = tf.constant(draw(1, 3))
    assert vectorized_map(lambda row: row * 2.0, x).shape == [1, 3]
    assert vectorized_map(lambda row: tf.tensordot(row, tf.ones([3, 4]), 1), x).shape == [1, 4]
    v = vectorize(lambda x, y: x + y, [NUMBER, NUMBER])
    for one, other in ((1, 4), (4, 1), (3, 4)):
        for call in (v, v.padded, tf.function(v)):
            with pytest.raises(ValueError, match=f"differ in their number of examples: 0 {one}, 1 {other}"):
                call(tf.ones([one]), tf.ones([other]))
    unknown = [tf.TensorSpec([None]), tf.TensorSpec([None])]
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in their number of examples"):
        tf.function(v, input_signature=unknown)(tf.ones([1]), tf.ones([4]))
    assert tf.function(v, input_signature=unknown)(tf.ones([4]), tf.ones([4])).shape == [4]


def test_what_runs_once_for_each_row_is_said():
    """pfor's note on this goes to the debug log only"""
    looped = vectorize(lambda x: tf.raw_ops.UniqueV2(x=x, axis=[0]).y, [tf.TensorSpec([2, 2])])
    native = vectorize(lambda x: tf.unique(tf.reshape(x, [-1])).y, [tf.TensorSpec([2, 2])])
    for v, names in ((looped, {"UniqueV2"}), (native, set())):
        assert {entry.op_type for entry in v.report.fallbacks} == names
        kinds = {op.type for op in v.compile().concrete.graph.get_operations()}
        assert bool(kinds & {"While", "StatelessWhile"}) == bool(names)


def test_calls_into_python_are_refused():
    """tensorflow#53726"""
    with pytest.raises(VectorizationError, match="PyFunc"):
        vectorize(lambda x: tf.numpy_function(np.sin, [x], tf.float32), [NUMBER])


def test_a_large_jacobian_is_one_product():
    """tensorflow#57144: no loop, and nothing larger than the result"""
    v = vectorize(jacobian(lambda x: tf.tanh(x) * 2.0), [tf.TensorSpec([64])])
    sizes = [
        op.outputs[0].shape.num_elements() or 0 for op in v.compile(2, ()).concrete.graph.get_operations() if op.outputs
    ]
    assert max(sizes) <= 2 * 64 * 64
