"""A binary Tree-LSTM in the sizes of DyNet's own benchmark (embeddings and states of 128), on random trees.

The equations are those of Tai, Socher and Manning (2015, arXiv 1503.00075) for binary trees: words at the leaves,
a forget gate for each child. A tree has 5 to 35 leaves and is as uneven as chance makes it.
"""

from __future__ import annotations

import numpy as np

from loadtest.workloads.problem import WEIGHTS_SEED, Problem, bias, dense, sigmoid
from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

VOCABULARY, EMBEDDING, STATE, CLASSES = 5000, 128, 128, 5
FEWEST_LEAVES, MOST_LEAVES = 5, 35

_generator = np.random.default_rng(WEIGHTS_SEED)
EMBEDDINGS = _generator.normal(size=(VOCABULARY, EMBEDDING)).astype(np.float32)
LEAF_KERNEL = dense(_generator, EMBEDDING, 3 * STATE)  # gates: input, output, update
LEAF_BIAS = bias(_generator, 3 * STATE)
NODE_KERNEL = dense(_generator, 2 * STATE, 5 * STATE)  # gates: input, output, update, forget left, forget right
NODE_BIAS = bias(_generator, 5 * STATE)
CLASS_KERNEL = dense(_generator, STATE, CLASSES)


def examples(generator: np.random.Generator, count: int) -> list[Example]:
    """Trees as (words [leaves], left [inner], right [inner]); nodes are numbered leaves first, children first."""
    return [_tree(generator, int(generator.integers(FEWEST_LEAVES, MOST_LEAVES + 1))) for _ in range(count)]


def _tree(generator: np.random.Generator, leaves: int) -> Example:
    """Joins two random neighbours until one tree is left, as a random parse would."""
    roots = list(range(leaves))
    left, right = [], []
    for node in range(leaves, 2 * leaves - 1):
        place = int(generator.integers(len(roots) - 1))
        left.append(roots[place])
        right.append(roots[place + 1])
        roots[place : place + 2] = [node]
    words = generator.integers(0, VOCABULARY, leaves)
    return words.astype(np.int32), np.array(left, np.int32), np.array(right, np.int32)


def reference(words: Array, left: Array, right: Array) -> Outputs:
    states = []
    for word in words:
        enter, leave, update = np.split(EMBEDDINGS[word].astype(np.float64) @ LEAF_KERNEL + LEAF_BIAS, 3)
        c = sigmoid(enter) * np.tanh(update)
        states.append((sigmoid(leave) * np.tanh(c), c))
    for a, b in zip(left, right, strict=True):
        (left_h, left_c), (right_h, right_c) = states[a], states[b]
        gates = np.concatenate([left_h, right_h]) @ NODE_KERNEL + NODE_BIAS
        enter, leave, update, keep_left, keep_right = np.split(gates, 5)
        c = sigmoid(enter) * np.tanh(update) + sigmoid(keep_left) * left_c + sigmoid(keep_right) * right_c
        states.append((sigmoid(leave) * np.tanh(c), c))
    return ((states[-1][0] @ CLASS_KERNEL).astype(np.float32),)


PROBLEM = Problem(
    name="tree_lstm",
    about="binary Tree-LSTM 128/128 over random trees of 5 to 35 leaves",
    inputs=(
        TensorDescription("words", "int32", [None]),
        TensorDescription("left", "int32", [None]),
        TensorDescription("right", "int32", [None]),
    ),
    outputs=(TensorDescription("output", "float32", [CLASSES]),),
    examples=examples,
    reference=reference,
)
