"""Launches by TensorFlow: the vectorizer's own converter on a group of nodes, where numpy has no kernel for the op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic.kernels import Case, Kernel
from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import convert, replay
from vectorizer.values import NotConvertible, batched, shared


def by_tensorflow(op: Op, fixed: Sequence[Any], case: Case) -> Kernel:
    """A kernel for nodes of `op`; `fixed`: the tensors that all share, None for what is a node's own."""
    own = [k for k, tensor in enumerate(fixed) if tensor is None]
    dtypes = [op.inputs[k].dtype for k in own]
    shapes = [case.shapes[k] for k in own]

    def kernel(count: int, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        tensors = [
            tf.constant(array.reshape(count, *shape), dtype)
            for array, shape, dtype in zip(operands, shapes, dtypes, strict=True)
        ]
        made, ok = _converted(op, fixed, tensors, count)
        for out, tensor, shape in zip(results, made, case.results, strict=True):
            out.reshape(count, *shape)[...] = _cut(tensor, shape).numpy()
        return None if ok is None else ok.numpy()

    return kernel


def _converted(op: Op, fixed: Sequence[Any], own: Sequence[Any], count: int) -> tuple[Sequence[Any], Any]:
    """The results `[count, ...]`, and which nodes are fine, None if nothing can go wrong."""
    rest = iter(own)
    operands = [batched(next(rest)) if tensor is None else shared(tensor) for tensor in fixed]
    batch = Batch(count)
    try:
        results = [batch.rows(value) for value in convert(op, operands, batch)]
    except (NotConvertible, KeyError):
        return _one_by_one(op, fixed, own, count)
    return results, batch.ok if batch.checked else None


def _one_by_one(op: Op, fixed: Sequence[Any], own: Sequence[Any], count: int) -> tuple[Sequence[Any], Any]:
    rows = []
    for row in range(count):
        rest = iter(own)
        rows.append(replay(op, [next(rest)[row] if tensor is None else tensor for tensor in fixed]))
    return [tf.stack(column) for column in zip(*rows, strict=True)], None


def _cut(tensor: Any, shape: tuple[int, ...]) -> Any:
    """Without the padding that a converter may have left behind a dimension."""
    if tuple(tensor.shape[1:]) == shape:
        return tensor
    return tensor[(slice(None), *(slice(0, size) for size in shape))]


def alone(op: Op, arrays: Sequence[Any]) -> list[Any]:
    """The op on one example's host arrays, as host arrays."""
    tensors = [
        array if tf.is_tensor(array) else tf.constant(array, var.dtype)
        for array, var in zip(arrays, op.inputs, strict=True)
    ]
    return [np.asarray(tensor.numpy(), object if tensor.dtype == tf.string else None) for tensor in replay(op, tensors)]
