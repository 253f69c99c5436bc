"""Convolution where the filter differs between examples, and gradients by filters and images.

What a filter sees at each of its positions is laid side by side (`_patches`): the convolution is then one product of
matrices for each row, and so are its gradients. Depthwise convolution needs none of it: the batch joins the channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, dimension


@dataclass(frozen=True)
class _Axis:
    """One spatial axis of a convolution: how the filter moves along it, and the margins around the image."""

    size: int
    extent: int
    stride: int
    dilation: int
    low: int
    high: int

    @property
    def reach(self) -> int:
        return (self.extent - 1) * self.dilation + 1

    @property
    def outputs(self) -> int:
        return (self.size + self.low + self.high - self.reach) // self.stride + 1


def _axes(op: Op, sizes: Sequence[int | None], extents: Sequence[int | None]) -> list[_Axis]:
    """The spatial axes, for images and filters of these sizes."""
    if op.attrs["data_format"] not in (b"NHWC", b"NDHWC"):
        raise NotConvertible("a convolution with channels first whose filter differs between examples")
    explicit = op.attrs.get("explicit_paddings") or []
    axes = []
    for k, (size, extent) in enumerate(zip(sizes, extents, strict=True), start=1):
        if size is None or extent is None:
            raise NotConvertible("a convolution with a filter for each example, over images of unknown size")
        stride, dilation = op.attrs["strides"][k], op.attrs["dilations"][k]
        missing = 0
        if op.attrs["padding"] == b"SAME":
            outputs = (size + stride - 1) // stride
            missing = max((outputs - 1) * stride + (extent - 1) * dilation + 1 - size, 0)
        low, high = (
            explicit[2 * k : 2 * k + 2]
            if op.attrs["padding"] == b"EXPLICIT"
            else (missing // 2, missing - missing // 2)
        )
        axes.append(_Axis(size, extent, stride, dilation, low, high))
    return axes


def _patches(images: Any, axes: Sequence[_Axis]) -> Any:
    """`[B, N, *spatial, C]` to `[B, positions, offsets, C]`: what the filter sees of each position."""
    padded = tf.pad(images, [[0, 0], [0, 0], *([axis.low, axis.high] for axis in axes), [0, 0]])
    seen = []
    for offset in product(*(range(axis.extent) for axis in axes)):
        cut = [
            slice(o * axis.dilation, o * axis.dilation + (axis.outputs - 1) * axis.stride + 1, axis.stride)
            for o, axis in zip(offset, axes, strict=True)
        ]
        seen.append(padded[(slice(None), slice(None), *cut)])
    stacked = tf.stack(seen, axis=-2)
    positions = dimension(images, 1) * prod(axis.outputs for axis in axes)
    return tf.reshape(stacked, [dimension(images, 0), positions, len(seen), images.shape[-1]])


def _with_rows(value: Value) -> Any:
    return value.tensor if value.batched else value.tensor[None]


def _convolve(images: Any, kernel: Any, axes: Sequence[_Axis]) -> Any:
    """`[B, N, *spatial, C]` by `[B, *extents, C / groups, F]`; either B may be 1."""
    depth, count = kernel.shape[-2], kernel.shape[-1]
    groups = images.shape[-1] // depth
    patches = _patches(images, axes)
    rows, positions, offsets = (dimension(patches, k) for k in range(3))
    if groups == 1:
        flat = tf.reshape(kernel, [dimension(kernel, 0), offsets * depth, count])
        result = tf.matmul(tf.reshape(patches, [rows, positions, offsets * depth]), flat)
    else:
        grouped = tf.reshape(patches, [rows, positions, offsets, groups, depth])
        flat = tf.reshape(kernel, [dimension(kernel, 0), offsets, depth, groups, count // groups])
        if isinstance(rows, int) and rows == 1:  # einsum doesn't broadcast
            result = tf.einsum("mkgc,bkcgf->bmgf", grouped[0], flat)
        else:
            result = tf.einsum("bmkgc,bkcgf->bmgf", grouped, flat)
    outputs = [axis.outputs for axis in axes]
    return tf.reshape(result, [dimension(result, 0), dimension(images, 1), *outputs, count])


def convolve_per_example(op: Op, images: Value, kernel: Value, batch: Batch) -> Value:
    """Conv2D or Conv3D with a filter for each row."""
    if images.sizes or kernel.sizes:
        raise NotConvertible("a convolution with a filter for each example, over ragged images")
    axes = _axes(op, images.shape[1:-1], kernel.shape[:-2])
    return batched(_convolve(_with_rows(images), batch.rows(kernel), axes))


@converts("Conv2DBackpropFilter Conv3DBackpropFilterV2")
def convert_filter_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A filter gradient for each example, by the patches that each filter position saw."""
    images, sizes, gradient = inputs
    if images.sizes or gradient.sizes or sizes.batched:
        raise NotConvertible("the filter gradient of a convolution over ragged images")
    *extents, depth, count = (int(size) for size in require_static(sizes, "the shape of a filter"))
    axes = _axes(op, images.shape[1:-1], extents)
    patches, seen = _patches(batch.rows(images), axes), batch.rows(gradient)
    rows, positions, offsets = (dimension(patches, k) for k in range(3))
    groups = patches.shape[-1] // depth
    if groups == 1:
        flat = tf.reshape(patches, [rows, positions, offsets * depth])
        result = tf.matmul(flat, tf.reshape(seen, [rows, positions, count]), transpose_a=True)
    else:
        grouped = tf.reshape(patches, [rows, positions, offsets, groups, depth])
        result = tf.einsum("bmkgc,bmgf->bkcgf", grouped, tf.reshape(seen, [rows, positions, groups, count // groups]))
    return [batched(tf.reshape(result, [rows, *extents, depth, count]))]


def spread_per_example(op: Op, sizes: Value, kernel: Value, gradient: Value, batch: Batch) -> Value:
    """Conv2DBackpropInput or Conv3DBackpropInputV2 with a filter for each row.

    A convolution of the gradient, its elements a stride apart, with the filter turned round.
    """
    if gradient.sizes or kernel.sizes:
        raise NotConvertible("a transposed convolution with a filter for each example, over ragged images")
    wanted = [int(size) for size in require_static(sizes, "the shape of the images")]
    axes = _axes(op, wanted[1:-1], kernel.shape[:-2])
    tensor = _with_rows(gradient)
    turned = []
    for k, axis in enumerate(axes, start=2):
        tensor = _apart(tensor, k, axis.stride)
        low = axis.reach - 1 - axis.low
        high = axis.size + axis.reach - 1 - low - tensor.shape[k]
        if high < 0 or low < 0:
            raise NotConvertible("a transposed convolution with margins wider than its filter")
        turned.append(_Axis(tensor.shape[k], axis.extent, 1, axis.dilation, low, high))
    return batched(_convolve(tensor, _turned_round(batch.rows(kernel), wanted[-1], len(axes)), turned))


def _apart(tensor: Any, axis: int, stride: int) -> Any:
    """Zeros between the elements of an axis."""
    if stride == 1:
        return tensor
    pads = [[0, 0]] * (tensor.shape.rank + 1)
    pads[axis + 1] = [0, stride - 1]
    shape = [dimension(tensor, k) for k in range(tensor.shape.rank)]
    length = shape[axis]
    shape[axis] = length * stride
    spread = tf.reshape(tf.pad(tf.expand_dims(tensor, axis + 1), pads), shape)
    return spread[(*[slice(None)] * axis, slice(0, (length - 1) * stride + 1))]


def _turned_round(kernel: Any, channels: int, spatial: int) -> Any:
    """`[B, *extents, c, F]` to `[B, *extents, F / groups, C]`, each spatial axis reversed."""
    kernel = tf.reverse(kernel, list(range(1, 1 + spatial)))
    *lead, depth, count = (dimension(kernel, k) for k in range(kernel.shape.rank))
    groups = channels // depth
    split = tf.reshape(kernel, [*lead, depth, groups, count // groups])
    rank = len(lead)
    moved = tf.transpose(split, [*range(rank), rank + 2, rank + 1, rank])
    return tf.reshape(moved, [*lead, count // groups, channels])


def into_channels(tensor: Any) -> Any:
    """`[B, ..., C]` to `[..., B * C]`."""
    rank = tensor.shape.rank
    moved = tf.transpose(tensor, [*range(1, rank - 1), 0, rank - 1])
    shape = [dimension(moved, k) for k in range(rank)]
    return tf.reshape(moved, [*shape[:-2], shape[-2] * shape[-1]])


def out_of_channels(tensor: Any, rows: Any) -> Any:
    """`[..., B * C]` to `[B, ..., C]`."""
    rank = tensor.shape.rank
    shape = [dimension(tensor, k) for k in range(rank)]
    split = tf.reshape(tensor, [*shape[:-1], rows, shape[-1] // rows])
    return tf.transpose(split, [rank - 1, *range(rank - 1), rank])


def at_least_one_row(value: Value, batch: Batch) -> Any:
    """The value as `[B, ...]`; where the batch may be empty, as `[max(B, 1), ...]`: kernels refuse no channels."""
    tensor = batch.rows(value)
    if isinstance(batch.size, int) and batch.size > 0:
        return tensor
    missing = tf.maximum(1 - tf.shape(tensor)[0], 0)
    return tf.pad(tensor, [[0, missing], *[[0, 0]] * (tensor.shape.rank - 1)])


def depthwise_per_example(op: Op, images: Value, kernel: Value, batch: Batch) -> Value:
    """Depthwise convolution, or dilation, with a filter for each row."""
    if images.sizes or op.attrs.get("data_format", b"NHWC") != b"NHWC":
        raise NotConvertible("a depthwise convolution with a filter for each example, over ragged images")
    rows, filters = at_least_one_row(images, batch), at_least_one_row(kernel, batch)
    if op.type == "DepthwiseConv2dNative":  # [B, h, w, C, M]: channels are last but one
        moved = tf.transpose(filters, [1, 2, 0, 3, 4])
        shape = [dimension(moved, k) for k in range(5)]
        flat = tf.reshape(moved, [shape[0], shape[1], shape[2] * shape[3], shape[4]])
    else:
        flat = into_channels(filters)
    (result,) = replay(op, [into_channels(rows), flat])
    return batched(out_of_channels(result, dimension(rows, 0))[: batch.size])


@converts("DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput")
def convert_depthwise_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The batch joins the channels, each of which has filters of its own."""
    if any(value.sizes for value in inputs) or op.attrs["data_format"] != b"NHWC":
        raise NotConvertible("the gradient of a depthwise convolution over ragged images")
    of_filter = op.type.endswith("Filter")
    sizes = inputs[1 if of_filter else 0]
    wanted = [int(size) for size in require_static(sizes, "the shape of a depthwise convolution's gradient")]
    gradient = at_least_one_row(inputs[2], batch)
    rows = dimension(gradient, 0)
    if of_filter:
        height, width, depth, times = wanted
        images = into_channels(at_least_one_row(inputs[0], batch))
        shape = tf.stack([height, width, depth * rows, times])
        (result,) = replay(op, [images, shape, into_channels(gradient)])
        split = tf.reshape(result, [height, width, rows, depth, times])
        return [batched(tf.transpose(split, [2, 0, 1, 3, 4])[: batch.size])]
    kernel = tf.transpose(at_least_one_row(inputs[1], batch), [1, 2, 0, 3, 4])
    dims = [dimension(kernel, k) for k in range(5)]
    flat = tf.reshape(kernel, [dims[0], dims[1], dims[2] * dims[3], dims[4]])
    shape = tf.stack([*wanted[:3], wanted[3] * rows])
    (result,) = replay(op, [shape, flat, into_channels(gradient)])
    result.set_shape([*wanted[:3], None])
    return [batched(out_of_channels(result, rows)[: batch.size])]
