"""One input, element by element: the forms that need a look, and the sentence for what doesn't fit."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from server.engines.batch_result import Array
from server.errors import InvalidInput
from server.model_description import TensorDescription
from server.tensors import expected, numpy_dtype

_NONFINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_KINDS = {bool: "bool", int: "int", float: "float", str: "string", dict: "object", type(None): "null"}
_ACCEPTED = {"b": {"bool"}, "i": {"int"}, "u": {"int"}, "f": {"float", "int"}, "O": {"string"}}


def read_tensor(tensor: TensorDescription, value: Any) -> Array:
    """Returns the array of a parsed JSON value. Raises InvalidInput with what was expected and what came."""
    rank = len(tensor.shape)
    shape = _leading_shape(value)
    if len(shape) < rank and shape and shape[-1] == 0:
        shape += tuple(size or 0 for size in tensor.shape[len(shape) :])
    if len(shape) != rank or any(size not in (None, came) for size, came in zip(tensor.shape, shape, strict=True)):
        raise _misfit(tensor, value, f"of shape [{', '.join(map(str, shape))}]")
    dtype = numpy_dtype(tensor)
    array = np.empty(shape, dtype=dtype)
    for offset, (position, leaf) in enumerate(_leaves(tensor, value, shape, ())):
        array.flat[offset] = _element(tensor, dtype, leaf, position)
    return array


def _leading_shape(value: Any) -> tuple[int, ...]:
    """The lengths met by always following the first element."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _leaves(
    tensor: TensorDescription, value: Any, shape: Sequence[int], position: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Any]]:
    if len(position) == len(shape):
        if isinstance(value, list):
            raise _misfit(tensor, value, f"with a list at {_at(position)}")
        yield position, value
        return
    size = shape[len(position)]
    if not isinstance(value, list):
        raise _misfit(tensor, value, f"with a single {_kind(value)} at {_at(position)}, where a list belongs")
    if len(value) != size:
        where = f"{len(value)} elements at {_at(position)}, {size} in the lists before"
        raise InvalidInput(f"input {tensor.name!r}: expected {expected(tensor)}, got ragged lists: {where}")
    if size == 0:
        return
    for index, element in enumerate(value):
        yield from _leaves(tensor, element, shape, (*position, index))


def _element(tensor: TensorDescription, dtype: np.dtype[Any], leaf: Any, position: tuple[int, ...]) -> Any:
    if dtype.kind == "O":
        return _text(tensor, leaf, position)
    if dtype.kind == "f" and isinstance(leaf, str) and leaf in _NONFINITE:
        return _NONFINITE[leaf]
    if _kind(leaf) not in _ACCEPTED[dtype.kind]:
        names = ' (allowed strings are "NaN", "Infinity", "-Infinity")'
        hint = names if dtype.kind == "f" and isinstance(leaf, str) else ""
        raise _wrong_element(tensor, f"{_kind(leaf)}{_where(position)}{hint}")
    if dtype.kind == "f":
        if _overflows(dtype, leaf):
            raise InvalidInput(f"input {tensor.name!r}: {leaf}{_where(position)} is out of range for {dtype}")
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= leaf <= limits.max:
            span = f"{dtype} ({limits.min} to {limits.max})"
            raise InvalidInput(f"input {tensor.name!r}: {leaf}{_where(position)} is out of range for {span}")
    return leaf


def _overflows(dtype: np.dtype[Any], leaf: float) -> bool:
    try:
        with np.errstate(over="ignore"):
            return bool(np.isinf(dtype.type(leaf)))
    except OverflowError:
        return True


def _text(tensor: TensorDescription, leaf: Any, position: tuple[int, ...]) -> bytes:
    if isinstance(leaf, str):
        return leaf.encode()
    if isinstance(leaf, dict) and leaf.keys() == {"b64"} and isinstance(leaf["b64"], str):
        try:
            return base64.b64decode(leaf["b64"], validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput(f"input {tensor.name!r}: invalid base64{_where(position)}") from None
    raise _wrong_element(tensor, f'{_kind(leaf)}{_where(position)} (bytes go as {{"b64": "..."}})')


def _misfit(tensor: TensorDescription, value: Any, shape: str) -> InvalidInput:
    while isinstance(value, list) and value:
        value = value[0]
    came = _kind(value) if shape == "of shape []" else f"{_kind(value)} {shape}"
    if isinstance(value, list):
        came = f"an empty list {shape}"
    return InvalidInput(f"input {tensor.name!r}: expected {expected(tensor)}, got {came}")


def _wrong_element(tensor: TensorDescription, came: str) -> InvalidInput:
    return InvalidInput(f"input {tensor.name!r}: expected {expected(tensor)}, got {came}")


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _at(position: Sequence[int]) -> str:
    return f"[{', '.join(map(str, position))}]"


def _where(position: Sequence[int]) -> str:
    return f" at {_at(position)}" if position else ""
