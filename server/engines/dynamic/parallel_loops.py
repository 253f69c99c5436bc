"""Loops whose steps don't depend on each other: such as one over the leaves of a tree, or `tf.map_fn`.

Nothing is carried from step to step but counters, and lists into which each step writes its own element. All steps of
all examples grow at once then, as a DyNet user's list comprehension; the nodes are the same.
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


@dataclass(frozen=True)
class Write:
    """List number `position` gets `value`, at the counter number `counter`."""

    position: int
    counter: int
    value: Var


@dataclass(frozen=True)
class ParallelLoop:
    """`steps`: by carry, how much a counter grows. `limits`: (counter, what it stays below: a carry's position, or a
    number). `body`: what a step computes, its outputs the written values."""

    steps: dict[int, int]
    limits: tuple[tuple[int, Any], ...]
    writes: tuple[Write, ...]
    body: Program


def as_parallel(op: Op) -> ParallelLoop | None:
    """The loop as one of independent steps, if it is one."""
    condition, body = op.bodies["cond"], op.bodies["body"]
    makers = {var: maker for maker in body.ops for var in maker.outputs}
    steps: dict[int, int] = {}
    lists: dict[int, Op] = {}
    for k, (new, old) in enumerate(zip(body.outputs, body.inputs, strict=True)):
        if new is old:
            continue
        maker = makers.get(new)
        if maker is None:
            return None
        if _is_step(maker, old):
            steps[k] = 1
        elif maker.type == "TensorListSetItem" and maker.inputs[0] is old:
            lists[k] = maker
        else:
            return None
    limits = _limits(condition, steps)
    if not limits or not lists:
        return None
    counters = {body.inputs[k]: k for k in steps}
    used = [var for maker in body.ops if maker not in lists.values() for var in maker.inputs]
    outputs = set(body.outputs)
    writes = []
    for k, maker in lists.items():
        others = [other for other in lists.values() if other is not maker and body.inputs[k] in other.inputs]
        if maker.inputs[1] not in counters or body.inputs[k] in used or others:
            return None
        if maker.outputs[0] in used or maker.attrs.get("resize_if_index_out_of_bounds"):
            return None
        writes.append(Write(k, counters[maker.inputs[1]], maker.inputs[2]))
    if any(body.inputs[k] in outputs for k in lists):
        return None
    rest = [maker for maker in body.ops if maker not in lists.values()]
    return ParallelLoop(
        steps, tuple(limits), tuple(writes), Program(body.inputs, rest, [write.value for write in writes])
    )


def _is_step(maker: Op, counter: Var) -> bool:
    one = maker.inputs[1].constant if len(maker.inputs) == 2 else None
    if maker.type not in ("AddV2", "Add") or maker.inputs[0] is not counter or one is None:
        return False
    return counter.dtype.is_integer and np.ndim(one) == 0 and int(one) == 1


def _limits(condition: Program, steps: dict[int, int]) -> list[tuple[int, Any]]:
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
        if maker.type != "Less" or place.get(maker.inputs[0]) not in steps:
            return []
        bound = maker.inputs[1]
        if bound.constant is not None:
            limits.append((place[maker.inputs[0]], int(bound.constant)))
        elif bound in place and place[bound] not in steps:
            limits.append((place[maker.inputs[0]], bound))
        else:
            return []
    return [(counter, place[bound] if isinstance(bound, Var) else np.int64(bound)) for counter, bound in limits]


@dataclass(frozen=True)
class Flat:
    """All steps of all examples: `rows` [N] says which example (by position in its place), `times` [N] which step."""

    trips: Any
    rows: Any
    times: Any
    place: Place
    columns: list[Column]


def flattened(loop: ParallelLoop, values: Sequence[Column], place: Place) -> Flat | None:
    """The inputs of all steps; None where they can't be had, or are too many."""
    trips: Any = None
    for counter, bound in loop.limits:
        limit = bound if isinstance(bound, np.int64) else _number(values[bound])
        start = _number(values[counter])
        if limit is None or start is None:
            return None
        left = np.maximum(np.asarray(limit, np.int64) - np.asarray(start, np.int64), 0)
        trips = left if trips is None else np.minimum(trips, left)
    trips = np.broadcast_to(trips, (place.count,))
    rows = np.repeat(place.order, trips)
    times = np.arange(len(rows)) - np.repeat(np.cumsum(trips) - trips, trips)
    changing = {write.position for write in loop.writes}
    if any(_weight(column) * len(rows) > _LARGEST for k, column in enumerate(values) if k not in changing):
        return None
    columns = []
    for k, column in enumerate(values):
        if k in loop.steps:
            kind, start = column.kind, _number(column)
            number = kind.dtype.as_numpy_dtype
            first = np.asarray(start)[rows] if np.ndim(start) else np.asarray(start)
            columns.append(Column(Kind("host", (), kind.dtype), (first + times).astype(number)))
        else:
            columns.append(column if k in changing else taken(column, rows))
    return Flat(trips, rows, times, place.some(rows), columns)


def _number(column: Column) -> Any:
    if column.kind.what in ("fixed", "const", "host") and column.kind.shape == ():
        return column.data
    return None


def _weight(column: Column) -> int:
    """How many numbers an example's row has."""
    data = column.data
    if column.kind.what == "ragged":
        data = data[0]
    if isinstance(data, Seq):
        data = data.ids
    if column.kind.what in ("fixed", "const", "shared"):
        return 0
    return int(data.size // max(len(data), 1)) if isinstance(data, np.ndarray) else 1


def written(items: Column, flat: Flat, value: Column, start: Any, place: Place) -> Column:
    """The list with what all steps wrote."""
    (kind, seq), at = items, flat.times + (np.asarray(start)[flat.rows] if np.ndim(start) else np.asarray(start))
    bad = (at < 0) | (at >= seq.counts[flat.rows])
    if bad.any():
        raise ExamplesFailed(flat.place.examples[bad], "an element beyond the list")
    ids = seq.ids.copy()
    ids[flat.rows, at] = value.data
    return Column(Kind("list", value.kind.shape, kind.dtype), Seq(ids, seq.counts))
