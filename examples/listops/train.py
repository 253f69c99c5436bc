"""Train the listops model and write weights.npz: `python examples/listops/train.py` (6 minutes on 2 cores).

A training step builds a fresh *graph* of expressions, level by level: 10 digits, then lists of digits,
then lists of those, and so on. Expressions share their parts, so each is computed once and every list is
an exercise of its own. At the end the served per-example function must agree with training on random
trees drawn by expression.py.
"""

import argparse
import importlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from expression import (
    MAX_ARGUMENTS,
    MIN_ARGUMENTS,
    OPERATORS,
    SYMBOLS,
    evaluate,
    to_arrays,
)
from held_out import held_out_expressions, is_held_out, mixed

WEIGHTS_FILE = Path(__file__).with_name("weights.npz")
STATE = 64
HIDDEN = 256
GATES = 3 + MAX_ARGUMENTS  # input, output, update, one forget gate a child
TRAINED_DEPTH = 4
LISTS_PER_LEVEL = 512


def initial_weights(seed: int) -> dict[str, tf.Variable]:
    """Trainable arrays by the name under which they are stored; forget gates start open."""
    glorot = tf.keras.initializers.GlorotUniform(seed=seed)
    gate_bias = np.repeat([0.0] * 3 + [1.0] * MAX_ARGUMENTS, STATE).astype(np.float32)
    return {
        "symbol_hidden": tf.Variable(tf.random.stateless_normal([len(SYMBOLS), HIDDEN], [seed, 0])),
        "child_kernel": tf.Variable(glorot([MAX_ARGUMENTS * STATE, HIDDEN])),
        "gate_kernel": tf.Variable(glorot([HIDDEN, GATES * STATE])),
        "gate_bias": tf.Variable(gate_bias),
        "output_kernel": tf.Variable(glorot([STATE, 10])),
        "output_bias": tf.Variable(tf.zeros([10])),
    }


def list_values(operators: np.ndarray, arguments: np.ndarray) -> np.ndarray:
    """Exact values [m] of lists: operators [m] are places in OPERATORS, arguments [m, 4] digits or -1."""
    present = arguments >= 0
    counts = present.sum(axis=1)
    ordered = np.sort(np.where(present, arguments, 10), axis=1)
    rows = np.arange(len(ordered))
    smallest, largest = ordered[:, 0], ordered[rows, counts - 1]
    median = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) // 2
    total = np.where(present, arguments, 0).sum(axis=1) % 10
    return np.choose(operators, [smallest, largest, median, total])


def random_lists(
    generator: np.random.Generator, digits_and_lists: int, deepest: range, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Operators [count] and children [count, 4] (nodes, -1 for none) of lists over the nodes so far.

    Drawn as `expression.random_expression` draws them: one child is among the ``deepest`` nodes; of the
    others three in five are digits (nodes 0 to 9), the rest any list.
    """
    shape = [count, MAX_ARGUMENTS]
    digits = generator.integers(0, 10, shape)
    lists = generator.integers(10, digits_and_lists, shape) if digits_and_lists > 10 else digits
    children = np.where(generator.random(shape) < 0.6, digits, lists)
    child_counts = generator.integers(MIN_ARGUMENTS, MAX_ARGUMENTS + 1, count)
    places = (generator.random(count) * child_counts).astype(int)
    children[np.arange(count), places] = generator.integers(deepest.start, deepest.stop, count)
    children[np.arange(MAX_ARGUMENTS) >= child_counts[:, None]] = -1
    return generator.integers(0, len(OPERATORS), count), children


def random_levels(generator: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each depth 1..TRAINED_DEPTH: operators [m], children [m, 4] (nodes, -1 for none), values [m].

    Nodes 0 to 9 are the digits; those of depth d follow them in order. None of the lists is held out.
    """
    values = np.arange(10)
    fingerprints = mixed(np.arange(1, 11, dtype=np.uint64))
    deepest = range(10)
    levels = []
    for _ in range(TRAINED_DEPTH):
        # A quarter more than needed: one in ten is held out.
        operators, children = random_lists(generator, len(values), deepest, LISTS_PER_LEVEL * 5 // 4)
        parts = np.where(children >= 0, fingerprints[children], np.uint64(0)).sum(axis=1)
        list_fingerprints = mixed(operators.astype(np.uint64) + np.uint64(10) + parts)
        trained = np.flatnonzero(~is_held_out(list_fingerprints))[:LISTS_PER_LEVEL]
        operators, children = operators[trained], children[trained]
        new_values = list_values(operators, np.where(children >= 0, values[children], -1))
        levels.append((operators.astype(np.int32), children.astype(np.int32), new_values.astype(np.int32)))
        deepest = range(len(values), len(values) + len(new_values))
        values = np.concatenate([values, new_values])
        fingerprints = np.concatenate([fingerprints, list_fingerprints[trained]])
    return levels


def cells(
    weights: dict[str, tf.Tensor], symbols: tf.Tensor, child_h: tf.Tensor, child_c: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The Tree-LSTM cell of model.py for m nodes at once: symbols [m], children's states [m, 4, state]."""
    from_children = tf.reshape(child_h, [-1, MAX_ARGUMENTS * STATE]) @ weights["child_kernel"]
    hidden = tf.nn.relu(tf.gather(weights["symbol_hidden"], symbols) + from_children)
    gates = hidden @ weights["gate_kernel"] + weights["gate_bias"]
    enter, leave, update, forget = tf.split(gates, [STATE] * 3 + [MAX_ARGUMENTS * STATE], axis=1)
    kept = tf.sigmoid(tf.reshape(forget, [-1, MAX_ARGUMENTS, STATE])) * child_c
    c = tf.sigmoid(enter) * tf.tanh(update) + tf.reduce_sum(kept, axis=1)
    return tf.sigmoid(leave) * tf.tanh(c), c


def level_logits(weights: dict[str, tf.Tensor], levels: list[tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
    """Logits [lists of all levels, 10], from each level's operators and children."""
    absent = tf.zeros([10, MAX_ARGUMENTS, STATE])
    h, c = cells(weights, tf.range(10), absent, absent)
    for operators, children in levels:
        present = (children >= 0)[:, :, None]
        earlier = tf.maximum(children, 0)
        child_h = tf.where(present, tf.gather(h, earlier), 0.0)
        child_c = tf.where(present, tf.gather(c, earlier), 0.0)
        level_h, level_c = cells(weights, operators + 10, child_h, child_c)
        h, c = tf.concat([h, level_h], axis=0), tf.concat([c, level_c], axis=0)
    return h[10:] @ weights["output_kernel"] + weights["output_bias"]


def make_train_step(
    weights: dict[str, tf.Variable], optimizer: tf.keras.optimizers.Optimizer
) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """A function (levels, values) -> mean loss, accuracy, that also takes one optimizer step."""
    variables = list(weights.values())
    optimizer.build(variables)

    @tf.function
    def train_step(levels: list[tuple[tf.Tensor, tf.Tensor]], values: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            logits = level_logits({name: tf.identity(w) for name, w in weights.items()}, levels)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(values, logits))
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        hits = tf.argmax(logits, axis=1, output_type=tf.int32) == values
        return loss, tf.reduce_mean(tf.cast(hits, tf.float32))

    return train_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    weights = initial_weights(options.seed)
    schedule = tf.keras.optimizers.schedules.CosineDecay(3e-3, options.steps, alpha=0.01)
    train_step = make_train_step(weights, tf.keras.optimizers.Adam(schedule))
    generator = np.random.default_rng(options.seed)
    started_at = time.perf_counter()
    recent = []
    for step in range(1, options.steps + 1):
        levels = random_levels(generator)
        values = np.concatenate([level_values for _, _, level_values in levels])
        inputs = [(tf.constant(operators), tf.constant(children)) for operators, children, _ in levels]
        recent.append(train_step(inputs, tf.constant(values)))
        if step % 250 == 0:
            loss, accuracy = np.mean(recent, axis=0)
            recent.clear()
            elapsed_s = time.perf_counter() - started_at
            print(f"step {step}: loss {loss:.3f}, accuracy {accuracy:.1%}, {elapsed_s:.0f} s", flush=True)

    stored = {name: w.numpy().astype(np.float16) for name, w in weights.items()}
    np.savez_compressed(WEIGHTS_FILE, **stored)
    report_served({name: tf.constant(array.astype(np.float32)) for name, array in stored.items()})


def report_served(weights: dict[str, tf.Tensor]) -> None:
    """Print the served function's accuracy by depth; raise where it and training disagree."""
    signature = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 4], tf.int32)]
    served = tf.function(importlib.import_module("model").listops, input_signature=signature)
    for nesting in range(1, TRAINED_DEPTH + 3):
        expressions = held_out_expressions(1000, nesting)
        values = [int(served(*map(tf.constant, to_arrays(e)))["value"]) for e in expressions]
        accuracy = np.mean(np.array(values) == [evaluate(e) for e in expressions])
        trained = "" if nesting <= TRAINED_DEPTH else ", deeper than trained"
        print(f"held-out accuracy, depth {nesting}{trained}: {accuracy:.1%}", flush=True)

    lists = [e for e in held_out_expressions(100, 1) if not isinstance(e, int)]
    operators = tf.constant([SYMBOLS.index(operator) - 10 for operator, _ in lists])
    children = [[*arguments, *[-1] * (MAX_ARGUMENTS - len(arguments))] for _, arguments in lists]
    expected = tf.nn.softmax(level_logits(weights, [(operators, tf.constant(children))]))
    outputs = [served(*map(tf.constant, to_arrays(e)))["probabilities"] for e in lists]
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    print(f"served function agrees with training on {len(lists)} lists")


if __name__ == "__main__":
    main()
