"""A per-example program as plain data: what tracing yields and what every engine walks.

A `Program` is a list of `Op`s in topological order over `Var`s. Function calls are inlined, identities are
gone, loops and branches hold nested Programs. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CUSTOM_GRADIENT = "CustomGradient"


@dataclass(frozen=True, eq=False)
class Var:
    """One value of a per-example program: its dtype (tf.DType) and per-example shape (tf.TensorShape).

    `constant` is its numpy value where it is the result of a Const.
    """

    name: str
    dtype: Any
    shape: Any
    constant: Any = None

    @property
    def rank(self) -> int | None:
        rank: int | None = self.shape.rank
        return rank

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}{_shape_text(self.shape)}"


@dataclass(frozen=True, eq=False)
class Gradient:
    """What stands in for the gradient of an op that TensorFlow knows another one for.

    `program` maps the gradients of the op's results, and the captured operands, to the gradients of its arguments
    `positions`; None where it can't be had, for `reason`.
    """

    program: Program | None
    arguments: int
    positions: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Op:
    """One operation: a TensorFlow op type, its operands, attributes, nested programs and where it came from.

    An op of type `CUSTOM_GRADIENT` hands its first operands on as its outputs; its `gradient` is the user's. The other
    operands are first the arguments that the gradient is for, then what the gradient reads.
    """

    type: str
    name: str
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    attrs: Mapping[str, Any]
    definition: Any
    source: str | None = None
    bodies: Mapping[str, Program] = field(default_factory=dict)
    gradient: Gradient | None = None

    def __repr__(self) -> str:
        outputs = ", ".join(map(repr, self.outputs))
        inputs = ", ".join(var.name for var in self.inputs)
        return f"{outputs or '()'} = {self.type}({inputs})"

    def where(self) -> str:
        """`at model.py:41`, or the op's own name where the source line isn't known."""
        return f"at {self.source}" if self.source else f"named {self.name!r}"


@dataclass(eq=False)
class Program:
    """`inputs -> ops -> outputs`. `captures` maps the inputs that the caller doesn't give to their tensors."""

    inputs: Sequence[Var]
    ops: Sequence[Op]
    outputs: Sequence[Var]
    captures: Mapping[Var, Any] = field(default_factory=dict)

    def walk(self) -> Iterator[Op]:
        """Every op, nested ones included, outer before inner."""
        for op in self.ops:
            yield op
            for body in op.bodies.values():
                yield from body.walk()

    def __str__(self) -> str:
        return "\n".join(self._lines(""))

    def _lines(self, indent: str) -> Iterator[str]:
        yield f"{indent}({', '.join(map(repr, self.inputs))}) ->"
        for op in self.ops:
            yield f"{indent}  {op!r}"
            for role, body in op.bodies.items():
                yield f"{indent}    {role}:"
                yield from body._lines(indent + "      ")
        yield f"{indent}  return {', '.join(var.name for var in self.outputs)}"


def _shape_text(shape: Any) -> str:
    if shape.rank is None:
        return "[...]"
    return "[" + ", ".join("?" if size is None else str(size) for size in shape.as_list()) + "]"
