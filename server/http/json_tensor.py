"""One input with rare forms or with something wrong: "NaN", {"b64": ...}, and the sentence for what doesn't fit.

Whole lists at a time, not element by element, since anybody may send millions: level by level the lists are checked
and joined, then the types of all elements, then their range. Only once something is known to be wrong is it looked for.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from server.engines.batch_result import Array
from server.errors import InvalidInput
from server.model_description import TensorDescription
from server.tensors import expected, numpy_dtype

_NONFINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_KINDS = {bool: "bool", int: "int", float: "float", str: "string", dict: "object", type(None): "null"}
_ACCEPTED: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {float, int}}
_NO_DOUBLE = 2**1024 - 2**970
"""The least integer that rounds beyond the largest float64."""


def read_tensor(tensor: TensorDescription, value: Any) -> Array:
    """Returns the array of a parsed JSON value. Raises InvalidInput with what was expected and what came."""
    rank = len(tensor.shape)
    shape = _leading_shape(value)
    if len(shape) < rank and shape and shape[-1] == 0:
        shape += tuple(size or 0 for size in tensor.shape[len(shape) :])
    if len(shape) != rank or any(size not in (None, came) for size, came in zip(tensor.shape, shape, strict=True)):
        raise _misfit(tensor, value, f"of shape {_cut(shape)}")
    elements = _Elements(tensor, shape, _join(tensor, value, shape))
    return elements.array().reshape(shape)


def _leading_shape(value: Any) -> tuple[int, ...]:
    """The lengths met by always following the first element."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _join(tensor: TensorDescription, value: Any, shape: Sequence[int]) -> list[Any]:
    """Returns all elements of nested lists, in their order, after making sure that the lists are of this shape."""
    level = [value]
    for depth, size in enumerate(shape):
        if not level:
            return level
        if set(map(type, level)) != {list}:
            index = next(index for index, each in enumerate(level) if not isinstance(each, list))
            at = _at(_position(index, shape[:depth]))
            raise _misfit(tensor, level[index], f"with a single {_kind(level[index])} at {at}, where a list belongs")
        if set(map(len, level)) != {size}:
            index = next(index for index, each in enumerate(level) if len(each) != size)
            at = _at(_position(index, shape[:depth]))
            where = f"{len(level[index])} elements at {at}, {size} in the lists before"
            raise InvalidInput(f"input {tensor.name!r}: expected {expected(tensor)}, got ragged lists: {where}")
        level = list(chain.from_iterable(level))
    if list in set(map(type, level)):
        index = next(index for index, each in enumerate(level) if isinstance(each, list))
        raise _misfit(tensor, level[index], f"with a list at {_at(_position(index, shape))}")
    return level


class _Elements:
    """The elements of one input, in row-major order."""

    def __init__(self, tensor: TensorDescription, shape: Sequence[int], leaves: list[Any]) -> None:
        self._tensor = tensor
        self._shape = shape
        self._leaves = leaves
        self._dtype = numpy_dtype(tensor)

    def array(self) -> Array:
        """Returns them as an array of one dimension."""
        if self._dtype.kind == "O":
            return self._texts()
        if self._dtype.kind == "f" and str in set(map(type, self._leaves)):
            self._leaves = [_NONFINITE.get(leaf, leaf) if type(leaf) is str else leaf for leaf in self._leaves]
        self._check_kinds(_ACCEPTED[self._dtype.kind])
        if self._dtype.kind == "f":
            return self._floats()
        if self._dtype.kind in "iu":
            self._check_range()
        return np.array(self._leaves, self._dtype)

    def _check_kinds(self, accepted: set[type]) -> None:
        if set(map(type, self._leaves)) <= accepted:
            return
        index = next(index for index, leaf in enumerate(self._leaves) if type(leaf) not in accepted)
        leaf = self._leaves[index]
        names = ' (allowed strings are "NaN", "Infinity", "-Infinity")'
        hint = names if self._dtype.kind == "f" and isinstance(leaf, str) else ""
        raise self._wrong(index, hint)

    def _check_range(self) -> None:
        limits = np.iinfo(self._dtype)
        low, high = int(limits.min), int(limits.max)
        if self._leaves and (min(self._leaves) < low or max(self._leaves) > high):
            index = next(index for index, leaf in enumerate(self._leaves) if not low <= leaf <= high)
            raise self._out_of_range(index, f"{self._dtype} ({low} to {high})")

    def _floats(self) -> Array:
        try:
            wide = np.array(self._leaves, np.float64)
        except OverflowError:
            index = next(index for index, leaf in enumerate(self._leaves) if abs(leaf) >= _NO_DOUBLE)
            raise self._out_of_range(index, str(self._dtype)) from None
        with np.errstate(over="ignore"):
            array = wide.astype(self._dtype)
        if (beyond := np.isinf(array) & ~np.isinf(wide)).any():
            raise self._out_of_range(int(beyond.argmax()), str(self._dtype))
        return array

    def _texts(self) -> Array:
        others = set(map(type, self._leaves)) != {str}
        texts = map(self._text, range(len(self._leaves))) if others else map(str.encode, self._leaves)
        return np.fromiter(texts, object, len(self._leaves))

    def _text(self, index: int) -> bytes:
        leaf = self._leaves[index]
        if isinstance(leaf, str):
            return leaf.encode()
        if isinstance(leaf, dict) and leaf.keys() == {"b64"} and isinstance(leaf["b64"], str):
            try:
                return base64.b64decode(leaf["b64"], validate=True)
            except (binascii.Error, ValueError):
                raise InvalidInput(f"input {self._tensor.name!r}: invalid base64{self._where(index)}") from None
        raise self._wrong(index, ' (bytes go as {"b64": "..."})')

    def _wrong(self, index: int, hint: str) -> InvalidInput:
        came = f"{_kind(self._leaves[index])}{self._where(index)}{hint}"
        return InvalidInput(f"input {self._tensor.name!r}: expected {expected(self._tensor)}, got {came}")

    def _out_of_range(self, index: int, span: str) -> InvalidInput:
        leaf = str(self._leaves[index])
        leaf = leaf if len(leaf) <= _LONGEST_NUMBER else f"{leaf[:_LONGEST_NUMBER]}..."
        return InvalidInput(f"input {self._tensor.name!r}: {leaf}{self._where(index)} is out of range for {span}")

    def _where(self, index: int) -> str:
        return f" at {_at(_position(index, self._shape))}" if self._shape else ""


_LONGEST_NUMBER = 40
_MOST_SIZES = 8


def _position(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns where the element of this number lies in an array of this shape."""
    position = []
    for size in reversed(shape):
        index, offset = divmod(index, size)
        position.append(offset)
    return tuple(reversed(position))


def _misfit(tensor: TensorDescription, value: Any, shape: str) -> InvalidInput:
    while isinstance(value, list) and value:
        value = value[0]
    came = _kind(value) if shape == "of shape []" else f"{_kind(value)} {shape}"
    if isinstance(value, list):
        came = f"an empty list {shape}"
    return InvalidInput(f"input {tensor.name!r}: expected {expected(tensor)}, got {came}")


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _at(position: Sequence[int]) -> str:
    return f"[{', '.join(map(str, position))}]"


def _cut(shape: Sequence[int]) -> str:
    """Returns a shape in brackets, of many sizes only the first."""
    more = [] if len(shape) <= _MOST_SIZES else ["..."]
    return f"[{', '.join([*map(str, shape[:_MOST_SIZES]), *more])}]"
