"""In which order nodes are launched, and which ride together: DyNet's two ways, over arrays.

A node may run once its operands have run. Nodes of one signature that are ready together are one launch.

* *depth* (TensorFlow Fold; DyNet's autobatch 2): a node's depth is one more than its deepest operand's; nodes of one
  depth and one signature run together, shallow ones first.
* *agenda* (DyNet's autobatch 1; Neubig, Goldberg and Dyer 2017): of the signatures that have ready nodes, the one whose
  nodes have the smallest average depth runs all its ready nodes; the depth is that of the whole graph. Nodes that can't
  be batched run as soon as they are ready. Among equals, cheap ones run before products, then what came first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order. `producers` and `consumers` are the edges between them, one entry for each operand.

    `signature` [nodes]: equal for nodes that may be one launch. `single` [nodes]: those that run alone.
    `costly` [nodes]: products, convolutions. `depth` [nodes]: 1 for a node without operands that are nodes.
    """

    signature: Indices
    single: NDArray[np.bool_]
    costly: NDArray[np.bool_]
    producers: Indices
    consumers: Indices
    depth: Indices


def depths(count: int, producers: Indices, consumers: Indices) -> Indices:
    """One more than the deepest operand, for nodes in topological order; edges are sorted by consumer."""
    depth = np.ones(count, np.int64)
    starts = np.searchsorted(consumers, np.arange(count + 1))
    sources, borders, known = producers.tolist(), starts.tolist(), [1] * count
    for node in range(count):
        deepest = 0
        for edge in range(borders[node], borders[node + 1]):
            if known[sources[edge]] > deepest:
                deepest = known[sources[edge]]
        known[node] = deepest + 1
    depth[:] = known
    return depth


def by_depth(graph: Graph) -> list[Indices]:
    """Launches by depth, then signature."""
    alone = np.where(graph.single, np.arange(len(graph.depth)), -1)
    order = np.lexsort((alone, graph.signature, graph.depth))
    keys = np.stack([graph.depth[order], graph.signature[order], alone[order]])
    borders = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
    return [group for group in np.split(order, borders) if len(group)]


def by_agenda(graph: Graph) -> list[Indices]:
    """Launches in the order of the agenda."""
    count = len(graph.signature)
    waiting = np.bincount(graph.consumers, minlength=count)
    by_producer = np.argsort(graph.producers, kind="stable")
    followers = graph.consumers[by_producer]
    starts = np.searchsorted(graph.producers[by_producer], np.arange(count + 1))
    rank = _ranks(graph)
    agenda: dict[int, list[Indices]] = {}
    single: list[Indices] = []
    launches: list[Indices] = []

    def add(nodes: Indices) -> None:
        alone = graph.single[nodes]
        if alone.any():
            single.extend(np.split(nodes[alone], int(alone.sum())))
            nodes = nodes[~alone]
        order = np.argsort(graph.signature[nodes], kind="stable")
        nodes = nodes[order]
        signatures = graph.signature[nodes]
        borders = np.flatnonzero(signatures[1:] != signatures[:-1]) + 1
        for group in np.split(nodes, borders):
            if len(group):
                agenda.setdefault(int(graph.signature[group[0]]), []).append(group)

    add(np.flatnonzero(waiting == 0))
    while single or agenda:
        if single:
            nodes = single.pop(0)
        else:
            chosen = min(agenda, key=rank.__getitem__)
            nodes = np.sort(np.concatenate(agenda.pop(chosen)))
        launches.append(nodes)
        edges = _ranges(starts[nodes], starts[nodes + 1])
        after = followers[edges]
        np.subtract.at(waiting, after, 1)
        ready = np.unique(after[waiting[after] == 0])
        if len(ready):
            add(ready)
    return launches


def _ranks(graph: Graph) -> dict[int, tuple[float, bool, int]]:
    """For each signature what the agenda sorts by: average depth, cost, first node."""
    signatures, first, inverse = np.unique(graph.signature, return_index=True, return_inverse=True)
    mean = np.bincount(inverse, graph.depth) / np.bincount(inverse) if len(signatures) else np.zeros(0)
    return {
        int(signature): (float(mean[k]), bool(graph.costly[first[k]]), int(first[k]))
        for k, signature in enumerate(signatures)
    }


def _ranges(starts: Indices, stops: Indices) -> Indices:
    """start, start + 1, ..., stop - 1 of each pair, one after the other."""
    counts = stops - starts
    total = int(counts.sum())
    before = np.repeat(np.cumsum(counts) - counts, counts)
    indices: Indices = np.arange(total) - before + np.repeat(starts, counts)
    return indices
