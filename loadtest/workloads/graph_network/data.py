"""Message passing on graphs of different sizes: 3 rounds, states of 64, 5 to 30 nodes, up to 3 edges a node."""

from __future__ import annotations

import numpy as np

from loadtest.workloads.problem import WEIGHTS_SEED, Problem, bias, dense
from server.engines.batch_result import Array, Example, Outputs
from server.model_description import TensorDescription

FEATURES, STATE, CLASSES, ROUNDS = 16, 64, 4, 3
FEWEST_NODES, MOST_NODES, MOST_EDGES_A_NODE = 5, 30, 3

_generator = np.random.default_rng(WEIGHTS_SEED)
ENTRY_KERNEL = dense(_generator, FEATURES, STATE)
MESSAGE_KERNEL, MESSAGE_BIAS = dense(_generator, 2 * STATE, STATE), bias(_generator, STATE)
UPDATE_KERNEL, UPDATE_BIAS = dense(_generator, 2 * STATE, STATE), bias(_generator, STATE)
CLASS_KERNEL = dense(_generator, STATE, CLASSES)


def examples(generator: np.random.Generator, count: int) -> list[Example]:
    """Graphs as (features [nodes, 16], senders [edges], receivers [edges])."""
    found: list[Example] = []
    for _ in range(count):
        nodes = int(generator.integers(FEWEST_NODES, MOST_NODES + 1))
        edges = int(generator.integers(nodes, MOST_EDGES_A_NODE * nodes + 1))
        features = generator.normal(size=(nodes, FEATURES)).astype(np.float32)
        senders, receivers = generator.integers(0, nodes, (2, edges)).astype(np.int32)
        found.append((features, senders, receivers))
    return found


def reference(features: Array, senders: Array, receivers: Array) -> Outputs:
    states = np.tanh(features.astype(np.float64) @ ENTRY_KERNEL)
    for _ in range(ROUNDS):
        ends = np.concatenate([states[senders], states[receivers]], axis=1)
        messages = np.maximum(ends @ MESSAGE_KERNEL + MESSAGE_BIAS, 0)
        received = np.zeros_like(states)
        np.add.at(received, receivers, messages)
        states = np.tanh(np.concatenate([states, received], axis=1) @ UPDATE_KERNEL + UPDATE_BIAS)
    return ((states.mean(axis=0) @ CLASS_KERNEL).astype(np.float32),)


PROBLEM = Problem(
    name="graph_network",
    about="3 rounds of message passing, graphs of 5 to 30 nodes and up to 90 edges",
    inputs=(
        TensorDescription("features", "float32", [None, FEATURES]),
        TensorDescription("senders", "int32", [None]),
        TensorDescription("receivers", "int32", [None]),
    ),
    outputs=(TensorDescription("output", "float32", [CLASSES]),),
    examples=examples,
    reference=reference,
)
