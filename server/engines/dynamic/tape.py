"""One batch's graph: leaves and nodes of all examples, appended as they expand, run in groups when somebody asks.

Values live in blocks `[rows, ...]`, one for each launch; value i is row `_row[i]` of block `_block[i]`. An operand that
is a run of rows of one block isn't copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic.host import as_host
from server.engines.dynamic.schedule import Graph, Indices, depths
from server.engines.dynamic.signatures import Signature, Signatures
from server.engines.dynamic.values import Ref, Shape

Node = tuple[int, Signature, tuple[int, ...], int]
"""Example, signature, values that are its operands, first of the values that are its results."""

Scheduler = Callable[[Graph], list[Indices]]


@dataclass
class Spent:
    """Seconds and counts of one batch."""

    schedule_s: float = 0.0
    gather_s: float = 0.0
    launch_s: float = 0.0
    nodes: int = 0
    launches: int = 0


class Tape:
    """Leaves and nodes not yet run, and the values of those that were."""

    def __init__(self, signatures: Signatures, scheduler: Scheduler) -> None:
        self.spent = Spent()
        self.failed: set[int] = set()
        self._signatures, self._scheduler = signatures, scheduler
        self._block: list[int] = []
        self._row: list[int] = []
        self._blocks: list[Any] = []
        self._fetched: dict[int, Any] = {}
        self._leaves: dict[int, tuple[Any, Ref]] = {}
        self._new_leaves: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
        self._nodes: list[Node] = []
        self.append = self._nodes.append
        self._settled = 0  # values before this one have been computed
        self._checks: list[tuple[list[int], Any]] = []

    # -- growing ----------------------------------------------------------------------------------------------------

    def leaf(self, array: Any, dtype: Any) -> Ref:
        """A value known on the host; the same array gives the same value."""
        known = self._leaves.get(id(array))
        if known is not None:
            return known[1]
        ref = Ref(self.new_values(1), array.shape, dtype)
        self._leaves[id(array)] = (array, ref)
        self._new_leaves.setdefault((array.shape, dtype), []).append((ref.index, array))
        return ref

    def node(self, example: int, signature: Signature, operands: Sequence[Ref], dtypes: Sequence[Any]) -> list[Ref]:
        """A node of one example; its results are computed later."""
        first = self.new_values(len(signature.outputs))
        self._nodes.append((example, signature, tuple([operand.index for operand in operands]), first))
        return [
            Ref(first + k, shape, dtype) for k, (shape, dtype) in enumerate(zip(signature.outputs, dtypes, strict=True))
        ]

    def new_values(self, count: int) -> int:
        """Room for `count` results of nodes that are about to be appended; the first one's index."""
        first = len(self._block)
        self._block.extend([-1] * count)
        self._row.extend([0] * count)
        return first

    # -- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Computes everything that was appended since, and says in `failed` which examples did what they may not."""
        self._place_leaves()
        nodes = self._nodes.copy()
        self._nodes.clear()
        if not nodes:
            return
        started_at = time.perf_counter()
        launches = self._scheduler(self._graph(nodes))
        self.spent.schedule_s += time.perf_counter() - started_at
        self.spent.nodes += len(nodes)
        self.spent.launches += len(launches)
        for group in launches:
            self._launch([nodes[k] for k in group.tolist()])
        for examples, ok in self._checks:
            self.failed.update(example for example, fine in zip(examples, ok.numpy().tolist(), strict=True) if not fine)
        self._checks.clear()
        self._settled = len(self._block)

    def _place_leaves(self) -> None:
        for (_, dtype), leaves in self._new_leaves.items():
            self._put([index for index, _ in leaves], tf.constant(np.stack([array for _, array in leaves]), dtype))
        self._new_leaves.clear()

    def _graph(self, nodes: Sequence[Node]) -> Graph:
        first = self._settled
        maker = np.full(len(self._block) - first, -1, np.int64)
        producers, consumers = [], []
        for k, (_, signature, _, result) in enumerate(nodes):
            maker[result - first : result - first + len(signature.outputs)] = k
        makers = maker.tolist()
        for k, (_, _, operands, _) in enumerate(nodes):
            for operand in operands:
                if operand >= first and makers[operand - first] >= 0:
                    producers.append(makers[operand - first])
                    consumers.append(k)
        edges = np.array(producers, np.int64), np.array(consumers, np.int64)
        return Graph(
            signature=np.array([signature.index for _, signature, _, _ in nodes], np.int64),
            single=np.array([signature.single for _, signature, _, _ in nodes]),
            costly=np.array([signature.costly for _, signature, _, _ in nodes]),
            producers=edges[0],
            consumers=edges[1],
            depth=depths(len(nodes), *edges),
        )

    def _launch(self, nodes: Sequence[Node]) -> None:
        signature = nodes[0][1]
        started_at = time.perf_counter()
        columns = zip(*(operands for _, _, operands, _ in nodes), strict=True)
        if signature.op is None:
            own = [self._gathered([operand for _, _, operands, _ in nodes for operand in operands])]
        else:
            own = [self._gathered(column) for column in columns]
        gathered_at = time.perf_counter()
        results, ok = signature.launch(own, len(nodes))
        for k, tensor in enumerate(results):
            self._put([first + k for _, _, _, first in nodes], tensor)
        if ok is not None:
            self._checks.append(([example for example, _, _, _ in nodes], ok))
        self.spent.gather_s += gathered_at - started_at
        self.spent.launch_s += time.perf_counter() - gathered_at

    def _put(self, values: Sequence[int], block: Any) -> None:
        number = len(self._blocks)
        self._blocks.append(block)
        for row, value in enumerate(values):
            self._block[value] = number
            self._row[value] = row

    def _gathered(self, values: Sequence[int]) -> Any:
        """The values side by side; a copy only where they don't lie so already."""
        blocks = [self._block[value] for value in values]
        rows = [self._row[value] for value in values]
        if min(blocks) == max(blocks):
            return _taken(self._blocks[blocks[0]], rows)
        order = sorted(range(len(values)), key=lambda k: blocks[k])
        parts, start = [], 0
        while start < len(order):
            stop = start
            while stop < len(order) and blocks[order[stop]] == blocks[order[start]]:
                stop += 1
            parts.append(_taken(self._blocks[blocks[order[start]]], [rows[k] for k in order[start:stop]]))
            start = stop
        joined = tf.concat(parts, 0)
        if order == list(range(len(order))):
            return joined
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return tf.gather(joined, place)

    # -- reading ----------------------------------------------------------------------------------------------------

    def value(self, ref: Ref) -> Any:
        """The value of a node that was run, as numpy."""
        number = self._block[ref.index]
        if number not in self._fetched:
            self._fetched[number] = self._blocks[number].numpy()
        return as_host(self._fetched[number][self._row[ref.index]], ref.dtype)

    def shape(self, ref: Ref) -> Shape:
        """The shape of a value that was run."""
        return tuple(self._blocks[self._block[ref.index]].shape[1:])


def _taken(block: Any, rows: Sequence[int]) -> Any:
    count, first = len(rows), rows[0]
    if list(rows) == list(range(first, first + count)):
        return block if count == block.shape[0] else block[first : first + count]
    return tf.gather(block, np.array(rows, np.int32))
