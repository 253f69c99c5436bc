"""One batch's graph: leaves and instances of templates, appended as the examples expand, run in groups when needed.

No object is made for a node: what is appended is a template with arrays of the numbers of its instances' values and
inputs; they become nodes, in arrays, when they run. Values lie in arenas, one for each size and dtype, as rows; rows
are given out in the order of launches, so each launch writes a run of rows, and operands that are one aren't copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from server.engines.dynamic import linking
from server.engines.dynamic.schedule import Graph, Launches, depths
from server.engines.dynamic.signatures import Signatures
from server.engines.dynamic.values import ExamplesFailed, Indices, Shape

if TYPE_CHECKING:
    from server.engines.dynamic.templates import Template

Scheduler = Callable[[Graph], Launches]


@dataclass
class Spent:
    """Seconds and counts of one batch."""

    build_s: float = 0.0
    schedule_s: float = 0.0
    gather_s: float = 0.0
    compute_s: float = 0.0
    nodes: int = 0
    launches: int = 0

    @property
    def run_s(self) -> float:
        """All but what isn't counted here: growing the graph."""
        return self.build_s + self.schedule_s + self.gather_s + self.compute_s


class Tape:
    """Leaves and nodes not yet run, and the values of those that were."""

    def __init__(self, signatures: Signatures, scheduler: Scheduler) -> None:
        self.spent = Spent()
        self.signatures, self._scheduler = signatures, scheduler
        self._count = 0  # values so far
        self._settled = 0  # values before this one have been computed
        self._slot: Indices = np.zeros(1024, np.int64)
        self._arenas = signatures.memory
        self._free: Indices = np.zeros(0, np.int64)
        self._leaves: list[tuple[int, int, Any]] = []
        self._records: dict[Template, list[tuple[Indices, Any, Indices]]] = {}
        self._required: list[tuple[Indices, Indices, Shape, Any]] = []

    # -- growing ----------------------------------------------------------------------------------------------------

    def leaves(self, arrays: Any, dtype: Any) -> Indices:
        """The numbers of values known on the host, `[N, ...]`."""
        count, shape = len(arrays), arrays.shape[1:]
        first = self.new_values(count)
        arena = self.signatures.arena(shape, dtype)
        self._leaves.append((arena, first, arrays.reshape(count, self.signatures.arenas[arena][0])))
        return np.arange(first, first + count)

    def new_values(self, count: int) -> int:
        """Room for `count` values; the first one's number."""
        first = self._count
        self._count += count
        return first

    def append(self, template: Template, firsts: Indices, inputs: Any, examples: Indices) -> None:
        """Instances of a template, one for each of `examples`. `inputs`: of each external operand the numbers."""
        self._records.setdefault(template, []).append((firsts, inputs, examples))

    def require(self, ids: Indices, examples: Indices, shape: Shape, dtype: Any) -> None:
        """These booleans must turn out true."""
        self._required.append((ids, examples, shape, dtype))

    def ready(self, ids: Indices) -> bool:
        """Whether the values are there without running anything."""
        return not len(ids) or int(ids.max()) < self._settled

    # -- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Computes everything that was appended since. Raises ExamplesFailed for those that did what they may not."""
        self._reserve()
        self._place_leaves()
        if self._records:
            failed = _Run(self, self._records).launch_all()
            self._records = {}
            if failed:
                raise ExamplesFailed(sorted(failed), "an op raises")
        self._settled = self._count
        for ids, examples, shape, dtype in self._required:
            fine = self.read(ids, shape, dtype).reshape(len(ids), -1).all(axis=1)
            if not fine.all():
                raise ExamplesFailed(examples[~fine], "an assertion fails")
        self._required.clear()

    def _reserve(self) -> None:
        if self._count > len(self._slot):
            self._slot = np.concatenate([self._slot, np.zeros(self._count, np.int64)])
        kinds = self.signatures.arenas
        self._arenas += [np.zeros((0, size), dtype) for size, dtype in kinds[len(self._arenas) :]]
        more = len(kinds) - len(self._free)
        if more:
            self._free = np.concatenate([self._free, np.zeros(more, np.int64)])

    def _place_leaves(self) -> None:
        needed = self._free.copy()
        for arena, _, rows in self._leaves:
            needed[arena] += len(rows)
        self._grow(needed)
        for arena, first, rows in self._leaves:
            count, free = len(rows), int(self._free[arena])
            self._arenas[arena][free : free + count] = rows
            self._slot[first : first + count] = np.arange(free, free + count)
            self._free[arena] = free + count
        self._leaves.clear()

    def _grow(self, needed: Indices) -> None:
        for arena, rows in enumerate(needed.tolist()):
            old = self._arenas[arena]
            if rows > len(old):
                used = int(self._free[arena])
                new = np.empty((max(rows * 5 // 4, 2 * len(old) if used else 0), old.shape[1]), old.dtype)
                new[:used] = old[:used]
                self._arenas[arena] = new

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, ids: Indices, shape: Shape, dtype: Any) -> Any:
        """Values that were run, or leaves that were placed, `[N, ...]`."""
        arena = self._arenas[self.signatures.arena(shape, dtype)]
        return arena.take(self._slot[ids], 0).reshape(len(ids), *shape)


class _Run:
    """The launches of one set of instances."""

    def __init__(self, tape: Tape, records: dict[Template, list[tuple[Indices, Any, Indices]]]) -> None:
        self._tape, self._table = tape, tape.signatures.all
        started_at = time.perf_counter()
        graph = self._build(records)
        built_at = time.perf_counter()
        self._launches = tape._scheduler(graph)
        self._place()
        tape.spent.build_s += built_at - started_at
        tape.spent.schedule_s += time.perf_counter() - built_at
        tape.spent.nodes += len(graph.signature)
        tape.spent.launches += len(self._launches.borders) - 1

    def _build(self, records: dict[Template, list[tuple[Indices, Any, Indices]]]) -> Graph:
        base, values = self._tape._settled, self._tape._count - self._tape._settled
        signature_of, arity_of, maker = (np.full(values, -1, np.int64) for _ in range(3))
        self._example_of = np.zeros(values, np.int64)
        gathered = []
        for template, instances in records.items():
            firsts, inputs, examples = zip(*instances, strict=True)
            signatures, offsets, arities, widths, codes = template.columns
            joined, of = np.concatenate(firsts), np.concatenate(examples)
            made = (signature_of, arity_of, maker, self._example_of)
            linking.mark(joined, of, signatures, offsets, arities, widths, base, *made)
            gathered.append((joined, np.concatenate(inputs, axis=1), offsets, arities, codes))
        local = np.full(len(self._table), -1, np.int64)
        number, self._places, self._signatures, self._starts, by_place = linking.compact(signature_of, arity_of, local)
        self._operands = np.empty(int(self._starts[-1]), np.int64)
        for joined, externals, offsets, arities, codes in gathered:
            linking.link(joined, externals, offsets, arities, codes, base, by_place, self._operands)
        self._used = np.empty(int(local.max()) + 1, np.int64)
        present = np.flatnonzero(local >= 0)
        self._used[local[present]] = present
        operands = linking.producers(self._operands, base, maker, number)
        return Graph(
            signature=self._signatures,
            single=np.zeros(len(self._used), bool),
            costly=np.array([self._table[k].costly for k in self._used], bool),
            starts=self._starts,
            operands=operands,
            depth=depths(self._starts, operands),
        )

    def _place(self) -> None:
        tape = self._tape
        signatures = [self._table[k] for k in self._used.tolist()]
        write_starts = np.cumsum([0, *(len(signature.writes) for signature in signatures)])
        writes = np.array([arena for signature in signatures for arena in signature.writes], np.int64)
        counts = np.bincount(self._signatures, minlength=len(signatures))
        needed = tape._free.copy()
        for signature, count in zip(signatures, counts.tolist(), strict=True):
            for arena in signature.writes:
                needed[arena] += count
        tape._grow(needed)
        self._by_launch = [signatures[k] for k in self._signatures[self._launches.order[self._launches.borders[:-1]]]]
        self._rows = linking.place(
            self._launches.order,
            self._launches.borders,
            self._signatures,
            self._places,
            tape._settled,
            self._starts,
            self._operands,
            np.array([signature.packed for signature in signatures], bool),
            write_starts,
            writes,
            tape._slot,
            tape._free,
        )

    def launch_all(self) -> set[int]:
        """Runs all groups; the examples that did what they may not."""
        arenas, failed = self._tape._arenas, set[int]()
        first_rows, runs, begins = (array.tolist() for array in self._rows[:3])
        rows, borders = self._rows[3], self._launches.borders.tolist()
        clock, gather_s = time.perf_counter, 0.0
        started_at = clock()
        read = result = 0
        for launch, signature in enumerate(self._by_launch):
            count = borders[launch + 1] - borders[launch]
            gather_at = clock()
            operands = []
            for arena in signature.reads:
                run, begin, end = runs[read], begins[read], begins[read + 1]
                read += 1
                if run >= 0:
                    operands.append(arenas[arena][run : run + end - begin])
                else:
                    operands.append(arenas[arena].take(rows[begin:end], 0, None, "clip"))
            gather_s += clock() - gather_at
            results = []
            for arena in signature.writes:
                first = first_rows[result]
                result += 1
                results.append(arenas[arena][first : first + count])
            fine = signature.kernel(count, operands, results)
            if fine is not None and not fine.all():
                nodes = self._launches.order[borders[launch] : borders[launch + 1]][~fine]
                failed.update(self._example_of[self._places[nodes]].tolist())
        self._tape.spent.gather_s += gather_s
        self._tape.spent.compute_s += clock() - started_at - gather_s
        return failed
