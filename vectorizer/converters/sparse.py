"""Sparse and ragged tensors given by their parts: coordinates, values, where rows begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.segments import present_ids, reduce_segments, segment_counts
from vectorizer.converters.shapes import dense_dims
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, number, shared, size_mask


@converts("SparseToDense", checks="a coordinate is out of range, or out of order")
def convert_sparse_to_dense(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.sparse.to_dense`: values at their coordinates, a default elsewhere."""
    coordinates, shape, values, default = inputs
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    if coordinates.rank != 2 or values.rank != 1 or coordinates.shape[1] is None:
        raise NotConvertible("a sparse tensor given by one coordinate, or filled with one value")
    if coordinates.sizes or values.sizes:
        coordinates, values = align_pair(coordinates, 0, values, 0, batch)
    dims, sizes = dense_dims(shape.elements(), batch)
    places = batch.rows(coordinates)
    present = size_mask(values.sizes[0], 1, 0) if values.sizes else tf.ones_like(places[..., 0], tf.bool)
    good, place = present, tf.zeros_like(places[..., 0])
    for axis, room in enumerate(dims):
        column = places[..., axis]
        limit = sizes[axis].lengths[:, None] if axis in sizes else room
        good = tf.logical_and(good, tf.logical_and(column >= 0, column < tf.cast(limit, column.dtype)))
        place = place * tf.cast(room, column.dtype) + column
    if op.attrs["validate_indices"]:
        before = tf.concat([tf.fill([batch.size, 1], tf.constant(-1, place.dtype)), place[:, :-1]], 1)
        good = tf.logical_and(good, place > before[:, : tf.shape(place)[1]])
    batch.check(tf.reduce_all(tf.logical_or(good, tf.logical_not(present)), 1))
    total: Any = 1
    for room in dims:
        total = total * room
    behind = tf.where(good, place, tf.cast(total, place.dtype))  # what counts nowhere goes behind the end
    blank = tf.tile(batch.rows(default)[:, None], tf.stack([1, total + 1]))
    ranks = tf.broadcast_to(tf.cast(tf.range(batch.size), place.dtype)[:, None], tf.shape(place))
    flat = tf.tensor_scatter_nd_update(blank, tf.stack([ranks, behind], -1), batch.rows(values))
    return [batched(tf.reshape(flat[:, :total], [batch.size, *dims]), sizes)]


@converts("SparseTensorDenseMatMul", checks="a coordinate is out of range")
def convert_sparse_matmul(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.sparse.sparse_dense_matmul`: each value times a row of the dense matrix, summed by its own row."""
    coordinates, values, shape, dense = inputs
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    if dense.dtype.is_complex or dense.sizes:
        raise NotConvertible("a sparse product with a complex or ragged matrix")
    rows, columns = (int(size) for size in require_static(shape, "the shape of a sparse matrix"))
    if coordinates.sizes or values.sizes:
        coordinates, values = align_pair(coordinates, 0, values, 0, batch)
    places, matrix = batch.rows(coordinates), batch.rows(dense)
    row, column = places[..., 0], places[..., 1]
    good = tf.logical_and(tf.logical_and(row >= 0, row < rows), tf.logical_and(column >= 0, column < columns))
    present = size_mask(values.sizes[0], 1, 0) if values.sizes else tf.ones_like(good)
    batch.check(tf.reduce_all(tf.logical_or(good, tf.logical_not(present)), 1))
    counted = tf.logical_and(good, present)
    if op.attrs["adjoint_b"]:
        matrix = tf.transpose(matrix, [0, 2, 1])
    if op.attrs["adjoint_a"]:
        row, column, rows = column, row, columns
    factors = tf.gather(matrix, tf.where(counted, column, 0), axis=1, batch_dims=1)
    products = factors * batch.rows(values)[..., None]
    return [batched(reduce_segments("Sum", products, tf.where(counted, row, -1), rows))]


@converts("RaggedTensorToTensor")
def convert_ragged_to_tensor(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`RaggedTensor.to_tensor` with one ragged dimension: each row's values from where it begins."""
    shape, values, default, *partitions = inputs
    kinds = [kind.decode() for kind in op.attrs["row_partition_types"]]
    if kinds not in (["ROW_SPLITS"], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]) or default.rank != 0:
        raise NotConvertible("a tensor of several ragged dimensions made dense, or with a default that isn't one value")
    if values.rank != 1 and values.sizes.keys() - {0}:
        raise NotConvertible("a ragged tensor of ragged values made dense")
    begins, counts, rows = _begins(kinds, partitions, batch)
    wanted = shape.static()
    if wanted is None or (wanted.ndim and (wanted[0] != -1 or any(wanted[2:] != -1))):
        raise NotConvertible("a ragged tensor made dense with a given number of rows")
    content = batch.rows(values)
    counts_here = counts if rows is None else tf.where(size_mask(rows, 1, 0), counts, 0)
    if wanted.ndim and wanted[1] != -1:
        width: Size | None = None
        room: Any = int(wanted[1])
    else:
        longest = tf.reduce_max(tf.concat([tf.zeros([batch.size, 1], tf.int32), counts_here], 1), 1)
        upper = values.sizes[0].padded if 0 in values.sizes else dimension(content, 1)
        width = batch.new_size(number(longest, upper=upper))
        room = width.padded
    slots = tf.range(room)[None, None, :]
    inside = slots < counts_here[..., None]
    last = tf.maximum(dimension(content, 1) - 1, 0)
    index = tf.clip_by_value(begins[..., None] + slots, 0, last)
    if content.shape[1] == 0:
        content = tf.pad(content, [[0, 0], [0, 1], *[[0, 0]] * (content.shape.rank - 2)])
    taken = tf.gather(content, index, axis=1, batch_dims=1)
    fill = tf.reshape(batch.rows(default), [-1] + [1] * (taken.shape.rank - 1))
    tensor = tf.where(inside[(..., *([None] * (taken.shape.rank - 3)))], taken, fill)
    sizes = {} if rows is None else {0: rows}
    return [batched(tensor, sizes if width is None else {**sizes, 1: width})]


def _begins(kinds: Sequence[str], partitions: Sequence[Value], batch: Batch) -> tuple[Any, Any, Size | None]:
    """Where each ragged row begins and how many values it has, int32 `[B, R]`, and the Size of R."""
    if kinds == ["ROW_SPLITS"]:
        (splits,) = partitions
        ends = tf.cast(batch.rows(splits), tf.int32)
        size = splits.sizes.get(0)
        rows = None if size is None else Size(tf.maximum(size.lengths - 1, 0), _less_one(size.padded))
        return ends[:, :-1], ends[:, 1:] - ends[:, :-1], _roomy(rows)
    count, ids = partitions
    known = count.static()
    size = batch.new_size(count) if count.batched else None
    room = size.padded if size is not None else int(known) if known is not None else tf.cast(count.tensor, tf.int32)
    counts = segment_counts(tf.cast(present_ids(ids, batch.rows(ids)), tf.int32), room)
    return tf.cumsum(counts, axis=1, exclusive=True), counts, size


def _less_one(size: Any) -> Any:
    return max(size - 1, 0) if isinstance(size, int) else tf.maximum(size - 1, 0)


def _roomy(size: Size | None) -> Size | None:
    if size is not None and isinstance(size.padded, int) and size.padded < 1:
        raise NotConvertible("a ragged tensor without any room for rows")
    return size


@converts("SparseReorder", checks="a coordinate is out of range")
def convert_sparse_reorder(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Coordinates and values in row-major order."""
    coordinates, values, shape = inputs
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    room = [int(size) for size in require_static(shape, "the shape of a sparse tensor")]
    if coordinates.sizes or values.sizes:
        coordinates, values = align_pair(coordinates, 0, values, 0, batch)
    places, content = batch.rows(coordinates), batch.rows(values)
    present = size_mask(values.sizes[0], 1, 0) if values.sizes else tf.ones_like(places[..., 0], tf.bool)
    limits = tf.constant(room, places.dtype)
    good = tf.reduce_all(tf.logical_and(places >= 0, places < limits), -1)
    batch.check(tf.reduce_all(tf.logical_or(good, tf.logical_not(present)), 1))
    place = tf.zeros_like(places[..., 0])
    for axis, size in enumerate(room):
        place = place * size + places[..., axis]
    order = tf.argsort(tf.where(present, place, place.dtype.max), axis=1, stable=True)
    sizes = dict(values.sizes)
    return [
        batched(tf.gather(places, order, axis=1, batch_dims=1), sizes),
        batched(tf.gather(content, order, axis=1, batch_dims=1), sizes),
    ]


@converts("RaggedRange", checks="a step is zero")
def convert_ragged_range(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Ranges one after the other, and where each of them begins."""
    fail = [value.tensor == tf.zeros([], value.dtype) for value in inputs[2:]]
    good = tf.logical_not(fail[0])
    rank = int(inputs[2].batched)
    batch.check(tf.reduce_all(good, list(range(rank, good.shape.rank))))
    delta = Value(tf.where(good, inputs[2].tensor, tf.ones([], inputs[2].dtype)), inputs[2].batched)
    if not any(value.batched for value in inputs):
        return [shared(tensor) for tensor in replay(op, [inputs[0].tensor, inputs[1].tensor, delta.tensor])]
    if any(value.sizes for value in inputs):
        raise NotConvertible("a variable number of ranges")
    rows = [batch.rows(value) for value in (inputs[0], inputs[1], delta)]
    rows = [row if row.shape.rank == 2 else row[:, None] for row in rows]
    count = max((dimension(row, 1) for row in rows), key=lambda size: size if isinstance(size, int) else 2)
    start, limit, step = (tf.broadcast_to(row, tf.stack([batch.size, count])) for row in rows)
    if start.dtype.is_integer:
        lengths = (limit - start + step - tf.sign(step)) // step
    else:
        lengths = tf.math.ceil((limit - start) / step)
    ends = tf.cumsum(tf.maximum(tf.cast(lengths, tf.int32), 0), axis=1)
    splits = tf.concat([tf.zeros([batch.size, 1], tf.int32), ends], 1)
    size = batch.new_size(number(splits[:, -1]))
    places = tf.range(size.padded)[None, :]
    which = tf.reduce_sum(tf.cast(ends[:, None, :] <= places[..., None], tf.int32), -1)
    which = tf.minimum(which, count - 1)
    own = [tf.gather(item, which, axis=1, batch_dims=1) for item in (start, step, splits[:, :-1])]
    values = own[0] + own[1] * tf.cast(places - own[2], start.dtype)
    return [batched(tf.cast(splits, op.outputs[0].dtype)), batched(values, {0: size})]
