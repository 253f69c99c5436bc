"""The protocol's names of dtypes, and tensors as raw bytes.

Raw bytes are little-endian and row-major. A BOOL is one byte; an element of BYTES is its length, as an unsigned
32-bit number, and then itself.
"""

from __future__ import annotations

from math import prod
from struct import Struct

import numpy as np

from server.engines.batch_result import Array
from server.errors import InvalidInput

DATATYPES = {
    "bool": "BOOL",
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    "string": "BYTES",
}
_LENGTH = Struct("<I")


def array_from_bytes(name: str, dtype: str, shape: tuple[int, ...], raw: memoryview) -> Array:
    """Returns the array that `raw` holds: a view of it, but for bool and string. Raises InvalidInput."""
    if dtype == "string":
        return _texts_from_bytes(name, shape, raw)
    little_endian = np.dtype(dtype).newbyteorder("<")
    wanted = prod(shape) * little_endian.itemsize
    if len(raw) != wanted:
        of_shape = f"{DATATYPES[dtype]} of shape {list(shape)}"
        raise InvalidInput(f"input {name!r}: {of_shape} takes {wanted} bytes, got {len(raw)}")
    if dtype == "bool":
        return np.not_equal(np.frombuffer(raw, np.uint8), 0).reshape(shape)
    return np.frombuffer(raw, little_endian).reshape(shape)


def array_to_bytes(array: Array) -> bytes:
    """Returns the elements as raw bytes; the inverse of `array_from_bytes`."""
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    pieces: list[bytes] = []
    for text in array.flat:
        pieces += (_LENGTH.pack(len(text)), text)
    return b"".join(pieces)


def _texts_from_bytes(name: str, shape: tuple[int, ...], raw: memoryview) -> Array:
    count = prod(shape)
    if len(raw) < count * _LENGTH.size:
        raise _cut_short(name, shape, raw)
    texts = np.empty(count, object)
    start = 0
    for index in range(count):
        if start + _LENGTH.size > len(raw):
            raise _cut_short(name, shape, raw)
        (length,) = _LENGTH.unpack_from(raw, start)
        start += _LENGTH.size
        if start + length > len(raw):
            raise _cut_short(name, shape, raw)
        texts[index] = bytes(raw[start : start + length])
        start += length
    if start != len(raw):
        raise InvalidInput(f"input {name!r}: {len(raw) - start} bytes are left over after {count} elements")
    return texts.reshape(shape)


def _cut_short(name: str, shape: tuple[int, ...], raw: memoryview) -> InvalidInput:
    return InvalidInput(f"input {name!r}: BYTES of shape {list(shape)} take more than the {len(raw)} bytes that came")
