"""Text. XLA knows no strings, so none of this compiles; it runs in the plain part of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.alignment import align
from vectorizer.converters.reductions import kept_sizes
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import (
    NotConvertible,
    Size,
    Value,
    at_axis,
    batched,
    dimension,
    fill_padding,
    number,
    pad_axis,
    shared,
    size_mask,
    vector,
)


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


@converts("UnicodeTranscode", checks="the text is malformed (strict only)", compilable=False)
def convert_unicode_transcode(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """From one encoding to another."""
    value = _well_formed(op, inputs[0], batch)
    return [Value(replay(op, [value.tensor])[0], value.batched, value.sizes)]


def _well_formed(op: Op, value: Value, batch: Batch) -> Value:
    """Where malformed text raises: its row fails, and it is read as nothing."""
    if op.attrs["errors"] != b"strict":
        return value
    encoding = op.attrs["input_encoding"].decode()
    marked, dropped = (
        tf.strings.unicode_transcode(value.tensor, encoding, "UTF-8", errors=errors) for errors in ("replace", "ignore")
    )
    good = marked == dropped
    batch.fail_where(tf.logical_not(good), value)
    return Value(tf.where(good, value.tensor, ""), value.batched, value.sizes)


@converts("DecodeBase64", checks="the text isn't base64", compilable=False)
def convert_decode_base64(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Texts that aren't web-safe base64 fail their row."""
    (value,) = inputs
    good = tf.strings.regex_full_match(value.tensor, _BASE64)
    batch.fail_where(tf.logical_not(good), value)
    return [Value(replay(op, [tf.where(good, value.tensor, "")])[0], value.batched, value.sizes)]


_BASE64 = "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}(==)?|[A-Za-z0-9_-]{3}=?)?"


@converts("UnicodeDecode UnicodeDecodeWithOffsets", checks="the text is malformed (strict only)", compilable=False)
def convert_unicode_decode(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Texts to code points: all texts of the batch at once, then each example's share is cut out."""
    value = _well_formed(op, inputs[0], batch)
    if not value.batched:
        return [Value(tensor, False) for tensor in replay(op, [value.tensor])]
    count = value.shape[0]
    if value.sizes or count is None:
        raise NotConvertible("decoding a variable number of texts")
    splits, *parts = replay(op, [tf.reshape(value.tensor, [-1])])
    lengths = tf.reshape(splits[1:] - splits[:-1], [-1, count])
    ends = tf.concat([tf.zeros([batch.size, 1], splits.dtype), tf.cumsum(lengths, axis=1)], 1)
    total = tf.reduce_sum(lengths, axis=1)
    size = batch.new_size(number(total))
    results = [batched(ends)]
    for part in parts:
        ragged = tf.RaggedTensor.from_row_splits(part, splits[::count], validate=False)
        dense = ragged.to_tensor(shape=[None, size.padded if isinstance(size.padded, int) else None])
        results.append(batched(_rows_of(dense, batch, size.padded), {0: size}))
    return results


def cut_into_rows(flat: Any, rows: Any, batch: Batch, size: Size | None = None) -> tuple[Any, Size]:
    """`flat` [total, ...] of all rows, sorted by `rows` [total], as `[B, P, ...]`, and each row's share."""
    rows = tf.cast(rows, tf.int64)
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, batch.size)
    size = size or batch.new_size(number(lengths))
    ragged = tf.RaggedTensor.from_row_lengths(flat, lengths, validate=False)
    room = size.padded if isinstance(size.padded, int) else None
    dense = ragged.to_tensor(shape=[None, room, *flat.shape[1:]])
    return _rows_of(dense, batch, size.padded), size


@converts("StringSplitV2", compilable=False)
def convert_string_split(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The parts of several texts as a sparse matrix: all texts of the batch at once."""
    text, separator = inputs
    if separator.batched:
        raise NotConvertible("texts split by separators that differ between examples")
    count = dimension(text.tensor, 1)
    indices, parts, _ = replay(op, [tf.reshape(text.tensor, [-1]), separator.tensor])
    if text.sizes:
        mask = tf.broadcast_to(size_mask(text.sizes[0], 1, 0), tf.shape(text.tensor))
        present = tf.gather(tf.reshape(mask, [-1]), indices[:, 0])
        indices, parts = tf.boolean_mask(indices, present), tf.boolean_mask(parts, present)
    width = tf.maximum(tf.cast(count, tf.int64), 1)
    rows, where = indices[:, 0] // width, indices[:, 0] % width
    dense, size = cut_into_rows(parts, rows, batch)
    places, _ = cut_into_rows(tf.stack([where, indices[:, 1]], -1), rows, batch, size)
    most = tf.maximum(tf.math.unsorted_segment_max(indices[:, 1] + 1, rows, batch.size), 0)
    own = text.sizes.get(0)
    texts = number(tf.cast(own.lengths, tf.int64), own) if own is not None else shared(tf.cast(count, tf.int64))
    upper = size.padded  # no text has more parts than its example
    return [
        batched(places, {0: size}),
        batched(dense, {0: size}),
        vector([texts, number(most, upper=upper)], tf.int64),
    ]


@converts("ReduceJoin", compilable=False)
def convert_reduce_join(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Texts joined along axes."""
    value, axes_value = inputs
    axes = [int(axis) % value.rank for axis in np.atleast_1d(require_static(axes_value, "the axis of a join"))]
    ragged = [axis for axis in axes if axis in value.sizes]
    separator = op.attrs["separator"].decode()
    if not axes:
        return [value]
    if ragged and separator:
        if len(axes) > 1:
            raise NotConvertible("a variable number of texts joined along several axes")
        (axis,) = axes
        after = tf.range(1, value.sizes[axis].padded + 1)[None, :] < value.sizes[axis].lengths[:, None]
        spaced = tf.where(at_axis(after, value.rank, axis), tf.strings.join([value.tensor, separator]), value.tensor)
        tensor = fill_padding(batched(spaced, value.sizes), ragged, "")
        joined = tf.strings.reduce_join(tensor, axis + 1, keepdims=bool(op.attrs["keep_dims"]))
        return [batched(joined, kept_sizes(value, axes, bool(op.attrs["keep_dims"])))]
    tensor = fill_padding(value, ragged, "")
    (result,) = replay(op, [tensor, tf.constant([axis + 1 for axis in axes])])
    return [batched(result, kept_sizes(value, axes, bool(op.attrs["keep_dims"])))]


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
    good = is_number(value.tensor, dtype)
    batch.fail_where(tf.logical_not(good), value)
    (tensor,) = replay(op, [tf.where(good, value.tensor, "0")])
    return [Value(tensor, value.batched, value.sizes)]


def is_number(text: Any, dtype: Any) -> Any:
    """Bool: whether TensorFlow reads the text as a number of that dtype."""
    return tf.strings.regex_full_match(text, _FLOAT) if dtype.is_floating else _is_integer(text, dtype)


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
