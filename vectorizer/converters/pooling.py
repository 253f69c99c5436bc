"""Pooling that convolution's layout doesn't cover: windows given as operands, places of maxima, gradients.

The batch joins the images' own leading axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.convolution import fold, unfold
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, dimension


def _dense(inputs: Sequence[Value], what: str) -> None:
    if any(value.sizes for value in inputs):
        raise NotConvertible(f"{what} over ragged images")


@converts("MaxPoolV2")
def convert_pooling_by_operands(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Maxima over windows whose size and stride are operands."""
    images, *window = inputs
    _dense(inputs, "pooling by windows given as operands")
    for value in window:
        require_static(value, "the window of pooling")
    (result,) = replay(op, [fold(images.tensor), *(value.tensor for value in window)])
    return [batched(unfold(result, images.tensor))]


@converts("MaxPoolGrad MaxPoolGradV2 MaxPoolGradGrad MaxPoolGradGradV2 MaxPool3DGrad MaxPool3DGradGrad LRNGrad")
def convert_pool_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Gradients, and gradients of gradients, by the images and results of the forward pass."""
    _dense(inputs, "the gradient of pooling")
    for value in inputs[3:]:
        require_static(value, "the window of pooling")
    folded = [fold(batch.rows(value)) for value in inputs[:3]]
    (result,) = replay(op, [*folded, *(value.tensor for value in inputs[3:])])
    like = inputs[2] if op.type.endswith(("GradGrad", "GradGradV2")) else inputs[0]
    return [batched(unfold(result, batch.rows(like)))]


@converts("AvgPoolGrad AvgPool3DGrad")
def convert_mean_pool_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The gradient of means over windows, by the shape of the images."""
    _dense(inputs, "the gradient of pooling")
    shape = np.array(require_static(inputs[0], "the shape of pooled images"))
    folded = fold(batch.rows(inputs[1]))
    (result,) = replay(op, [tf.concat([tf.shape(folded)[:1], tf.constant(shape[1:], tf.int32)], 0), folded])
    return [batched(tf.reshape(result, tf.concat([[batch.size], shape], 0)))]


@converts("MaxPoolWithArgmax", compilable=False)
def convert_pooling_with_places(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Maxima over windows and where they are, counted within each example."""
    (images,) = inputs
    _dense(inputs, "pooling with places")
    maxima, places = (unfold(result, images.tensor) for result in replay(op, [fold(images.tensor)]))
    if op.attrs["include_batch_in_index"]:
        places = places - _elements_before(images.tensor, places)
    return [batched(maxima), batched(places)]


@converts("MaxPoolGradWithArgmax", compilable=False)
def convert_pool_gradient_by_places(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The gradient goes to the places of the maxima."""
    _dense(inputs, "the gradient of pooling with places")
    images, gradient, places = (batch.rows(value) for value in inputs)
    if op.attrs["include_batch_in_index"]:
        places = places + _elements_before(images, places)
    (result,) = replay(op, [fold(images), fold(gradient), fold(places)])
    return [batched(unfold(result, images))]


def _elements_before(images: Any, places: Any) -> Any:
    """How many elements the examples before each one have, shaped to add to its places."""
    each = tf.cast(tf.reduce_prod(tf.shape(images)[1:]), places.dtype)
    rows = tf.cast(tf.range(dimension(images, 0)), places.dtype) * each
    return tf.reshape(rows, [-1] + [1] * (places.shape.rank - 1))
