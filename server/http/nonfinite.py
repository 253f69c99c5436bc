"""Arrays as JSON with the tokens NaN, Infinity and -Infinity, which aren't JSON but what both protocols' clients read.

(batchd's own format writes them as strings, see `codec.py`.)
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

import numpy as np
import orjson

from server.engines.batch_result import Array
from server.errors import InvalidInput

Nonfinite: TypeAlias = Literal["token", "null", "error"]
"""What stands for NaN and infinities in replies: the token, null, or an error (400) instead of the reply."""

_NULL = re.compile(rb"null")


def numbers_to_json(name: str, array: Array, nonfinite: Nonfinite) -> Any:
    """Returns a form of an array of numbers or booleans that orjson prints (with OPT_SERIALIZE_NUMPY)."""
    value = np.ascontiguousarray(array) if array.ndim else array[()]
    if array.dtype.kind != "f" or nonfinite == "null" or np.isfinite(array).all():
        return value
    if nonfinite == "error":
        raise InvalidInput(f"output {name!r} has values that are not finite; JSON has none, ask for binary data")
    tokens = map(_token, array[~np.isfinite(array)] if array.ndim else [value])
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return orjson.Fragment(_NULL.sub(lambda _: next(tokens), text))


def _token(value: Any) -> bytes:
    if np.isnan(value):
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"
