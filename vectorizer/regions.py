"""Which part of a program XLA compiles: everything, or the largest region between what it can't.

A program such as "decode text, run a network, look up a label" has three stages: *before* (0), *compiled* (1), *after*
(2). Strings and ops without XLA kernels can't be in the middle stage. Cheap ops that lead only to an early one of those
stay with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from vectorizer.program import Op, Program, Var
from vectorizer.registry import find

_HEAVY = frozenset(
    {"While", "MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "If", "Case"}
)


@dataclass(frozen=True)
class Stages:
    """Top-level ops by stage. `free` ops depend on constants only and are made in whichever stage needs them.

    `whole`: the whole program compiles, its inputs and outputs included.
    """

    before: Sequence[Op]
    compiled: Sequence[Op]
    after: Sequence[Op]
    entering: Sequence[Var]
    leaving: Sequence[Var]
    whole: bool


def is_compilable(op: Op, fallbacks: frozenset[Op]) -> bool:
    """Whether XLA can compile this op, nested ones included. Constants are made where they are used."""
    if op.type == "Const":
        return True
    if op in fallbacks or any(var.dtype == tf.string for var in (*op.inputs, *op.outputs)):
        return op.type == "Assert" and op not in fallbacks
    rule = find(op.type)
    if rule is not None and not rule.compiles(op):
        return False
    return all(is_compilable(inner, fallbacks) for body in op.bodies.values() for inner in body.ops)


def split(program: Program, fallbacks: frozenset[Op]) -> Stages:
    """Assign each top-level op to a stage."""
    producer = {var: op for op in program.ops for var in op.outputs}
    host = {op for op in program.ops if op.type != "Const" and not is_compilable(op, fallbacks)}
    free = _free(program, host)
    early = _leading_to_early_host(program, producer, host)
    stage: dict[Op, int] = {}
    for op in program.ops:
        if op in free:
            continue
        before = [stage[producer[var]] for var in op.inputs if var in producer and producer[var] in stage]
        latest = max(before, default=0)
        if op in host:
            stage[op] = 0 if latest == 0 else 2
        elif latest == 0 and op in early and op.type not in _HEAVY:
            stage[op] = 0
        else:
            stage[op] = max(latest, 1)
    groups = [[op for op in program.ops if op in free or stage[op] == number] for number in range(3)]
    kept = [_needed(group, stage, number) for number, group in enumerate(groups)]
    # In the program's order: the compiled region's signature is part of the key of XLA's persistent cache.
    made = [var for op in kept[1] if op not in free for var in op.outputs]
    entering = _used(kept[1], exclude={var for op in kept[1] for var in op.outputs})
    leaving = [var for var in made if var in set(_used(kept[2], exclude=set())) or var in set(program.outputs)]
    if any(var.dtype == tf.variant for var in (*entering, *leaving)):  # lists can't cross: nothing is compiled then
        return Stages(program.ops, [], [], [], [], False)
    has_text = any(var.dtype == tf.string for var in (*program.inputs, *program.outputs))
    if any(var.dtype == tf.variant for var in (*entering, *leaving)):
        return Stages(program.ops, [], [], [], [], whole=False)  # a list can't cross
    whole = not (kept[0] or kept[2] or has_text)
    return Stages(kept[0], kept[1], kept[2], entering, leaving, whole)


def _free(program: Program, host: set[Op]) -> set[Op]:
    """Ops that depend on constants only, and may be in any stage."""
    free: set[Op] = set()
    made: set[Var] = set()
    for op in program.ops:
        nested = op.bodies or op.type.startswith("TensorList")
        stateful = op.definition is not None and op.definition.is_stateful  # what draws or prints does it once
        if not (nested or stateful or op in host) and all(var in made for var in op.inputs):
            free.add(op)
            made.update(op.outputs)
    return free


def _leading_to_early_host(program: Program, producer: dict[Var, Op], host: set[Op]) -> set[Op]:
    """Ancestors of those host ops from which a heavy op follows."""
    leads_to_heavy: set[Op] = set()
    users: dict[Op, list[Op]] = {op: [] for op in program.ops}
    for op in program.ops:
        for var in op.inputs:
            if var in producer:
                users[producer[var]].append(op)
    for op in reversed(program.ops):
        if any(user in leads_to_heavy or user.type in _HEAVY for user in users[op]):
            leads_to_heavy.add(op)
    ancestors: set[Op] = set()
    pending = [op for op in host if op in leads_to_heavy]
    while pending:
        op = pending.pop()
        for var in op.inputs:
            if var in producer and producer[var] not in ancestors:
                ancestors.add(producer[var])
                pending.append(producer[var])
    return ancestors


def _needed(ops: Sequence[Op], stage: dict[Op, int], number: int) -> list[Op]:
    """Ops of one stage, with the free ones that they read."""
    needed: set[Op] = {op for op in ops if stage.get(op) == number}
    for op in reversed(ops):
        if op not in needed and any(var in user.inputs for user in needed for var in op.outputs):
            needed.add(op)
    return [op for op in ops if op in needed] if any(stage.get(op) == number for op in ops) else []


def _used(ops: Sequence[Op], exclude: set[Var]) -> list[Var]:
    """Vars that ops read, in order, each once, constants left out."""
    seen: dict[Var, None] = {}
    for op in ops:
        for var in op.inputs:
            if var not in exclude and var.constant is None:
                seen.setdefault(var)
    return list(seen)
