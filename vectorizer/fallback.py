"""What has no rule: the op runs once for each row, in a loop, on its row's unpadded operands.

Results may differ in shape between rows: each is written to a list as it comes, then all are padded to the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.program import Op, Var
from vectorizer.registry import replay
from vectorizer.values import NotConvertible, Size, Value, batched


def emit_per_row(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Value]:
    """Loop `op` over the rows of the batch."""
    if any(var.shape.rank is None for var in op.outputs):
        raise NotConvertible("it would be looped over the rows, but has a result of unknown rank")
    if not op.outputs:
        run_for_effect(op, inputs, batch)
        return []
    collectors = [
        tf.TensorArray(var.dtype, size=batch.size, infer_shape=False, element_shape=var.shape) for var in op.outputs
    ]
    shapes = [tf.TensorArray(tf.int32, size=batch.size, element_shape=[var.rank]) for var in op.outputs]

    def body(row: Any, collected: Any, sizes: Any) -> Any:
        results = _one_row(op, inputs, row, batch)
        collected = [array.write(row, result) for array, result in zip(collected, results, strict=True)]
        sizes = [array.write(row, tf.shape(result)) for array, result in zip(sizes, results, strict=True)]
        return row + 1, collected, sizes

    _, collected, sizes = tf.while_loop(
        lambda row, *_: row < batch.size, body, (tf.constant(0), collectors, shapes), parallel_iterations=10
    )
    return [
        _gathered(var, values, shape.stack(), batch)
        for var, values, shape in zip(op.outputs, collected, sizes, strict=True)
    ]


def _one_row(op: Op, inputs: Sequence[Any], row: Any, batch: Batch) -> list[Any]:
    """The op on row `row`; a row that doesn't count gets zeros, since its operands could make the op raise."""

    def run() -> list[Any]:
        return replay(op, [slice_row(value, row) for value in inputs])

    if batch.active is None:
        return run()
    nothing = lambda: [_nothing(var) for var in op.outputs]  # noqa: E731
    results = tf.cond(batch.active[row], run, nothing)
    return list(results) if isinstance(results, list | tuple) else [results]


def _nothing(var: Var) -> Any:
    shape = [size if size is not None else 0 for size in var.shape.as_list()]
    return tf.fill(shape, "") if var.dtype == tf.string else tf.zeros(shape, var.dtype)


def run_for_effect(op: Op, inputs: Sequence[Any], batch: Batch) -> None:
    """Only for rows that are examples: the outside would see what is done for the others."""

    def body(row: Any) -> Any:
        with tf.control_dependencies([_effect(op, inputs, row, batch)]):
            return [row + 1]

    real = batch.size if batch.real is None else batch.real
    tf.while_loop(lambda row: row < real, body, [tf.constant(0)], parallel_iterations=1)


def _effect(op: Op, inputs: Sequence[Any], row: Any, batch: Batch) -> Any:
    def run() -> Any:
        replay(op, [slice_row(value, row) for value in inputs])
        return tf.constant(0)

    if batch.active is None:
        return run()
    return tf.cond(batch.active[row], run, lambda: tf.constant(0))


def slice_row(value: Any, row: Any) -> Any:
    """One example's own tensor, without padding."""
    if not value.batched:
        return value.tensor
    tensor = value.tensor[row]
    if value.sizes:
        cut = [
            slice(0, value.sizes[axis].lengths[row]) if axis in value.sizes else slice(None)
            for axis in range(value.rank)
        ]
        tensor = tensor[tuple(cut)]
    return tensor


def _gathered(var: Var, values: Any, shapes: Any, batch: Batch) -> Value:
    """Pad every row's result to the largest and stack."""
    static = var.shape.as_list()
    if None not in static:
        tensor = values.stack()
        tensor.set_shape([batch.size if isinstance(batch.size, int) else None, *static])
        return batched(tensor)
    largest = tf.maximum(tf.reduce_max(tf.concat([shapes, tf.ones([1, var.rank], tf.int32)], 0), axis=0), 1)
    room = tf.stack([size if size is not None else largest[axis] for axis, size in enumerate(static)])

    def padded(row: Any) -> Any:
        item = values.read(row)
        pads = tf.stack([tf.zeros_like(room), room - tf.shape(item)], axis=1)
        fill = tf.constant("") if var.dtype == tf.string else tf.zeros([], var.dtype)
        return tf.ensure_shape(tf.pad(item, pads, constant_values=fill), static)

    spec = tf.TensorSpec(static, var.dtype)
    tensor = tf.map_fn(padded, tf.range(batch.size), fn_output_signature=spec)
    tensor = tf.reshape(tensor, tf.concat([[batch.size], room], 0))
    tensor.set_shape([batch.size if isinstance(batch.size, int) else None, *static])
    sizes = {axis: Size(shapes[:, axis], largest[axis]) for axis, size in enumerate(static) if size is None}
    return batched(tensor, sizes)
