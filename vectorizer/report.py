"""What was vectorized how: op by op, with the user's source lines. `report_text.py` writes it for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from vectorizer import memory
from vectorizer.kinds import Kind
from vectorizer.plan import Plan
from vectorizer.program import Op, Program
from vectorizer.reductions import OP_TYPE as REDUCTION

DEFAULT_LENGTH = 64
BATCH_SIZES = (1, 8, 64)


@dataclass(frozen=True)
class Entry:
    """One op: its kind across the batch and what was done with it.

    `kind`: "shared" (one value for all rows), "uniform" (for all that still run), "batched", or "ragged" (of another
    size in each row). `strategy`: "native", "once for all rows", "hoisted", "looped over rows", "over all rows", or how
    the plan does a loop or branch. `reason`: why so; of a loop, how many steps it takes. `depth`: of nesting in loops
    and branches. `xla`: whether XLA can compile it.
    """

    op_type: str
    name: str
    source: str | None
    kind: str
    strategy: str
    reason: str = ""
    depth: int = 0
    xla: bool = True


@dataclass
class Report:
    """`entries` has every op that isn't a constant; `fallbacks` those that run once for each row.

    `length` is what variable sizes are taken to be where memory is estimated.
    """

    function: str
    plan: Plan
    length: int = DEFAULT_LENGTH
    compiled: Callable[[], Set[Op]] = frozenset
    _fallbacks: dict[Op, str] = field(default_factory=dict)
    _ragged: set[Op] = field(default_factory=set)
    _steps: dict[Op, str] = field(default_factory=dict)

    def add_fallback(self, op: Op, reason: str) -> None:
        """Note that `op` is looped over rows."""
        self._fallbacks[op] = reason

    def add_results(self, op: Op, results: Sequence[Any]) -> None:
        """Note what came of `op`."""
        if any(value.sizes for value in results):
            self._ragged.add(op)

    def add_steps(self, op: Op, steps: str) -> None:
        """Note, in words, how often the body of the loop `op` runs."""
        self._steps[op] = steps

    def scratch(self) -> Report:
        """A report for a trial emission, whose findings don't count."""
        return Report(self.function, self.plan)

    @property
    def entries(self) -> list[Entry]:
        """One entry per op, in program order, nested ones after the op that holds them."""
        compiled = self.compiled()
        return [self._entry(op, depth, compiled) for op, depth in _walk(self.plan.program) if op.type != "Const"]

    @property
    def fallbacks(self) -> list[Entry]:
        """Ops that run once for each row of the batch."""
        return [entry for entry in self.entries if entry.strategy == "looped over rows"] if self._fallbacks else []

    @property
    def looped(self) -> dict[Op, str]:
        """The ops behind `fallbacks`, with reasons."""
        return dict(self._fallbacks)

    @property
    def loops(self) -> list[Entry]:
        """The function's own loops; the reason says how many steps they take."""
        return [entry for entry in self.entries if entry.op_type == "While"]

    @property
    def largest_intermediate(self) -> memory.Estimate | None:
        """The largest value, in bytes for each of some batch sizes; None if no value's rank is known."""
        return memory.largest_intermediate(self.plan, self.length, BATCH_SIZES)

    def _entry(self, op: Op, depth: int, compiled: Set[Op]) -> Entry:
        kinds = [self.plan.analysis.kind(var) for var in op.outputs or op.inputs]
        kind = max(kinds, default=Kind.SHARED)
        word = "ragged" if op in self._ragged else max(kind, Kind.SHARED).name.lower()
        strategy, reason = self._strategy(op, kind)
        return Entry(op.type, op.name, op.source, word, strategy, reason, depth, op in compiled)

    def _strategy(self, op: Op, kind: Kind) -> tuple[str, str]:
        if op in self._fallbacks:
            return "looped over rows", self._fallbacks[op]
        if op in self.plan.loops:
            return self.plan.loops[op].strategy, self._steps.get(op, "")
        if op in self.plan.branch_kinds:
            return self.plan.branch_strategy(op), ""
        if op.type == REDUCTION:
            return "over all rows", ""
        if op.outputs and all(var.name.endswith("/hoisted") for var in op.outputs):
            return "hoisted", "its loop doesn't change it: run before"
        return ("native" if kind == Kind.BATCHED else "once for all rows"), ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        largest, entries = self.largest_intermediate, self.entries
        return {
            "function": self.function,
            "fallbacks": [vars(entry) for entry in self.fallbacks],
            "loops": [vars(entry) for entry in entries if entry.op_type == "While"],
            "ops": [vars(entry) for entry in entries],
            "largest_intermediate": None
            if largest is None
            else {
                "op_type": largest.op.type,
                "source": largest.op.source,
                "length": self.length,
                "bytes": {str(size): count for size, count in largest.bytes_by_batch_size.items()},
            },
        }

    def __str__(self) -> str:
        from vectorizer.report_text import as_text

        return as_text(self)


def _walk(program: Program, depth: int = 0) -> Iterator[tuple[Op, int]]:
    for op in program.ops:
        yield op, depth
        for body in op.bodies.values():
            yield from _walk(body, depth + 1)
