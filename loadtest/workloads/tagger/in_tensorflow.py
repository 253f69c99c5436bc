"""The tagger in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loadtest.workloads.lstm.in_tensorflow import cell
from loadtest.workloads.problem import Workload
from loadtest.workloads.tagger.data import (
    BACKWARD,
    EMBEDDINGS,
    FORWARD,
    HIDDEN,
    LAYER_KERNEL,
    PROBLEM,
    TAG_KERNEL,
)

_EMBEDDINGS = tf.constant(EMBEDDINGS)
_FORWARD = [tf.constant(array) for array in FORWARD]
_BACKWARD = [tf.constant(array) for array in BACKWARD]
_LAYER_KERNEL, _TAG_KERNEL = tf.constant(LAYER_KERNEL), tf.constant(TAG_KERNEL)


def _outputs(words: Any, n: Any, place: Callable[[Any], Any], room: Any, weights: Sequence[Any]) -> Any:
    """The LSTM's outputs, each at its word's place; step t is about the word at `place(t)`."""
    input_kernel, state_kernel, offset = weights

    def step(t: Any, h: Any, c: Any, outputs: Any) -> Any:
        x = tf.gather(_EMBEDDINGS, tf.gather(words, place(t)))
        h, c = cell(tf.tensordot(x, input_kernel, 1) + tf.tensordot(h, state_kernel, 1) + offset, c)
        return t + 1, h, c, outputs.write(place(t), h)

    zero = tf.zeros([HIDDEN])
    outputs = tf.TensorArray(tf.float32, size=room, element_shape=[HIDDEN])
    return tf.while_loop(lambda t, *_: t < n, step, (tf.constant(0), zero, zero, outputs))[3].stack()


def _score(outputs: tuple[Any, Any]) -> Any:
    layer = tf.tanh(tf.tensordot(tf.concat(outputs, 0), _LAYER_KERNEL, 1))
    return tf.tensordot(layer, _TAG_KERNEL, 1)


def tagger(words: Any) -> Any:
    """Scores [n, 9] of the words [n]."""
    n = tf.shape(words)[0]
    forward = _outputs(words, n, lambda t: t, n, _FORWARD)
    backward = _outputs(words, n, lambda t: n - 1 - t, n, _BACKWARD)
    return tf.map_fn(_score, (forward, backward), fn_output_signature=tf.float32)


def _score_all(forward: Any, backward: Any) -> Any:
    layer = tf.tanh(tf.tensordot(tf.concat([forward, backward], -1), _LAYER_KERNEL, 1))
    return tf.tensordot(layer, _TAG_KERNEL, 1)


def padded(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """The same with words [P] and their number n; scores [P, 9]."""
    (words,), (n,) = inputs, lengths
    room = words.shape[0]
    forward = _outputs(words, n, lambda t: t, room, _FORWARD)
    backward = _outputs(words, n, lambda t: n - 1 - t, room, _BACKWARD)
    return [_score_all(forward, backward)]


def hand_batched(inputs: Sequence[Any], lengths: Sequence[Any]) -> Sequence[Any]:
    """All rows step together. The way back reads each sentence reversed in place, so that both ways end in padding."""
    (words,), (n,) = inputs, lengths
    forward = _outputs_of_batch(tf.gather(_EMBEDDINGS, words), _FORWARD)
    backward = _outputs_of_batch(tf.gather(_EMBEDDINGS, tf.reverse_sequence(words, n, 1)), _BACKWARD)
    return [_score_all(forward, tf.reverse_sequence(backward, n, 1))]


def _outputs_of_batch(x: Any, weights: Sequence[Any]) -> Any:
    input_kernel, state_kernel, offset = weights
    entering = tf.transpose(tf.tensordot(x, input_kernel, 1) + offset, [1, 0, 2])
    room = tf.shape(entering)[0]

    def step(t: Any, h: Any, c: Any, outputs: Any) -> Any:
        h, c = cell(entering[t] + tf.matmul(h, state_kernel), c)
        return t + 1, h, c, outputs.write(t, h)

    zero = tf.zeros([tf.shape(x)[0], HIDDEN])
    outputs = tf.TensorArray(tf.float32, size=room, element_shape=[None, HIDDEN])
    stacked = tf.while_loop(lambda t, *_: t < room, step, (tf.constant(0), zero, zero, outputs))[3].stack()
    return tf.transpose(stacked, [1, 0, 2])


WORKLOAD = Workload(
    PROBLEM,
    tagger,
    {"words": tf.TensorSpec([None], tf.int32)},
    hand_batched=hand_batched,
    padded=padded,
)
