"""Sums, means and extremes over segments, and counts of values.

Row i's segment s becomes segment `i * room + s` of one unsorted reduction over all rows; an element whose segment is
negative counts nowhere, which is what padding gets. Ids that TensorFlow refuses fail their row and are set to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import xla_kernels
from vectorizer.batch import Batch
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.indexing import gather_rows
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, number, shared, size_mask

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "Sum": tf.math.unsorted_segment_sum,
    "Prod": tf.math.unsorted_segment_prod,
    "Max": tf.math.unsorted_segment_max,
    "Min": tf.math.unsorted_segment_min,
}


def reduce_segments(how: str, data: Any, ids: Any, room: Any) -> Any:
    """`data` [B, N, ...] by `ids` [B, N] to [B, room, ...]; negative ids count nowhere."""
    count = dimension(data, 0)
    rows = tf.cast(tf.range(count) * room, ids.dtype)[:, None]
    flat = tf.reshape(tf.where(ids >= 0, ids + rows, tf.constant(-1, ids.dtype)), [-1])
    inner = tf.shape(data)[2:]
    whole = tf.reshape(data, tf.concat([[tf.size(flat)], inner], 0))
    kernel = lambda tensors: [_REDUCTIONS[how](*tensors)]  # noqa: E731
    operands = [whole, flat, tf.cast(count * room, tf.int32)]
    (result,) = xla_kernels.run(f"UnsortedSegment{how}", kernel, operands, {})
    shaped = tf.reshape(result, tf.concat([tf.stack([count, room]), inner], 0))
    shaped.set_shape([*_static([count, room]), *data.shape.as_list()[2:]])
    return shaped


def _static(dims: Sequence[Any]) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in dims]


def segment_counts(ids: Any, room: Any, dtype: Any = tf.int32) -> Any:
    """How many elements each segment has: `[B, room]`."""
    return reduce_segments("Sum", tf.ones_like(ids, dtype), ids, room)


def present_ids(ids: Value, tensor: Any) -> Any:
    """`tensor`, the ids `[B, ...]`, with those of padding set to -1."""
    for axis, size in ids.sizes.items():
        tensor = tf.where(size_mask(size, ids.rank, axis), tensor, tf.constant(-1, tensor.dtype))
    return tensor


def number_of_segments(count: Value, batch: Batch) -> tuple[Any, Size | None]:
    """(room, Size where it differs between rows) of a scalar; a negative number fails its row."""
    known = count.static()
    if known is not None and known >= 0:
        return int(known), None
    tensor = tf.cast(count.tensor, tf.int32)
    batch.check(tensor >= 0)
    if not count.batched:
        return tf.maximum(tensor, 0), None
    size = batch.new_size(Value(tensor, True, size=count.size, upper=count.upper))
    return size.padded, size


def _row_checks(good: Any, ids: Value, batch: Batch) -> None:
    """`good`: bool, one for each of the ids as `[B, ...]`, those of padding included."""
    for axis, size in ids.sizes.items():
        good = tf.logical_or(good, tf.logical_not(size_mask(size, ids.rank, axis)))
    batch.check(tf.reduce_all(good, list(range(1, good.shape.rank))))


@converts(
    "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin", checks="a segment is out of range"
)
def convert_unsorted_segment(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Each element goes to the segment that it names; negative ones go nowhere."""
    data, ids, count = inputs
    if not any(value.batched for value in inputs):
        return [_unsorted_for_all(op, data, ids, count, batch)]
    for axis in range(ids.rank):
        if axis in data.sizes or axis in ids.sizes:
            data, ids = align_pair(data, axis, ids, axis, batch)
    room, own = number_of_segments(count, batch)
    tensor, values = batch.rows(ids), batch.rows(data)
    limit = own.lengths if own is not None else room
    limit = tf.cast(tf.reshape(limit, [-1] + [1] * ids.rank) if own is not None else limit, tensor.dtype)
    _row_checks(tensor < limit, ids, batch)
    tensor = present_ids(ids, tf.where(tensor < limit, tensor, tf.constant(-1, tensor.dtype)))
    rest = tf.shape(values)[1 + ids.rank :]
    elements = tf.reduce_prod(tf.shape(tensor)[1:])
    flat = tf.reshape(values, tf.concat([tf.stack([batch.size, elements]), rest], 0))
    flat.set_shape([None, None, *values.shape.as_list()[1 + ids.rank :]])
    how = op.type.removeprefix("UnsortedSegment")
    result = reduce_segments(how, flat, tf.reshape(tensor, tf.stack([batch.size, elements])), room)
    sizes = {axis - ids.rank + 1: size for axis, size in data.sizes.items() if axis >= ids.rank}
    if own is not None:
        sizes[0] = own
    return [batched(result, sizes)]


def _unsorted_for_all(op: Op, data: Value, ids: Value, count: Value, batch: Batch) -> Value:
    limit = tf.cast(count.tensor, ids.dtype)
    good = ids.tensor < limit
    batch.check(tf.logical_and(tf.reduce_all(good), count.tensor >= 0))
    safe = tf.where(good, ids.tensor, tf.constant(-1, ids.dtype))
    return shared(replay(op, [data.tensor, safe, tf.maximum(count.tensor, 0)])[0])


_GAPS = {"Prod": 1}
_SORTED = "the segments aren't sorted, or negative"


@converts("SegmentSum SegmentProd SegmentMax SegmentMin SegmentMean", checks=_SORTED)
def convert_segment(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """As many segments as the last id says; one without elements is 0 (a product of none is 1)."""
    if not any(value.batched for value in inputs):
        return _sorted_for_all(op, inputs, 1, batch)
    data, ids = _matched(inputs[0], inputs[1], batch)
    tensor, room, own = _sorted_ids(ids, None, batch)
    how = op.type.removeprefix("Segment")
    return [_reduced(how, batch.rows(data), tensor, room, own, {k: s for k, s in data.sizes.items() if k}, batch)]


def _sorted_for_all(op: Op, inputs: Sequence[Value], place: int, batch: Batch) -> list[Value]:
    """Operands that all rows share; the ids, at `place`, may be bad where no row is active."""
    ids = inputs[place].tensor
    good = tf.reduce_all(ids >= tf.concat([tf.zeros_like(ids[:1]), ids[:-1]], 0))
    if len(inputs) > place + 1:
        good = tf.logical_and(good, tf.reduce_all(ids < tf.cast(inputs[place + 1].tensor, ids.dtype)))
    batch.check(good)
    tensors = [value.tensor for value in inputs]
    tensors[place] = tf.where(good, ids, tf.zeros_like(ids))
    return [shared(replay(op, tensors)[0])]


def _matched(data: Value, ids: Value, batch: Batch) -> tuple[Value, Value]:
    if 0 in data.sizes or 0 in ids.sizes:
        return align_pair(data, 0, ids, 0, batch)
    return data, ids


def _sorted_ids(ids: Value, count: Value | None, batch: Batch) -> tuple[Any, Any, Size | None]:
    """Sorted ids `[B, N]` (-1 for padding and in rows that fail), room, and the Size of the segments."""
    tensor = batch.rows(ids)
    present = tensor >= 0 if not ids.sizes else size_mask(ids.sizes[0], 1, 0)
    before = tf.concat([tf.zeros_like(tensor[:, :1]), tensor[:, :-1]], 1)
    good = tf.reduce_all(tf.logical_or(tensor >= before, tf.logical_not(present) if ids.sizes else False), 1)
    last = tf.reduce_max(tf.where(present, tensor, tf.constant(-1, tensor.dtype)), 1)
    if count is None:
        batch.check(good)
        known = ids.static()
        if known is not None and np.all(np.diff(known, prepend=0) >= 0):
            room, own = int(known[-1]) + 1 if known.size else 0, None
        else:
            total = tf.where(good, tf.cast(last, tf.int32) + 1, 0) if last.shape[0] != 0 else tf.cast(last, tf.int32)
            own = batch.new_size(number(total))
            room = own.padded
            good = tf.logical_and(good, total <= room)
    else:
        room, own = number_of_segments(count, batch)
        good = tf.logical_and(good, last < tf.cast(own.lengths if own is not None else room, last.dtype))
        batch.check(good)
    keep = tf.logical_and(present, good[:, None])
    return tf.where(keep, tensor, tf.constant(-1, tensor.dtype)), room, own


def _reduced(how: str, data: Any, ids: Any, room: Any, own: Size | None, sizes: dict[int, Size], batch: Batch) -> Value:
    """`data` [B, N, ...] by sorted ids; a segment without elements is filled as TensorFlow does it."""
    how, divided = ("Sum", how) if how in ("Mean", "SqrtN") else (how, "")
    result = reduce_segments(how, data, ids, room)
    counts = segment_counts(ids, room)
    counts = counts[(..., *([None] * (result.shape.rank - 2)))]
    if divided:
        divisor = tf.cast(tf.maximum(counts, 1), result.dtype)
        divisor = tf.sqrt(divisor) if divided == "SqrtN" else divisor
        result = tf.truncatediv(result, divisor) if result.dtype.is_integer else result / divisor
    else:
        if how in ("Max", "Min") and result.dtype.is_floating:
            result = _of_infinities(how, result, data, ids, room)
        result = tf.where(counts > 0, result, tf.constant(_GAPS.get(how, 0), result.dtype))
    return batched(result, {**sizes, 0: own} if own is not None else sizes)


def _of_infinities(how: str, result: Any, data: Any, ids: Any, room: Any) -> Any:
    """The maximum of nothing but minus infinity is that; the kernel starts from the least finite number."""
    start, worst = (result.dtype.min, -np.inf) if how == "Max" else (result.dtype.max, np.inf)
    better = data > worst if how == "Max" else data < worst
    none = reduce_segments("Sum", tf.cast(better, tf.int32), ids, room) == 0
    at_start = result == tf.constant(start, result.dtype)
    return tf.where(tf.logical_and(none, at_start), tf.constant(worst, result.dtype), result)


@converts(
    """SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN
    SparseSegmentSumWithNumSegments SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments""",
    checks=f"an index is out of range; {_SORTED}",
)
def convert_sparse_segment(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rows of a table, by index, reduced over segments: `tf.nn.embedding_lookup_sparse`."""
    table, indices, ids = inputs[:3]
    if not any(value.batched for value in inputs):
        size = tf.cast(tf.shape(table.tensor)[0], indices.dtype)
        good = tf.logical_and(indices.tensor >= 0, indices.tensor < size)
        batch.check(tf.reduce_all(good))
        safe = tf.where(good, indices.tensor, tf.constant(0, indices.dtype))
        return _sorted_for_all(op, [table, shared(safe), *inputs[2:]], 2, batch)
    indices, ids = _matched(indices, ids, batch)
    rows = gather_rows(table, indices, batch)
    tensor, room, own = _sorted_ids(ids, inputs[3] if len(inputs) > 3 else None, batch)
    how = op.type.removeprefix("SparseSegment").removesuffix("WithNumSegments")
    return [_reduced(how, batch.rows(rows), tensor, room, own, {k: s for k, s in rows.sizes.items() if k}, batch)]


@converts(
    "SparseSegmentSumGrad SparseSegmentMeanGrad SparseSegmentSqrtNGrad", checks="an index or segment is out of range"
)
def convert_sparse_segment_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Each row of the table gets the gradients of the segments it went into."""
    gradient, indices, ids, count = inputs
    indices, ids = _matched(indices, ids, batch)
    known = count.static()
    if gradient.sizes or known is None:
        raise NotConvertible("the gradient of a sparse segment sum over a table or segments of unknown size")
    room = int(known)
    values = batch.rows(gather_rows(gradient, ids, batch))
    segments = present_ids(ids, batch.rows(ids))
    how = op.type.removeprefix("SparseSegment").removesuffix("Grad")
    if how != "Sum":
        counts = segment_counts(segments, dimension(gradient.tensor, int(gradient.batched)), values.dtype)
        each = tf.gather(counts, tf.maximum(segments, 0), batch_dims=1)
        each = tf.maximum(each, 1) if how == "Mean" else tf.sqrt(tf.maximum(each, 1))
        values = values / each[(..., *([None] * (values.shape.rank - 2)))]
    targets = batch.rows(indices)
    good = tf.logical_and(targets >= 0, targets < room)
    _row_checks(good, indices, batch)
    targets = present_ids(indices, tf.where(good, targets, tf.constant(-1, targets.dtype)))
    return [batched(reduce_segments("Sum", values, targets, room))]


@converts("Bincount DenseBincount", checks="a value is negative")
def convert_bincount(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """How often each of 0, 1, ... occurs, or the sum of its weights; values beyond the last bin count nowhere."""
    values, count, weights = inputs
    if not any(value.batched for value in inputs):
        good = values.tensor >= 0
        batch.check(tf.logical_and(tf.reduce_all(good), count.tensor >= 0))
        safe = tf.where(good, values.tensor, tf.constant(0, values.dtype))
        return [shared(replay(op, [safe, tf.maximum(count.tensor, 0), weights.tensor])[0])]
    weighted = weights.shape != [0]
    if weighted and (0 in values.sizes or 0 in weights.sizes) and values.rank:
        values, weights = align_pair(values, 0, weights, 0, batch)
    stacked = op.type == "DenseBincount" and values.rank == 2
    if stacked and (values.sizes or (weighted and weights.sizes)):
        raise NotConvertible("counting in each of several ragged rows of one example")
    room, own = number_of_segments(count, batch)
    tensor = batch.rows(values)
    _row_checks(tensor >= 0, values, batch)
    tensor = tf.where(tensor < tf.cast(room, tensor.dtype), present_ids(values, tensor), tf.constant(-1, tensor.dtype))
    if own is not None:
        limit = tf.cast(tf.reshape(own.lengths, [-1] + [1] * values.rank), tensor.dtype)
        tensor = tf.where(tensor < limit, tensor, tf.constant(-1, tensor.dtype))
    groups = batch.size * dimension(tensor, 1) if stacked else batch.size
    each = tf.size(tensor) // tf.maximum(groups, 1)
    ids = tf.reshape(tensor, tf.stack([groups, each]))
    amounts = tf.ones_like(ids, weights.dtype)
    if weighted and not op.attrs.get("binary_output"):
        amounts = tf.reshape(batch.rows(weights), tf.shape(ids))
    result = reduce_segments("Sum", amounts, ids, room)
    if op.attrs.get("binary_output"):
        result = tf.cast(segment_counts(ids, room) > 0, weights.dtype)
    if stacked:
        result = tf.reshape(result, tf.stack([batch.size, dimension(tensor, 1), room]))
    return [batched(result, {int(stacked): own} if own is not None else {})]


@converts("HistogramFixedWidth", checks="the range is empty, or a number NaN")
def convert_histogram(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """How many elements fall into each of so many bins of equal width; what lies outside goes to the outer ones."""
    values, bounds, count = inputs
    good = bounds.tensor[..., 0] < bounds.tensor[..., 1]
    batch.check(good)
    safe = tf.where(good[..., None], bounds.tensor, tf.constant([0, 1], bounds.dtype))
    if values.dtype.is_floating:
        missing = tf.math.is_nan(values.tensor)
        batch.fail_where(missing, values)
        values = Value(tf.where(missing, tf.zeros([], values.dtype), values.tensor), values.batched, values.sizes)
    if not any(value.batched for value in inputs):
        return [shared(replay(op, [values.tensor, safe, count.tensor])[0])]
    bins = count.static()
    if bins is None or bins < 1:
        raise NotConvertible("a histogram of an unknown number of bins")
    limits = batch.rows(Value(safe, bounds.batched))
    shape = [-1] + [1] * values.rank
    low, high = (tf.reshape(limits[:, side], shape) for side in (0, 1))
    width = tf.cast(high - low, tf.float64) / int(bins)
    rows = batch.rows(values)
    above = tf.cast(tf.maximum(rows, low) - low, tf.float64) / width
    places = present_ids(values, tf.cast(tf.minimum(above, tf.constant(int(bins) - 1, tf.float64)), tf.int32))
    each = tf.reduce_prod(tf.shape(places)[1:])
    flat = tf.reshape(places, tf.stack([batch.size, each]))
    return [batched(segment_counts(flat, int(bins), op.outputs[0].dtype))]
