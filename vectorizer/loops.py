"""While over a batch.

*All rows agree when to stop* (the predicate is shared): an ordinary loop over batched values.

*Rows stop at different times*: the loop runs until the last row is done. Rows that are done must keep what they
had, so every batched variable is masked: `where(active, new, old)`. What needs no mask: variables handed on
unchanged, uniform ones (they matter only to rows that still run), lists and scattered buffers (whoever writes a
slot masks that slot).

Two ways to know who is active:

* *bounded*: the predicate is `counter < n` with a uniform counter that only grows and an n that doesn't change.
  Then a comparison at the start of each step tells, and the loop runs to the largest n: no reduction per step.
* *general*: `active` is carried; after each step the predicate is evaluated again for the rows still active, and
  the loop ends when none is left. Finished rows evaluate it too, on frozen values; their answer is ignored and
  nothing can raise.

A uniform variable that is read after the loop has, for each row, the value it had when that row stopped; it is
carried a second time, batched, only if somebody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.carries import (
    BatchedCarry,
    Carry,
    CompoundCarry,
    KindRaised,
    ListFacts,
    ListWidened,
    SharedCarry,
    UnknownListCarry,
    by_carry,
    carry_changing,
    pack_all,
    unpack_all,
)
from vectorizer.compounds import CompoundList
from vectorizer.kinds import Kind
from vectorizer.lists import ListValue
from vectorizer.loop_lists import LoopLists
from vectorizer.plan import Bound
from vectorizer.program import Op
from vectorizer.values import Value
from vectorizer.xla_kernels import compiling

if TYPE_CHECKING:
    from vectorizer.emission import Emitter

_LARGEST_COUNTER = 2**31 - 1


def emit_while(emitter: Emitter, op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """One loop; emitted again with a variable raised to batched if analysis had been too hopeful."""
    widened: dict[int, ListFacts] = {}
    while True:
        try:
            return _Loop(emitter, op, inputs, batch, widened).emit()
        except KindRaised as raised:
            emitter.plan.loops[op] = emitter.plan.loops[op].raised(raised.position)
        except ListWidened as found:
            widened[found.position] = widened.get(found.position, ListFacts()).join(found.facts)


@dataclass
class _Loop:
    emitter: Emitter
    op: Op
    inputs: Sequence[Any]
    batch: Batch
    widened: Mapping[int, ListFacts]

    def __post_init__(self) -> None:
        self.plan = self.emitter.plan.loops[self.op]
        self._lists = LoopLists(self.emitter, self.op, self.inputs, self.batch, self.widened)
        self._cond, self._body = self.op.bodies["cond"], self.op.bodies["body"]
        self._carried = [k for k in range(len(self.inputs)) if k not in self.plan.invariant]
        self._initial = {k: self._start(k) for k in self._carried}
        self._learn_lists()
        self._carries: list[Carry] = self._settle_sizes([self._carry(k) for k in self._carried])
        self._exits = [k for k in self._carried if k in self.plan.exits]
        self._other_lists: set[int] = set()  # of which the body makes other lists, not only writes to them

    # -- what travels -----------------------------------------------------------------------------------------------

    def _start(self, k: int) -> Any:
        value, planned = self.inputs[k], self.plan.variables[k]
        if isinstance(value, CompoundList):
            return value.each(lambda items: self._lists.with_room(k, items))
        if isinstance(value, ListValue):
            element = planned.element
            known = element is not None and None not in element and value.dtype != tf.variant
            if value.buffer is None and not known:
                return value
            return self._lists.with_room(
                k, value.materialised(element, self.batch, batched=planned.kind == Kind.BATCHED)
            )
        if planned.kind == Kind.BATCHED:
            return Value(self.batch.rows(value), True, value.sizes, size=value.size, upper=value.upper)
        return value

    def _learn_lists(self) -> None:
        """Lists whose elements have no static shape before the loop: a trial emission of the body makes some."""
        unknown = [k for k in self._carried if self._unknown(k)]
        if not unknown:
            return

        def learn(carries: list[Carry], results: list[Any], graph: Any) -> None:
            made.extend((k, results[k], graph) for k in unknown)

        made: list[tuple[int, Any, Any]] = []
        self._trial([self._carry(k) for k in self._carried], learn)
        for k, found, graph in made:
            if isinstance(found, CompoundList):
                parts = tuple(self._lists.like(k, self._initial[k], part, graph) for part in found.items)
                self._initial[k] = CompoundList(found.pattern, parts).of_origin(self._initial[k])
            elif found.buffer is not None:
                self._initial[k] = self._lists.like(k, self._initial[k], found, graph)

    def _unknown(self, k: int) -> bool:
        value = self._initial[k]
        return isinstance(value, ListValue) and value.buffer is None

    def _carry(self, k: int) -> Carry:
        value = self._initial[k]
        if isinstance(value, CompoundList):
            return CompoundCarry(value, tuple(self._lists.carry(k, items) for items in value.items))
        if isinstance(value, ListValue):
            return UnknownListCarry(value) if value.buffer is None else self._lists.carry(k, value)
        var = self._body.inputs[k]
        if self.plan.variables[k].kind == Kind.BATCHED:
            shape = value.shape if var.rank is None else var.shape.as_list()
            unknown = [axis for axis, size in enumerate(shape) if size is None]
            stable = {axis: size for axis, size in value.sizes.items()}
            others = tuple(axis for axis in unknown if axis not in stable)
            if self.batch.even:
                return BatchedCarry(stable, free=others)
            return carry_changing(value, others, self.batch, stable)
        upper = _LARGEST_COUNTER if k in self.plan.counters else None
        return SharedCarry(k, upper, dynamic=var.rank is not None and None in var.shape.as_list())

    def _settle_sizes(self, carries: list[Carry]) -> list[Carry]:
        """Ragged variables whose Size the body changes carry their lengths: found by a trial emission of the body."""
        while any(isinstance(carry, BatchedCarry) and (carry.stable or carry.free) for carry in carries):
            changed = self._sizes_changed_by_body(carries)
            if not changed:
                break
            for position, axes in changed.items():
                carry = carries[position]
                assert isinstance(carry, BatchedCarry)
                stable = {axis: size for axis, size in carry.stable.items() if axis not in axes}
                free = [axis for axis in carry.free if axis not in axes]
                start = self._initial[self._carried[position]]
                changing = sorted({*carry.changing, *axes})
                carries[position] = carry_changing(start, changing, self.batch, stable, free)
        return carries

    def _sizes_changed_by_body(self, carries: list[Carry]) -> dict[int, list[int]]:
        changed: dict[int, list[int]] = {}

        def compare(carries: list[Carry], results: list[Any], graph: Any) -> None:
            for position, carry in enumerate(carries):
                if isinstance(carry, BatchedCarry):
                    new = results[self._carried[position]]
                    axes = [axis for axis, size in carry.stable.items() if new.sizes.get(axis) is not size]
                    axes += [axis for axis in carry.free if axis in new.sizes]
                    if axes:
                        changed[position] = axes

        self._trial(carries, compare)
        return changed

    def _trial(self, carries: list[Carry], look: Callable[[list[Carry], list[Any], Any], None]) -> None:
        """Emit the body into a graph that is thrown away, and look at its results (of all variables)."""
        report = self.emitter.report
        self.emitter.report = report.scratch()

        def trial(*tensors: Any) -> Any:
            values = unpack_all(carries, tensors)
            active = tf.ones([self.batch.size], tf.bool) if self._lists.masked else None
            inner = self.batch.within(active, ok=tf.ones([self.batch.size], tf.bool))
            results = self.emitter.run(self._body, self._bind(values), inner)
            look(carries, results, tf.compat.v1.get_default_graph())
            return tf.constant(0)

        flat = pack_all(carries, list(self._initial.values()), self.batch)
        shapes = [shape for carry, part in by_carry(carries, flat) for shape in carry.shapes(part)]
        tf.function(trial, autograph=False).get_concrete_function(
            *(tf.TensorSpec(shape, tensor.dtype) for shape, tensor in zip(shapes, flat, strict=True))
        )
        self.emitter.report = report

    def _bind(self, carried: Sequence[Any]) -> list[Any]:
        """Values of all loop variables, invariant ones included."""
        values = list(self.inputs)
        for k, value in zip(self._carried, carried, strict=True):
            values[k] = value
        return values

    # -- the loop itself --------------------------------------------------------------------------------------------

    def emit(self) -> list[Any]:
        """The loop's outputs."""
        if self.plan.predicate != Kind.BATCHED:
            final = self._run(self._while_all)
        elif self.plan.bound is not None:
            final = self._run(self._while_bounded)
        else:
            final = self._run(self._while_any)
        results = list(self.inputs)
        for k, value in zip(self._carried, final, strict=True):
            results[k] = value
        return results

    def _run(self, strategy: Callable[..., tuple[list[Any], list[Any], Any]]) -> list[Any]:
        flat = pack_all(self._carries, list(self._initial.values()), self.batch)
        shapes = [shape for carry, part in by_carry(self._carries, flat) for shape in carry.shapes(part)]
        exits = [self.batch.rows(self._initial[k]) for k in self._exits]
        flat_out, exits_out, ok = strategy(flat, shapes, exits)
        self.batch.check(ok)
        values = unpack_all(self._carries, flat_out)
        values = [self._settled(k, value) for k, value in zip(self._carried, values, strict=True)]
        for k, exit_value in zip(self._exits, exits_out, strict=True):
            values[self._carried.index(k)] = Value(exit_value, True)
        return values

    def _settled(self, k: int, value: Any) -> Any:
        """Rows that took no part in the loop have the list from before it, unless an unmasked body made another."""
        if not isinstance(value, ListValue | CompoundList):
            return value
        length = self._lists.final_length(k)
        if length is not None:
            value = value.of_length(length)
        elif not (compiling() or self.inputs[k].roomy):
            value = value.trimmed()
        unmasked = self.plan.predicate != Kind.BATCHED and k in self._other_lists
        return value if unmasked else value.of_origin(self._initial[k])

    def _predicate(self, values: Sequence[Any], batch: Batch) -> Any:
        value = self.emitter.run(self._cond, self._bind(values), batch)[0]
        if value.batched and self.plan.predicate != Kind.BATCHED:
            raise KindRaised(None)
        return value.tensor

    def _all_ok(self) -> Any:
        return tf.ones([self.batch.size], tf.bool)

    def _step(
        self, flat: Sequence[Any], exits: Sequence[Any], inner: Batch, active: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Run the body once: (flat new tensors, new exit values, new values)."""
        old = unpack_all(self._carries, flat)
        results = self.emitter.run(self._body, self._bind(old), inner)
        new = [results[k] for k in self._carried]
        for k, value, before in zip(self._carried, new, old, strict=True):
            if isinstance(value, ListValue | CompoundList) and value.origin is not before.origin:
                self._other_lists.add(k)
        new_exits = []
        for k, previous in zip(self._exits, exits, strict=True):
            value = new[self._carried.index(k)]
            new_exits.append(BatchedCarry().mask(active, value, Value(previous, True), inner).tensor)
        if active is not None:
            new = [
                carry.mask(active, value, before, inner)
                for carry, value, before in zip(self._carries, new, old, strict=True)
            ]
        return pack_all(self._carries, new, inner), new_exits, new

    def _while_all(self, flat: list[Any], shapes: list[Any], exits: list[Any]) -> tuple[list[Any], list[Any], Any]:
        """The predicate is the same for every row."""
        if self.plan.predicate_checks:
            return self._while_all_carried(flat, shapes)

        def go(flat: Any, _: Any) -> Any:
            return self._predicate(unpack_all(self._carries, flat), self.batch.within(self.batch.active))

        def body(flat: Any, ok: Any) -> Any:
            inner = self.batch.within(self.batch.active, ok=ok)
            new, _, _ = self._step(flat, [], inner, None)
            return new, inner.ok

        ok = self._all_ok()
        out, ok = tf.while_loop(
            go, body, (flat, ok), shape_invariants=(shapes, ok.shape), maximum_iterations=self._lists.certain_steps()
        )
        return list(out), [], ok

    def _while_all_carried(self, flat: list[Any], shapes: list[Any]) -> tuple[list[Any], list[Any], Any]:
        """The same where evaluating the predicate can fail a row: done at the end of each step, and carried."""
        first = self.batch.within(self.batch.active, ok=self._all_ok())
        predicate = self._predicate(unpack_all(self._carries, flat), first)

        def body(_: Any, flat: Any, ok: Any) -> Any:
            inner = self.batch.within(self.batch.active, ok=ok)
            new, _, _ = self._step(flat, [], inner, None)
            return self._predicate(unpack_all(self._carries, new), inner), new, inner.ok

        start = (predicate, flat, first.ok)
        invariants = (predicate.shape, shapes, first.ok.shape)
        _, out, ok = tf.while_loop(
            lambda go, *_: go, body, start, shape_invariants=invariants, maximum_iterations=self._lists.certain_steps()
        )
        return list(out), [], ok

    def _while_bounded(self, flat: list[Any], shapes: list[Any], exits: list[Any]) -> tuple[list[Any], list[Any], Any]:
        """`counter < n`: run to the largest n of the active rows."""
        bound = self.plan.bound
        assert bound is not None
        assert bound.limit is not None
        limit = self._bind(list(self._initial.values()))[bound.limit]
        limits = self.batch.rows(limit)
        counted = limits if self.batch.active is None else tf.where(self.batch.active, limits, limits.dtype.min)
        last = tf.reduce_max(tf.concat([counted, [limits.dtype.min]], 0))

        def counter(flat: Sequence[Any]) -> Any:
            return unpack_all(self._carries, flat)[self._carried.index(bound.counter)].tensor

        def go(flat: Any, _: Any, ok: Any) -> Any:
            if limit.size is not None:
                return _compare(bound, counter(flat), last)
            # A limit that is no length may be huge in a row that has long failed: that row must not hold up the others.
            return tf.reduce_any(tf.logical_and(_compare(bound, counter(flat), counted), ok))

        def body(flat: Any, exits: Any, ok: Any) -> Any:
            now = counter(flat)
            active = self.batch.and_active(_compare(bound, now, limits))
            same = (id(now), id(limit.size)) if limit.size is not None and bound.operator == "Less" else None
            inner = self.batch.within(active, ok=ok, bounded_by=same)
            new, new_exits, _ = self._step(flat, exits, inner, active)
            return new, new_exits, inner.ok

        ok = self._all_ok()
        invariants = (shapes, [tensor.shape for tensor in exits], ok.shape)
        out, exits_out, ok = tf.while_loop(
            go, body, (flat, exits, ok), shape_invariants=invariants, maximum_iterations=self._lists.certain_steps()
        )
        return list(out), list(exits_out), ok

    def _while_any(self, flat: list[Any], shapes: list[Any], exits: list[Any]) -> tuple[list[Any], list[Any], Any]:
        """Any predicate: carry who is active."""
        first = self.batch.within(self.batch.active, ok=self._all_ok())
        predicate = self.batch.rows(Value(self._predicate(unpack_all(self._carries, flat), first), True))
        active = tf.logical_and(self.batch.and_active(predicate), first.ok)

        def body(active: Any, flat: Any, exits: Any, ok: Any) -> Any:
            inner = self.batch.within(active, ok=ok)
            new, new_exits, _ = self._step(flat, exits, inner, active)
            again = self._predicate(unpack_all(self._carries, new), inner)
            # A row that failed stops: it would otherwise go on with a harmless operand, perhaps for ever.
            return tf.logical_and(tf.logical_and(active, again), inner.ok), new, new_exits, inner.ok

        start = (active, flat, exits, first.ok)
        invariants = (active.shape, shapes, [tensor.shape for tensor in exits], first.ok.shape)
        _, out, exits_out, ok = tf.while_loop(
            lambda active, *_: tf.reduce_any(active),
            body,
            start,
            shape_invariants=invariants,
            maximum_iterations=self._lists.certain_steps(),
        )
        return list(out), list(exits_out), ok


def _compare(bound: Bound, counter: Any, limit: Any) -> Any:
    return counter <= limit if bound.operator == "LessEqual" else counter < limit
