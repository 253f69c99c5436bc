"""Resizing of images whose sizes differ: each row's positions in its own image, gathered axis by axis.

The positions are computed as TensorFlow's kernels do, in float32.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.indexing import take_along
from vectorizer.program import Op
from vectorizer.values import NotConvertible, Value, at_axis, batched, dimension, pad_axis


def resize_ragged(op: Op, images: Value, wanted: Value, batch: Batch) -> Value:
    """ResizeBilinear or ResizeNearestNeighbor of images `[N, H, W, C]`; `wanted` is the size of the result."""
    if op.type not in ("ResizeBilinear", "ResizeNearestNeighbor"):
        raise NotConvertible("images of ragged shape, or resized to per-example sizes")
    tensor = batch.rows(images)
    if op.type == "ResizeBilinear":
        tensor = tf.cast(tensor, tf.float32)
    sizes = {axis: size for axis, size in images.sizes.items() if axis in (0, 3)}
    for axis, goal in zip((1, 2), wanted.elements(), strict=True):
        own = images.sizes.get(axis)
        length = own.lengths if own is not None else tf.fill([batch.size], dimension(tensor, axis + 1))
        batch.check(length > 0)
        batch.check(goal.tensor > 0)
        if goal.batched:
            sizes[axis] = batch.new_size(goal)
            room, count = sizes[axis].padded, sizes[axis].lengths
        else:
            known = goal.static()
            room = int(known) if known is not None else tf.maximum(goal.tensor, 1)
            count = tf.fill([batch.size], room)
        tensor = _along(op, tensor, axis, tf.maximum(length, 1), tf.maximum(count, 1), room)
    return batched(tensor, sizes)


def _along(op: Op, tensor: Any, axis: int, length: Any, count: Any, room: Any) -> Any:
    """One axis from `length` [B] elements to `count` [B], of which there is `room` for."""
    size = dimension(tensor, axis + 1)
    tensor = pad_axis(tensor, axis + 1, max(size, 1) if isinstance(size, int) else tf.maximum(size, 1))
    corners = bool(op.attrs["align_corners"])
    scale = tf.cast(length, tf.float32) / tf.cast(count, tf.float32)
    if corners:
        inner = tf.cast(length - 1, tf.float32) / tf.cast(tf.maximum(count - 1, 1), tf.float32)
        scale = tf.where(count > 1, inner, scale)
    place = tf.cast(tf.range(room), tf.float32)[None, :]
    last = (length - 1)[:, None]
    if op.type == "ResizeNearestNeighbor":
        found = (place + 0.5 if op.attrs["half_pixel_centers"] else place) * scale[:, None]
        found = tf.floor(found + 0.5) if corners else tf.floor(found)
        return take_along(tensor, axis, tf.clip_by_value(tf.cast(found, tf.int32), 0, last))
    found = place * scale[:, None]
    if op.attrs["half_pixel_centers"]:
        found = (place + 0.5) * scale[:, None] - 0.5
    low = tf.clip_by_value(tf.cast(tf.floor(found), tf.int32), 0, last)
    high = tf.clip_by_value(tf.cast(tf.math.ceil(found), tf.int32), 0, last)
    weight = at_axis(found - tf.floor(found), tensor.shape.rank - 1, axis)
    first = take_along(tensor, axis, low)
    return first + (take_along(tensor, axis, high) - first) * weight
