"""The lattice of what a value is across the batch, as analysis sees it (no tensors)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Kind(IntEnum):
    """How much a value may differ between rows; joining takes the greater."""

    CONSTANT = 0  # known when the program is built
    SHARED = 1  # one value for all rows
    UNIFORM = 2  # equal for all rows that still run
    BATCHED = 3  # its own value (and perhaps size) for each row


@dataclass(frozen=True)
class Abstract:
    """A value in analysis: its kind; for shape vectors the kind of each element; for lists the element's shape."""

    kind: Kind
    parts: tuple[Kind, ...] | None = None
    element: Any = None

    def join(self, other: Abstract) -> Abstract:
        """The least value that covers both."""
        parts = None
        if self.parts is not None and other.parts is not None and len(self.parts) == len(other.parts):
            parts = tuple(max(a, b) for a, b in zip(self.parts, other.parts, strict=True))
        return Abstract(max(self.kind, other.kind), parts, self.element if self.element is not None else other.element)


def join(kinds: Iterable[Kind]) -> Kind:
    """The greatest of the kinds; CONSTANT of none."""
    return max(kinds, default=Kind.CONSTANT)
