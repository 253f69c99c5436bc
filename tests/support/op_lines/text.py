"""Strings, and records in them."""

import numpy as np
import tensorflow as tf

from tests.support.op_lines.line import Line, each, i, numerals, raw, s

CODES = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "ab12"], [1, 2]), -1)


def strings():
    for shape in ([], [2], [None]):
        x = (s(*shape),)
        yield Line(
            "StringLength StringLower StringStrip StringUpper EncodeBase64",
            each("StringLength StringLower StringStrip StringUpper EncodeBase64"),
            x,
        )
        yield Line(
            "StringToHashBucket StringToHashBucketFast",
            each("StringToHashBucket StringToHashBucketFast", num_buckets=9),
            x,
        )
        yield Line("StringToHashBucketStrong", each("StringToHashBucketStrong", num_buckets=9, key=[1, 2]), x)
        yield Line("DecodeBase64", lambda x: tf.io.decode_base64(tf.io.encode_base64(x)), x)
        yield Line(
            "StaticRegexReplace RegexReplace",
            lambda x: (
                raw("StaticRegexReplace", x, pattern="[a-l]", rewrite="?"),
                raw("RegexReplace", x, "[a-l]", "?"),
            ),
            x,
        )
        yield Line(
            "StaticRegexFullMatch RegexFullMatch",
            lambda x: (raw("StaticRegexFullMatch", x, pattern="[a-l]+"), raw("RegexFullMatch", x, "[a-l]+")),
            x,
        )
        yield Line("UnicodeTranscode", lambda x: tf.strings.unicode_transcode(x, "UTF-8", "UTF-16-BE"), x)
        yield Line(
            "StringToNumber",
            lambda x: (tf.strings.to_number(x), tf.strings.to_number(x, tf.int64)),
            x,
            numerals,
        )
        yield Line("StringJoin", lambda x, y: tf.strings.join([x, y, "!"], "-"), (*x, s(*shape)))
        yield Line("StringJoin", lambda x, y: x + y, (*x, s()))
        yield Line("LookupTableFindV2", lambda x: CODES.lookup(x), x)
        yield Line("Equal", lambda x, y: x == y, x * 2)
    yield Line("UnicodeDecode", lambda x: tf.strings.unicode_decode(x, "UTF-8"), (s(),))
    yield Line(
        "UnicodeDecode UnicodeScript",
        lambda x: tf.strings.unicode_script(tf.strings.unicode_decode(x, "UTF-8")),
        (s(),),
    )
    yield Line("UnicodeDecode", lambda x: tf.strings.unicode_decode(x, "UTF-8").flat_values, (s(2),), fixed=False)
    yield Line("DecodeRaw", lambda x: tf.io.decode_raw(x, tf.uint8), (s(),))
    yield Line("Substr", lambda x: tf.strings.substr(x, 0, 3), (s(),))
    yield Line("Substr", lambda x, k: tf.strings.substr(x, -tf.minimum(k, tf.strings.length(x)), 2), (s(), i()))
    yield Line("Substr", lambda x: tf.strings.substr(x, 0, 2, unit="UTF8_CHAR"), (s(2),))


def csv_records(generator, spec, shape):
    fields = [["1", "-7", " 3 "], ["0.5", "", "1e3"], ["a", "", '"x, ""y"""'], ["", "9", "n/a"]]
    texts = [
        ",".join(generator.choice(np.array(field, object)) for field in fields) for _ in range(int(np.prod(shape)))
    ]
    return np.array(texts, object).reshape(shape) if shape else texts[0]


def some_examples(generator, spec, shape):
    """Serialized tf.train.Examples; "b" and "c" may be absent."""
    numbers = tf.train.Feature(float_list=tf.train.FloatList(value=generator.normal(size=2)))
    features = {"a": numbers}
    if generator.random() < 0.7:
        features["b"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(generator.integers(9))]))
    words = [str(k).encode() for k in range(generator.integers(0, 4))]
    features["c"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=words))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def parsed(text):
    features = {
        "a": tf.io.FixedLenFeature([2], tf.float32),
        "b": tf.io.FixedLenFeature([], tf.int64, -1),
        "c": tf.io.VarLenFeature(tf.string),
    }
    found = tf.io.parse_single_example(text, features)
    return found["a"], found["b"], found["c"].indices, found["c"].values, found["c"].dense_shape


def parsed_by_attributes(text):
    return tf.raw_ops.ParseSingleExample(
        serialized=text,
        dense_defaults=[tf.zeros([0]), tf.constant(-1, tf.int64)],
        num_sparse=1,
        sparse_keys=["c"],
        dense_keys=["a", "b"],
        sparse_types=[tf.string],
        dense_shapes=[[2], []],
    )


def records():
    for shape in ([], [2], [None]):
        columns = lambda x: tf.io.decode_csv(x, [[0], [0.25], ["none"], tf.constant([7], tf.int64)], na_value="n/a")
        yield Line("DecodeCSV", columns, (s(*shape),), csv_records)
        chosen = lambda x: tf.io.decode_csv(x, [tf.constant([], tf.int32), ["?"]], select_cols=[0, 2])
        yield Line("DecodeCSV", chosen, (s(*shape),), csv_records)
        raw_bytes = lambda x: (
            tf.io.decode_raw(x, tf.uint8, fixed_length=3),
            tf.io.decode_raw(x, tf.int16, fixed_length=4),
        )
        yield Line("DecodePaddedRaw", raw_bytes, (s(*shape),))
    yield Line("ParseExampleV2", parsed, (s(),), some_examples)
    yield Line("ParseSingleExample", parsed_by_attributes, (s(),), some_examples)


def texts():
    parts = lambda x: tf.raw_ops.StringSplitV2(input=x, sep="")
    others = lambda x: tf.raw_ops.StringSplitV2(input=x, sep="l", maxsplit=1)
    for shape in ([3], [None]):
        yield Line("StringSplitV2", parts, (s(*shape),))
        yield Line("StringSplitV2", others, (s(*shape),))
        flat = lambda x: (tf.strings.split(x, "l").values, tf.strings.split(x, "l").row_splits)
        yield Line("StringSplitV2", flat, (s(*shape),), fixed=False)
    yield Line("StringSplitV2", lambda x: tf.strings.split(x), (s(),))
    yield Line("ReduceJoin", lambda x: tf.strings.reduce_join(x, 1, separator="-"), (s(2, 3),))
    yield Line("ReduceJoin", lambda x: tf.strings.reduce_join(x, -1, keepdims=True), (s(2, None),))
    yield Line("ReduceJoin", lambda x: tf.strings.reduce_join(x, [0, 1]), (s(2, 3),))
    spaced = lambda x: tf.strings.reduce_join(x, 0, separator=", ")
    yield Line("ReduceJoin", spaced, (s(None),))
    yield Line("ReduceJoin", spaced, (s(None, 2),))
    offsets = lambda x: tf.strings.unicode_decode_with_offsets(x, "UTF-8")
    yield Line("UnicodeDecodeWithOffsets", offsets, (s(),))
    strict = lambda x: tf.strings.unicode_decode(x, "UTF-8", errors="strict")
    yield Line("UnicodeDecode", strict, (s(),))
    again = lambda x: tf.strings.unicode_transcode(x, "UTF-8", "UTF-16-BE", errors="strict")
    yield Line("UnicodeTranscode", again, (s(2),))
