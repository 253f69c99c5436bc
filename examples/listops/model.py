"""What is [MAX 2 9 [MIN 4 7] 0]? A Tree-LSTM that has learnt it, written for one tree of any size."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from server import model

_weights = np.load(Path(__file__).with_name("weights.npz"))


def _parameter(name: str) -> tf.Tensor:
    """One weight array: stored as float16, computed with as float32."""
    return tf.constant(_weights[name].astype(np.float32), name=name)


SYMBOL_HIDDEN = _parameter("symbol_hidden")  # [symbols, hidden]
CHILD_KERNEL = _parameter("child_kernel")  # [4 * state, hidden]
GATE_KERNEL = _parameter("gate_kernel")  # [hidden, 7 * state]: input, output, update, a forget gate a child
GATE_BIAS = _parameter("gate_bias")  # [7 * state]
OUTPUT_KERNEL = _parameter("output_kernel")  # [state, 10]
OUTPUT_BIAS = _parameter("output_bias")  # [10]

MAX_CHILDREN = 4
STATE, _ = OUTPUT_KERNEL.shape
DIGITS, SYMBOLS = 10, 14  # symbols 0..9 are digits, 10..13 operators; see expression.py


def sample_tree(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A random tree of 0 to 8 operators, built from the leaves up."""
    symbols: list[int] = []
    children: list[list[int]] = []
    roots: list[int] = []

    def add(symbol: int, arguments: list[int]) -> None:
        roots.append(len(symbols))
        symbols.append(symbol)
        children.append(arguments + [-1] * (MAX_CHILDREN - len(arguments)))

    add(int(generator.integers(DIGITS)), [])
    for _ in range(generator.integers(0, 9)):
        for _ in range(generator.integers(1, 4)):
            add(int(generator.integers(DIGITS)), [])
        arity = min(len(roots), int(generator.integers(2, MAX_CHILDREN + 1)))
        arguments = roots[-arity:]
        del roots[-arity:]
        add(int(generator.integers(DIGITS, SYMBOLS)), arguments)
    return {"symbols": np.array(symbols, np.int32), "children": np.array(children, np.int32)}


def tree_cell(symbol: tf.Tensor, child_h: tf.Tensor, child_c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A node's output and memory [state] from its symbol and its children's [4, state], zero where absent.

    The N-ary Tree-LSTM of Tai, Socher and Manning (2015, arXiv 1503.00075), with a hidden layer before the
    gates: a sum modulo 10 is more than one layer can tell.
    """
    from_children = tf.tensordot(tf.reshape(child_h, [-1]), CHILD_KERNEL, 1)
    hidden = tf.nn.relu(tf.gather(SYMBOL_HIDDEN, symbol) + from_children)
    gates = tf.tensordot(hidden, GATE_KERNEL, 1) + GATE_BIAS
    enter, leave, update, forget = tf.split(gates, [STATE, STATE, STATE, MAX_CHILDREN * STATE])
    kept = tf.sigmoid(tf.reshape(forget, [MAX_CHILDREN, STATE])) * child_c
    c = tf.sigmoid(enter) * tf.tanh(update) + tf.reduce_sum(kept, axis=0)
    return tf.sigmoid(leave) * tf.tanh(c), c


def checked(symbols: tf.Tensor, children: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The same tree; raises unless it has a node, a row of each array a node, and children before parents."""
    count = tf.shape(children)[0]
    checks = [
        tf.debugging.assert_equal(tf.shape(symbols)[0], count, "symbols and children must have one row a node"),
        tf.debugging.assert_positive(count, message="an expression needs at least one node"),
        tf.debugging.assert_greater_equal(children, -1, "a child is the index of a node, or -1 for none"),
        tf.debugging.assert_less(children, tf.range(count)[:, tf.newaxis], "a child must come before its parent"),
    ]
    # Otherwise the loop may run, and fail with a message of its own, before the checks do.
    with tf.control_dependencies(checks):
        return tf.identity(symbols), tf.identity(children)


@model(
    name="listops",
    inputs={"symbols": tf.TensorSpec([None], tf.int32), "children": tf.TensorSpec([None, 4], tf.int32)},
    samples=sample_tree,
    max_batch_size=64,
    max_length=2000,
)
def listops(symbols: tf.Tensor, children: tf.Tensor) -> dict[str, tf.Tensor]:
    """The value (int32) of the tree whose root is the last node, and the probability of each digit [10].

    ``symbols`` [n] are places in ``expression.SYMBOLS``; ``children`` [n, 4] hold earlier nodes' indices,
    filled up with -1.
    """
    symbols, children = checked(symbols, children)
    n = tf.shape(symbols)[0]

    def add_node(t: tf.Tensor, h: tf.TensorArray, c: tf.TensorArray) -> tuple:
        indices = tf.gather(children, t)
        present = (indices >= 0)[:, tf.newaxis]
        earlier = tf.maximum(indices, 0)
        child_h = tf.where(present, h.gather(earlier), 0.0)
        child_c = tf.where(present, c.gather(earlier), 0.0)
        node_h, node_c = tree_cell(tf.gather(symbols, t), child_h, child_c)
        return t + 1, h.write(t, node_h), c.write(t, node_c)

    h = tf.TensorArray(tf.float32, size=n, element_shape=[STATE], clear_after_read=False)
    c = tf.TensorArray(tf.float32, size=n, element_shape=[STATE], clear_after_read=False)
    _, h, _ = tf.while_loop(lambda t, h, c: t < n, add_node, (tf.constant(0), h, c))
    logits = tf.tensordot(h.read(n - 1), OUTPUT_KERNEL, 1) + OUTPUT_BIAS
    return {
        "value": tf.argmax(logits, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
    }
