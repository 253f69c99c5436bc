"""Straight-line stretches of a program, ready to be expanded again and again for all examples at once.

Which nodes a stretch appends follows from what its inputs *are* (their kinds), not from their values. So it is
compiled, for each combination of kinds met, to a template: steps on the host, and nodes whose operands are registers. A
register holds the data of a column: an array, a sequence, or numbers of values. Expanding a template costs the same
whether it is for one example or for hundreds: an instance is a row of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from server.engines.dynamic.regions import Part, region
from server.engines.dynamic.signatures import Signature, Signatures
from server.engines.dynamic.values import Column, Indices, Kind

if TYPE_CHECKING:
    from server.engines.dynamic.tape import Tape

Registers = list[Any]


class Untemplatable(Exception):
    """The op isn't straight-line work on columns of these kinds: a template ends before it."""


class Place:
    """Where a template is expanded: for which examples, onto which tape. `rows`: where an example is here more than
    once, which row of ragged arrays, sequences and lists is whose."""

    __slots__ = ("count", "examples", "order", "rows", "tape")

    def __init__(self, tape: Tape, examples: Indices, rows: Any = None) -> None:
        self.tape, self.examples = tape, examples
        self.count = len(examples)
        self.order = np.arange(self.count)
        self.rows = rows

    def of_table(self, column: Any) -> Any:
        """A column of a table, by which that is read: where there are several rows here for one of the table's."""
        return column if self.rows is None or not np.ndim(column) else column[self.rows]

    @property
    def table_rows(self) -> Any:
        """By row here, the row of a table."""
        return self.order if self.rows is None else self.rows

    def some(self, rows: Any) -> Place:
        """Some of the examples (`rows`: positions, or bools)."""
        return Place(self.tape, self.examples[rows])


Step = Callable[[Registers, Place], None]


class Template:
    """`steps` are (what to do, registers read, registers written; None: it must be done). Nodes are columns: signature,
    number of operands, first result (counted from the instance's first value), number of results, and the registers
    of all operands."""

    def __init__(self) -> None:
        self.registers: Registers = []
        self.steps: list[tuple[Step, Sequence[int], Sequence[int] | None]] = []
        self.signatures: list[Signature] = []
        self.arities: list[int] = []
        self.offsets: list[int] = []
        self.operands: list[int] = []
        self.made: dict[int, int] = {}  # by register: offset of the value whose numbers it holds
        self.values = 0
        self.outputs: list[tuple[int, Kind]] = []
        self.columns: tuple[Any, ...] = ()
        self._late: set[int] = set()  # registers whose data follows from numbers of results
        self._before: list[Step] = []
        self._results: list[tuple[int, int]] = []
        self._after: list[Step] = []
        self._external: list[int] = []

    def register(self, value: Any = None) -> int:
        """A new register."""
        self.registers.append(value)
        return len(self.registers) - 1

    def snapshot(self) -> tuple[int, ...]:
        """How far it is; for `back_to`."""
        return len(self.steps), len(self.signatures), len(self.operands), self.values

    def back_to(self, snapshot: tuple[int, ...]) -> None:
        """Forgets what was added since."""
        steps, nodes, operands, self.values = snapshot
        del self.steps[steps:], self.signatures[nodes:], self.arities[nodes:], self.offsets[nodes:]
        del self.operands[operands:]
        self.made = {register: offset for register, offset in self.made.items() if offset < self.values}

    def step(self, step: Step, reads: Sequence[int], writes: Sequence[int] | None) -> None:
        """Something to do at each expansion."""
        self.steps.append((step, reads, writes))
        if any(register in self._late or register in self.made for register in reads):
            self._late.update(writes or ())

    def node(self, signature: Signature, operands: Sequence[int]) -> list[int]:
        """A node; the registers of its results. Raises Untemplatable for operands that are known only when the results
        of other nodes have their numbers."""
        if not self._late.isdisjoint(operands):
            raise Untemplatable("reads from a list what was just written")
        self.signatures.append(signature)
        self.arities.append(len(operands))
        self.offsets.append(self.values)
        self.operands += operands
        registers = []
        for _ in signature.outputs:
            register = self.register()
            self.made[register] = self.values
            self.values += 1
            registers.append(register)
        return registers

    def finish(self, outputs: Sequence[tuple[int, Kind]], fuse: Signatures | None = None) -> None:
        """All is there; steps whose results nobody reads are dropped. `fuse`: where the nodes' region gets its
        signature; None leaves them single."""
        self.outputs = list(outputs)
        needed = {register for register, _ in outputs} | set(self.operands)
        kept = []
        for step, reads, writes in reversed(self.steps):
            if writes is None or not needed.isdisjoint(writes):
                needed |= set(reads)
                kept.append((step, reads, writes))
        self.steps = kept[::-1]
        # Steps that read results of nodes run after these have their numbers.
        late = self._late | set(self.made)
        for step, reads, _ in self.steps:
            (self._before if late.isdisjoint(reads) else self._after).append(step)
        inner = {register for register, _ in outputs} | {k for _, reads, _ in self.steps for k in reads}
        if fuse is not None and len(self.signatures) > 1:
            self._fuse(fuse, [register for register in self.made if register in inner])
        self._results = [(register, offset) for register, offset in self.made.items() if register in inner]
        self._external = list(dict.fromkeys(k for k in self.operands if k not in self.made))
        self._link()

    def _fuse(self, signatures: Signatures, shown: Sequence[int]) -> None:
        """One node instead of all, whose results are the registers `shown`."""
        inputs: dict[int, int] = {}  # by register: arena
        at = 0
        for signature, arity in zip(self.signatures, self.arities, strict=True):
            for position, register in enumerate(self.operands[at : at + arity]):
                if register not in self.made:
                    inputs[register] = signature.reads[0 if signature.packed else position]
            at += arity
        place_of = {register: position for position, register in enumerate(inputs)}
        place_of |= {register: len(inputs) + offset for register, offset in self.made.items()}
        parts, at = [], 0
        for signature, arity, offset in zip(self.signatures, self.arities, self.offsets, strict=True):
            own = tuple(place_of[register] for register in self.operands[at : at + arity])
            first = len(inputs) + offset
            parts.append(Part(signature, own, tuple(range(first, first + len(signature.outputs)))))
            at += arity
        if not shown:
            self.signatures, self.arities, self.offsets, self.operands = [], [], [], []
            self.made, self.values = {}, 0
            return
        whole = region(signatures, parts, list(inputs.values()), [place_of[register] for register in shown])
        self.signatures, self.arities, self.offsets, self.operands = [whole], [len(inputs)], [0], list(inputs)
        self.made = {register: offset for offset, register in enumerate(shown)}
        self.values = len(shown)

    def _link(self) -> None:
        code_of = {register: -1 - position for position, register in enumerate(self._external)} | self.made
        self.columns = tuple(
            np.array(column, np.int64)
            for column in (
                [signature.index for signature in self.signatures],
                self.offsets,
                self.arities,
                [len(signature.outputs) for signature in self.signatures],
                [code_of[register] for register in self.operands],
            )
        )

    def expand(self, inputs: Sequence[Any], place: Place) -> list[Column]:
        """Appends an instance for each example of `place`."""
        registers = self.registers.copy()
        registers[: len(inputs)] = inputs
        for step in self._before:
            step(registers, place)
        if self.signatures:
            first = place.tape.new_values(place.count * self.values)
            firsts = first + self.values * place.order
            for register, offset in self._results:
                registers[register] = firsts + offset
            external = np.empty((len(self._external), place.count), np.int64)
            for position, register in enumerate(self._external):
                external[position] = registers[register]
            place.tape.append(self, firsts, external, place.examples)
        for step in self._after:
            step(registers, place)
        return [Column(kind, registers[register]) for register, kind in self.outputs]

    def expand_chain(self, inputs: Sequence[Any], flat: Any, carried: Sequence[Any], lists: Sequence[Any]) -> Any:
        """Appends an instance for each step of each example (see `counted_loops.py`), whose last outputs are carried.

        `carried`: (input or None, output, value numbers to start with [examples]). `lists`, which steps read and write:
        (input, the output that is written, the list's column, at which positions [instances]). None if a step would
        write beyond a list, or need what comes later.
        """
        place = flat.place
        registers = self.registers.copy()
        registers[: len(inputs)] = inputs
        first = place.tape.new_values(place.count * self.values)
        firsts = first + self.values * place.order
        for register, offset in self._results:
            registers[register] = firsts + offset
        for register, output, start in carried:
            if register is not None:
                before = np.empty_like(firsts)
                before[1:] = registers[self.outputs[output][0]][:-1]
                registers[register] = np.where(flat.times == 0, start[flat.rows], before)
        for register, output, (_, seq), at in lists:
            if ((at < 0) | (at >= seq.counts[flat.rows])).any():
                return None
            ids = seq.ids.copy()
            ids[flat.rows, at] = registers[self.outputs[output][0]]
            registers[register] = seq._replace(ids=ids, before=(seq.ids, firsts))
        for step, _, _ in self.steps:
            step(registers, place)
        external = np.empty((len(self._external), place.count), np.int64)
        for position, register in enumerate(self._external):
            external[position] = registers[register]
        if ((external >= firsts) & (external < first + place.count * self.values)).any():
            return None
        place.tape.append(self, firsts, external, place.examples)
        return [Column(kind, registers[register]) for register, kind in self.outputs]
