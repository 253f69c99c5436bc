"""Convolution, pooling and batch normalisation: the batch joins the images' own leading axis.

Over ragged height or width the padding is made neutral first; TensorFlow's SAME padding with a stride depends on each
example's own size, so only the cases where it can't differ are native.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.reductions import lowest
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Size, Value, batched, fill_padding


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


def _windowed_sizes(op: Op, value: Value, windows: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> dict[int, Size]:
    """Sizes after sliding a window over ragged spatial axes."""
    sizes = {axis: size for axis, size in value.sizes.items() if axis not in _spatial(op, value.rank)}
    padding = op.attrs["padding"]
    for axis, window in zip(_spatial(op, value.rank), windows, strict=True):
        if axis not in value.sizes:
            continue
        size, stride = value.sizes[axis], strides[axis]
        reach = (window - 1) * dilations[axis] + 1
        if padding == b"SAME":
            if stride == 1:
                sizes[axis] = size
                continue
            if reach > 2 or reach > stride:
                raise NotConvertible("SAME padding with a stride depends on each example's size")
            sizes[axis] = _sized(size, lambda n, stride=stride: (n + stride - 1) // stride)
        elif padding == b"VALID":
            sizes[axis] = _sized(size, lambda n, reach=reach, stride=stride: (n - reach + stride) // stride)
        else:
            raise NotConvertible("explicit padding of a ragged dimension")
    return sizes


def _sized(size: Size, rule: Callable[[Any], Any]) -> Size:
    padded = rule(size.padded)
    padded = max(padded, 1) if isinstance(padded, int) else tf.maximum(padded, 1)
    return Size(tf.maximum(rule(size.lengths), 0), padded)


def _at_least(tensor: Any, sizes: dict[int, Size], value: Value, op: Op, windows: Sequence[int], dilations: Sequence[int]) -> Any:
    """A padded ragged axis shorter than a VALID window is padded to hold one."""
    if op.attrs["padding"] != b"VALID":
        return tensor
    pads: list[list[Any]] = [[0, 0] for _ in range(tensor.shape.rank)]
    for axis, window in zip(_spatial(op, value.rank), windows, strict=True):
        if axis in value.sizes:
            reach = (window - 1) * dilations[axis] + 1
            padded = value.sizes[axis].padded
            missing = max(reach - padded, 0) if isinstance(padded, int) else tf.maximum(reach - padded, 0)
            pads[axis + 1] = [0, missing]
    if all(isinstance(high, int) and high == 0 for _, high in pads):
        return tensor
    return tf.pad(tensor, tf.stack([tf.stack(pair) for pair in pads]))


@converts("Conv2D Conv3D DepthwiseConv2dNative")
def convert_convolution(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A shared filter slides over all images of the batch at once."""
    images, kernel = inputs
    if kernel.batched:
        raise NotConvertible("a convolution whose filter differs between examples")
    spatial = _spatial(op, images.rank)
    windows = [int(size) for size in kernel.tensor.shape[: len(spatial)]]
    dilations = list(op.attrs["dilations"])
    sizes = _windowed_sizes(op, images, windows, op.attrs["strides"], dilations)
    tensor = fill_padding(images, spatial, tf.zeros([], images.dtype)) if images.sizes else images.tensor
    tensor = _at_least(tensor, sizes, images, op, windows, dilations)
    (result,) = replay(op, [fold(tensor), kernel.tensor])
    return [batched(unfold(result, images.tensor), sizes)]


@converts("MaxPool AvgPool MaxPool3D AvgPool3D")
def convert_pooling(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Max or mean over windows; padding of ragged axes is never the maximum and never counted."""
    (images,) = inputs
    spatial = _spatial(op, images.rank)
    windows = [op.attrs["ksize"][axis] for axis in spatial]
    ones = [1] * images.rank
    sizes = _windowed_sizes(op, images, windows, op.attrs["strides"], ones)
    is_max = op.type.startswith("Max")
    fill = tf.constant(lowest(images.dtype) if is_max else 0, images.dtype)
    tensor = fill_padding(images, spatial, fill) if images.sizes else images.tensor
    tensor = _at_least(tensor, sizes, images, op, windows, ones)
    (result,) = replay(op, [fold(tensor)])
    if not is_max and images.sizes and op.attrs["padding"] == b"SAME":
        present = fill_padding(batched(tf.ones_like(images.tensor), images.sizes), spatial, fill)
        (share,) = replay(op, [fold(present)])
        result = tf.math.divide_no_nan(result, share)
    return [batched(unfold(result, images.tensor), sizes)]


@converts("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def convert_batch_norm(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Inference: given means and variances, an affine map per channel."""
    if op.attrs["is_training"]:
        raise NotConvertible("batch normalisation in training mode takes its statistics within each example")
    images, scale, offset, mean, variance = inputs
    if any(value.batched for value in inputs[1:]):
        raise NotConvertible("batch normalisation whose parameters differ between examples")
    results = replay(op, [fold(images.tensor), *(value.tensor for value in inputs[1:])])
    return [batched(unfold(results[0], images.tensor), images.sizes), *(Value(item, False) for item in results[1:])]


@converts("Conv2DBackpropInput")
def convert_transposed_convolution(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`Conv2DTranspose`: a shared filter spreads all images of the batch at once."""
    sizes, kernel, images = inputs
    if kernel.batched or sizes.batched or images.sizes:
        raise NotConvertible("a transposed convolution over ragged images or per-example filters")
    count = images.tensor.shape[1]
    total = batch.size * (count if count is not None else tf.shape(images.tensor)[1])
    wanted = tf.concat([tf.reshape(total, [1]), sizes.tensor[1:]], 0)
    (result,) = replay(op, [wanted, kernel.tensor, fold(images.tensor)])
    return [batched(unfold(result, images.tensor))]


@converts("ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea SpaceToDepth DepthToSpace LRN")
def convert_image(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Kernels that treat each image of a stack alone."""
    images = inputs[0]
    if images.sizes or any(value.batched for value in inputs[1:]):
        raise NotConvertible("images of ragged shape, or resized to per-example sizes")
    (result,) = replay(op, [fold(images.tensor), *(value.tensor for value in inputs[1:])])
    return [batched(unfold(result, images.tensor))]
