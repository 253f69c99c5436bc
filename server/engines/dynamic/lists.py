"""TensorLists while graphs grow: for each example the numbers of its elements, whose positions are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from server.engines.dynamic.templates import Place, Untemplatable
from server.engines.dynamic.values import ExamplesFailed, Kind, Seq
from vectorizer.program import Op

Known = tuple[int, Kind]
_any = np.logical_or.reduce
NUMBERS = ("fixed", "const", "host")


def handles(op: Op) -> bool:
    """Whether the op makes, reads or writes a TensorList."""
    return op.type in _RULES


def compile_list(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    """Adds one such op to a template; the result. `TensorListPopBack` adds its second result itself."""
    known: Known = _RULES[op.type](compiler, op, operands)
    return known


def _element_shape(compiler: Any, known: Known) -> Any:
    shape = compiler.content(known)
    if shape is None or np.ndim(shape) == 0 or (np.asarray(shape) < 0).any():
        return None
    return tuple(np.asarray(shape).tolist())


def _numbers(known: Known) -> Known:
    if known[1].what not in NUMBERS:
        raise Untemplatable
    return known


def _sizes(count: Any, place: Place) -> Any:
    sizes = np.empty(place.count, np.int64)
    sizes[:] = count
    return sizes


def _reserve(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    shape, count = operands[0], _numbers(operands[1])

    def reserved(data: Sequence[Any], place: Place) -> Seq:
        counts = _sizes(data[0], place)
        if (counts < 0).any():
            raise ExamplesFailed(place.examples[counts < 0], "a list of negative size")
        return Seq(np.full((place.count, int(counts.max())), -1, np.int64), counts)

    kind = Kind("list", _element_shape(compiler, shape), op.attrs["element_dtype"])
    made: Known = compiler.step(reserved, [count], kind)
    return made


def _empty(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    def empty(data: Sequence[Any], place: Place) -> Seq:
        return Seq(np.full((place.count, 0), -1, np.int64), np.zeros(place.count, np.int64))

    kind = Kind("list", _element_shape(compiler, operands[0]), op.attrs["element_dtype"])
    made: Known = compiler.step(empty, [], kind)
    return made


def _checked(index: Any, counts: Any, place: Place) -> Any:
    where = np.asarray(index, np.int64)
    # A negative number is a very large one without its sign.
    if _any(where.view(np.uint64) >= counts.view(np.uint64)):
        bad = (where < 0) | (where >= counts)
        raise ExamplesFailed(place.examples[bad], "an element beyond the list")
    return where


def _grown(seq: Seq, counts: Any) -> Seq:
    """The list with as many elements; new ones unwritten."""
    capacity = int(counts.max())
    ids = np.full((len(seq.ids), capacity), -1, np.int64)
    kept = min(capacity, seq.ids.shape[1])
    ids[:, :kept] = seq.ids[:, :kept]
    ids[np.arange(capacity) >= np.minimum(seq.counts, counts)[:, None]] = -1
    return Seq(ids, counts)


def _agreed(kind: Kind, value: Kind) -> Kind:
    """The kind of a list into which such a value is written."""
    if kind.shape is not None and kind.shape != value.shape:
        raise Untemplatable("elements of different shapes")
    return Kind("list", value.shape, kind.dtype)


def _set(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    items, index, value = operands[0], _numbers(operands[1]), compiler.leaf(operands[2])
    resize = bool(op.attrs.get("resize_if_index_out_of_bounds"))

    def written(data: Sequence[Any], place: Place) -> Seq:
        seq, at, ids = data
        if resize:
            seq = _grown(seq, np.maximum(seq.counts, _sizes(at, place) + 1))
        where = _checked(at, seq.counts, place)
        new = seq.ids.copy()
        new[place.order, where] = ids
        return Seq(new, seq.counts)

    made: Known = compiler.step(written, [items, index, value], _agreed(items[1], value[1]))
    return made


def _push(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    items, value = operands[0], compiler.leaf(operands[1])

    def pushed(data: Sequence[Any], place: Place) -> Seq:
        seq, ids = data
        grown = _grown(seq, seq.counts + 1)
        grown.ids[place.order, seq.counts] = ids
        return grown

    made: Known = compiler.step(pushed, [items, value], _agreed(items[1], value[1]))
    return made


def _read_shape(compiler: Any, items: Known, shape: Known) -> tuple[int, ...]:
    known = items[1].shape or _element_shape(compiler, shape)
    if known is None:
        if items[1].shape == ():
            return ()
        raise Untemplatable("elements of unknown shape are read")
    return tuple(known)


def _filled(ids: Any, kind: Kind, place: Place) -> Any:
    """Elements that were never written read as zeros."""
    missing = ids < 0
    if _any(missing, axis=None):
        zero = place.tape.leaves(np.zeros((1, *kind.shape), _number(kind.dtype)), kind.dtype)
        ids = np.where(missing, zero[0], ids)
    return ids


@functools.cache
def _number(dtype: Any) -> Any:
    return dtype.as_numpy_dtype


def _get(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    items, index = operands[0], _numbers(operands[1])
    kind = Kind("value", _read_shape(compiler, items, operands[2]), items[1].dtype)

    def read(data: Sequence[Any], place: Place) -> Any:
        seq, at = data
        where = _checked(at, place.of_table(seq.counts), place)
        return _filled(seq.at(place.table_rows, where), kind, place)

    made: Known = compiler.step(read, [items, index], kind)
    return made


def _gather(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    items, index = operands[0], _numbers(operands[1])
    count = index[1].shape[0]
    kind = Kind("seq", _read_shape(compiler, items, operands[2]), items[1].dtype, count)

    def read(data: Sequence[Any], place: Place) -> Seq:
        seq, at = data
        where = np.broadcast_to(at, (place.count, count))
        bad = ((where < 0) | (where >= place.of_table(seq.counts)[:, None])).any(axis=1)
        if bad.any():
            raise ExamplesFailed(place.examples[bad], "an element beyond the list")
        return Seq(_filled(seq.at(place.table_rows[:, None], where), kind, place), count)

    made: Known = compiler.step(read, [items, index], kind)
    return made


def _stack(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    items = operands[0]
    kind = Kind("seq", _read_shape(compiler, items, operands[1]), items[1].dtype)

    def stacked(data: Sequence[Any], place: Place) -> Seq:
        return Seq(_filled(data[0].ids, kind, place), data[0].counts)

    made: Known = compiler.step(stacked, [items], kind)
    return made


def _from_tensor(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    rows, kind = operands[0], operands[0][1]
    if kind.what == "seq":
        made: Known = compiler.step(
            lambda data, place: Seq(data[0].ids, data[0].sizes()), [rows], Kind("list", kind.shape, kind.dtype)
        )
        return made
    rows = compiler.leaf(rows)
    return _unstacked(compiler, rows)


def _unstacked(compiler: Any, rows: Known) -> Known:
    kind = rows[1]
    count, shape = kind.shape[0], kind.shape[1:]
    registers = compiler.unstack(rows[0], count, shape, kind.dtype)
    element = Kind("value", shape, kind.dtype)

    def listed(data: Sequence[Any], place: Place) -> Seq:
        ids = np.stack(data, axis=1) if data else np.zeros((place.count, 0), np.int64)
        return Seq(ids, np.full(place.count, count, np.int64))

    made: Known = compiler.step(listed, [(k, element) for k in registers], Kind("list", shape, kind.dtype))
    return made


def _scatter(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    if op.type == "TensorListScatterIntoExistingList":
        existing: Known | None = operands[0]
        rows, index = operands[1], _numbers(operands[2])
        size: Any = None
    else:
        existing = None
        rows, index = operands[0], _numbers(operands[1])
        size = compiler.content(operands[3]) if op.type == "TensorListScatterV2" else -1
    source = _from_tensor(compiler, op, [rows])

    def scattered(data: Sequence[Any], place: Place) -> Seq:
        seq, at = data[0], data[1]
        where = np.broadcast_to(at, (place.count, at.shape[-1]))
        if existing is not None:
            counts = data[2].counts
            ids = data[2].ids.copy()
        else:
            needed = int(where.max(initial=-1)) + 1
            counts = np.full(place.count, max(int(size), needed), np.int64)
            ids = np.full((place.count, int(counts.max(initial=0))), -1, np.int64)
        bad = ((where < 0) | (where >= counts[:, None])).any(axis=1)
        if bad.any():
            raise ExamplesFailed(place.examples[bad], "an element beyond the list")
        ids[place.order[:, None], where] = seq.ids
        return Seq(ids, counts)

    if existing is None and (size is None or (int(size) < 0 and index[1].what == "host")):
        raise Untemplatable("a list whose size differs is made by scattering")
    reads = [source, index, *([existing] if existing else [])]
    made: Known = compiler.step(scattered, reads, Kind("list", source[1].shape, source[1].dtype))
    return made


def _pop(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    items = operands[0]
    kind = Kind("value", _read_shape(compiler, items, operands[1]), items[1].dtype)

    def last(data: Sequence[Any], place: Place) -> Any:
        seq = data[0]
        return _filled(seq.ids[place.order, _checked(seq.counts - 1, seq.counts, place)], kind, place)

    compiler.put(op.outputs[1], compiler.step(last, [items], kind))
    made: Known = compiler.step(lambda data, place: _grown(data[0], data[0].counts - 1), [items], items[1])
    return made


def _length(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    kind = Kind("host", (), op.outputs[0].dtype)
    made: Known = compiler.step(lambda data, place: data[0].counts.astype(np.int32), [operands[0]], kind)
    return made


def _resize(compiler: Any, op: Op, operands: Sequence[Known]) -> Known:
    items, size = operands[0], _numbers(operands[1])
    made: Known = compiler.step(lambda data, place: _grown(data[0], _sizes(data[1], place)), [items, size], items[1])
    return made


_RULES: dict[str, Callable[[Any, Op, Sequence[Known]], Known]] = {
    "TensorListReserve": _reserve,
    "EmptyTensorList": _empty,
    "TensorListSetItem": _set,
    "TensorListGetItem": _get,
    "TensorListGather": _gather,
    "TensorListStack": _stack,
    "TensorListFromTensor": _from_tensor,
    "TensorListScatter": _scatter,
    "TensorListScatterV2": _scatter,
    "TensorListScatterIntoExistingList": _scatter,
    "TensorListPushBack": _push,
    "TensorListPopBack": _pop,
    "TensorListLength": _length,
    "TensorListResize": _resize,
}
