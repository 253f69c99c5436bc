"""What is compared besides the outputs: the last floats that outputs without floats are made of.

A class number says little about the scores that it was taken from: they may differ in their last bits in every batch, and
the number only on the day of a near tie. So the programs return those scores too. They are dropped once they are compared,
but they are returned in service as well: what is certified is what runs.
"""

from __future__ import annotations

from vectorizer.program import Op, Program, Var

_COMPARED = ("float16", "float32", "float64")
MOST_ELEMENTS = 65_536
"""Of one example; larger values aren't returned."""


def find_witnesses(program: Program) -> list[Var]:
    """Floats of the program's own ops from which outputs that aren't floats are computed, in program order."""
    producer = {var: op for op in program.ops for var in op.outputs}
    found: set[Var] = set()
    seen: set[Var] = set()
    pending = [var for var in program.outputs if not var.dtype.is_floating]
    while pending:
        var = pending.pop()
        op = producer.get(var)
        if op is None or var in seen:
            continue
        seen.add(var)
        for operand in (*op.inputs, *_other_results(op, var)):
            if operand.dtype.is_floating:
                if operand.dtype.name in _COMPARED and operand in producer and operand.constant is None and _is_small(operand):
                    found.add(operand)
            else:
                pending.append(operand)
    return [var for op in program.ops for var in op.outputs if var in found and var not in program.outputs]


def _other_results(op: Op, var: Var) -> tuple[Var, ...]:
    """Of a loop or branch: what else comes out of it."""
    return tuple(other for other in op.outputs if other is not var) if op.bodies else ()


def _is_small(var: Var) -> bool:
    if var.rank is None:
        return False
    elements = 1
    for size in var.shape.as_list():
        elements *= size or 64
    return elements <= MOST_ELEMENTS
