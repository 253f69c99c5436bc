"""The examples' models for long examples of every length: a batch takes many milliseconds, so engines are the limit.

Their modules are imported when the functions are traced: until then this file registers its own two models only.
"""

import tensorflow as tf

from examples.listops.expression import random_expression, to_arrays
from server import model


def _document(generator):
    """A text of 1 to 1,000 characters."""
    with tf.init_scope():
        from examples.language.model import sample_text
    length = int(generator.integers(1, 1001))
    text = ""
    while len(text) < length:
        text += sample_text(generator)["text"] + " "
    return {"text": text[:length]}


def _expression(generator):
    """A tree of 1 to some 400 nodes."""
    symbols, children = to_arrays(random_expression(generator, int(generator.integers(0, 10))))
    return {"symbols": symbols, "children": children}


@model(inputs={"text": tf.TensorSpec([], tf.string)}, samples=_document, max_length=4000)
def documents(text):
    with tf.init_scope():
        from examples.language.model import language
    return language(text)


@model(
    inputs={"symbols": tf.TensorSpec([None], tf.int32), "children": tf.TensorSpec([None, 4], tf.int32)},
    samples=_expression,
    max_length=4000,
)
def expressions(symbols, children):
    with tf.init_scope():
        from examples.listops.model import listops
    return listops(symbols, children)
