"""Ops on sequences of different lengths, row by row where they are the same for each row.

A DyNet user writes them so: a layer on each word, a message along each edge. Rows of all examples are alike then,
whatever the lengths, where whole sequences are alike only if they are as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from server.engines.dynamic.signatures import Signatures
from server.engines.dynamic.templates import Place, Template
from server.engines.dynamic.values import Column, ExamplesFailed, Kind, Seq, on_host, seq_column, value_column
from vectorizer.program import Op

_EACH = frozenset(
    [
        "Tanh",
        "Sigmoid",
        "Relu",
        "Exp",
        "Neg",
        "Square",
        "Sqrt",
        "Abs",
        "Sin",
        "Cos",
        "Log",
        "Softplus",
        "Elu",
        "Selu",
        "Relu6",
        "Add",
        "AddV2",
        "Sub",
        "Mul",
        "RealDiv",
        "Maximum",
        "Minimum",
        "BiasAdd",
        "SquaredDifference",
    ]
)


def row_op(op: Op, columns: Sequence[Column], sizes: Any) -> list[Column] | None:
    """The operands of the same op on one row, with sequences as they are; None if rows aren't the same."""
    if len(np.unique(sizes)) < 2:
        return None  # all as long: whole sequences are alike
    sequences = [column for column in columns if column.kind.what == "seq"]
    if any((column.data.sizes() != sizes).any() for column in sequences):
        return None
    rank = len(sequences[0].kind.shape)
    if op.type in _EACH:
        if any(len(column.kind.shape) != rank for column in sequences):
            return None
        if any(_rank(column) > rank for column in columns if column.kind.what != "seq"):
            return None
        return list(columns)
    if op.type == "MatMul":
        fine = columns[0].kind.what == "seq" and columns[1].kind.what == "shared" and not op.attrs.get("transpose_a")
        return list(columns) if fine and rank == 1 else None
    if op.type == "ConcatV2" and columns[-1].kind.what == "fixed" and len(sequences) == len(columns) - 1:
        axis = int(columns[-1].data)
        if axis == 0 or axis + rank + 1 == 0:
            return None
        return [*sequences, on_host(np.asarray(axis - 1 if axis > 0 else axis, np.int32), columns[-1].kind.dtype)]
    return None


def _rank(column: Column) -> int:
    kind = column.kind
    if kind.what == "shared":
        return int(kind.extra.tensor.shape.rank)
    return len(kind.shape) if kind.what in ("fixed", "const") else 99


def flat_rows(op: Op, columns: Sequence[Column], sizes: Any) -> list[Column]:
    """The operands with all rows of all examples one after the other."""
    inside = np.arange(int(sizes.max())) < sizes[:, None]
    flat = []
    for column in columns:
        if column.kind.what == "seq":
            shape = (1, *column.kind.shape) if op.type == "MatMul" else column.kind.shape
            ids = column.data.ids[:, : inside.shape[1]][inside]
            flat.append(value_column(ids, shape, column.kind.dtype))
        else:
            flat.append(column)
    return flat


def as_sequence(op: Op, column: Column, sizes: Any) -> Column:
    """Rows one after the other as sequences."""
    shape = column.kind.shape[1:] if op.type == "MatMul" else column.kind.shape
    ids = np.full((len(sizes), int(sizes.max())), -1, np.int64)
    ids[np.arange(ids.shape[1]) < sizes[:, None]] = column.data
    return seq_column(Seq(ids, sizes), shape, column.kind.dtype)


def segment_sums(
    data: Column, segment: Column, counts: Any, place: Place, signatures: Signatures, templates: dict[Any, Any]
) -> Column | None:
    """UnsortedSegmentSum of rows: each sum a node of as many operands as the segment has rows."""
    sizes, (ids, lengths) = data.data.sizes(), segment.data
    if (lengths != sizes).any():
        return None
    counts = np.broadcast_to(np.asarray(counts, np.int64), (place.count,))
    inside = np.arange(ids.shape[1]) < sizes[:, None]
    bad = (inside & (ids >= counts[:, None])).any(axis=1) | (counts < 0)
    if bad.any():
        raise ExamplesFailed(place.examples[bad], "a segment is out of range")
    width = int(counts.max())
    inside &= ids >= 0
    rows, _ = np.nonzero(inside)
    keys = rows * width + ids[inside]
    order = np.argsort(keys, kind="stable")
    values = data.data.ids[:, : inside.shape[1]][inside][order]
    found, starts, repeats = np.unique(keys[order], return_index=True, return_counts=True)
    kind = Kind("value", data.kind.shape, data.kind.dtype)
    zero = place.tape.leaves(np.zeros((1, *kind.shape), kind.dtype.as_numpy_dtype), kind.dtype)[0]
    sums = np.full(place.count * width, zero, np.int64)
    for repeat in np.unique(repeats).tolist():
        which = repeats == repeat
        operands = values[starts[which][:, None] + np.arange(repeat)]
        key = ("sum", repeat, kind.shape, kind.dtype)
        template = templates.get(key)
        if template is None:
            template = templates[key] = Template()
            signature = signatures.of_sum(repeat, kind.shape, kind.dtype)
            (made,) = template.node(signature, [template.register() for _ in range(repeat)])
            template.finish([(made, kind)])
        sums[found[which]] = template.expand(list(operands.T), place.some(found[which] // max(width, 1)))[0].data
    return seq_column(Seq(sums.reshape(place.count, width), counts), kind.shape, kind.dtype)
