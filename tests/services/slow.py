"""A model that takes its time: it sleeps for `seconds`, then returns them."""

import time

import tensorflow as tf

from server import model


def _sleep(seconds):
    time.sleep(float(seconds))
    return seconds


@model(inputs={"seconds": tf.TensorSpec([], tf.float32)}, samples=[0.0], max_batch_size=2)
def sleep(seconds):
    slept = tf.py_function(_sleep, [seconds], tf.float32)
    slept.set_shape([])
    return slept
