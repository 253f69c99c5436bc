"""Lists of tensors, and checks."""

import tensorflow as tf

from tests.support.op_lines.line import Line, f, i, raw


def lists():
    def written(x):
        items = tf.TensorArray(tf.float32, 3, element_shape=[2])
        return items.write(0, x[0]).write(2, x[1]).stack()

    yield Line("TensorListReserve TensorListSetItem TensorListStack", written, (f(3, 2),))

    def stacked(x, k):
        items = tf.TensorArray(tf.float32, 3, element_shape=[2]).unstack(x)
        items = items.write(k, items.read(0) + 1).scatter([2, 1], x[:2])
        return items.stack(), items.gather([1, k]), items.size(), items.read(k)

    yield Line(
        "TensorListFromTensor TensorListSetItem TensorListGetItem TensorListStack TensorListGather "
        "TensorListScatterIntoExistingList",
        stacked,
        (f(3, 2), i()),
    )

    def appended(x):
        items = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[2])
        items = items.write(0, x[0]).write(1, x[1])
        handle = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=tf.float32)
        handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=x[2])
        handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=x[0])
        shape = tf.raw_ops.TensorListElementShape(input_handle=handle, shape_type=tf.int32)
        whole = tf.raw_ops.TensorListStack(
            input_handle=handle, element_shape=[2], element_dtype=tf.float32, num_elements=2
        )
        return whole * tf.cast(shape[0] + tf.raw_ops.TensorListLength(input_handle=handle), tf.float32)

    yield Line("EmptyTensorList TensorListPushBack TensorListElementShape TensorListLength", appended, (f(3, 2),))

    def scattered(x):
        handle = tf.raw_ops.TensorListScatterV2(tensor=x, indices=[2, 0, 1], element_shape=[2], num_elements=3)
        return tf.raw_ops.TensorListStack(
            input_handle=handle, element_shape=[2], element_dtype=tf.float32, num_elements=3
        )

    yield Line("TensorListScatterV2", scattered, (f(3, 2),))


def checks():
    def asserted(x):
        with tf.control_dependencies([tf.debugging.assert_less(x, 100.0)]):
            return tf.identity(x) + 1

    yield Line("Assert", asserted, (f(3),))
    yield Line(
        "CheckNumerics CheckNumericsV2",
        lambda x: raw("CheckNumerics", x, message="no") + raw("CheckNumericsV2", x, message="no"),
        (f(None),),
    )
    yield Line("EnsureShape", lambda x: tf.ensure_shape(x, [None, 3]), (f(None, 3),))
