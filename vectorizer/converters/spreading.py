"""Transposed convolution over images of different sizes.

Each element of an image is spread over a window of the result. All rows are spread without margins first, the padding
of short ones being zero; then each row is cut behind the margin that TensorFlow gives an image of its own size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.indexing import take_along
from vectorizer.program import Op
from vectorizer.registry import replay
from vectorizer.values import NotConvertible, Size, Value, at_axis, batched, dimension, fill_padding


@dataclass(frozen=True)
class Spread:
    """One spatial axis: the window's `reach`, dilation included, and the `stride` between windows."""

    axis: int
    reach: int
    stride: int


def spread_ragged(op: Op, sizes: Value, kernel: Value, images: Value, spreads: Sequence[Spread], batch: Batch) -> Value:
    """Conv2DBackpropInput or Conv3DBackpropInputV2 with a shared filter; `sizes` is the shape of the result."""
    if op.attrs["padding"] not in (b"SAME", b"VALID"):
        raise NotConvertible("explicit padding of a ragged dimension")
    tensor = fill_padding(images, [spread.axis for spread in spreads], tf.zeros([], images.dtype))
    elements = sizes.elements()
    rows, count = batch.size, dimension(tensor, 1)
    full = [dimension(tensor, axis + 1) for axis in range(images.rank)]
    for spread in spreads:
        full[spread.axis] = _at_least_zero(full[spread.axis] - 1) * spread.stride + spread.reach
    channels = next(axis for axis in range(1, images.rank) if axis not in [spread.axis for spread in spreads])
    full[channels] = elements[channels].tensor
    folded = tf.reshape(tensor, [rows * count, *(dimension(tensor, axis + 1) for axis in range(1, images.rank))])
    whole = Op(op.type, op.name, op.inputs, op.outputs, {**op.attrs, "padding": b"VALID"}, op.definition, op.source)
    wanted = tf.stack([tf.cast(size, tf.int32) for size in [rows * count, *full[1:]]])
    (result,) = replay(whole, [tf.cast(wanted, sizes.dtype), kernel.tensor, folded])
    result = tf.reshape(result, [rows, count, *(dimension(result, axis) for axis in range(1, images.rank))])
    cut_sizes: dict[int, Size] = {}
    for spread in spreads:
        result, size = _cut(op, result, images, elements[spread.axis], spread, batch)
        if size is not None:
            cut_sizes[spread.axis] = size
    return batched(result, cut_sizes)


def _at_least_zero(steps: Any) -> Any:
    return max(steps, 0) if isinstance(steps, int) else tf.maximum(steps, 0)


def _cut(op: Op, result: Any, images: Value, wanted: Value, spread: Spread, batch: Batch) -> tuple[Any, Size | None]:
    """One axis of the result, cut to the size asked for, behind the row's own margin."""
    own = images.sizes.get(spread.axis)
    length = own.lengths if own is not None else tf.fill([batch.size], dimension(images.tensor, spread.axis + 1))
    size = batch.new_size(wanted) if wanted.batched else None
    known = wanted.static()
    room = size.padded if size is not None else int(known) if known is not None else tf.cast(wanted.tensor, tf.int32)
    goal = size.lengths if size is not None else tf.fill([batch.size], room)
    windows = goal + spread.stride - (1 if op.attrs["padding"] == b"SAME" else spread.reach)
    batch.check(tf.logical_and(windows // spread.stride == length, windows >= 0))
    if op.attrs["padding"] == b"SAME":
        low = tf.maximum((length - 1) * spread.stride + spread.reach - goal, 0) // 2
    else:
        low = tf.zeros_like(length)
    extent = dimension(result, spread.axis + 1)
    positions = tf.range(room)[None, :] + low[:, None]
    moved = take_along(result, spread.axis, tf.minimum(positions, extent - 1))
    inside = at_axis(positions < extent, images.rank, spread.axis)
    return tf.where(inside, moved, tf.zeros([], result.dtype)), size
