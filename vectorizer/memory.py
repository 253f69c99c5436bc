"""How much memory the values of a batched program take, estimated from the per-example shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from vectorizer.kinds import Kind
from vectorizer.plan import Plan
from vectorizer.program import Op, Var

_STRING_BYTES = 24  # a TensorFlow string with its text inside, as short ones have it


@dataclass(frozen=True)
class Estimate:
    """The op whose result is the largest at the largest batch size, and the size of the largest result at each."""

    op: Op
    bytes_by_batch_size: Mapping[int, int]


def largest_intermediate(plan: Plan, length: int, batch_sizes: Sequence[int]) -> Estimate | None:
    """Every variable size is taken to be `length`. What a kernel needs while it runs isn't counted."""
    made = (op for op in plan.program.walk() if op.type != "Const" and not op.bodies)
    sizes = [(op, var) for op in made for var in op.outputs]
    found: dict[int, tuple[int, Op]] = {}
    for batch_size in batch_sizes:
        for op, var in sizes:
            count = value_bytes(plan, var, length, batch_size)
            if count is not None and (batch_size not in found or count > found[batch_size][0]):
                found[batch_size] = (count, op)
    if not found:
        return None
    return Estimate(found[max(batch_sizes)][1], {size: count for size, (count, _) in found.items()})


def value_bytes(plan: Plan, var: Var, length: int, batch_size: int) -> int | None:
    """Bytes of one value for the whole batch, None where its shape isn't known. A list has `length` elements."""
    value = plan.analysis.values[var]
    if var.dtype == tf.resource:
        return None
    if var.dtype == tf.variant:
        if value.element is None:
            return None
        shape, width = [length, *value.element], 4
    elif var.rank is None:
        return None
    else:
        shape, width = var.shape.as_list(), _STRING_BYTES if var.dtype == tf.string else var.dtype.size
    rows = batch_size if value.kind == Kind.BATCHED else 1
    return rows * width * math.prod(length if size is None else size for size in shape)
