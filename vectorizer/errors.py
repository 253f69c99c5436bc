"""What can go wrong while vectorizing.

VectorizationError          lists every offending op of one function
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vectorizer.program import Op


@dataclass(frozen=True)
class Finding:
    """One op that can't be vectorized, and why."""

    op: Op
    reason: str

    def __str__(self) -> str:
        return f"`{self.op.type}` {self.op.where()}: {self.reason}"


class VectorizationError(ValueError):
    """The function can't be vectorized so that the promise holds. `findings` has every offending op."""

    def __init__(self, function_name: str, findings: Sequence[Finding]) -> None:
        self.function_name = function_name
        self.findings = tuple(findings)
        count = f"{len(findings)} op" + ("s" if len(findings) != 1 else "")
        lines = [f"cannot vectorize {function_name!r}: {count}"]
        lines += [f"· {finding}" for finding in findings]
        lines.append('To serve it unchanged: engine="per_request"')
        super().__init__("\n".join(lines))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        findings = [
            {"op_type": found.op.type, "name": found.op.name, "source": found.op.source, "reason": found.reason}
            for found in self.findings
        ]
        return {"function": self.function_name, "findings": findings}


class Unconvertible(Exception):
    """An op that can be neither converted nor looped over the rows."""

    def __init__(self, op: Op, reason: str) -> None:
        super().__init__(op, reason)
        self.finding = Finding(op, reason)
