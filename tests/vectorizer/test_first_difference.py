"""The op to blame for an answer that depends on the row; and programs that also return what lies between."""

import numpy as np
import pytest
import tensorflow as tf

from vectorizer import vectorize
from vectorizer.first_difference import PaddedBatch, first_difference

ROWS = 3


def with_bessel(x):
    doubled = 2.0 * x
    return tf.math.special.bessel_j0(doubled) + 1.0


def bessel_in_a_loop(x):
    total = tf.zeros([7])
    for t in tf.range(tf.shape(x)[0]):
        total = tf.math.special.bessel_j0(x[t]) + 0.5 * total
    return total


def differing(v, batches, lengths=()):
    """A batch, a row of it, and the same row in a batch of its own, with other bits."""
    program = v.compile()
    for batch in batches:
        for row in range(1, ROWS):
            alone = np.repeat(batch[row : row + 1], ROWS, 0)
            alone_lengths = [np.repeat(sizes[row : row + 1], ROWS) for sizes in lengths]
            one = program([batch], lengths, ROWS)[0][0].numpy()[row]
            other = program([alone], alone_lengths, ROWS)[0][0].numpy()[0]
            if one.tobytes() != other.tobytes():
                return PaddedBatch([alone], alone_lengths, ROWS), PaddedBatch([batch], lengths, ROWS), row
    pytest.skip("on this machine the kernel gives every row the same bits")


def test_the_op_is_found():
    v = vectorize(with_bessel, [tf.TensorSpec([7], tf.float32)])
    rng = np.random.default_rng(0)
    one, other, row = differing(v, ((20 * rng.standard_normal((ROWS, 7))).astype("float32") for _ in range(50)))
    op = first_difference(v, one, 0, other, row)
    assert op.type == "BesselJ0"
    assert op.source.startswith("test_first_difference.py:")


def test_within_a_loop_and_padding():
    v = vectorize(bessel_in_a_loop, [tf.TensorSpec([None, 7], tf.float32)])
    rng = np.random.default_rng(0)
    batches = ((20 * rng.standard_normal((ROWS, 4, 7))).astype("float32") for _ in range(50))
    one, other, row = differing(v, batches, [np.array([4, 2, 3], np.int32)])
    assert first_difference(v, one, 0, other, row).type == "BesselJ0"


def test_nothing_to_blame():
    v = vectorize(with_bessel, [tf.TensorSpec([7], tf.float32)])
    batch = PaddedBatch([np.ones((ROWS, 7), np.float32)], [], ROWS)
    assert first_difference(v, batch, 0, batch, 0) is None


def test_revealed_values_come_behind_the_outputs():
    v = vectorize(lambda x: tf.argmax(x * 2.0), [tf.TensorSpec([None], tf.float32)])
    product = next(var for op in v.program.ops if op.type == "Mul" for var in op.outputs)
    revealing = v.revealing([product])
    assert [spec.dtype for spec in revealing.output_specs] == [tf.int64, tf.float32]
    assert revealing.output_dims == ((1, 0),)
    inputs, lengths = [np.array([[1.0, 3.0, 0.0], [5.0, 4.0, 0.0]], np.float32)], [np.array([3, 2], np.int32)]
    for program in (revealing.compile(), revealing.compile(rows=2, lengths=(3,), jit=True)):
        (best, doubled), (sizes,), ok = program(inputs, lengths, 2)
        assert (best.numpy().tolist(), sizes.numpy().tolist(), ok.numpy().tolist()) == ([1, 0], [3, 2], [True, True])
        assert doubled.numpy()[1, :2].tolist() == [10, 8]
    assert len(v.compile()(inputs, lengths, 2)[0]) == 1
