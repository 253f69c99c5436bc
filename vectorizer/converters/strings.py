"""Text. XLA knows no strings, so none of this compiles; it runs in the plain part of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.alignment import align
from vectorizer.converters.elementwise import fail_where
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, number, pad_axis


@converts("StringJoin", compilable=False)
def convert_string_join(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Joins elementwise. The kernel broadcasts scalars only."""
    tensors, sizes = align(inputs, batch)
    full = tf.shape(tensors[0])
    for tensor in tensors[1:]:
        full = tf.broadcast_dynamic_shape(full, tf.shape(tensor))
    tensors = [tensor if tensor.shape.rank == 0 else tf.broadcast_to(tensor, full) for tensor in tensors]
    return [batched(tf.strings.join(tensors, separator=op.attrs["separator"].decode()), sizes)]


@converts("RegexReplace RegexFullMatch", compilable=False)
def convert_regex(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """One pattern for all."""
    if any(value.batched for value in inputs[1:]):
        raise NotConvertible("a pattern that differs between examples")
    (tensor,) = replay(op, [value.tensor for value in inputs])
    return [batched(tensor, inputs[0].sizes)]


@converts("UnicodeTranscode", compilable=False)
def convert_unicode_transcode(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """From one encoding to another."""
    if op.attrs["errors"] == b"strict":
        raise NotConvertible("transcoding that raises for malformed text")
    return [batched(replay(op, [inputs[0].tensor])[0], inputs[0].sizes)]


@converts("DecodeBase64", checks="the text isn't base64", compilable=False)
def convert_decode_base64(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Texts that aren't web-safe base64 fail their row."""
    (value,) = inputs
    good = tf.strings.regex_full_match(value.tensor, _BASE64)
    fail_where(tf.logical_not(good), value, batch)
    return [Value(replay(op, [tf.where(good, value.tensor, "")])[0], value.batched, value.sizes)]


_BASE64 = "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}(==)?|[A-Za-z0-9_-]{3}=?)?"


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
    static = [
        batch.size if isinstance(batch.size, int) else None,
        padded if isinstance(padded, int) else None,
    ]
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
        value.tensor,
        op.outputs[0].dtype,
        little_endian=op.attrs["little_endian"],
        fixed_length=size.padded * width,
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
    start = tf.broadcast_to(tf.maximum(tf.minimum(start, total), -total), tf.shape(rows))
    return [batched(tf.strings.substr(rows, start, tf.broadcast_to(count, tf.shape(rows)), unit=unit))]


@converts("StringToNumber", checks="the text isn't a number", compilable=False)
def convert_string_to_number(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Parses numbers. Texts that are none fail their row and are read as 0."""
    (value,) = inputs
    dtype = op.outputs[0].dtype
    good = tf.strings.regex_full_match(value.tensor, _FLOAT) if dtype.is_floating else _is_integer(value.tensor, dtype)
    fail_where(tf.logical_not(good), value, batch)
    (tensor,) = replay(op, [tf.where(good, value.tensor, "0")])
    return [Value(tensor, value.batched, value.sizes)]


_SPACE = r"[ \t\n\v\f\r]*"
_DECIMAL = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_HEXADECIMAL = r"0[xX][0-9a-fA-F]+(\.[0-9a-fA-F]+)?([pP][+-]?[0-9]+)?"
_FLOAT = rf"{_SPACE}[+-]?({_DECIMAL}|{_HEXADECIMAL}|(?i:inf|infinity|nan)){_SPACE}"
_LOW_DIGITS = 9  # a 64-bit integer is compared as its first ten digits and the nine after them


def _is_integer(text: Any, dtype: Any) -> Any:
    """Bool: whether the text is an integer that fits `dtype`."""
    signs = "[+-]?" if dtype.min < 0 else "[+]?"
    form = tf.strings.regex_full_match(text, rf"{_SPACE}{signs}[0-9]+{_SPACE}")
    digits = tf.strings.regex_replace(text, rf"^{_SPACE}[+-]?0*([0-9]*){_SPACE}$", r"\1")
    negative = tf.strings.regex_full_match(text, rf"{_SPACE}-.*")
    most = len(str(dtype.max))
    length = tf.strings.length(digits)
    full = tf.logical_and(form, length == most)  # only as many digits as the greatest value has must be compared
    digits = tf.where(full, digits, "0" * most)
    split = max(most - _LOW_DIGITS, 1)
    high = tf.strings.to_number(tf.strings.substr(digits, 0, split), tf.int64)
    low = tf.strings.to_number(tf.strings.substr(digits, split, most - split), tf.int64)
    limit = 10 ** (most - split)
    fits = tf.zeros_like(full)
    for applies, largest in ((tf.logical_not(negative), dtype.max), (negative, -dtype.min)):
        below = tf.logical_or(high < largest // limit, tf.logical_and(high == largest // limit, low <= largest % limit))
        fits = tf.logical_or(fits, tf.logical_and(applies, below))
    return tf.logical_and(form, tf.logical_or(length < most, tf.logical_and(full, fits)))
