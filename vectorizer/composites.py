"""Tensors that aren't dense, as what crosses into and out of a per-example function: dense ones of variable length.

A batch of RaggedTensors or SparseTensors is taken apart into padded arrays and lengths, from which the function in the
loop gets each example's own (`Element`). What it returns is taken apart the same way, and put together as one
RaggedTensor or SparseTensor with the batch in front (`Result`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer import tf_internals
from vectorizer.values import dimension


@dataclass(frozen=True)
class Padded:
    """`[B, ...]`; `lengths` are the rows' own sizes of per-example axes, int32 [B] by axis."""

    tensor: Any
    lengths: Mapping[int, Any]


@dataclass(frozen=True)
class Element:
    """One leaf of the elements mapped over: its padded arrays, and how an example's tensors make its own leaf again."""

    parts: Sequence[Padded]
    build: Callable[[Sequence[Any]], Any]
    rows: Any


def take_element(value: Any) -> Element:
    """A leaf of the elements, batch in front. Raises ValueError for what has no rows."""
    if isinstance(value, tf.RaggedTensor):
        return _ragged_element(value)
    if isinstance(value, tf.SparseTensor):
        return _sparse_element(value)
    tensor = tf.convert_to_tensor(value)
    if tensor.shape.rank is None or tensor.shape.rank == 0:
        what = "a scalar" if tensor.shape.rank == 0 else "a tensor of unknown rank"
        raise ValueError(f"can't map over {what}: {tensor}")
    return Element([Padded(tensor, {})], lambda tensors: tensors[0], dimension(tensor, 0))


def _ragged_element(value: Any) -> Element:
    levels = value.ragged_rank
    splits = value.nested_row_splits
    parts = []
    for level in range(1, levels):
        lengths = tf.RaggedTensor.from_row_splits(splits[level][1:] - splits[level][:-1], splits[level - 1])
        for outer in reversed(splits[: level - 1]):
            lengths = tf.RaggedTensor.from_row_splits(lengths, outer)
        parts.append(_flat_rows(lengths, level))
    parts.append(_flat_rows(value, levels))

    def build(tensors: Sequence[Any]) -> Any:
        if levels == 1:
            return tensors[0]
        return tf.RaggedTensor.from_nested_row_lengths(tensors[-1], tensors[:-1], validate=False)

    return Element(parts, build, value.nrows(out_type=tf.int32) if value.shape[0] is None else value.shape[0])


def _flat_rows(value: Any, levels: int) -> Padded:
    """The flat values of each row, padded."""
    flat = value.merge_dims(1, levels) if levels > 1 else value
    return Padded(flat.to_tensor(), {0: tf.cast(flat.row_lengths(), tf.int32)})


def _sparse_element(value: Any) -> Element:
    value = tf.sparse.reorder(value)
    rows, rank = value.dense_shape[0], value.shape.rank
    if rank is None or rank < 2:
        raise ValueError(f"can't map over a SparseTensor of rank {rank}: its elements would be scalars")
    row_of = value.indices[:, 0]
    indices = tf.RaggedTensor.from_value_rowids(value.indices[:, 1:], row_of, nrows=rows, validate=False)
    values = tf.RaggedTensor.from_value_rowids(value.values, row_of, nrows=rows, validate=False)
    shapes = tf.tile(value.dense_shape[None, 1:], tf.stack([rows, tf.constant(1, tf.int64)]))
    static = value.shape[1:]
    known = value.shape[0]

    def build(tensors: Sequence[Any]) -> Any:
        shape = tf.constant(static.as_list(), tf.int64) if static.is_fully_defined() else tensors[2]
        return tf.SparseTensor(tensors[0], tensors[1], shape)

    parts = [_flat_rows(indices, 1), _flat_rows(values, 1), Padded(tf.ensure_shape(shapes, [known, rank - 1]), {})]
    return Element(parts, build, tf.cast(rows, tf.int32) if known is None else known)


@dataclass(frozen=True)
class Result:
    """One leaf of what the function returns: how many tensors it is, and how the batch's leaf is made of them."""

    count: int
    build: Callable[[Sequence[Padded]], Any]


def take_result(item: Any) -> tuple[list[Any], Result]:
    """The tensors of one leaf of a per-example result, and its `Result`. An Operation gives None, as None does."""
    if item is None or isinstance(item, tf.Operation):
        return [], Result(0, lambda _: None)
    if isinstance(item, tf.SparseTensor):
        return [item.indices, item.values, item.dense_shape], Result(3, _sparse_batch)
    if isinstance(item, tf.RaggedTensor):
        lengths = [tf.cast(level, tf.int64) for level in item.nested_row_lengths()]
        return [*lengths, item.flat_values], Result(len(lengths) + 1, _ragged_batch)
    if tf_internals.is_composite(item) and not isinstance(item, tf.IndexedSlices):
        tensors = tf.nest.flatten(item, expand_composites=True)
        spec = tf.type_spec_from_value(item)
        return tensors, Result(len(tensors), lambda parts: _batch_of(spec, parts))
    return [tf.convert_to_tensor(item)], Result(1, lambda parts: dense_or_ragged(parts[0]))


def dense_or_ragged(part: Padded) -> Any:
    """The padded array itself, or a RaggedTensor where rows differ in size."""
    if not part.lengths:
        return part.tensor
    tensor, innermost = part.tensor, max(part.lengths)
    partitions: list[Any] = []
    for axis in range(innermost + 1):
        # The rows of this level, of all examples one after the other.
        count = dimension(tensor, 1)
        own = part.lengths.get(axis)
        sizes = tf.fill([dimension(part.tensor, 0)], count) if own is None else own
        for partition in partitions:
            sizes = tf.repeat(sizes, partition)
        tensor = tf.boolean_mask(tensor, tf.sequence_mask(sizes, count))
        partitions = [*partitions, sizes]
    ragged = tensor
    for partition in reversed(partitions):
        ragged = tf.RaggedTensor.from_row_lengths(ragged, tf.cast(partition, tf.int64), validate=False)
    return ragged


def _joined(part: Padded) -> tuple[Any, Any]:
    """(the rows' elements one after the other, how many each row has: int64 [B]) along the first per-example axis."""
    if 0 not in part.lengths:
        count = dimension(part.tensor, 1)
        lengths = tf.fill([dimension(part.tensor, 0)], tf.cast(count, tf.int64))
        shape = tf.concat([[-1], tf.shape(part.tensor)[2:]], 0)
        joined = tf.reshape(part.tensor, shape)
        joined.set_shape([None, *part.tensor.shape[2:]])
        return joined, lengths
    ragged = tf.RaggedTensor.from_tensor(part.tensor, lengths=part.lengths[0])
    return ragged.values, ragged.row_lengths()


def _ragged_batch(parts: Sequence[Padded]) -> Any:
    *levels, flat = (_joined(part) for part in parts)
    result, _ = flat
    for lengths, _ in reversed(levels):
        result = tf.RaggedTensor.from_row_lengths(result, lengths, validate=False)
    return tf.RaggedTensor.from_row_lengths(result, levels[0][1], validate=False)


def _sparse_batch(parts: Sequence[Padded]) -> Any:
    """As TensorFlow's pfor: each dimension is the largest of all rows."""
    indices, counts = _joined(parts[0])
    values, _ = _joined(parts[1])
    shapes = parts[2].tensor
    rows = tf.range(tf.shape(shapes, tf.int64)[0])
    first = tf.repeat(rows, counts)[:, None]
    shape = tf.concat([tf.shape(shapes, tf.int64)[:1], tf.reduce_max(shapes, 0)], 0)
    return tf.SparseTensor(tf.concat([first, indices], 1), values, tf.maximum(shape, 0))


def _batch_of(spec: Any, parts: Sequence[Padded]) -> Any:
    if any(part.lengths for part in parts):
        raise ValueError(f"a result of type {spec.value_type.__name__} must have the same size in every row")
    tensors = [part.tensor for part in parts]
    return tf.nest.pack_sequence_as(
        tf_internals.batched_spec(spec, tensors[0].shape[0]), tensors, expand_composites=True
    )
