"""Normalising across loops: what TensorFlow's loop gradients save at every step although it never changes.

The gradient of a loop is a second loop that pops what the first one pushed onto lists: among it the shapes of values
that the loop doesn't change. Kept as lists those shapes would be data of unknown content. Two rewrites undo it:

* ops in a loop's body that depend on invariant variables only, and can't fail, move in front of the loop;
* a list onto which the loop pushes an invariant value, and which another loop pops, is replaced by that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vectorizer.program import Op, Program, Var

_BROADCASTING = frozenset({"Maximum", "Minimum", "AddV2", "Mul", "Sub"})
_HARMLESS = frozenset(
    {
        "Shape",
        "ShapeN",
        "Size",
        "Pack",
        "Cast",
        "Prod",
        "BroadcastGradientArgs",
        "ExpandDims",
        "ZerosLike",
        "OnesLike",
        *_BROADCASTING,
    }
)


def hoist(program: Program) -> Program:
    """The same program with both rewrites done, inner loops first."""
    ops: list[Op] = []
    for op in program.ops:
        if op.bodies:
            op = replace(op, bodies={role: hoist(body) for role, body in op.bodies.items()})
        if op.type == "While":
            moved, op = _move_invariant_ops(op)
            ops += moved
        ops.append(op)
    return Program(program.inputs, _without_invariant_lists(ops), program.outputs, program.captures)


def _move_invariant_ops(loop: Op) -> tuple[list[Op], Op]:
    """(ops to run before the loop, the loop without them): their results become invariant variables of the loop."""
    body, cond = loop.bodies["body"], loop.bodies["cond"]
    outside: dict[Var, Var] = {inner: loop.inputs[k] for k, inner in enumerate(body.inputs) if body.outputs[k] is inner}
    moved: list[Op] = []
    kept: list[Op] = []
    made: list[Var] = []
    for op in body.ops:
        known = all(var in outside or var.constant is not None for var in op.inputs)
        if _harmless(op) and op.inputs and known and all(var.constant is None for var in op.outputs):
            copies = tuple(Var(f"{var.name}/hoisted", var.dtype, var.shape) for var in op.outputs)
            inputs = tuple(outside.get(var, var) for var in op.inputs)
            moved.append(replace(op, inputs=inputs, outputs=copies))
            outside.update(zip(op.outputs, copies, strict=True))
            made += op.outputs
        else:
            kept.append(op)
    if not moved:
        return [], loop
    constants = [op for op in body.ops if op.type == "Const"]
    bodies = {
        "body": Program([*body.inputs, *made], kept, [*body.outputs, *made]),
        "cond": Program([*cond.inputs, *(_twin(var) for var in made)], cond.ops, cond.outputs),
    }
    inputs = (*loop.inputs, *(outside[var] for var in made))
    outputs = (*loop.outputs, *(_twin(var) for var in made))
    return [*constants, *moved], replace(loop, inputs=inputs, outputs=outputs, bodies=bodies)


def _harmless(op: Op) -> bool:
    """Whether the op can't fail: operands of open shape may not broadcast, and a loop may never get there."""
    fits = all(var.shape.is_fully_defined() for var in op.inputs) or sum(var.rank != 0 for var in op.inputs) <= 1
    return op.type in _HARMLESS and (fits or op.type not in _BROADCASTING)


def _twin(var: Var) -> Var:
    return Var(var.name, var.dtype, var.shape)


def _without_invariant_lists(ops: Sequence[Op]) -> list[Op]:
    saved: dict[Var, Var] = {}
    empty = {var for op in ops if op.type == "EmptyTensorList" for var in op.outputs}
    result: list[Op] = []
    for op in ops:
        if op.type == "While":
            saved.update(_invariant_pushes(op, empty))
            op = _pops_replaced(op, saved)
        result.append(op)
    return result


def _invariant_pushes(loop: Op, empty: set[Var]) -> dict[Var, Var]:
    """List made by the loop -> the one value that it holds, again and again."""
    body = loop.bodies["body"]
    producer = {var: op for op in body.ops for var in op.outputs}
    invariant = {inner: loop.inputs[k] for k, inner in enumerate(body.inputs) if body.outputs[k] is inner}
    found = {}
    for k, var in enumerate(body.outputs):
        push = producer.get(var)
        if push is None or push.type != "TensorListPushBack" or loop.inputs[k] not in empty:
            continue
        if push.inputs[0] is body.inputs[k] and push.inputs[1] in invariant:
            found[loop.outputs[k]] = invariant[push.inputs[1]]
    return found


def _pops_replaced(loop: Op, saved: dict[Var, Var]) -> Op:
    body, cond = loop.bodies["body"], loop.bodies["cond"]
    rename: dict[Var, Var] = {}
    extra: list[tuple[Var, Var]] = []
    for k, var in enumerate(loop.inputs):
        if var not in saved:
            continue
        users = [op for op in body.ops if body.inputs[k] in op.inputs]
        if len(users) != 1 or users[0].type != "TensorListPopBack" or body.outputs[k] is not users[0].outputs[0]:
            continue
        value = saved[var]
        inner = Var(f"{value.name}/saved", value.dtype, value.shape)
        rename[users[0].outputs[1]] = inner
        extra.append((value, inner))
    if not extra:
        return loop
    ops = [replace(op, inputs=tuple(rename.get(var, var) for var in op.inputs)) for op in body.ops]
    outputs = [rename.get(var, var) for var in body.outputs]
    inner_vars = [inner for _, inner in extra]
    bodies = {
        "body": Program([*body.inputs, *inner_vars], ops, [*outputs, *inner_vars]),
        "cond": Program([*cond.inputs, *map(_twin, inner_vars)], cond.ops, cond.outputs),
    }
    return replace(
        loop,
        inputs=(*loop.inputs, *(value for value, _ in extra)),
        outputs=(*loop.outputs, *map(_twin, inner_vars)),
        bodies=bodies,
    )
