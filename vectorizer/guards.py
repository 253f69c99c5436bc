"""What a Python function depends on besides its arguments: so that a program made of it is used again only while that
is the same.

Seen are the function's code, the variables that it closes over, its defaults, and the global names that it reads, by
value where they are plain (numbers, texts, small arrays and containers) and by identity where they are objects; of
objects also the plain attributes; and all this of the functions among them. Not seen: what lies deeper, such as the
elements of a list in an attribute.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

_PLAIN = (int, bool, str, bytes, type(None), tf.DType)
_ATTRIBUTES = (*_PLAIN, float, complex, np.generic, np.ndarray, tf.Tensor, tf.Variable)
_LIBRARIES = ("tensorflow", "keras", "numpy")
_LARGEST_CONTAINER = 64  # elements; larger ones are told apart by identity
_LARGEST_ARRAY_BYTES = 2**20


class Dependencies:
    """`key` is equal for two looks at a function exactly if nothing that is seen has changed between them.

    `held` keeps alive what the key knows by identity.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.held: list[Any] = []
        self._seen: dict[int, int] = {}
        self.key: Hashable = self._look(fn)

    def _look(self, value: Any, *, within_object: bool = False) -> Hashable:
        if isinstance(value, _PLAIN):
            return type(value).__name__, value
        if isinstance(value, types.ModuleType | type) or tf.is_tensor(value):
            return self._identity(value)
        if isinstance(value, float | complex | np.generic):
            return type(value).__name__, repr(value)  # 0.0 equals -0.0, and NaN nothing
        if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= _LARGEST_ARRAY_BYTES:
            return "array", value.shape, value.dtype.str, hashlib.blake2b(value.tobytes()).digest()
        if id(value) in self._seen:
            return "again", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        if isinstance(value, tuple | list) and len(value) <= _LARGEST_CONTAINER:
            return type(value).__name__, *(self._look(item, within_object=within_object) for item in value)
        if isinstance(value, dict) and len(value) <= _LARGEST_CONTAINER:
            return "dict", *((self._look(name), self._look(item)) for name, item in value.items())
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return "method", self._look(value.__func__), self._look(value.__self__)
        if isinstance(value, functools.partial):
            return "partial", self._look(value.func), self._look(value.args), self._look(value.keywords)
        if callable(getattr(value, "python_function", None)):  # a tf.function
            return "tf.function", self._identity(value), self._look(value.python_function)
        if within_object or isinstance(value, tf.Variable):
            return self._identity(value)
        return "object", self._identity(value), *self._attributes(value)

    def _function(self, function: types.FunctionType) -> Hashable:
        if function.__module__ is not None and function.__module__.split(".")[0] in _LIBRARIES:
            return self._identity(function)
        cells = function.__closure__ or ()
        return (
            function.__code__,
            tuple(self._look(cell.cell_contents) if _filled(cell) else None for cell in cells),
            self._look(function.__defaults__),
            self._look(function.__kwdefaults__),
            tuple(
                self._look(function.__globals__[name])
                for name in _names(function.__code__)
                if name in function.__globals__
            ),
        )

    def _attributes(self, value: Any) -> Iterator[Hashable]:
        for name, item in list(getattr(value, "__dict__", {}).items()):
            if isinstance(item, _ATTRIBUTES):
                yield name, self._look(item, within_object=True)

    def _identity(self, value: Any) -> Hashable:
        self.held.append(value)
        return id(value)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Names that the code, and the functions defined in it, may read as globals."""
    inner = [name for item in code.co_consts if isinstance(item, types.CodeType) for name in _names(item)]
    return tuple(dict.fromkeys([*code.co_names, *inner]))
