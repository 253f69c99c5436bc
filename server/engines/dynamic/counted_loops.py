"""Loops that count: their host part is known before the first step, so that all steps of all examples grow at once.

Such a loop runs while counters are below bounds. What else it carries are values that nodes compute, and lists into
which each step writes its own element. An instance of the body for step k of an example is a row of arrays like any
other; its numbers, and with them what the next step reads, follow from where the row stands. So a recurrence over
sentences, or a loop over the nodes of trees, is one expansion of one template.

Where the body isn't one template, but nothing is carried from step to step (`tf.map_fn`), the steps grow at once all
the same, as examples of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from server.engines.dynamic.templates import Place
from server.engines.dynamic.values import Column, ExamplesFailed, Kind, Seq, taken
from vectorizer.program import Op, Program, Var

_LARGEST = 4_000_000  # numbers copied so that each step has its row
_PICKS = frozenset({"GatherV2", "StridedSlice", "TensorListGetItem", "TensorListGather"})


@dataclass(frozen=True)
class Write:
    """List number `position` of the carries gets an element in each step: at the counter number `counter`, or (None)
    at what is output number `index` of the body."""

    position: int
    counter: int | None
    index: int = -1


@dataclass(frozen=True)
class CountedLoop:
    """`counters`: positions of those carries that grow by one. `limits`: (counter, what it stays below: a carry's
    position, or a number). `body`: a step without counting and writing; its outputs are first the elements of `writes`,
    then the carries `values`, then positions of elements. `tables`: inputs that are only ever read at a position."""

    counters: tuple[int, ...]
    limits: tuple[tuple[int, Any], ...]
    writes: tuple[Write, ...]
    values: tuple[int, ...]
    body: Program
    read: frozenset[int]
    tables: frozenset[int]

    @property
    def independent(self) -> bool:
        """Whether no step needs another's results."""
        return not self.values and not any(write.position in self.read for write in self.writes)


def as_counted(op: Op) -> CountedLoop | None:
    """The loop as one that counts, if it is one."""
    condition, body = op.bodies["cond"], op.bodies["body"]
    makers = {var: maker for maker in body.ops for var in maker.outputs}
    counters: list[int] = []
    setters: dict[int, Op] = {}
    values: list[int] = []
    for k, (new, old) in enumerate(zip(body.outputs, body.inputs, strict=True)):
        maker = makers.get(new)
        if new is old:
            continue
        if maker is not None and _counts(maker, old):
            counters.append(k)
        elif maker is not None and maker.type == "TensorListSetItem" and maker.inputs[0] is old:
            setters[k] = maker
        elif maker is not None and (new.dtype.is_floating or new.dtype.is_complex):
            values.append(k)
        else:
            return None
    limits = _limits(condition, set(counters))
    if not limits:
        return None
    # What is written isn't read in the same step, nor handed on in another way.
    rest = [maker for maker in body.ops if maker not in setters.values()]
    used = {var for maker in rest for var in maker.inputs}
    counter_of = {body.inputs[k]: k for k in counters}
    for k, maker in setters.items():
        if maker.outputs[0] in used or body.outputs.count(maker.outputs[0]) != 1:
            return None
        if maker.attrs.get("resize_if_index_out_of_bounds") or body.outputs.count(body.inputs[k]):
            return None
    outputs = [*(maker.inputs[2] for maker in setters.values()), *(body.outputs[k] for k in values)]
    writes = []
    for k, maker in setters.items():
        writes.append(Write(k, counter_of.get(maker.inputs[1]), len(outputs)))
        if writes[-1].counter is None:
            outputs.append(maker.inputs[1])
    step = Program(body.inputs, rest, outputs)
    read = frozenset(k for k, var in enumerate(body.inputs) if var in used or var in outputs)
    return CountedLoop(tuple(counters), tuple(limits), tuple(writes), tuple(values), step, read, _tables(step))


def _tables(step: Program) -> frozenset[int]:
    other = {
        var for maker in step.ops for position, var in enumerate(maker.inputs) if position or maker.type not in _PICKS
    }
    other |= set(step.outputs)
    return frozenset(k for k, var in enumerate(step.inputs) if var not in other)


def _counts(maker: Op, counter: Var) -> bool:
    one = maker.inputs[1].constant if len(maker.inputs) == 2 else None
    if maker.type not in ("AddV2", "Add") or maker.inputs[0] is not counter or one is None:
        return False
    return bool(counter.dtype.is_integer) and np.ndim(one) == 0 and int(one) == 1


def _limits(condition: Program, counters: set[int]) -> list[tuple[int, Any]]:
    """Of a condition that says that counters are below what doesn't change; nothing if it says anything else."""
    makers = {var: maker for maker in condition.ops for var in maker.outputs}
    place = {var: k for k, var in enumerate(condition.inputs)}
    limits: list[tuple[int, Any]] = []
    pending = [condition.outputs[0]]
    while pending:
        maker = makers.get(pending.pop())
        if maker is None:
            return []
        if maker.type == "LogicalAnd":
            pending += maker.inputs
            continue
        if maker.type != "Less" or place.get(maker.inputs[0]) not in counters:
            return []
        counter, bound = place[maker.inputs[0]], maker.inputs[1]
        if bound.constant is not None:
            limits.append((counter, np.int64(bound.constant)))
        elif bound in place and place[bound] not in counters:
            limits.append((counter, place[bound]))
        else:
            return []
    return limits


@dataclass(frozen=True)
class Flat:
    """All steps of all examples. `trips` [E]: how many each has. `rows`, `times` [N]: the example (by position in its
    place) and the step of each. `place`: for the steps. `columns`: inputs of the steps."""

    trips: Any
    rows: Any
    times: Any
    place: Place
    columns: list[Column]

    def at(self, start: Any) -> Any:
        """A counter's values [N]; `start`: [E], or the same for all."""
        return self.times + (start[self.rows] if np.ndim(start) else start)


def flattened(loop: CountedLoop, values: Sequence[Column], place: Place, *, indirect: bool) -> Flat | None:
    """The inputs of all steps; None where they can't be had, or are too many. `indirect`: tables stay as they are."""
    trips: Any = None
    for counter, bound in loop.limits:
        limit = bound if isinstance(bound, np.int64) else _number(values[bound])
        start = _number(values[counter])
        if limit is None or start is None:
            return None
        left = np.maximum(np.asarray(limit, np.int64) - np.asarray(start, np.int64), 0)
        trips = left if trips is None else np.minimum(trips, left)
    if any(_number(values[counter]) is None for counter in loop.counters):
        return None
    trips = np.broadcast_to(trips, (place.count,))
    rows = np.repeat(place.order, trips)
    times = np.arange(len(rows)) - np.repeat(np.cumsum(trips) - trips, trips)
    unread = {write.position for write in loop.writes} - loop.read
    columns = []
    for k, column in enumerate(values):
        kind = column.kind
        if k in loop.counters:
            number = kind.dtype.as_numpy_dtype
            start = np.asarray(column.data)
            steps = times + (start[rows] if start.ndim else start)
            columns.append(Column(Kind("host", (), kind.dtype), steps.astype(number)))
        elif k in unread or (indirect and k in loop.tables and kind.what in ("ragged", "seq", "list")):
            columns.append(column)
        elif _weight(column) * len(rows) > _LARGEST:
            return None
        else:
            columns.append(taken(column, rows))
    where = Place(place.tape, place.examples[rows], rows) if indirect else place.some(rows)
    return Flat(trips, rows, times, where, columns)


def _number(column: Column) -> Any:
    if column.kind.what in ("fixed", "const", "host") and column.kind.shape == ():
        return column.data
    return None


def _weight(column: Column) -> int:
    """How many numbers an example's row has."""
    data = column.data
    if column.kind.what in ("fixed", "const", "shared"):
        return 0
    if column.kind.what == "ragged":
        data = data[0]
    if isinstance(data, Seq):
        data = data.ids
    return int(data.size // max(len(data), 1)) if isinstance(data, np.ndarray) else 1


def written(items: Column, flat: Flat, ids: Any, shape: Any, at: Any) -> Column | None:
    """The list with what all steps wrote: value numbers `ids` [N], at positions `at`; None where two wrote one."""
    kind, seq = items
    at = np.broadcast_to(at, (len(flat.rows),))
    bad = (at < 0) | (at >= seq.counts[flat.rows])
    if bad.any():
        raise ExamplesFailed(flat.place.examples[bad], "an element beyond the list")
    full = seq.ids.copy()
    full[flat.rows, at] = ids
    if not (full[flat.rows, at] == ids).all():
        return None
    return Column(Kind("list", shape, kind.dtype), Seq(full, seq.counts))
