"""Shape queries and changes of shape without change of order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import stretch
from vectorizer.converters.indexing import take_along
from vectorizer.converters.reductions import example_axes
from vectorizer.program import Op
from vectorizer.registry import converts, run_unchanged
from vectorizer.values import (
    NotConvertible,
    Size,
    Value,
    batched,
    dimension,
    insert_axis,
    number,
    pad_axis,
    remove_axis,
    shared,
    vector,
)


@converts("Shape ShapeN")
def convert_shape(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The per-example shape: an element per axis, a per-example number where ragged."""
    return [_shape_vector(value, var.dtype) for value, var in zip(inputs, op.outputs, strict=True)]


def _shape_vector(value: Value, dtype: Any) -> Value:
    parts = []
    for axis in range(value.rank):
        if axis in value.sizes:
            parts.append(number(tf.cast(value.sizes[axis].lengths, dtype), value.sizes[axis]))
        else:
            size = dimension(value.tensor, axis + 1) if value.batched else dimension(value.tensor, axis)
            parts.append(shared(tf.constant(size, dtype) if isinstance(size, int) else tf.cast(size, dtype)))
    return vector(parts, dtype)


@converts("Rank")
def convert_rank(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The per-example rank."""
    return [shared(tf.constant(inputs[0].rank))]


@converts("ExpandDims")
def convert_expand_dims(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Inserts an axis of size 1."""
    value, axis_value = inputs
    axis = int(require_static(axis_value, "the axis to insert")) % (value.rank + 1)
    return [insert_axis(value, axis)]


@converts("Squeeze", checks="the axis isn't of size 1")
def convert_squeeze(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Removes axes of size 1."""
    (value,) = inputs
    axes = example_axes(op.attrs["squeeze_dims"], value.rank) if op.attrs["squeeze_dims"] else None
    if axes is None:
        if None in value.shape:
            raise NotConvertible("which axes have size 1 isn't known when the program is built")
        axes = [axis for axis, size in enumerate(value.shape) if size == 1]
    for axis in sorted(axes, reverse=True):
        if axis in value.sizes:
            batch.check(value.sizes[axis].lengths == 1)
            sizes = {own: size for own, size in value.sizes.items() if own != axis}
            value = batched(pad_axis(value.tensor, axis + 1, 1), sizes)
        value = remove_axis(value, axis)
    return [value]


@converts("Transpose ConjugateTranspose")
def convert_transpose(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Permutes axes; the batch axis stays in front."""
    value, order_value = inputs
    order = [int(axis) % value.rank for axis in require_static(order_value, "the order of a transposition")]
    shifted = [0] + [axis + 1 for axis in order]
    tensor = tf.transpose(value.tensor, shifted, conjugate=op.type.startswith("Conj"))
    return [batched(tensor, {order.index(axis): size for axis, size in value.sizes.items()})]


def dense_dims(elements: Sequence[Value], batch: Batch) -> tuple[list[Any], dict[int, Size]]:
    """Padded sizes (int or scalar tensor) and Sizes for a shape given element by element."""
    dims: list[Any] = []
    sizes: dict[int, Size] = {}
    for axis, element in enumerate(elements):
        if element.batched:
            sizes[axis] = batch.new_size(element)
            dims.append(sizes[axis].padded)
        else:
            known = element.static()
            dims.append(int(known) if known is not None else tf.cast(element.tensor, tf.int32))
    return dims, sizes


@converts("Fill", checks="a size is negative")
def convert_fill(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A tensor of one value, of a shape that may differ between rows."""
    elements = inputs[0].elements() if inputs[0].rank == 1 and inputs[0].shape != [0] else ()
    _check_sizes(elements, batch)
    dims, sizes = dense_dims([_at_least_zero(element, batch) for element in elements], batch)
    value = inputs[1]
    if not value.batched and not sizes:
        return [shared(tf.fill(dims, value.tensor))]
    tensor = tf.reshape(batch.rows(value), [-1] + [1] * len(dims))
    return [batched(tf.broadcast_to(tensor, [batch.size, *dims]), sizes)]


@converts("BroadcastTo", checks="the shape has another size")
def convert_broadcast_to(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Broadcasts to a shape that may differ between rows."""
    value, shape = inputs
    if not any(item.batched for item in inputs):
        return run_unchanged(op, inputs)
    elements = shape.elements()
    _check_sizes(elements, batch)
    dims, sizes = dense_dims(elements, batch)
    missing = len(dims) - value.rank
    tensors = [batch.rows(value)[(slice(None), *([None] * missing), ...)]]
    for axis in range(value.rank):
        target = axis + missing
        own, wanted = value.sizes.get(axis), sizes.get(target)
        if own is wanted or (own is None and value.shape[axis] == 1):
            continue
        length = own.lengths if own is not None else dimension(tensors[0], target + 1)
        goal = wanted.lengths if wanted is not None else dims[target]
        batch.check(tf.logical_or(tf.equal(length, goal), tf.equal(length, 1)))
        size = own if own is not None else Size(tf.fill([batch.size], length), length)
        result = wanted if wanted is not None else Size(tf.fill([batch.size], goal), goal)
        tensors[0] = stretch(tensors[0], True, size, result, target, len(dims))
    return [batched(tf.broadcast_to(tensors[0], [batch.size, *dims]), sizes)]


def _check_sizes(elements: Sequence[Value], batch: Batch) -> None:
    """Rows that ask for fewer than no elements fail."""
    for element in elements:
        if element.batched and element.size is None:
            batch.check(element.tensor >= 0)


@converts("Tile", checks="a count is negative")
def convert_tile(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Repeats along axes; a ragged axis, or a count that differs between rows, by a gather."""
    value, multiples = inputs
    if not any(item.batched for item in inputs):
        return run_unchanged(op, inputs)
    tensor, sizes = batch.rows(value), dict(value.sizes)
    _check_sizes(multiples.elements(), batch)
    for axis, element in enumerate(multiples.elements()):
        known = element.static()
        if known == 1:
            continue
        if axis not in sizes and not element.batched:
            count = int(known) if known is not None else element.tensor
            repeats = [1] * tensor.shape.rank
            repeats[axis + 1] = count
            tensor = tf.tile(tensor, repeats)
            continue
        own = sizes.get(axis)
        length = own.lengths if own is not None else tf.fill([batch.size], dimension(tensor, axis + 1))
        padded = own.padded if own is not None else dimension(tensor, axis + 1)
        times = tf.cast(batch.int32_rows(element), tf.int64)
        upper = element.upper if element.batched else element.static()
        bound = None if upper is None else padded * (int(upper) if not element.batched else upper)
        size = batch.new_size(number(tf.cast(length, tf.int64) * times, upper=bound))
        positions = tf.range(size.padded)[None, :] % tf.maximum(length, 1)[:, None]
        tensor, sizes[axis] = take_along(tensor, axis, positions), size
    return [batched(tensor, sizes)]


@converts("Range", checks="the step is zero, or leads away from the limit; more than 2^31 - 1 numbers")
def convert_range(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.range` whose bounds may differ between rows."""
    start, limit, delta = inputs
    if not any(value.batched for value in inputs):
        if delta.static() is None or delta.static() == 0:
            batch.check(delta.tensor != 0)
            delta = shared(tf.where(delta.tensor == 0, tf.ones([], delta.dtype), delta.tensor))
        if None in [value.static() for value in inputs]:
            limit = _towards(start, limit, delta, batch)
        return [shared(tf.range(start.tensor, limit.tensor, delta.tensor))]
    if start.static() == 0 and delta.static() == 1 and limit.dtype.is_integer:
        if limit.size is None:
            batch.check(limit.tensor >= 0)
        size = batch.new_size(limit)
        row = tf.range(size.padded)
        return [batched(tf.broadcast_to(tf.cast(row, limit.dtype)[None], [batch.size, size.padded]), {0: size})]
    step = tf.where(delta.tensor == 0, tf.ones([], delta.dtype), delta.tensor)
    away = limit.tensor - start.tensor
    batch.check(tf.logical_and(delta.tensor != 0, tf.logical_or(away == 0, tf.sign(away) == tf.sign(step))))
    if limit.dtype.is_integer:
        sign = tf.sign(step)
        count = (limit.tensor - start.tensor + step - sign) // step
    else:
        wanted = tf.math.ceil((limit.tensor - start.tensor) / step)
        fits = wanted < tf.cast(2.0**31, wanted.dtype)  # not so of infinity and NaN
        batch.check(fits)
        count = tf.cast(tf.where(fits, wanted, tf.zeros([], wanted.dtype)), tf.int32)
    first, each = start.static(), delta.static()
    counts_up = first is not None and first >= 0 and each is not None and each >= 1
    upper = limit.upper if counts_up else None
    size = batch.new_size(Value(batch.rows(Value(count, count.shape.rank == 1)), True, upper=upper))
    origin, stride = batch.rows(start), batch.rows(Value(step, delta.batched))
    tensor = origin[:, None] + stride[:, None] * tf.cast(tf.range(size.padded), origin.dtype)[None, :]
    return [batched(tensor, {0: size})]


def _at_least_zero(element: Value, batch: Batch) -> Value:
    """A size that all rows share; it may be negative where none of them is active."""
    known = element.static()
    if element.batched or (known is not None and known >= 0):
        return element
    batch.check(element.tensor >= 0)
    return shared(tf.maximum(element.tensor, tf.zeros([], element.dtype)))


def _towards(start: Value, limit: Value, step: Value, batch: Batch) -> Value:
    """A limit that all rows share; it may lie on the wrong side of the start where none of them is active."""
    good = tf.where(step.tensor > 0, start.tensor <= limit.tensor, start.tensor >= limit.tensor)
    if limit.dtype.is_floating:
        good = tf.logical_and(good, tf.math.is_finite(limit.tensor - start.tensor))
    batch.check(good)
    return shared(tf.where(good, limit.tensor, start.tensor))


@converts("BroadcastArgs")
def convert_broadcast_args(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The shape that two shapes broadcast to."""
    left, right = (list(value.elements()) for value in inputs)
    one = shared(tf.ones([], inputs[0].dtype))
    count = max(len(left), len(right))
    left, right = [one] * (count - len(left)) + left, [one] * (count - len(right)) + right
    parts = []
    for a, b in zip(left, right, strict=True):
        if a.static() == 1 or (a.size is not None and a.size is b.size):
            parts.append(b)
        elif b.static() == 1:
            parts.append(a)
        else:
            raise NotConvertible("a broadcast of shapes that differ between examples")
    return [vector(parts)]


@converts("MatrixBandPart", checks="a band is wider than the matrix")
def convert_band_part(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Keeps so many diagonals around the main one, which starts in a corner that padding doesn't reach."""
    value, lower, upper = inputs
    if not any(item.batched for item in inputs):
        return run_unchanged(op, inputs)
    tensor, rank = batch.rows(value), value.rank
    rows, columns = tf.range(dimension(tensor, rank - 1)), tf.range(dimension(tensor, rank))
    offset = columns[None, :] - rows[:, None]
    keep = tf.ones([1, 1, 1], tf.bool)
    for item, distance, axis in ((lower, -offset, rank - 2), (upper, offset, rank - 1)):
        width = tf.reshape(tf.cast(item.tensor, tf.int32), [-1, 1, 1])
        keep = tf.logical_and(keep, tf.logical_or(width < 0, distance[None] <= width))
        room = value.sizes[axis].lengths if axis in value.sizes else dimension(tensor, axis + 1)
        batch.check(tf.cast(item.tensor, tf.int32) <= room)
    keep = tf.reshape(keep, tf.concat([tf.shape(keep)[:1], [1] * (rank - 2), tf.shape(keep)[1:]], 0))
    return [batched(tf.where(keep, tensor, tf.zeros([], tensor.dtype)), value.sizes)]
