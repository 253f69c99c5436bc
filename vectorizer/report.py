"""What was vectorized how: op by op, with the user's source lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from vectorizer.kinds import Kind
from vectorizer.plan import Plan
from vectorizer.program import Op


@dataclass(frozen=True)
class Entry:
    """One op: its kind across the batch and what was done with it."""

    op_type: str
    name: str
    source: str | None
    kind: str
    strategy: str
    reason: str = ""


@dataclass
class Report:
    """`entries` has every op that isn't a constant; `fallbacks` those that run once for each row."""

    function: str
    plan: Plan
    _fallbacks: dict[Op, str] = field(default_factory=dict)

    def add_fallback(self, op: Op, reason: str) -> None:
        """Note that `op` is looped over rows."""
        self._fallbacks[op] = reason

    def scratch(self) -> Report:
        """A report for a trial emission, whose findings don't count."""
        return Report(self.function, self.plan)

    @property
    def entries(self) -> list[Entry]:
        """One entry per op, in program order, nested ones after the op that holds them."""
        return [self._entry(op) for op in self.plan.program.walk() if op.type != "Const"]

    @property
    def fallbacks(self) -> list[Entry]:
        """Ops that run once for each row of the batch."""
        return [self._entry(op) for op in self._fallbacks]

    @property
    def looped(self) -> dict[Op, str]:
        """The ops behind `fallbacks`, with reasons."""
        return dict(self._fallbacks)

    @property
    def loops(self) -> list[Entry]:
        """The function's own loops."""
        return [entry for entry in self.entries if entry.op_type == "While"]

    def _entry(self, op: Op) -> Entry:
        kinds = [self.plan.analysis.kind(var) for var in op.outputs or op.inputs]
        kind = max(kinds, default=Kind.SHARED)
        reason = self._fallbacks.get(op, "")
        if op in self._fallbacks:
            strategy = "looped over rows"
        elif op in self.plan.loops:
            strategy = self.plan.loops[op].strategy
        elif op in self.plan.branch_kinds:
            strategy = self.plan.branch_strategy(op)
        else:
            strategy = "native" if kind == Kind.BATCHED else "once for all rows"
        return Entry(op.type, op.name, op.source, kind.name.lower(), strategy, reason)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "function": self.function,
            "fallbacks": [vars(entry) for entry in self.fallbacks],
            "loops": [vars(entry) for entry in self.loops],
            "ops": [vars(entry) for entry in self.entries],
        }

    def __str__(self) -> str:
        entries = self.entries
        count = Counter(entry.strategy for entry in entries)
        head = [f"{self.function}: {len(entries)} ops, {len(self.fallbacks)} looped over rows"]
        head += [f"  {number:4d} {strategy}" for strategy, number in count.most_common()]
        rows = [("op", "where", "across the batch", "strategy")]
        rows += [(entry.op_type, entry.source or entry.name, entry.kind, _with_reason(entry)) for entry in entries]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        table = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
        return "\n".join([*head, "", *table])


def _with_reason(entry: Entry) -> str:
    return f"{entry.strategy}: {entry.reason}" if entry.reason else entry.strategy
