"""numpy's kernels give what TensorFlow's give."""

import numpy as np
import pytest
import tensorflow as tf

from server.engines.dynamic import kernels
from server.engines.dynamic.compiling import shared_column
from server.engines.dynamic.launching import by_tensorflow
from server.engines.dynamic.signatures import result_shapes
from server.engines.dynamic.values import Column, Kind, Shared, on_host
from vectorizer import trace

WEIGHT = tf.constant(np.random.default_rng(1).normal(size=(4, 5)).astype("f"))
TABLE = tf.constant(np.arange(12, dtype="f").reshape(4, 3))
F, N, B = tf.float32, tf.int32, tf.bool
CASES = {
    "tanh": (lambda x: tf.tanh(x), [((3,), F)]),
    "sigmoid": (lambda x: tf.sigmoid(x * 50.0), [((3,), F)]),
    "relu": (lambda x: tf.nn.relu(x), [((3,), F)]),
    "of equal shapes": (lambda x, y: x - y, [((2, 3), F), ((2, 3), F)]),
    "broadcast": (lambda x, y: x * y, [((2, 3), F), ((3,), F)]),
    "broadcast both ways": (lambda x, y: x / y, [((2, 1), F), ((1, 3), F)]),
    "with a shared one": (lambda x: x + tf.constant([1.0, 2.0, 3.0]), [((2, 3), F)]),
    "compared": (lambda x, y: x < y, [((2, 3), F), ((), F)]),
    "and": (lambda x, y: tf.logical_and(x, y), [((2,), B), ((2,), B)]),
    "shared weight": (lambda x: tf.matmul(x, WEIGHT), [((2, 4), F)]),
    "shared weight, turned": (lambda x: tf.matmul(x, WEIGHT, transpose_b=True), [((2, 5), F)]),
    "shared on the left": (lambda x: tf.matmul(WEIGHT, x), [((5, 1), F)]),
    "a product of their own": (lambda x, y: tf.matmul(x, y, transpose_a=True), [((3, 2), F), ((3, 4), F)]),
    "concat": (lambda x, y: tf.concat([x, y], 1), [((2, 3), F), ((2, 1), F)]),
    "concat with a shared one": (lambda x: tf.concat([x, tf.ones([1, 3])], 0), [((2, 3), F)]),
    "split": (lambda x: tf.split(x, [1, 3], 1), [((2, 4), F)]),
    "split evenly": (lambda x: tf.split(x, 2), [((4,), F)]),
    "slice": (lambda x: x[1:, ::2], [((3, 4), F)]),
    "looked up": (lambda k: tf.gather(TABLE, k), [((), N)]),
    "row of its own": (lambda x, k: tf.gather(x, k), [((4, 2), F), ((), N)]),
    "rows of its own": (lambda x, k: tf.gather(x, k), [((4, 2), F), ((3,), N)]),
    "sum": (lambda x: tf.reduce_sum(x, [0]), [((2, 3), F)]),
    "mean of all": (lambda x: tf.reduce_mean(x, [0, 1], keepdims=True), [((2, 3), F)]),
    "softmax": (lambda x: tf.nn.softmax(x), [((2, 3), F)]),
    "transpose": (lambda x: tf.transpose(x, [1, 2, 0]), [((2, 3, 4), F)]),
    "select": (lambda c, x: tf.where(c, x, 0.0), [((2, 1), B), ((2, 3), F)]),
    "pack": (lambda x, y: tf.stack([x, y], -1), [((2,), F), ((2,), F)]),
    "segments": (lambda x, k: tf.math.unsorted_segment_sum(x, k - 1, 3), [((4, 2), F), ((4,), N)]),
}


def both(program, operands, count):
    """Results of the last op of the program by either kernel, for `count` nodes of random operands."""
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in operands]
    generator = np.random.default_rng(0)
    traced = trace(program, specs)
    known = {}
    for var, tensor in traced.captures.items():
        known[var] = shared_column(Shared(tensor))
    for var, (shape, dtype) in zip(traced.inputs, operands, strict=False):
        array = generator.normal(size=(count, *shape)) if dtype == F else generator.integers(0, 2, (count, *shape))
        known[var] = Column(Kind("value", shape, dtype), array.astype(dtype.as_numpy_dtype))
    made = []
    for op in traced.ops:
        if op.type == "Const":
            continue
        columns = [known[var] if var.constant is None else on_host(var.constant, var.dtype) for var in op.inputs]
        shapes = result_shapes(op, columns)
        fixed = [None if c.kind.what == "value" else getattr(c.data, "array", c.data) for c in columns]
        case = kernels.Case(op, fixed, [_shape(*pair) for pair in zip(fixed, columns, strict=True)], shapes)
        tensors = [None if f is None else tf.constant(f, var.dtype) for f, var in zip(fixed, op.inputs, strict=True)]
        own = [c.data.reshape(count, -1) for c in columns if c.kind.what == "value"]
        made = [launched(kernel, case, own, count) for kernel in (kernels.find(case), by_tensorflow(op, tensors, case))]
        for var, shape, result in zip(op.outputs, shapes, made[1], strict=True):
            known[var] = Column(Kind("value", shape, var.dtype), result)
    return made


def _shape(fixed, column):
    return column.kind.shape if fixed is None else np.shape(fixed)


def launched(kernel, case, own, count):
    """What the kernel fills in; None without a kernel."""
    if kernel is None:
        return None
    results = [
        np.zeros((count, int(np.prod(shape))), var.dtype.as_numpy_dtype)
        for shape, var in zip(case.results, case.op.outputs, strict=True)
    ]
    kernel(count, own, results)
    return results


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("name", CASES)
def test_as_tensorflow(name, count):
    with np.errstate(over="ignore"):  # as the engine does
        quick, slow = both(*CASES[name], count)
    assert quick is not None
    for one, other in zip(quick, slow, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
