"""What is compared besides the outputs: the floats from which something is decided that is no float.

A class number says little about the scores that it was taken from: they may differ in their last bits in every batch,
and the number only on the day of a near tie. So the programs return those scores too. They are dropped once they are
compared, but they are returned in service as well: what is certified is what runs. What is decided within a loop isn't
seen step by step; the loop's own results are.
"""

from __future__ import annotations

from collections.abc import Iterator

from vectorizer.program import Op, Program, Var

_COMPARED = ("float16", "float32", "float64")
MOST_ELEMENTS = 65_536
"""Of one example; larger values aren't returned."""
_ONLY_SHAPES = ("Shape", "ShapeN", "Size", "Rank")


def find_witnesses(program: Program) -> list[Var]:
    """Floats that the program's own ops make, and that outputs depend on by way of a comparison, a cast, ..."""
    producer = {var: op for op in program.ops for var in op.outputs}
    found: set[Var] = set()
    seen: set[Var] = set()
    pending = list(program.outputs)
    while pending:
        var = pending.pop()
        op = producer.get(var)
        if op is None or var in seen:
            continue
        seen.add(var)
        pending += op.inputs
        if not var.dtype.is_floating and op.type not in _ONLY_SHAPES:
            found.update(_decided_from(op))
    made = [var for op in program.ops if op.type != "Const" for var in op.outputs]
    return [var for var in made if var in found and var not in program.outputs]


def _decided_from(op: Op) -> Iterator[Var]:
    """An op's float operands; of a loop or branch, whose operands are far from the decision, its float results too."""
    for var in (*op.inputs, *(op.outputs if op.bodies else ())):
        if var.dtype.name in _COMPARED and _is_small(var):
            yield var


def _is_small(var: Var) -> bool:
    if var.rank is None:
        return False
    elements = 1
    for size in var.shape.as_list():
        elements *= size or 64
    return elements <= MOST_ELEMENTS
