"""The graph network in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from loadtest.workloads.graph_network.data import (
    CLASS_KERNEL,
    ENTRY_KERNEL,
    FEATURES,
    MESSAGE_BIAS,
    MESSAGE_KERNEL,
    PROBLEM,
    ROUNDS,
    UPDATE_BIAS,
    UPDATE_KERNEL,
)
from loadtest.workloads.problem import Workload

_ENTRY_KERNEL, _CLASS_KERNEL = tf.constant(ENTRY_KERNEL), tf.constant(CLASS_KERNEL)
_MESSAGE_KERNEL, _MESSAGE_BIAS = tf.constant(MESSAGE_KERNEL), tf.constant(MESSAGE_BIAS)
_UPDATE_KERNEL, _UPDATE_BIAS = tf.constant(UPDATE_KERNEL), tf.constant(UPDATE_BIAS)


def _passed(features: Any, senders: Any, receivers: Any, nodes: Any) -> Any:
    """Every node's state after all rounds."""
    states = tf.tanh(tf.matmul(features, _ENTRY_KERNEL))
    for _ in range(ROUNDS):
        ends = tf.concat([tf.gather(states, senders), tf.gather(states, receivers)], 1)
        messages = tf.nn.relu(tf.matmul(ends, _MESSAGE_KERNEL) + _MESSAGE_BIAS)
        received = tf.math.unsorted_segment_sum(messages, receivers, nodes)
        states = tf.tanh(tf.matmul(tf.concat([states, received], 1), _UPDATE_KERNEL) + _UPDATE_BIAS)
    return states


def graph_network(features: Any, senders: Any, receivers: Any) -> Any:
    """Scores [4] of the graph with node features [nodes, 16] and edges from senders [edges] to receivers [edges]."""
    states = _passed(features, senders, receivers, tf.shape(features)[0])
    return tf.tensordot(tf.reduce_mean(states, 0), _CLASS_KERNEL, 1)


def hand_batched(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """All graphs as one, as graph libraries do: nodes renumbered, and a spare node that padding edges lead to."""
    (features, senders, receivers), (nodes, edges, _) = inputs, lengths
    rows, room = tf.shape(features)[0], tf.shape(features)[1]
    first = (tf.range(rows) * room)[:, tf.newaxis]
    is_edge = tf.range(tf.shape(senders)[1]) < edges[:, tf.newaxis]
    senders = tf.reshape(tf.where(is_edge, senders + first, 0), [-1])
    receivers = tf.reshape(tf.where(is_edge, receivers + first, rows * room), [-1])
    flat = tf.concat([tf.reshape(features, [-1, FEATURES]), tf.zeros([1, FEATURES])], 0)
    states = _passed(flat, senders, receivers, rows * room + 1)[:-1]
    states = tf.reshape(states, [rows, room, -1])
    is_node = tf.cast(tf.range(room) < nodes[:, tf.newaxis], tf.float32)[:, :, tf.newaxis]
    mean = tf.reduce_sum(states * is_node, 1) / tf.cast(nodes, tf.float32)[:, tf.newaxis]
    return [tf.matmul(mean, _CLASS_KERNEL)]


def padded(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """One padded graph: padding edges lead to a spare node."""
    (features, senders, receivers), (nodes, edges, _) = inputs, lengths
    room = features.shape[0]
    is_edge = tf.range(senders.shape[0]) < edges
    receivers = tf.where(is_edge, receivers, room)
    spare = tf.concat([features, tf.zeros([1, FEATURES])], 0)
    states = _passed(spare, senders, receivers, room + 1)[:-1]
    is_node = tf.cast(tf.range(room) < nodes, tf.float32)[:, tf.newaxis]
    mean = tf.reduce_sum(states * is_node, 0) / tf.cast(nodes, tf.float32)
    return [tf.tensordot(mean, _CLASS_KERNEL, 1)]


WORKLOAD = Workload(
    PROBLEM,
    graph_network,
    {
        "features": tf.TensorSpec([None, FEATURES], tf.float32),
        "senders": tf.TensorSpec([None], tf.int32),
        "receivers": tf.TensorSpec([None], tf.int32),
    },
    hand_batched=hand_batched,
    padded=padded,
)
