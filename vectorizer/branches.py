"""If and Case over a batch.

*All rows take the same branch* (the predicate is shared): a real `tf.cond`; one branch runs.

*Rows differ*: both branches run on all rows and each row takes its own branch's result. In each branch only the
rows that took it are active: checks count for them alone, loops stop when they are done, writes to lists touch only
them. Operands of the others are harmless because every converter makes them so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.carries import Carry, KindRaised, SharedCarry, carry_changing, pack_all, select, unpack_all
from vectorizer.compounds import CompoundList
from vectorizer.kinds import Kind
from vectorizer.lists import ListValue
from vectorizer.program import Op, Program
from vectorizer.values import NotConvertible, Value, negated

if TYPE_CHECKING:
    from vectorizer.emission import Emitter


def emit_branches(emitter: Emitter, op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """The outputs of one If or Case."""
    choice, operands = inputs[0], inputs[1:]
    bodies = list(op.bodies.values())
    if choice.rank != 0:
        raise NotConvertible("a branch on a predicate that isn't a scalar")
    if not choice.batched and any(var.dtype == tf.variant for var in op.outputs):
        choice = Value(batch.rows(choice), True)  # lists and optionals can't leave a real branch
    if choice.batched:
        return _select(emitter, _taken(op, choice.tensor, len(bodies)), bodies, operands, batch)
    if choice.dtype != tf.bool and op.type == "If":
        choice = Value(tf.cast(choice.tensor, tf.bool), False)
    while True:
        try:
            return _run_one(emitter, op, choice.tensor, bodies, operands, batch)
        except KindRaised as raised:
            if raised.position is None:
                raise
            emitter.plan.branch_kinds[op][raised.position] = Kind.BATCHED


def _taken(op: Op, choice: Any, count: int) -> list[Any]:
    """For each branch, which rows take it (bool [B]). Case takes its last branch for an index out of range."""
    if op.type == "If":
        predicate = choice if choice.dtype == tf.bool else tf.cast(choice, tf.bool)
        return [predicate, negated(predicate)]
    index = tf.where(tf.logical_or(choice < 0, choice >= count), count - 1, choice)
    return [index == position for position in range(count)]


def _select(
    emitter: Emitter, taken: Sequence[Any], bodies: Sequence[Program], operands: Sequence[Any], batch: Batch
) -> list[Any]:
    merged: list[Any] = []
    handed_on: dict[int, object] = {}
    for position, (rows, body) in enumerate(zip(taken, bodies, strict=True)):
        inner = batch.within(batch.and_active(rows))
        results = emitter.run(body, operands, inner)
        if inner.checked:
            batch.check(inner.ok)
        if position == 0:
            merged = list(results)
        else:
            merged = [
                new if k in handed_on and new.origin is handed_on[k] is old.origin else select(rows, new, old, batch)
                for k, (new, old) in enumerate(zip(results, merged, strict=True))
            ]
        operands, handed_on = _hand_on(operands, results)
    return merged


def _hand_on(operands: Sequence[Any], results: Sequence[Any]) -> tuple[list[Any], dict[int, object]]:
    """The next branch's operands, and the origins of the lists among them that are results of this one, by position.

    A branch writes to the slots of its own rows only. So the next one may go on with the list that it left, and no
    choice between two whole lists is needed afterwards.
    """
    origins = [_origin(value) for value in (*operands, *results)]
    found = {}
    handed = list(operands)
    for place, operand in enumerate(operands):
        origin = _origin(operand)
        positions = [k for k, value in enumerate(results) if _origin(value) is origin]
        if origin is not None and len(positions) == 1 and sum(other is origin for other in origins) == 2:
            handed[place] = results[positions[0]]
            found[positions[0]] = origin
    return handed, found


def _origin(value: Any) -> object:
    return value.origin if isinstance(value, ListValue | CompoundList) else None


def _run_one(
    emitter: Emitter, op: Op, choice: Any, bodies: Sequence[Program], operands: Sequence[Any], batch: Batch
) -> list[Any]:
    """A real branch. All branches hand back the same tensors, so each result's kind is settled beforehand."""
    kinds = emitter.plan.branch_kinds[op]
    carries: list[Carry] = []

    def branch(body: Program) -> Callable[[], Any]:
        def run() -> Any:
            inner = batch.within(batch.active, ok=tf.ones([batch.size], tf.bool))
            results = emitter.run(body, operands, inner)
            found = [_carry(op, k, kinds[k], value, batch) for k, value in enumerate(results)]
            if not carries:
                carries.extend(found)
            return [*pack_all(carries, results, inner), inner.ok]

        return run

    if op.type == "If":
        flat = tf.cond(choice, branch(bodies[0]), branch(bodies[1]))
    else:
        flat = tf.switch_case(choice, [branch(body) for body in bodies])
    *tensors, ok = flat
    batch.check(ok)
    return unpack_all(carries, tensors)


def _carry(op: Op, k: int, kind: Kind, value: Any, batch: Batch) -> Carry:
    if kind != Kind.BATCHED:
        return SharedCarry(k)
    shape = value.shape if op.outputs[k].rank is None else op.outputs[k].shape.as_list()
    return carry_changing(value, [axis for axis, size in enumerate(shape) if size is None], batch)
