"""How often a loop runs, and what that says of its lists: room, lengths, and how they travel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.carries import ListCarry, ListFacts
from vectorizer.kinds import Kind
from vectorizer.lists import ListValue
from vectorizer.plan import ListGrowth, LoopPlan, step_of
from vectorizer.program import Op
from vectorizer.values import Size
from vectorizer.xla_kernels import compiling

if TYPE_CHECKING:
    from vectorizer.emission import Emitter


class LoopLists:
    """The steps and the lists of one loop, as far as they are known before its body is emitted.

    `widened`: what was learned of lists while the body was emitted before.
    """

    def __init__(
        self, emitter: Emitter, op: Op, inputs: Sequence[Any], batch: Batch, widened: Mapping[int, ListFacts]
    ) -> None:
        self._growth = emitter.plan.lists[op]
        self._plan: LoopPlan = emitter.plan.loops[op]
        self._op, self._inputs, self._batch, self._widened = op, inputs, batch, widened

    @property
    def masked(self) -> bool:
        """Whether some rows may not take part in a step."""
        return self._plan.predicate == Kind.BATCHED or self._batch.active is not None

    def certain_steps(self) -> int | None:
        """A number of steps that the loop can't exceed, where one is known when the program is built."""
        bound = self._plan.at_most
        if bound is None:
            return None
        if bound.limit is None:
            return max(bound.constant or 0, 0) + 1
        limit = self._inputs[bound.limit]
        if limit.size is not None:
            return limit.size.padded + 1 if isinstance(limit.size.padded, int) else None
        known = limit.static()
        return None if known is None else max(int(known), 0) + 1

    def _exact_steps(self) -> int | None:
        bound = self._plan.bound
        if bound is None or self.masked:
            return None
        limit = bound.constant if bound.limit is None else self._inputs[bound.limit].static()
        start, step = self._op.inputs[bound.counter].constant, step_of(self._op, bound.counter)
        if limit is None or start is None:
            return None
        return max(0, -(-(int(limit) + (bound.operator == "LessEqual") - int(start)) // step))

    def _most_steps(self) -> Any:
        """How often the body can run, as far as that is known before it does: int, scalar tensor, or None."""
        bound, longest, certain = self._plan.at_most, self._static_room, self.certain_steps()
        if certain is not None:
            return certain
        if bound is None or bound.limit is None or longest is not None:
            return None if longest is None else longest + 1  # a row that needs more fails
        limit = self._inputs[bound.limit]
        largest = tf.reduce_max(tf.concat([tf.reshape(limit.tensor, [-1]), tf.zeros([1], limit.dtype)], 0))
        return tf.cast(largest, tf.int32) + 1

    @property
    def _static_room(self) -> int | None:
        """How large what grows may get where all shapes must be static; a row that needs more fails."""
        return self._batch.longest if compiling() else None

    def final_length(self, k: int) -> int | None:
        """Of a list to which every step of a counted loop appends as many elements."""
        growth, before = self._growth.get(k), self._inputs[k].length.static()
        steps = self._exact_steps()
        if growth is None or not growth.exact or before is None or steps is None:
            return None
        return int(before) + steps * int(growth.most)

    def _facts(self, k: int) -> ListFacts:
        growth = self._growth.get(k)
        facts = self._widened.get(k, ListFacts())
        if growth is not None and growth.changes:
            facts = facts.join(ListFacts(growing=True))
        return replace(facts, uneven=facts.uneven or (facts.growing and self.masked))

    def with_room(self, k: int, items: ListValue) -> ListValue:
        """With slots for all that the loop can append, where that is known, and lengths for elements that vary."""
        facts = self._facts(k)
        items = items.varying(facts.varying, self._batch)
        longest = self._static_room
        for axis in sorted(items.element_lengths) if longest is not None else ():
            room = items.buffer.shape[axis + 2]
            items = items.padded(axis, longest if room is None or room < longest else room)
        if not facts.growing or items.roomy:
            return items.never_empty()
        most = self._growth.get(k, ListGrowth(True, math.inf)).most
        steps = self._most_steps() if most else 0
        if longest is not None and (steps is None or most == math.inf):
            steps, most = longest, 1  # a row that needs more fails
        if steps is None or most == math.inf:
            lengths = tf.cast(self._batch.rows(items.length), tf.int32)
            return items.grown(_at_least_one(items.slots)).of_lengths(lengths) if facts.uneven else items
        return replace(items.grown(_at_least_one(items.slots + steps * int(most))), roomy=True)

    def like(self, k: int, start: ListValue, found: ListValue, graph: Any) -> ListValue:
        """The list at the loop's `start`, of elements like those that a trial emission into `graph` `found`."""
        start = replace(start, dtype=found.dtype)
        first = 2 if found.batched else 1
        shape = found.buffer.shape.as_list()[first:]
        stable = {axis: size for axis, size in found.element_sizes.items() if not made_in(graph, size)}
        varying = [
            axis
            for axis, size in enumerate(shape)
            if axis not in stable and (size is None or axis in found.element_sizes or axis in found.element_lengths)
        ]
        if not (stable or varying):
            batched = self._plan.variables[k].kind == Kind.BATCHED or found.batched
            return self.with_room(k, start.materialised(shape, self._batch, batched=batched))
        room: list[Any] = [size if size is not None else 1 for size in shape]
        for axis, size in stable.items():
            room[axis] = size.padded
        return self.with_room(k, start.open(room, varying, self._batch, stable))

    def carry(self, k: int, items: ListValue) -> ListCarry:
        """How a list of variable k crosses from step to step."""
        facts, fixed = self._facts(k), self._static_room is not None
        uneven = facts.uneven or (facts.growing and items.size is not None)
        return ListCarry(k, items, facts.growing, uneven, fixed)


def made_in(graph: Any, size: Size) -> bool:
    """Whether a Size was made while this graph was built, so that nothing outside of it can refer to it."""
    return any(getattr(tensor, "graph", None) is graph for tensor in (size.lengths, size.padded))


def _at_least_one(slots: Any) -> Any:
    return max(slots, 1) if isinstance(slots, int) else tf.maximum(slots, 1)
