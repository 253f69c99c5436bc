"""One batch's graph: leaves and nodes of all examples, appended as they expand, run in groups when somebody asks.

Nodes are columns of plain lists, which become arrays when they run: no object is made for a node. Values live in
blocks `[rows, ...]`, one for each result of a launch; value i is row `_row[i]` of block `_block[i]`. Operands that are
a run of rows of one block are not copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic.host import as_host
from server.engines.dynamic.schedule import Graph, Indices, depths
from server.engines.dynamic.signatures import Signature, Signatures
from server.engines.dynamic.values import Ref, Shape

Scheduler = Callable[[Graph], list[Indices]]


@dataclass
class Spent:
    """Seconds and counts of one batch."""

    schedule_s: float = 0.0
    gather_s: float = 0.0
    launch_s: float = 0.0
    nodes: int = 0
    launches: int = 0


@dataclass
class Columns:
    """Nodes, one entry each: its example, its signature's index, how many operands, its first result; and the operands
    of all, one after the other."""

    example: list[int] = field(default_factory=list)
    signature: list[int] = field(default_factory=list)
    arity: list[int] = field(default_factory=list)
    result: list[int] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)


class Tape:
    """Leaves and nodes not yet run, and the values of those that were."""

    def __init__(self, signatures: Signatures, scheduler: Scheduler) -> None:
        self.spent = Spent()
        self.failed: set[int] = set()
        self.nodes = Columns()
        self._signatures, self._scheduler = signatures, scheduler
        self._count = 0  # values so far
        self._settled = 0  # values before this one have been computed
        self._block = np.zeros(0, np.int64)
        self._row = np.zeros(0, np.int64)
        self._blocks: list[Any] = []
        self._fetched: dict[int, Any] = {}
        self._leaves: dict[int, tuple[Any, Ref]] = {}
        self._new_leaves: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
        self._checks: list[tuple[Indices, Any]] = []

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
        self.nodes.example.append(example)
        self.nodes.signature.append(signature.index)
        self.nodes.arity.append(len(operands))
        self.nodes.result.append(first)
        self.nodes.operands.extend([operand.index for operand in operands])
        return [
            Ref(first + k, shape, dtype) for k, (shape, dtype) in enumerate(zip(signature.outputs, dtypes, strict=True))
        ]

    def new_values(self, count: int) -> int:
        """Room for `count` results of nodes that are about to be appended; the first one's index."""
        first = self._count
        self._count += count
        return first

    # -- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Computes everything that was appended since, and says in `failed` which examples did what they may not."""
        grown = np.full(self._count - len(self._block), -1, np.int64)
        self._block, self._row = np.concatenate([self._block, grown]), np.concatenate([self._row, grown])
        self._place_leaves()
        if self.nodes.signature:
            _Run(self, self.nodes).launch_all()
            self.nodes = Columns()
        for examples, ok in self._checks:
            self.failed.update(examples[~ok.numpy()].tolist())
        self._checks.clear()
        self._settled = self._count

    def _place_leaves(self) -> None:
        for (_, dtype), leaves in self._new_leaves.items():
            block = tf.constant(np.stack([array for _, array in leaves]), dtype)
            self.put(np.array([index for index, _ in leaves]), block)
        self._new_leaves.clear()

    def put(self, values: Indices, block: Any) -> None:
        """The values are the rows of `block`."""
        self._block[values] = len(self._blocks)
        self._row[values] = np.arange(len(values))
        self._blocks.append(block)

    def gathered(self, values: Indices) -> Any:
        """The values side by side; a copy only where they don't lie so already."""
        blocks, rows = self._block[values], self._row[values]
        if (blocks == blocks[0]).all():
            return _taken(self._blocks[blocks[0]], rows)
        order = np.argsort(blocks, kind="stable")
        borders = np.flatnonzero(np.diff(blocks[order])) + 1
        parts = [_taken(self._blocks[blocks[part[0]]], rows[part]) for part in np.split(order, borders)]
        joined = tf.concat(parts, 0)
        if (np.diff(order) > 0).all():
            return joined
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return tf.gather(joined, place)

    # -- reading ----------------------------------------------------------------------------------------------------

    def value(self, ref: Ref) -> Any:
        """The value of a node that was run, as numpy."""
        number = int(self._block[ref.index])
        if number not in self._fetched:
            self._fetched[number] = self._blocks[number].numpy()
        return as_host(self._fetched[number][self._row[ref.index]], ref.dtype)

    def shape(self, ref: Ref) -> Shape:
        """The shape of a value that was run."""
        return tuple(self._blocks[self._block[ref.index]].shape[1:])

    def graph(self, nodes: Columns) -> tuple[Graph, Indices, Indices]:
        """The nodes as the scheduler sees them, with all operands and where each node's begin."""
        signature, arity = np.array(nodes.signature), np.array(nodes.arity)
        operands, results = np.array(nodes.operands, np.int64), np.array(nodes.result)
        table = self._signatures.all
        kinds, place = np.unique(signature, return_inverse=True)
        widths = np.array([len(table[kind].outputs) for kind in kinds])[place]
        maker = np.full(self._count - self._settled, -1, np.int64)
        for offset in range(int(widths.max())):
            wide = widths > offset
            maker[results[wide] + offset - self._settled] = np.flatnonzero(wide)
        consumers = np.repeat(np.arange(len(signature)), arity)
        producers = np.where(operands >= self._settled, maker[np.maximum(operands - self._settled, 0)], -1)
        inner = producers >= 0
        producers, consumers = producers[inner], consumers[inner]
        graph = Graph(
            signature=signature,
            single=np.array([table[kind].single for kind in kinds])[place],
            costly=np.array([table[kind].costly for kind in kinds])[place],
            producers=producers,
            consumers=consumers,
            depth=depths(len(signature), producers, consumers),
        )
        return graph, operands, np.cumsum(arity) - arity

    def schedule(self, graph: Graph) -> list[Indices]:
        """The launches, in order."""
        return self._scheduler(graph)

    def signature(self, index: int) -> Signature:
        """The signature of that index."""
        return self._signatures.all[index]

    def check(self, examples: Indices, ok: Any) -> None:
        """Examples whose `ok` (bool, one for each) is false have failed; it is read when all has been launched."""
        self._checks.append((examples, ok))


class _Run:
    """The launches of one set of nodes."""

    def __init__(self, tape: Tape, nodes: Columns) -> None:
        self._tape = tape
        self._examples, self._results = np.array(nodes.example), np.array(nodes.result)
        started_at = time.perf_counter()
        self._graph, self._operands, self._starts = tape.graph(nodes)
        self._launches = tape.schedule(self._graph)
        tape.spent.schedule_s += time.perf_counter() - started_at
        tape.spent.nodes += len(self._results)
        tape.spent.launches += len(self._launches)

    def launch_all(self) -> None:
        for group in self._launches:
            self._launch(group)

    def _launch(self, group: Indices) -> None:
        tape = self._tape
        signature = tape.signature(int(self._graph.signature[group[0]]))
        started_at = time.perf_counter()
        starts = self._starts[group]
        if signature.op is None:
            own = [tape.gathered(self._operands[(starts[:, None] + np.arange(signature.stacked)).ravel()])]
        else:
            own = [tape.gathered(self._operands[starts + k]) for k in range(signature.own)]
        gathered_at = time.perf_counter()
        results, ok = signature.launch(own, len(group))
        for k, tensor in enumerate(results):
            tape.put(self._results[group] + k, tensor)
        if ok is not None:
            tape.check(self._examples[group], ok)
        tape.spent.gather_s += gathered_at - started_at
        tape.spent.launch_s += time.perf_counter() - gathered_at


def _taken(block: Any, rows: Indices) -> Any:
    count, first = len(rows), int(rows[0])
    if int(rows[-1]) - first == count - 1 and (np.diff(rows) == 1).all():
        return block if count == block.shape[0] else block[first : first + count]
    return tf.gather(block, rows)
