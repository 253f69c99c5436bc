"""Batch normalisation. Statistics are taken within each example: the batch joins the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.convolution import fold, unfold
from vectorizer.converters.filters import at_least_one_row, into_channels, out_of_channels
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, dimension


@converts("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def convert_batch_norm(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Inference is an affine map per channel; training takes means and variances of each example alone."""
    images, parameters = inputs[0], inputs[1:]
    if not op.attrs["is_training"] and not any(value.batched for value in parameters):
        results = replay(op, [fold(images.tensor), *(value.tensor for value in parameters)])
        return [
            batched(unfold(results[0], images.tensor), images.sizes),
            *(Value(item, False) for item in results[1:]),
        ]
    if images.sizes:
        raise NotConvertible("batch normalisation of ragged images by statistics that differ between examples")
    rows = at_least_one_row(images, batch)
    results = replay(op, [_join(op, rows), *(_vector(value, batch) for value in parameters)])
    return _outputs(op, results, dimension(rows, 0), batch)


@converts("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
def convert_batch_norm_gradient(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Gradients by images, scales and offsets of each example alone."""
    if any(value.sizes for value in inputs):
        raise NotConvertible("the gradient of batch normalisation over ragged images")
    gradient, images = (at_least_one_row(value, batch) for value in inputs[:2])
    parameters = [_vector(value, batch) for value in inputs[2:5]]
    rest = [value.tensor for value in inputs[5:]]
    results = replay(op, [_join(op, gradient), _join(op, images), *parameters, *rest])
    return _outputs(op, results, dimension(gradient, 0), batch)


def _channels_first(op: Op) -> bool:
    return bool(op.attrs["data_format"].decode().startswith("NC"))


def _join(op: Op, rows: Any) -> Any:
    """`[B, N, ..., C]` to `[N, ..., B * C]`, or with channels first `[B, N, C, ...]` to `[N, B * C, ...]`."""
    if not _channels_first(op):
        return into_channels(rows)
    rank = rows.shape.rank
    moved = tf.transpose(rows, [1, 0, *range(2, rank)])
    shape = [dimension(moved, k) for k in range(rank)]
    return tf.reshape(moved, [shape[0], shape[1] * shape[2], *shape[3:]])


def _vector(value: Value, batch: Batch) -> Any:
    """A parameter of each channel; TensorFlow gives none at all as a vector of no elements."""
    if value.shape == [0]:
        return value.tensor[0] if value.batched else value.tensor
    return tf.reshape(at_least_one_row(value, batch), [-1])


def _outputs(op: Op, results: Sequence[Any], rows: Any, batch: Batch) -> list[Value]:
    images, *vectors = results
    if _channels_first(op):
        shape = [dimension(images, k) for k in range(images.shape.rank)]
        split = tf.reshape(images, [shape[0], rows, shape[1] // rows, *shape[2:]])
        images = tf.transpose(split, [1, 0, *range(2, images.shape.rank + 1)])
    else:
        images = out_of_channels(images, rows)
    count = op.outputs[0].shape[1 if _channels_first(op) else -1]
    found = [batched(images[: batch.size])]
    for tensor, var in zip(vectors, op.outputs[1:], strict=True):
        per_channel = var.rank == 1 and var.shape[0] == count
        found.append(batched(tf.reshape(tensor, [rows, count])[: batch.size]) if per_channel else Value(tensor, False))
    return found
