"""Ops that only gradients make."""

import tensorflow as tf

from tests.support.op_lines.line import Line, f


def gradient(fn, by=0):
    """The gradient of the sum of squares of what `fn` gives, with respect to one operand."""

    def derivative(*operands):
        with tf.GradientTape() as tape:
            tape.watch(operands[by])
            value = tf.reduce_sum(fn(*operands) ** 2)
        return tape.gradient(value, operands[by])

    return derivative


def gradients():
    image = f(1, 4, 4, 2)
    for padding in ("SAME", "VALID"):
        yield Line("MaxPoolGrad", gradient(lambda x, p=padding: tf.nn.max_pool2d(x, 2, 1, p)), (image,), rtol=1e-4)
        yield Line("AvgPoolGrad", gradient(lambda x, p=padding: tf.nn.avg_pool2d(x, 2, 2, p)), (image,), rtol=1e-4)
        filters = gradient(lambda k, x, p=padding: tf.nn.conv2d(x, k, 1, p))
        yield Line("Conv2DBackpropFilter", filters, (f(2, 2, 2, 3), image), shared=False, rtol=1e-4, fallbacks=None)
    yield Line("BiasAddGrad", gradient(lambda y, x: tf.nn.bias_add(x, y)), (f(3), f(None, 3)), rtol=1e-4)
    yield Line("BroadcastGradientArgs", gradient(lambda x, y: x * y), (f(3), f(None, 3)), rtol=1e-4)
    yield Line("BroadcastGradientArgs", gradient(lambda x, y: x + y), (f(None, 1), f(None, 1)), least=2, rtol=1e-4)
    yield Line("ConcatOffset", gradient(lambda x: tf.concat([x, x * x], 0)), (f(None, 2),), rtol=1e-4)
    yield Line("DynamicStitch", gradient(lambda x: tf.reduce_mean(x, 0)), (f(None, 2),), least=1, rtol=1e-4)
    stitch = lambda x: tf.raw_ops.ParallelDynamicStitch(indices=[[1], [0]], data=[tf.shape(x)[:1], [7]])
    yield Line("ParallelDynamicStitch", stitch, (f(None, 2),))
    side = lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * x, lambda: -x)
    yield Line("OptionalFromValue OptionalNone OptionalGetValue", gradient(side), (f(3),), rtol=1e-4)
    for cut in (lambda x: x[1:], lambda x: x[-1], lambda x: x[::-1], lambda x: x[:, 1], lambda x: x[:2, None, ::2]):
        yield Line("StridedSliceGrad", gradient(cut), (f(4, 3),), rtol=1e-4)
        yield Line("StridedSliceGrad", gradient(cut), (f(None, 3),), least=1, rtol=1e-4)

    def pushed_and_popped(x):
        items = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=5, element_dtype=tf.float32)
        for row in (x, x * 2, x * 3):
            items = tf.raw_ops.TensorListPushBack(input_handle=items, tensor=row)
        items, last = tf.raw_ops.TensorListPopBack(input_handle=items, element_shape=[2], element_dtype=tf.float32)
        return last, tf.raw_ops.TensorListLength(input_handle=items)

    yield Line("TensorListPopBack", pushed_and_popped, (f(2),))
