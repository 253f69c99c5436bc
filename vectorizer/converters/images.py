"""Images: patches, crops, projections, gradients of resizing, and the choice among overlapping boxes.

The batch joins the images' own leading axis; where boxes name their image by number, the number moves along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import align_pair
from vectorizer.converters.convolution import fold, unfold
from vectorizer.converters.filters import depthwise_per_example
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, shared, size_mask


def _dense(inputs: Sequence[Value]) -> None:
    if any(value.sizes for value in inputs):
        raise NotConvertible("images of ragged shape")


@converts("ExtractImagePatches")
@converts("ExtractVolumePatches", compilable=False)
def convert_patches(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """What a window sees at each of its positions."""
    _dense(inputs)
    (result,) = replay(op, [fold(inputs[0].tensor)])
    return [batched(unfold(result, inputs[0].tensor))]


@converts("Dilation2D", compilable=False)
def convert_dilation(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Maxima of what a window sees plus its filter."""
    _dense(inputs)
    images, kernel = inputs
    if kernel.batched:
        return [depthwise_per_example(op, images, kernel, batch)]
    (result,) = replay(op, [fold(images.tensor), kernel.tensor])
    return [batched(unfold(result, images.tensor))]


@converts("ResizeBilinearGrad")
@converts("ResizeNearestNeighborGrad ResizeBicubicGrad", compilable=False)
def convert_resize_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Gradients of resizing, by the images or by their size."""
    _dense(inputs)
    gradient = batch.rows(inputs[0])
    by_size = op.type == "ResizeNearestNeighborGrad"
    if by_size and inputs[1].batched:
        raise NotConvertible("images resized to per-example sizes")
    other = inputs[1].tensor if by_size else fold(batch.rows(inputs[1]))
    (result,) = replay(op, [fold(gradient), other])
    return [batched(unfold(result, gradient))]


@converts("ImageProjectiveTransformV2 ImageProjectiveTransformV3", compilable=False)
def convert_projection(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Projects each image by its own transform, or all images of an example by one."""
    _dense(inputs)
    images, transforms = inputs[:2]
    if any(value.batched for value in inputs[2:]):
        raise NotConvertible("images projected to sizes, or filled with values, that differ between examples")
    rows, matrices = batch.rows(images), batch.rows(transforms)
    count = dimension(rows, 1)
    matrices = tf.broadcast_to(matrices, tf.stack([batch.size, count, 8]))
    (result,) = replay(op, [fold(rows), tf.reshape(matrices, [-1, 8]), *(value.tensor for value in inputs[2:])])
    return [batched(unfold(result, rows))]


_FAR = 1e30


@converts(
    "CropAndResize CropAndResizeGradImage CropAndResizeGradBoxes",
    checks="a box is of an image that isn't there, or isn't finite",
    compilable=False,
)
def convert_crops(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Crops of the boxes' images, resized; and their gradients by the images, or by the boxes."""
    of_images, of_boxes = op.type == "CropAndResizeGradImage", op.type == "CropAndResizeGradBoxes"
    *images, boxes, numbers, size = inputs if not of_boxes else (*inputs, shared(tf.constant(0)))
    if any(value.sizes for value in images) or size.batched or (images and not of_boxes and len(images) != 1):
        raise NotConvertible("crops of ragged images, or to sizes that differ between examples")
    count = _image_count(images, size, of_images)
    good = tf.logical_and(numbers.tensor >= 0, numbers.tensor < count)
    batch.fail_where(tf.logical_not(good), numbers)
    safe = Value(tf.where(good, numbers.tensor, 0), numbers.batched, numbers.sizes)
    near = tf.abs(boxes.tensor) < _FAR  # beyond, TensorFlow's kernels compute indices that overflow, and crash
    batch.fail_where(tf.logical_not(near), boxes)
    boxes = Value(tf.where(near, boxes.tensor, 0), boxes.batched, boxes.sizes)
    if not any(value.batched for value in inputs):
        tensors = [*(value.tensor for value in images), boxes.tensor, safe.tensor]
        return [shared(replay(op, tensors if of_boxes else [*tensors, size.tensor])[0])]
    if safe.sizes or boxes.sizes:
        if of_images or of_boxes:
            raise NotConvertible("gradients of crops of a variable number of boxes")
        boxes, safe = align_pair(boxes, 0, safe, 0, batch)
    which = batch.rows(safe)
    if safe.sizes:
        which = tf.where(size_mask(safe.sizes[0], 1, 0), which, 0)
    which = tf.reshape(which + tf.range(batch.size)[:, None] * count, [-1])
    corners = batch.rows(boxes)
    if boxes.sizes:
        corners = tf.where(size_mask(boxes.sizes[0], 2, 0), corners, tf.zeros([], corners.dtype))
    folded = [fold(batch.rows(value)) for value in images]
    arguments = [*folded, fold(corners), which]
    if of_images:
        arguments.append(tf.concat([[count * batch.size], size.tensor[1:]], 0))
    elif not of_boxes:
        arguments.append(size.tensor)
    (result,) = replay(op, arguments)
    if of_images:
        shaped = tf.reshape(result, tf.concat([tf.stack([batch.size, count]), tf.shape(result)[1:]], 0))
        return [batched(shaped)]
    return [batched(unfold(result, corners), boxes.sizes)]


def _image_count(images: Sequence[Value], size: Value, of_images: bool) -> Any:
    if of_images:
        return size.tensor[0]
    return dimension(images[-1].tensor, int(images[-1].batched))


@converts("NonMaxSuppressionV3 NonMaxSuppressionV4", checks="a threshold isn't between 0 and 1")
def convert_non_max_suppression(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The best boxes of which no two overlap by more than a threshold, best first, at most so many.

    One step of a loop chooses the next box of every row, by its score, and takes out those that it overlaps.
    """
    boxes, scores, most, overlap, least = inputs
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    count = int(require_static(most, "the number of boxes"))
    if count < 1:
        raise NotConvertible("a choice of no boxes")
    if boxes.sizes or scores.sizes:
        boxes, scores = align_pair(boxes, 0, scores, 0, batch)
    corners, points = batch.rows(boxes), batch.rows(scores)
    threshold = tf.cast(batch.rows(overlap), corners.dtype)
    batch.check(tf.logical_and(threshold >= 0, threshold <= 1))
    lowest = tf.constant(points.dtype.min, points.dtype)
    alive = points > tf.cast(batch.rows(least), points.dtype)[:, None]
    if scores.sizes:
        alive = tf.logical_and(alive, size_mask(scores.sizes[0], 1, 0))
    if points.shape[1] == 0:
        chosen, found = tf.zeros([batch.size, count], tf.int32), tf.zeros([batch.size], tf.int32)
    else:
        chosen, found = _chosen(corners, points, alive, threshold, count, lowest)
    if op.type == "NonMaxSuppressionV3":
        return [batched(chosen, {0: Size(found, count)})]
    present = tf.range(count)[None, :] < found[:, None]
    if op.attrs["pad_to_max_output_size"]:
        return [batched(tf.where(present, chosen, 0)), batched(found)]
    return [batched(chosen, {0: Size(found, count)}), batched(found)]


def _chosen(corners: Any, points: Any, alive: Any, threshold: Any, count: int, lowest: Any) -> tuple[Any, Any]:
    """int32 `[B, count]` and how many of them each row has."""
    low, high = tf.minimum(corners[..., :2], corners[..., 2:]), tf.maximum(corners[..., :2], corners[..., 2:])
    areas = tf.reduce_prod(high - low, -1)
    numbers = tf.range(tf.shape(points)[1])[None, :]

    def step(turn: Any, alive: Any, chosen: Any, found: Any) -> Any:
        best = tf.argmax(tf.where(alive, points, lowest), 1, output_type=tf.int32)
        there = tf.reduce_any(alive, 1)
        best_low, best_high = (tf.gather(item, best, batch_dims=1)[:, None] for item in (low, high))
        sides = tf.maximum(tf.minimum(high, best_high) - tf.maximum(low, best_low), tf.zeros([], low.dtype))
        common = tf.reduce_prod(sides, -1)
        area = tf.gather(areas, best, batch_dims=1)[:, None]
        share = tf.where(tf.logical_and(areas > 0, area > 0), common / (areas + area - common), tf.zeros_like(common))
        gone = tf.logical_or(share > threshold[:, None], numbers == best[:, None])
        chosen = tf.where(tf.range(count)[None, :] == turn, best[:, None], chosen)
        return turn + 1, tf.logical_and(alive, tf.logical_not(gone)), chosen, found + tf.cast(there, tf.int32)

    rows = tf.shape(points)[0]
    start = (tf.constant(0), alive, tf.zeros([rows, count], tf.int32), tf.zeros([rows], tf.int32))
    shapes = (tf.TensorShape([]), alive.shape, tf.TensorShape([None, count]), tf.TensorShape([None]))
    end = tf.while_loop(lambda turn, *_: turn < count, step, start, shapes, maximum_iterations=count)
    return end[2], end[3]


@converts("CombinedNonMaxSuppression", compilable=False)
def convert_combined_suppression(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Boxes of several classes chosen together, for each image alone."""
    _dense(inputs)
    if any(value.batched for value in inputs[2:]):
        raise NotConvertible("numbers of boxes, or thresholds, that differ between examples")
    boxes, scores = (batch.rows(value) for value in inputs[:2])
    results = replay(op, [fold(boxes), fold(scores), *(value.tensor for value in inputs[2:])])
    return [batched(unfold(result, boxes)) for result in results]


@converts("AdjustHue AdjustSaturation AdjustContrastv2", checks="amounts differ, and a number isn't finite")
def convert_adjustment(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Hue, saturation or contrast changed by an amount; where it differs between examples, by arithmetic."""
    images, amount = inputs
    _dense(inputs)
    if not amount.batched:
        return [Value(replay(op, [images.tensor, amount.tensor])[0], images.batched)]
    for value in (images, amount):
        batch.fail_where(tf.logical_not(tf.math.is_finite(value.tensor)), value)
    rows = batch.rows(images)
    by = tf.cast(tf.reshape(amount.tensor, [-1] + [1] * (rows.shape.rank - 1)), rows.dtype)
    if op.type == "AdjustContrastv2":
        mean = tf.reduce_mean(rows, [-3, -2], keepdims=True)
        return [batched((rows - mean) * by + mean)]
    colours = tf.image.rgb_to_hsv(rows)
    hue, saturation, brightness = colours[..., :1], colours[..., 1:2], colours[..., 2:]
    if op.type == "AdjustHue":
        hue = tf.math.floormod(hue + by, tf.ones([], hue.dtype))
    else:
        saturation = tf.clip_by_value(saturation * by, 0, 1)
    return [batched(tf.image.hsv_to_rgb(tf.concat([hue, saturation, brightness], -1)))]
