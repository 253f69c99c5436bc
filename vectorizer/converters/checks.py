"""Ops that exist in order to raise: they become checks of each row."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import converts
from vectorizer.values import Value


@converts("Assert", checks="the condition is false")
def convert_assert(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rows whose condition is false fail."""
    batch.check(inputs[0].tensor)
    return []


@converts("CheckNumerics CheckNumericsV2", checks="an element is NaN or infinite")
def convert_check_numerics(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rows with an element that is NaN or infinite fail."""
    (value,) = inputs
    batch.fail_where(tf.logical_not(tf.math.is_finite(value.tensor)), value)
    return [value]


@converts("EnsureShape", checks="the shape differs")
def convert_ensure_shape(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rows whose shape isn't the one demanded fail."""
    (value,) = inputs
    wanted = tf.TensorShape(op.attrs["shape"])
    if wanted.rank is None:
        return [value]
    if wanted.rank != value.rank:
        batch.check(tf.constant(False))
        return [value]
    for axis, size in enumerate(wanted.as_list()):
        if size is None:
            continue
        if axis in value.sizes:
            batch.check(value.sizes[axis].lengths == size)
        elif value.shape[axis] != size:
            batch.check(tf.shape(value.tensor)[axis + (1 if value.batched else 0)] == size)
    return [value]
