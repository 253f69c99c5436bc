"""In which order nodes are launched, and which ride together: DyNet's two ways, over arrays.

A node may run once its operands have run. Nodes of one signature that are ready together are one launch.

* *depth* (TensorFlow Fold; DyNet's autobatch 2): a node's depth is one more than its deepest operand's; nodes of one
  depth and one signature run together, shallow ones first.
* *agenda* (DyNet's autobatch 1; Neubig, Goldberg and Dyer 2017): of the signatures that have ready nodes, the one whose
  nodes have the smallest average depth runs all its ready nodes; the depth is that of the whole graph. Nodes that can't
  be batched run as soon as they are ready. Among equals, cheap ones run before products, then what came first.

The loops over nodes are compiled by Numba; DyNet's are C++.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.engines.dynamic.compiled import compiled
from server.engines.dynamic.values import Indices


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order, numbered from 0.

    `signature` [nodes]: equal for nodes that may be one launch. `single`, `costly` [signatures]: those whose nodes run
    alone; products, convolutions. `operands`: of node k those from `starts[k]` to `starts[k + 1]`, as node numbers; -1
    for one that isn't a node of this graph. `depth` [nodes]: 1 for a node without operands that are nodes.
    """

    signature: Indices
    single: NDArray[np.bool_]
    costly: NDArray[np.bool_]
    starts: Indices
    operands: Indices
    depth: Indices


@dataclass(frozen=True)
class Launches:
    """`order`: all nodes; launch k runs those from `borders[k]` to `borders[k + 1]`."""

    order: Indices
    borders: Indices

    def groups(self) -> list[Indices]:
        """The nodes of each launch."""
        return np.split(self.order, self.borders[1:-1]) if len(self.order) else []


def by_depth(graph: Graph) -> Launches:
    """Launches by depth, then signature."""
    count = len(graph.depth)
    alone = np.where(graph.single[graph.signature], np.arange(count), -1)
    order = np.lexsort((alone, graph.signature, graph.depth))
    keys = np.stack([graph.depth[order], graph.signature[order], alone[order]])
    borders = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
    return Launches(order, np.concatenate([[0], borders, [count] if count else []]).astype(np.int64))


def by_agenda(graph: Graph) -> Launches:
    """Launches in the order of the agenda."""
    count, signatures = len(graph.signature), len(graph.single)
    uses = np.bincount(graph.signature, minlength=signatures)
    mean = np.bincount(graph.signature, graph.depth, minlength=signatures) / np.maximum(uses, 1)
    first = np.full(signatures, count, np.int64)
    np.minimum.at(first, graph.signature, np.arange(count))
    rank = np.empty(signatures, np.int64)
    rank[np.lexsort((first, graph.costly, mean))] = np.arange(signatures)
    place = rank[graph.signature]
    return Launches(*_agenda(place, graph.single[graph.signature], graph.starts, graph.operands, signatures))


@compiled
def depths(starts: Indices, operands: Indices) -> Indices:
    """One more than the deepest operand, for nodes in topological order."""
    count = len(starts) - 1
    depth = np.ones(count, np.int64)
    for node in range(count):
        deepest = 0
        for edge in range(starts[node], starts[node + 1]):
            operand = operands[edge]
            if operand >= 0 and depth[operand] > deepest:
                deepest = depth[operand]
        depth[node] = deepest + 1
    return depth


@compiled
def _agenda(
    rank: Indices, single: NDArray[np.bool_], starts: Indices, operands: Indices, ranks: int
) -> tuple[Indices, Indices]:
    """`rank` [nodes]: of the node's signature; the smallest that has ready nodes goes first."""
    count = len(rank)
    waiting = np.zeros(count, np.int64)
    followers_of = np.zeros(count + 1, np.int64)
    for node in range(count):
        for edge in range(starts[node], starts[node + 1]):
            if operands[edge] >= 0:
                waiting[node] += 1
                followers_of[operands[edge] + 1] += 1
    for node in range(count):
        followers_of[node + 1] += followers_of[node]
    followers = np.empty(followers_of[count], np.int64)
    filled = followers_of[:-1].copy()
    for node in range(count):
        for edge in range(starts[node], starts[node + 1]):
            operand = operands[edge]
            if operand >= 0:
                followers[filled[operand]] = node
                filled[operand] += 1
    # A list of ready nodes for each rank, and one, the last, for nodes that run alone.
    head = np.full(ranks + 1, -1, np.int64)
    tail = np.full(ranks + 1, -1, np.int64)
    behind = np.full(count, -1, np.int64)
    for node in range(count):
        if waiting[node] == 0:
            _append(head, tail, behind, ranks if single[node] else rank[node], node)
    order = np.empty(count, np.int64)
    borders = np.zeros(count + 1, np.int64)
    done, launches = 0, 0
    while done < count:
        chosen = ranks
        if head[ranks] < 0:
            chosen = 0
            while head[chosen] < 0:
                chosen += 1
        node = head[chosen]
        begin = done
        if chosen == ranks:
            order[done] = node
            done += 1
            head[ranks] = behind[node]
        else:
            while node >= 0:
                order[done] = node
                done += 1
                node = behind[node]
            head[chosen] = -1
        launches += 1
        borders[launches] = done
        for position in range(begin, done):
            node = order[position]
            for edge in range(followers_of[node], followers_of[node + 1]):
                follower = followers[edge]
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    behind[follower] = -1
                    _append(head, tail, behind, ranks if single[follower] else rank[follower], follower)
    return order, borders[: launches + 1]


@compiled
def _append(head: Indices, tail: Indices, behind: Indices, queue: int, node: int) -> None:
    if head[queue] < 0:
        head[queue] = node
    else:
        behind[tail[queue]] = node
    tail[queue] = node
