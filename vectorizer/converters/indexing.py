"""Gather, scatter, reverse, one-hot. An index out of range fails its row and is clamped: nothing raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.reductions import example_axes
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import (
    NotConvertible,
    Size,
    Value,
    at_axis,
    batched,
    dimension,
    pad_axis,
    shared,
    size_mask,
    vector,
)


def check_index(index: Value, size: Any, batch: Batch, *, own_size: Size | None = None) -> Any:
    """Check `0 <= index < size` for every active row and present element; return the index clamped.

    `own_size` is the Size indexed into where that dimension is ragged, else `size` holds for all rows.
    """
    tensor = index.tensor
    limit = at_axis(own_size.lengths, index.rank) if own_size is not None else size
    known = index.static()
    if known is not None and own_size is None and isinstance(size, int) and np.all((known >= 0) & (known < size)):
        return tensor
    if own_size is not None and batch.bounded_by == (id(tensor), id(own_size)):
        return tensor  # `while t < n: x[t]` with n the length of x: active rows can't be out of range
    limit = tf.cast(limit, tensor.dtype)
    good = tensor < limit
    if not is_counter(index):
        good = tf.logical_and(good, tensor >= 0)
    for axis, ragged in index.sizes.items():
        good = tf.logical_or(good, tf.logical_not(size_mask(ragged, index.rank, axis)))
    per_row = index.batched or own_size is not None
    batch.check(good if good.shape.rank == per_row else tf.reduce_all(good, list(range(int(per_row), good.shape.rank))))
    top = own_size.padded if own_size is not None else size
    last = max(top - 1, 0) if isinstance(top, int) else tf.maximum(top - 1, 0)
    tensor = tf.minimum(tensor, tf.cast(last, tensor.dtype))
    return tensor if is_counter(index) else tf.maximum(tensor, tf.zeros([], tensor.dtype))


def is_counter(index: Value) -> bool:
    """Loop counters are marked as never negative (`upper`, though not batched), which saves checking and wrapping."""
    return index.upper is not None and not index.batched


def gather_rows(params: Value, indices: Value, batch: Batch, axis: int = 0, batch_dims: int = 0) -> Value:
    """`tf.gather` per example, whichever operand is batched."""
    own_size = params.sizes.get(axis)
    tensor = params.tensor
    where = axis + (1 if params.batched else 0)
    if own_size is None:
        size = dimension(tensor, where)
        if size == 0 if isinstance(size, int) else True:
            tensor = _never_empty(tensor, where)
    else:
        size = own_size.padded
    for dim in range(batch_dims):
        if dim in params.sizes or dim in indices.sizes:
            params, indices = align_pair(params, dim, indices, dim, batch)
    if batch_dims:
        tensor = params.tensor if own_size is not None else _never_empty(params.tensor, axis + int(params.batched))
    index = check_index(indices, size, batch, own_size=own_size)
    sizes = _gathered_sizes(params, indices, axis, batch_dims)
    if batch_dims and not (params.batched and indices.batched):
        tensor = batch.rows(Value(tensor, params.batched))
        index = batch.rows(Value(index, indices.batched))
        return batched(tf.gather(tensor, index, axis=axis + 1, batch_dims=batch_dims + 1), sizes)
    if not params.batched and not indices.batched:
        return shared(tf.gather(tensor, index, axis=axis, batch_dims=batch_dims))
    if not indices.batched:
        return batched(tf.gather(tensor, index, axis=axis + 1), sizes)
    if params.batched:
        return batched(tf.gather(tensor, index, axis=axis + 1, batch_dims=batch_dims + 1), sizes)
    result = tf.gather(tensor, index, axis=axis)
    if axis:
        order = [axis, *range(axis), *range(axis + 1, result.shape.rank)]
        result = tf.transpose(result, order)
    return batched(result, sizes)


def _never_empty(tensor: Any, axis: int) -> Any:
    """A gather from an empty dimension raises whatever the index: give it one element."""
    static = tensor.shape[axis]
    if static is not None and static > 0:
        return tensor
    wanted = 1 if static == 0 else tf.maximum(tf.shape(tensor)[axis], 1)
    return pad_axis(tensor, axis, wanted)


def _gathered_sizes(params: Value, indices: Value, axis: int, batch_dims: int) -> dict[int, Size]:
    sizes = {own: size for own, size in params.sizes.items() if own < axis}
    sizes |= {axis + own - batch_dims: size for own, size in indices.sizes.items() if own >= batch_dims}
    grown = indices.rank - batch_dims - 1
    sizes |= {own + grown: size for own, size in params.sizes.items() if own > axis}
    return sizes


@converts("GatherV2 Gather", checks="an index is out of range")
def convert_gather(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Elements of one axis by index."""
    params, indices = inputs[0], inputs[1]
    axis = 0
    if len(inputs) > 2:
        axis = int(require_static(inputs[2], "the axis of a gather"))
    axis %= max(params.rank, 1)
    batch_dims = int(op.attrs.get("batch_dims", 0)) % max(indices.rank + 1, 1)
    if params.parts is not None:
        known = require_static(indices, "an index into a shape")
        parts = params.elements()
        picked = [parts[int(position)] for position in np.atleast_1d(known)]
        return [picked[0] if indices.rank == 0 else vector(picked, params.dtype)]
    return [gather_rows(params, indices, batch, axis, batch_dims)]


@converts("GatherNd", checks="an index is out of range")
def convert_gather_nd(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Slices by coordinate vectors, which lie along the last axis of the indices."""
    params, indices = inputs
    depth = indices.shape[-1]
    if depth is None or depth > params.rank:
        raise NotConvertible("coordinates of unknown length")
    coordinates = _checked_coordinates(params, indices, depth, batch)
    tensor = params.tensor
    for axis in range(depth):
        tensor = _never_empty(tensor, axis + (1 if params.batched else 0))
    if not params.batched and not indices.batched:
        return [shared(tf.gather_nd(tensor, coordinates))]
    sizes = dict(indices.sizes)
    sizes |= {axis - depth + indices.rank - 1: size for axis, size in params.sizes.items() if axis >= depth}
    if not params.batched:
        return [batched(tf.gather_nd(tensor, coordinates), sizes)]
    if not indices.batched:
        coordinates = batch.rows(shared(coordinates))
    return [batched(tf.gather_nd(tensor, coordinates, batch_dims=1), sizes)]


def _checked_coordinates(params: Value, indices: Value, depth: int, batch: Batch) -> Any:
    columns = []
    for axis in range(depth):
        column = Value(indices.tensor[..., axis], indices.batched, indices.sizes)
        size = dimension(params.tensor, axis + (1 if params.batched else 0))
        columns.append(check_index(column, size, batch, own_size=params.sizes.get(axis)))
    if not columns:
        return indices.tensor
    if any(column.shape.rank != columns[0].shape.rank for column in columns):
        columns = [batch.rows(Value(c, c.shape.rank == indices.rank)) for c in columns]
    return tf.stack(columns, axis=-1)


_SCATTERS = {
    "TensorScatterUpdate": tf.tensor_scatter_nd_update,
    "TensorScatterAdd": tf.tensor_scatter_nd_add,
    "TensorScatterSub": tf.tensor_scatter_nd_sub,
    "TensorScatterMax": tf.tensor_scatter_nd_max,
    "TensorScatterMin": tf.tensor_scatter_nd_min,
    "ScatterNdNonAliasingAdd": tf.tensor_scatter_nd_add,
}


@converts(
    "TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin ScatterNdNonAliasingAdd",
    checks="an index is out of range",
)
def convert_tensor_scatter(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Writes slices at coordinates. Rows that aren't active write back what was there: a loop which carries
    the tensor needs no mask over the whole of it."""
    target, indices, updates = inputs
    depth = indices.shape[-1]
    if depth is None:
        raise NotConvertible("coordinates of unknown length")
    if any(axis >= indices.rank - 1 for axis in updates.sizes):
        raise NotConvertible("a scatter of slices of ragged shape")
    for axis in range(min(indices.rank - 1, updates.rank)):
        if axis in indices.sizes or axis in updates.sizes:
            indices, updates = align_pair(indices, axis, updates, axis, batch)
    coordinates = _checked_coordinates(target, indices, depth, batch)
    if not any(value.batched for value in (target, indices, updates)):
        return [shared(_SCATTERS[op.type](target.tensor, coordinates, updates.tensor))]
    if coordinates.shape.rank == indices.rank:
        coordinates = batch.rows(shared(coordinates))
    tensor = batch.rows(target)
    for axis in range(depth):
        tensor = _never_empty(tensor, axis + 1)
    values = batch.rows(updates)
    keep = None
    for axis, size in indices.sizes.items():
        mask = size_mask(size, indices.rank - 1, axis)
        keep = mask if keep is None else tf.logical_and(keep, mask)
    room = None
    if keep is not None and op.type == "TensorScatterUpdate" and depth:
        # An absent update could fall on a slot that a present one writes: it goes to a slot of its own behind
        # the end.
        room = dimension(tensor, 1)
        tensor = tf.concat([tensor, tensor[:, :1]], 1)
        first = tf.where(keep, coordinates[..., 0], tf.cast(room, coordinates.dtype))
        coordinates = tf.concat([first[..., None], coordinates[..., 1:]], -1)
        keep = None
    if keep is not None:
        keep = keep[(..., *([None] * (values.shape.rank - keep.shape.rank)))]
    if batch.active is not None:
        active = at_axis(batch.active, values.shape.rank - 1)
        keep = active if keep is None else tf.logical_and(keep, active)
    rows = tf.range(tf.shape(coordinates)[0])
    rows = tf.reshape(rows, [-1] + [1] * (coordinates.shape.rank - 1))
    rows = tf.cast(tf.broadcast_to(rows, tf.concat([tf.shape(coordinates)[:-1], [1]], 0)), coordinates.dtype)
    full = tf.concat([rows, coordinates], -1)
    if keep is not None:
        values = tf.where(keep, values, _nothing(op.type, tensor, full, values))
    result = _SCATTERS[op.type](tensor, full, values)
    if room is not None:
        result = result[:, :room]
    return [Value(result, True, target.sizes, frozen_from=target if batch.active is not None else None)]


def _nothing(op_type: str, tensor: Any, coordinates: Any, values: Any) -> Any:
    """Updates that change nothing."""
    if op_type in ("TensorScatterAdd", "TensorScatterSub", "ScatterNdNonAliasingAdd"):
        return tf.zeros_like(values)
    return tf.gather_nd(tensor, coordinates)


@converts("ScatterNd", checks="an index is out of range")
def convert_scatter_nd(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Sums updates into zeros; a batched call writes row i's into row i."""
    indices, updates, shape = inputs
    if not any(value.batched for value in inputs) and (shape.static() is None or indices.static() is not None):
        return run_unchanged(op, inputs)
    known = require_static(shape, "the shape of a scatter")
    zeros = shared(tf.zeros([int(size) for size in known], updates.dtype))
    added = Op("TensorScatterAdd", op.name, op.inputs, op.outputs, {}, op.definition, op.source)
    (result,) = convert_tensor_scatter(added, [zeros, indices, updates], batch)
    return [Value(result.tensor, result.batched)]


@converts("OneHot")
def convert_one_hot(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A vector for each index."""
    indices, depth, on, off = inputs
    if on.batched or off.batched:
        raise NotConvertible("one-hot values that differ between examples")
    if depth.batched:
        raise NotConvertible("a one-hot depth that differs between examples")
    axis = int(op.attrs["axis"])
    tensor = tf.one_hot(indices.tensor, depth.tensor, on.tensor, off.tensor, axis=axis + 1 if axis >= 0 else -1)
    position = axis if axis >= 0 else indices.rank
    return [batched(tensor, {own + (own >= position): size for own, size in indices.sizes.items()})]


@converts("ReverseV2")
def convert_reverse(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Reverses axes; a ragged one from each row's own end."""
    value, axes_value = inputs
    axes = example_axes(require_static(axes_value, "the axis of a reversal"), value.rank)
    tensor = value.tensor
    dense = [axis + 1 for axis in axes if axis not in value.sizes]
    if dense:
        tensor = tf.reverse(tensor, dense)
    for axis in axes:
        if axis in value.sizes:
            tensor = take_along(tensor, axis, reversed_positions(value.sizes[axis]))
    return [batched(tensor, value.sizes)]


@converts("ReverseSequence", checks="a length is out of range")
def convert_reverse_sequence(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Reverses the first elements of each slice: the batch joins the slices."""
    value, lengths = inputs
    if not any(item.batched for item in inputs):
        return run_unchanged(op, inputs)
    if value.sizes or lengths.sizes or op.attrs["batch_dim"] != 0:
        raise NotConvertible("a reversal of sequences along this axis")
    tensor, counts = batch.rows(value), batch.rows(lengths)
    shape = tf.shape(tensor)
    longest = tf.cast(shape[op.attrs["seq_dim"] + 1], counts.dtype)
    batch.check(tf.reduce_all(tf.logical_and(counts >= 0, counts <= longest), 1))
    counts = tf.clip_by_value(counts, 0, longest)
    flat = tf.reshape(tensor, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))
    (result,) = replay(op, [flat, tf.reshape(counts, [-1])])
    result = tf.reshape(result, shape)
    result.set_shape(tensor.shape)
    return [batched(result)]


def reversed_positions(size: Size) -> Any:
    """int32 [B, P]: the reversal of each row's own part; padding stays within bounds."""
    positions = size.lengths[:, None] - 1 - tf.range(size.padded)[None, :]
    return tf.maximum(positions, 0)


def take_along(tensor: Any, axis: int, positions: Any) -> Any:
    """Reorder per-example `axis` of `[B, ...]` by positions `[B, Q]`."""
    if axis == 0:
        return tf.gather(tensor, positions, axis=1, batch_dims=1)
    rank = tensor.shape.rank
    order = [0, axis + 1, *(other for other in range(1, rank) if other != axis + 1)]
    moved = tf.gather(tf.transpose(tensor, order), positions, axis=1, batch_dims=1)
    return tf.transpose(moved, [order.index(own) for own in range(rank)])
