"""A model that can refuse an example in several ways, and takes an input of every sort."""

import tensorflow as tf

from server import model

TABLE = tf.constant([[0.0, 0.5], [1.0, 1.5], [2.0, 2.5], [3.0, 3.5], [4.0, 4.5]])


def sample(generator):
    ids = generator.integers(0, 5, generator.integers(1, 5))
    return {"ids": ids, "scale": generator.uniform(-2.0, 2.0), "tag": generator.choice(["", "a", "ключ"])}


@model(
    inputs={
        "ids": tf.TensorSpec([None], tf.int32),
        "scale": tf.TensorSpec([], tf.float32),
        "tag": tf.TensorSpec([], tf.string),
    },
    samples=sample,
    max_batch_size=8,
)
def guarded(ids, scale, tag):
    """The scaled sum of table rows; raises for an id out of range and for more than four ids."""
    tf.debugging.assert_less_equal(tf.size(ids), 4, message="at most four ids, please")
    return {"total": scale * tf.reduce_sum(tf.gather(TABLE, ids), axis=0), "tag": tag}
