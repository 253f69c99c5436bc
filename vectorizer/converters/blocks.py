"""Space to batch and back, by which TensorFlow dilates convolutions.

Without ragged dimensions the kernels do it. Along a ragged one, what TensorFlow pads at the end differs
between rows: the dimension is laid out with room for the largest, and only the lengths differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.indexing import take_along
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, number, pad_axis


@converts("SpaceToBatchND BatchToSpaceND", checks="blocks don't fill the padded size")
def convert_space_batch(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Moves blocks of space into the images' own leading axis, or back."""
    images, block, margins = inputs
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    blocks = [int(size) for size in require_static(block, "the size of blocks")]
    if not images.sizes and not margins.batched:
        return [_by_kernel(op, images, block, margins, batch)]
    if 0 in images.sizes or op.outputs[0].shape[0] == 0 or images.shape[0] is None:
        raise NotConvertible("space to batch of a variable number of images")
    value = Value(batch.rows(images), True, images.sizes)
    rule = _to_batch if op.type == "SpaceToBatchND" else _to_space
    return [rule(value, blocks, _pairs(margins, len(blocks)), batch)]


def _by_kernel(op: Op, images: Value, block: Value, margins: Value, batch: Batch) -> Value:
    """The batch goes innermost into the images' own leading axis, where blocks don't reach."""
    rank = images.rank
    inner = tf.transpose(batch.rows(images), [1, 0, *range(2, rank + 1)])
    shape = tf.shape(inner)
    merged = tf.reshape(inner, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))
    (result,) = replay(op, [merged, block.tensor, margins.tensor])
    count = op.outputs[0].shape[0]
    leading = [count if count is not None else tf.shape(result)[0] // tf.maximum(batch.size, 1), batch.size]
    split = tf.reshape(result, tf.concat([leading, tf.shape(result)[1:]], 0))
    tensor = tf.transpose(split, [1, 0, *range(2, rank + 1)])
    tensor.set_shape([batch.size if isinstance(batch.size, int) else None, *op.outputs[0].shape.as_list()])
    return batched(tensor)


def _pairs(margins: Value, count: int) -> list[tuple[Value, Value]]:
    """(before, after) of each blocked axis as numbers."""
    if margins.vectors is not None:
        rows = [vector.elements() for vector in margins.vectors]
        return [(row[0], row[1]) for row in rows]
    tensor = margins.tensor
    return [
        (Value(tensor[..., k, 0], margins.batched), Value(tensor[..., k, 1], margins.batched)) for k in range(count)
    ]


def _length(value: Value, axis: int, batch: Batch) -> tuple[Any, Any]:
    """int32 [B], and the padded size."""
    size = value.sizes.get(axis)
    if size is not None:
        return size.lengths, size.padded
    fixed = dimension(value.tensor, axis + 1)
    return tf.fill([batch.size], fixed), fixed


def _upper(margin: Value) -> Any:
    known = margin.static()
    return int(known) if known is not None else margin.upper


def _to_batch(value: Value, blocks: Sequence[int], pads: Sequence[tuple[Value, Value]], batch: Batch) -> Value:
    for axis, (before, after) in enumerate(pads, start=1):
        value = _padded(value, axis, before, after, blocks[axis - 1], batch)
    tensor = value.tensor
    dims = [dimension(tensor, axis) for axis in range(tensor.shape.rank)]
    split: list[Any] = list(dims[:2])
    for axis, block in enumerate(blocks, start=1):
        split += [dims[axis + 1] // block, block]
    count = len(blocks)
    rest = dims[2 + count :]
    order = [0, *(3 + 2 * k for k in range(count)), 1, *(2 + 2 * k for k in range(count))]
    moved = tf.transpose(
        tf.reshape(tensor, [*split, *rest]), [*order, *range(2 + 2 * count, 2 + 2 * count + len(rest))]
    )
    leading = dims[1]
    for block in blocks:
        leading = leading * block
    spaces = [split[2 + 2 * k] for k in range(count)]
    sizes = dict(value.sizes)
    for axis, block in enumerate(blocks, start=1):
        if axis in sizes:
            size = sizes[axis]
            sizes[axis] = Size(size.lengths // block, size.padded // block)
    return batched(tf.reshape(moved, [dims[0], leading, *spaces, *rest]), sizes)


def _padded(value: Value, axis: int, before: Value, after: Value, block: int, batch: Batch) -> Value:
    """One axis with zeros on both sides, in whole blocks."""
    length, room = _length(value, axis, batch)
    low, high = (batch.int32_rows(item) for item in (before, after))
    uppers = [_upper(before), _upper(after)]
    upper = None if None in uppers else room + uppers[0] + uppers[1]
    total = length + low + high
    batch.check(total % block == 0)
    size = batch.new_size(number(total, upper=upper))
    whole = (size.padded + block - 1) // block * block
    positions = tf.range(whole)[None, :] - low[:, None]
    present = tf.logical_and(positions >= 0, positions < length[:, None])
    tensor = take_along(
        pad_axis(value.tensor, axis + 1, _one(room)), axis, tf.clip_by_value(positions, 0, _one(room) - 1)
    )
    shape = [1] * tensor.shape.rank
    shape[0], shape[axis + 1] = -1, whole
    tensor = tf.where(tf.reshape(present, shape), tensor, tf.zeros([], tensor.dtype))
    return batched(tensor, {**value.sizes, axis: Size(size.lengths, whole)})


def _one(size: Any) -> Any:
    return max(size, 1) if isinstance(size, int) else tf.maximum(size, 1)


def _to_space(value: Value, blocks: Sequence[int], crops: Sequence[tuple[Value, Value]], batch: Batch) -> Value:
    tensor = value.tensor
    dims = [dimension(tensor, axis) for axis in range(tensor.shape.rank)]
    count = len(blocks)
    leading = dims[1]
    for block in blocks:
        leading = leading // block
    rest = dims[2 + count :]
    order = [0, 1 + count]
    for k in range(count):
        order += [2 + count + k, 1 + k]
    split = tf.reshape(tensor, [dims[0], *blocks, leading, *dims[2:]])
    moved = tf.transpose(split, [*order, *range(2 + 2 * count, 2 + 2 * count + len(rest))])
    spaces = [dims[2 + k] * block for k, block in enumerate(blocks)]
    tensor = tf.reshape(moved, [dims[0], leading, *spaces, *rest])
    sizes = dict(value.sizes)
    for axis, (block, (before, after)) in enumerate(zip(blocks, crops, strict=True), start=1):
        length, room = _length(value, axis, batch)
        low, high = (batch.int32_rows(item) for item in (before, after))
        total = length * block - low - high
        batch.check(total >= 0)
        size = batch.new_size(number(total, upper=room * block))
        positions = tf.clip_by_value(low[:, None] + tf.range(size.padded)[None, :], 0, _one(room * block) - 1)
        tensor, sizes[axis] = take_along(tensor, axis, positions), size
    return batched(tensor, sizes)
