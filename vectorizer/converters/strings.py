"""Text. XLA knows no strings, so none of this compiles; it runs in the plain part of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.alignment import align
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, number, pad_axis


@converts("StringJoin", compilable=False)
def convert_string_join(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Joins elementwise."""
    tensors, sizes = align([Value(batch.rows(value), True, value.sizes) for value in inputs], batch)
    return [batched(tf.strings.join(tensors, separator=op.attrs["separator"].decode()), sizes)]


@converts("RegexReplace RegexFullMatch", compilable=False)
def convert_regex(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """One pattern for all."""
    if any(value.batched for value in inputs[1:]):
        raise NotConvertible("a pattern that differs between examples")
    (tensor,) = replay(op, [value.tensor for value in inputs])
    return [batched(tensor, inputs[0].sizes)]


@converts("UnicodeDecode", compilable=False)
def convert_unicode_decode(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Texts to code points: all texts of the batch at once, then each example's share is cut out."""
    (value,) = inputs
    count = value.shape[0]
    if value.sizes or count is None or op.attrs["errors"] == b"strict":
        raise NotConvertible("decoding a variable number of texts, or one that raises for malformed text")
    splits, points = replay(op, [tf.reshape(value.tensor, [-1])])
    lengths = tf.reshape(splits[1:] - splits[:-1], [-1, count])
    ends = tf.concat([tf.zeros([batch.size, 1], splits.dtype), tf.cumsum(lengths, axis=1)], 1)
    total = tf.reduce_sum(lengths, axis=1)
    size = batch.new_size(number(total))
    ragged = tf.RaggedTensor.from_row_splits(points, splits[::count], validate=False)
    dense = ragged.to_tensor(shape=[None, size.padded if isinstance(size.padded, int) else None])
    return [batched(ends), batched(_rows_of(dense, batch, size.padded), {0: size})]


def _rows_of(dense: Any, batch: Batch, padded: Any) -> Any:
    static = [batch.size if isinstance(batch.size, int) else None, padded if isinstance(padded, int) else None]
    dense = pad_axis(dense, 1, padded)
    dense.set_shape(static + dense.shape.as_list()[2:])
    return dense


@converts("DecodeRaw", checks="the bytes don't fill whole elements", compilable=False)
def convert_decode_raw(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Bytes of a scalar string as numbers."""
    (value,) = inputs
    if not value.batched:
        return [Value(tensor, False) for tensor in replay(op, [value.tensor])]
    if value.rank != 0:
        raise NotConvertible("decoding several byte strings of one example")
    width = op.outputs[0].dtype.size
    count = tf.strings.length(value.tensor)
    batch.check(count % width == 0)
    size = batch.new_size(number(count // width))
    dense = tf.io.decode_raw(
        value.tensor, op.outputs[0].dtype, little_endian=op.attrs["little_endian"], fixed_length=size.padded * width
    )
    return [batched(_rows_of(dense, batch, size.padded), {0: size})]


@converts("Substr", checks="the position is out of range", compilable=False)
def convert_substr(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Parts of strings by position and length."""
    text, position, length = inputs
    if not any(value.batched for value in inputs):
        return [Value(tensor, False) for tensor in replay(op, [value.tensor for value in inputs])]
    if any(value.sizes for value in inputs) or not (position.rank == length.rank == 0):
        raise NotConvertible("parts of strings by several positions")
    unit = op.attrs["unit"].decode()
    total = tf.strings.length(text.tensor, unit=unit)
    start = batch.rows(Value(tf.cast(position.tensor, tf.int32), position.batched))
    count = batch.rows(Value(tf.cast(length.tensor, tf.int32), length.batched))
    rows = batch.rows(text)
    total = batch.rows(Value(total, text.batched))
    shape = [-1] + [1] * (rows.shape.rank - 1)
    start, count = tf.reshape(start, shape), tf.reshape(count, shape)
    good = tf.logical_and(start <= total, start >= -total)
    batch.check(tf.reduce_all(good, axis=list(range(1, rows.shape.rank))))
    start = tf.broadcast_to(tf.clip_by_value(start, -total, total), tf.shape(rows))
    return [batched(tf.strings.substr(rows, start, tf.broadcast_to(count, tf.shape(rows)), unit=unit))]


@converts("StringToNumber", checks="the text isn't a number", compilable=False)
def convert_string_to_number(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Parses numbers. Texts that surely are none fail their row and are read as 0; the rest is the kernel's."""
    (value,) = inputs
    pattern = _NUMBER if op.outputs[0].dtype.is_floating else _INTEGER
    good = tf.strings.regex_full_match(value.tensor, pattern)
    axes = list(range(1 if value.batched else 0, good.shape.rank))
    if value.sizes:
        raise NotConvertible("parsing a variable number of texts")
    batch.check(tf.reduce_all(good, axis=axes))
    (tensor,) = replay(op, [tf.where(good, value.tensor, "0")])
    return [Value(tensor, value.batched)]


_INTEGER = r"\s*[+-]?[0-9]{1,9}\s*"
_NUMBER = r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*|\s*[+-]?(inf|nan|infinity)\s*"
