"""The Tree-LSTM in TensorFlow: a loop over the leaves, a loop over the inner nodes, states in two TensorArrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from loadtest.workloads.problem import Workload
from loadtest.workloads.tree_lstm.data import (
    CLASS_KERNEL,
    EMBEDDINGS,
    LEAF_BIAS,
    LEAF_KERNEL,
    NODE_BIAS,
    NODE_KERNEL,
    PROBLEM,
    STATE,
)

_EMBEDDINGS = tf.constant(EMBEDDINGS)
_LEAF_KERNEL, _LEAF_BIAS = tf.constant(LEAF_KERNEL), tf.constant(LEAF_BIAS)
_NODE_KERNEL, _NODE_BIAS = tf.constant(NODE_KERNEL), tf.constant(NODE_BIAS)
_CLASS_KERNEL = tf.constant(CLASS_KERNEL)


def _leaf(word: Any) -> tuple[Any, Any]:
    """Output and memory of a leaf; `word` may be one or many."""
    gates = tf.tensordot(tf.gather(_EMBEDDINGS, word), _LEAF_KERNEL, 1) + _LEAF_BIAS
    enter, leave, update = tf.split(gates, 3, axis=-1)
    c = tf.sigmoid(enter) * tf.tanh(update)
    return tf.sigmoid(leave) * tf.tanh(c), c


def _node(left_h: Any, left_c: Any, right_h: Any, right_c: Any) -> tuple[Any, Any]:
    """Output and memory of an inner node from those of its children; of one node, or of one in each row."""
    gates = tf.tensordot(tf.concat([left_h, right_h], -1), _NODE_KERNEL, 1) + _NODE_BIAS
    enter, leave, update, keep_left, keep_right = tf.split(gates, 5, axis=-1)
    c = tf.sigmoid(enter) * tf.tanh(update) + tf.sigmoid(keep_left) * left_c + tf.sigmoid(keep_right) * right_c
    return tf.sigmoid(leave) * tf.tanh(c), c


def _root_scores(words: Any, left: Any, right: Any, leaves: Any, room: Any) -> Any:
    def add_leaf(t: Any, h: Any, c: Any) -> Any:
        leaf_h, leaf_c = _leaf(words[t])
        return t + 1, h.write(t, leaf_h), c.write(t, leaf_c)

    def add_node(t: Any, h: Any, c: Any) -> Any:
        a, b = left[t - leaves], right[t - leaves]
        node_h, node_c = _node(h.read(a), c.read(a), h.read(b), c.read(b))
        return t + 1, h.write(t, node_h), c.write(t, node_c)

    h = tf.TensorArray(tf.float32, size=room, element_shape=[STATE], clear_after_read=False)
    c = tf.TensorArray(tf.float32, size=room, element_shape=[STATE], clear_after_read=False)
    t, h, c = tf.while_loop(lambda t, h, c: t < leaves, add_leaf, (tf.constant(0), h, c))
    nodes = 2 * leaves - 1
    t, h, c = tf.while_loop(lambda t, h, c: t < nodes, add_node, (t, h, c))
    return tf.tensordot(h.read(nodes - 1), _CLASS_KERNEL, 1)


def tree_lstm(words: Any, left: Any, right: Any) -> Any:
    """Scores [5] of the root of the tree with these words at its leaves; `left` and `right` are children's numbers.

    words int32 [leaves]; left, right int32 [leaves - 1], where 0 .. leaves - 1 are the leaves.
    """
    leaves = tf.shape(words)[0]
    return _root_scores(words, left, right, leaves, 2 * leaves - 1)


def padded(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """The same with arrays padded to [P], [P - 1] and [P - 1]."""
    words, left, right = inputs
    return [_root_scores(words, left, right, lengths[0], 2 * words.shape[0] - 1)]


def hand_batched(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """Leaves at once; then node k of every tree together, in one buffer, each row's children gathered by number.

    A tree's inner nodes follow the padded leaves, so node k of every row is written to the same place.
    """
    (words, left, right), (leaves, *_) = inputs, lengths
    rows, room = tf.shape(words)[0], tf.shape(words)[1]
    inner = tf.shape(left)[1]
    leaf_h, leaf_c = _leaf(tf.transpose(words))
    space = tf.zeros([inner, rows, STATE])
    h, c = tf.concat([leaf_h, space], 0), tf.concat([leaf_c, space], 0)
    shift = (room - leaves)[:, tf.newaxis]
    every_row = tf.range(rows)
    left = tf.transpose(tf.where(left < leaves[:, tf.newaxis], left, left + shift))
    right = tf.transpose(tf.where(right < leaves[:, tf.newaxis], right, right + shift))

    def step(k: Any, h: Any, c: Any) -> Any:
        a, b = tf.stack([left[k], every_row], 1), tf.stack([right[k], every_row], 1)
        node_h, node_c = _node(tf.gather_nd(h, a), tf.gather_nd(c, a), tf.gather_nd(h, b), tf.gather_nd(c, b))
        place = [[room + k]]
        h = tf.tensor_scatter_nd_update(h, place, node_h[tf.newaxis])
        return k + 1, h, tf.tensor_scatter_nd_update(c, place, node_c[tf.newaxis])

    _, h, _ = tf.while_loop(lambda k, h, c: k < inner, step, (tf.constant(0), h, c))
    root = tf.stack([room + leaves - 2, every_row], 1)
    return [tf.matmul(tf.gather_nd(h, root), _CLASS_KERNEL)]


WORKLOAD = Workload(
    PROBLEM,
    tree_lstm,
    {name: tf.TensorSpec([None], tf.int32) for name in ("words", "left", "right")},
    hand_batched=hand_batched,
    padded=padded,
)
