"""Records to tensors: comma-separated values, protocol buffers, padded bytes. Strings, so nothing here compiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch, require_static
from vectorizer.converters.strings import cut_into_rows, is_number
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Size, Value, batched, vector


@converts("DecodePaddedRaw", compilable=False)
def convert_decode_padded_raw(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Bytes as so many numbers: longer texts are cut, shorter ones padded with zeros."""
    text, length = inputs
    if length.batched:
        raise NotConvertible("bytes decoded to lengths that differ between examples")
    (tensor,) = replay(op, [text.tensor, length.tensor])
    tensor.set_shape([*text.tensor.shape, *op.outputs[0].shape[-1:]])
    return [batched(tensor, text.sizes)]


@converts("DecodeCSV", checks="a record has another number of fields, or a field isn't of its type", compilable=False)
def convert_decode_csv(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Fields of comma-separated records, one output a column: read as text first, then each column as its type.

    Records that aren't well formed, and those with line breaks, fail their row.
    """
    records, *defaults = inputs
    if any(value.batched for value in defaults):
        raise NotConvertible("default fields that differ between examples")
    good = tf.strings.regex_full_match(records.tensor, _record_pattern(op))
    batch.fail_where(tf.logical_not(good), records)
    selected = op.attrs["select_cols"]
    count = max(selected) + 1 if selected else len(defaults)
    separator = op.attrs["field_delim"].decode()
    safe = tf.where(good, records.tensor, separator.join("0" * count))
    fields = tf.raw_ops.DecodeCSV(
        records=safe,
        record_defaults=[tf.constant([""])] * len(defaults),
        field_delim=separator,
        use_quote_delim=op.attrs["use_quote_delim"],
        na_value="",
        select_cols=selected,
    )
    missing = op.attrs["na_value"].decode()
    return [
        _column(Value(text, records.batched, records.sizes), default, var.dtype, missing, batch)
        for text, default, var in zip(fields, defaults, op.outputs, strict=True)
    ]


def _record_pattern(op: Op) -> str:
    separator = re.escape(op.attrs["field_delim"].decode())
    field = rf"[^{separator}\r\n]*"
    if op.attrs["use_quote_delim"]:
        field = rf'("([^"]|"")*"|[^"{separator}\r\n]*)'
    selected, columns = op.attrs["select_cols"], len(op.outputs)
    repeats = f"{max(selected)}," if selected else str(columns - 1)
    pattern = f"(?s){field}({separator}{field}){{{repeats}}}"
    # A record without any text has no field at all, not an empty one.
    return pattern if columns > 1 or selected else rf'(?s)("([^"]|"")*"|[^"{separator}\r\n]+)'


def _column(text: Value, default: Value, dtype: Any, missing: str, batch: Batch) -> Value:
    absent = tf.logical_or(text.tensor == "", text.tensor == missing)
    if default.shape == [0]:
        batch.fail_where(absent, text)
    given = tf.reshape(default.tensor, []) if default.shape != [0] else tf.zeros([], tf.int32)
    if dtype == tf.string:
        filler = given if default.shape != [0] else ""
        return Value(tf.where(absent, filler, text.tensor), text.batched, text.sizes)
    good = tf.logical_or(absent, is_number(text.tensor, dtype))
    batch.fail_where(tf.logical_not(good), text)
    readable = tf.logical_and(good, tf.logical_not(absent))
    numbers = tf.strings.to_number(tf.where(readable, text.tensor, "0"), dtype)
    return Value(tf.where(absent, tf.cast(given, dtype), numbers), text.batched, text.sizes)


@converts("ParseExampleV2", compilable=False)
def convert_parse_example(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`tf.io.parse_single_example`: the whole batch is parsed as one vector.

    A text that is no Example raises for the batch: TensorFlow has no op that tells beforehand.
    """
    serialized, _, sparse_keys, dense_keys, ragged_keys = inputs[:5]
    if ragged_keys.shape != [0]:
        raise NotConvertible("an example parsed into ragged tensors")
    keys = [list(require_static(value, "the names of features")) for value in (sparse_keys, dense_keys)]
    return _parse(op, serialized, keys[0], keys[1], inputs[5:], batch)


@converts("ParseSingleExample", compilable=False)
def convert_parse_single_example(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """As `ParseExampleV2`, its names being attributes."""
    return _parse(op, inputs[0], op.attrs["sparse_keys"], op.attrs["dense_keys"], inputs[1:], batch)


def _parse(
    op: Op, serialized: Value, sparse: Sequence[Any], dense: Sequence[Any], defaults: Sequence[Value], batch: Batch
) -> list[Value]:
    if serialized.rank != 0 or any(value.batched for value in defaults):
        raise NotConvertible("several examples parsed by one example, or defaults that differ between examples")
    shapes = [tf.TensorShape(shape) for shape in op.attrs["dense_shapes"]]
    if not all(shape.is_fully_defined() for shape in shapes):
        raise NotConvertible("an example parsed into tensors of variable size; use tf.io.VarLenFeature")
    parsed = tf.raw_ops.ParseExampleV2(
        serialized=serialized.tensor,
        names=tf.zeros([0], tf.string),
        sparse_keys=tf.constant(sparse, tf.string, shape=[len(sparse)]),
        dense_keys=tf.constant(dense, tf.string, shape=[len(dense)]),
        ragged_keys=tf.zeros([0], tf.string),
        dense_defaults=[value.tensor for value in defaults],
        num_sparse=len(sparse),
        sparse_types=op.attrs["sparse_types"],
        ragged_value_types=[],
        ragged_split_types=[],
        dense_shapes=shapes,
    )
    indices, values, extents = [], [], []
    for index, value in zip(parsed.sparse_indices, parsed.sparse_values, strict=True):
        row, place = index[:, 0], index[:, 1]
        tensor, size = cut_into_rows(value, row, batch)
        places, _ = cut_into_rows(place, row, batch, size)
        indices.append(batched(places[..., None], {0: size}))
        values.append(batched(tensor, {0: size}))
        extents.append(_extent(size))
    found = [batched(tensor) for tensor in parsed.dense_values]
    return [*indices, *values, *extents, *found]


def _extent(size: Size) -> Value:
    length = Value(tf.cast(size.lengths, tf.int64), True, size=size, upper=size.padded)
    return vector([length], tf.int64)
