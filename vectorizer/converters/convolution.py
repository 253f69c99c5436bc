"""Convolution and pooling: the batch joins the images' own leading axis.

Over ragged height or width the padding is made neutral first. With a stride, TensorFlow's SAME margins depend
on each example's own size: then every row is moved behind its own margin, and the kernel runs as VALID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.filters import convolve_per_example, depthwise_per_example, spread_per_example
from vectorizer.converters.indexing import take_along
from vectorizer.converters.reductions import lowest
from vectorizer.converters.resizing import resize_ragged
from vectorizer.converters.spreading import Spread, spread_ragged
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, at_axis, batched, dimension, fill_padding


def fold(tensor: Any) -> Any:
    """`[B, N, ...]` -> `[B * N, ...]`."""
    static = tensor.shape.as_list()
    if static[0] is not None and static[1] is not None and None not in static[2:]:
        return tf.reshape(tensor, [static[0] * static[1], *static[2:]])
    if static[1] == 1:
        return tf.squeeze(tensor, 1)
    shape = tf.shape(tensor)
    return tf.reshape(tensor, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))


def unfold(tensor: Any, like: Any) -> Any:
    """`[B * N, ...]` -> `[B, N, ...]` with B and N of `like`."""
    if like.shape[1] == 1:
        return tf.expand_dims(tensor, 1)
    static, rest = like.shape.as_list()[:2], tensor.shape.as_list()[1:]
    if None not in static and None not in rest:
        return tf.reshape(tensor, [*static, *rest])
    return tf.reshape(tensor, tf.concat([tf.shape(like)[:2], tf.shape(tensor)[1:]], 0))


def _spatial(op: Op, rank: int) -> list[int]:
    """Per-example axes of height, width, ..."""
    if op.attrs["data_format"].decode().startswith("NC"):
        return list(range(2, rank))
    return list(range(1, rank - 1))


@dataclass(frozen=True)
class _Window:
    """How a window slides along one spatial axis. `reach` is its extent, dilation included."""

    axis: int
    reach: int
    stride: int


def _windows(op: Op, rank: int, extents: Sequence[int], dilations: Sequence[int]) -> list[_Window]:
    strides = op.attrs["strides"]
    return [
        _Window(axis, (extent - 1) * dilations[axis] + 1, strides[axis])
        for axis, extent in zip(_spatial(op, rank), extents, strict=True)
    ]


@dataclass(frozen=True)
class _Laid:
    """Images whose padding is neutral and laid out so that one kernel call with `padding` serves all rows."""

    tensor: Any
    sizes: dict[int, Size]
    padding: bytes


def _lay_out(op: Op, images: Value, windows: Sequence[_Window], fill: Any, batch: Batch) -> _Laid:
    padding = op.attrs["padding"]
    ragged = [window for window in windows if window.axis in images.sizes]
    if not ragged:
        return _Laid(images.tensor, dict(images.sizes), padding)
    if padding == b"EXPLICIT":
        raise NotConvertible("explicit padding of a ragged dimension")
    tensor = fill_padding(images, [window.axis for window in windows], fill)
    sizes = dict(images.sizes)
    if padding == b"SAME" and all(window.stride == 1 for window in ragged):
        return _Laid(tensor, sizes, padding)
    for window in windows:
        if padding == b"SAME":
            tensor = _with_same_margins(tensor, window, images, fill)
        elif window in ragged:
            tensor = _room_for_window(tensor, window, fill)
    for window in ragged:
        size, margin = images.sizes[window.axis], window.stride - (window.reach if padding == b"VALID" else 1)
        counts = (size.lengths + margin) // window.stride
        if padding == b"VALID":
            batch.check(size.lengths + margin > -window.stride)  # the kernel's division truncates
        room = (size.padded + margin) // window.stride
        room = max(room, 1) if isinstance(room, int) else tf.maximum(room, 1)
        sizes[window.axis] = Size(tf.maximum(counts, 0), room)
    return _Laid(tensor, sizes, b"VALID")


def _with_same_margins(tensor: Any, window: _Window, images: Value, fill: Any) -> Any:
    """TensorFlow's SAME margins, which depend on each example's own size, in front of and behind one axis."""
    axis, own = window.axis, images.sizes.get(window.axis)
    room = dimension(tensor, axis + 1)
    length = own.lengths if own is not None else room
    outputs = (length + window.stride - 1) // window.stride
    low = tf.maximum((outputs - 1) * window.stride + window.reach - length, 0) // 2
    whole = (room + window.stride - 1) // window.stride
    extent = (whole - 1) * window.stride + window.reach
    positions = tf.range(extent) - (low[:, None] if own is not None else low)
    limit = length[:, None] if own is not None else length
    present = tf.logical_and(positions >= 0, positions < limit)
    positions = tf.clip_by_value(positions, 0, room - 1)
    if own is not None:
        moved = take_along(tensor, axis, positions)
        mask = at_axis(present, images.rank, axis)
    else:
        moved = tf.gather(tensor, positions, axis=axis + 1)
        mask = tf.reshape(present, [-1] + [1] * (images.rank - axis - 1))
    return tf.where(mask, moved, fill)


def _room_for_window(tensor: Any, window: _Window, fill: Any) -> Any:
    """A padded axis shorter than a VALID window grows to hold one."""
    size = dimension(tensor, window.axis + 1)
    missing = max(window.reach - size, 0) if isinstance(size, int) else tf.maximum(window.reach - size, 0)
    if isinstance(missing, int) and missing == 0:
        return tensor
    pads: list[Any] = [[0, 0] for _ in range(tensor.shape.rank)]
    pads[window.axis + 1] = [0, missing]
    return tf.pad(tensor, pads, constant_values=fill)


def _slide(op: Op, laid: _Laid, *others: Any) -> Any:
    valid = Op(
        op.type,
        op.name,
        op.inputs,
        op.outputs,
        {**op.attrs, "padding": laid.padding},
        op.definition,
        op.source,
    )
    (result,) = replay(valid, [fold(laid.tensor), *others])
    return unfold(result, laid.tensor)


@converts("Conv2D Conv3D DepthwiseConv2dNative", checks="an image is smaller than the window")
def convert_convolution(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A shared filter slides over all images of the batch at once."""
    images, kernel = inputs
    if not images.batched and not kernel.batched:
        return run_unchanged(op, inputs)
    if kernel.batched:
        rule = depthwise_per_example if op.type.startswith("Depthwise") else convolve_per_example
        return [rule(op, images, kernel, batch)]
    extents = [int(size) for size in kernel.tensor.shape[: len(_spatial(op, images.rank))]]
    windows = _windows(op, images.rank, extents, list(op.attrs["dilations"]))
    laid = _lay_out(op, images, windows, tf.zeros([], images.dtype), batch)
    return [batched(_slide(op, laid, kernel.tensor), laid.sizes)]


@converts("MaxPool AvgPool MaxPool3D AvgPool3D", checks="an image is smaller than the window")
def convert_pooling(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Max or mean over windows; padding of ragged axes is never the maximum and never counted."""
    (images,) = inputs
    if not images.batched:
        return run_unchanged(op, inputs)
    extents = [op.attrs["ksize"][axis] for axis in _spatial(op, images.rank)]
    windows = _windows(op, images.rank, extents, [1] * images.rank)
    is_max = op.type.startswith("Max")
    fill = tf.constant(lowest(images.dtype) if is_max else 0, images.dtype)
    laid = _lay_out(op, images, windows, fill, batch)
    result = _slide(op, laid)
    if not is_max and images.sizes and op.attrs["padding"] == b"SAME":
        present = _lay_out(op, batched(tf.ones_like(images.tensor), images.sizes), windows, fill, batch)
        result = tf.math.divide_no_nan(result, _slide(op, present))
    return [batched(result, laid.sizes)]


@converts("Conv2DBackpropInput Conv3DBackpropInputV2", checks="the sizes don't fit")
def convert_transposed_convolution(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`Conv2DTranspose`: a shared filter spreads all images of the batch at once."""
    sizes, kernel, images = inputs
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    if sizes.batched or images.sizes:
        if kernel.batched:
            raise NotConvertible("a transposed convolution over ragged images, with a filter for each example")
        extents = [int(size) for size in kernel.tensor.shape[:-2]]
        windows = _windows(op, images.rank, extents, list(op.attrs["dilations"]))
        spreads = [Spread(window.axis, window.reach, window.stride) for window in windows]
        return [spread_ragged(op, sizes, kernel, Value(batch.rows(images), True, images.sizes), spreads, batch)]
    if kernel.batched:
        return [spread_per_example(op, sizes, kernel, images, batch)]
    count = images.tensor.shape[1]
    total = batch.size * (count if count is not None else tf.shape(images.tensor)[1])
    wanted = tf.concat([tf.reshape(total, [1]), sizes.tensor[1:]], 0)
    (result,) = replay(op, [wanted, kernel.tensor, fold(images.tensor)])
    return [batched(unfold(result, images.tensor))]


@converts("ResizeBilinear ResizeNearestNeighbor", checks="an image or its size is empty")
@converts("ResizeBicubic ResizeArea", checks="an image or its size is empty", compilable=False)
@converts("SpaceToDepth DepthToSpace LRN")
def convert_image(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Kernels that treat each image of a stack alone."""
    images = inputs[0]
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    if images.sizes or any(value.batched for value in inputs[1:]):
        if len(inputs) < 2:
            raise NotConvertible("images of ragged shape")
        return [resize_ragged(op, images, inputs[1], batch)]
    (result,) = replay(op, [fold(images.tensor), *(value.tensor for value in inputs[1:])])
    return [batched(unfold(result, images.tensor))]
