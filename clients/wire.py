"""Values to JSON and back, as `POST /predict` writes them. Pure: no network.

JSON has no NaN and no infinities: they are the strings "NaN", "Infinity", "-Infinity", both ways. Bytes are
{"b64": "..."}; text is a JSON string. Numbers keep their kind: a float array is written with decimal points,
an integer array without.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson

NONFINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
STRING_DTYPE: Final = "string"


def encode_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of one example in a form that `to_json` can write.

    Takes numpy arrays and scalars, Python numbers, str, bytes and nested sequences of these.
    Raises TypeError or ValueError, naming the input, for what has no JSON form (complex, dates, objects).
    """
    encoded = {}
    for name, value in inputs.items():
        try:
            encoded[name] = encode_value(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"input {name!r}: {error}") from None
    return encoded


def encode_value(value: Any) -> Any:
    """One value, rank 0 or more, in a form that `to_json` can write."""
    if isinstance(value, np.ndarray | np.generic):
        return _encode_array(np.asarray(value))
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _nonfinite_word(value)
    if isinstance(value, bytes | bytearray):
        return {"b64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple):
        return [encode_value(item) for item in value]
    if hasattr(value, "__array__"):
        return _encode_array(np.asarray(value))
    raise TypeError(f"cannot send a {type(value).__name__}; give an array, a number, text, bytes or lists of these")


def _encode_array(array: np.ndarray[Any, Any]) -> Any:
    kind = array.dtype.kind
    if kind == "f":
        if array.dtype.itemsize > 8:
            raise TypeError(f"cannot send dtype {array.dtype}; convert it to float64")
        if not np.isfinite(array).all():
            return _with_nonfinite_words(array.tolist())
    elif kind in "OUS":
        return encode_value(array.tolist())
    elif kind not in "biu":
        raise TypeError(f"cannot send dtype {array.dtype}; expected booleans, integers, floats or strings")
    if array.ndim == 0:
        return array.item()
    # orjson writes numpy arrays directly, but only native and contiguous ones.
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def _with_nonfinite_words(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_nonfinite_words(item) for item in value]
    return value if math.isfinite(value) else _nonfinite_word(value)


def _nonfinite_word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def to_json(document: Any) -> bytes:
    """JSON bytes of a document built from `encode_inputs`."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"cannot write the request as JSON: {error}") from None


def decode_output(value: Any, dtype: str | None = None, shape: Sequence[int | None] | None = None) -> Any:
    """One output from parsed JSON: a numpy array, or a Python scalar, str or bytes for rank 0.

    dtype, shape: what the model declares (`GET /models/{name}`). Without a dtype, or where the value can't be
    of it, the dtype is guessed from the JSON: "NaN" and the infinities then count as numbers, unless other
    text stands beside them.
    """
    kinds = _kinds(value)
    if dtype is None or not _may_be(kinds, dtype):
        dtype = _guess_dtype(kinds)
    if dtype == STRING_DTYPE:
        text = _decode_text(value)
        return _with_declared_rank(np.array(text, dtype=object), shape) if isinstance(text, list) else text
    numbers = _words_to_floats(value) if kinds & {"word"} else value
    if not isinstance(numbers, list):
        return np.dtype(dtype).type(numbers).item()
    return _with_declared_rank(np.asarray(numbers, dtype=dtype), shape)


def _kinds(value: Any) -> set[str]:
    """Which of bool, int, float, word (a non-finite number), text and bytes occur in parsed JSON."""
    if isinstance(value, list):
        return set().union(*(_kinds(item) for item in value))
    if isinstance(value, str):
        return {"word" if value in NONFINITE else "text"}
    if isinstance(value, dict):
        return {"bytes"}
    return {type(value).__name__}


def _may_be(kinds: set[str], dtype: str) -> bool:
    if dtype == STRING_DTYPE:
        return kinds <= {"word", "text", "bytes"}
    if dtype == "bool":
        return kinds <= {"bool"}
    if dtype.startswith(("int", "uint")):
        return kinds <= {"int"}
    return dtype.startswith("float") and kinds <= {"int", "float", "word"}


def _guess_dtype(kinds: set[str]) -> str:
    if kinds & {"bytes", "text"}:
        return STRING_DTYPE
    if kinds == {"bool"}:
        return "bool"
    return "int64" if kinds and kinds <= {"int", "bool"} else "float64"


def _words_to_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [_words_to_floats(item) for item in value]
    return NONFINITE[value] if isinstance(value, str) else value


def _decode_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode_text(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value


def _with_declared_rank(array: np.ndarray[Any, Any], shape: Sequence[int | None] | None) -> np.ndarray[Any, Any]:
    """JSON writes an array of shape [0, 3] as []; give it back its declared rank."""
    if array.size or shape is None or array.ndim >= len(shape):
        return array
    return array.reshape(*array.shape, *(size or 0 for size in shape[array.ndim :]))
