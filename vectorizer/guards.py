"""What a Python function depends on besides its arguments: so that a program made of it is used again only while that
is the same.

Seen are the function's code, the variables that it closes over, its defaults, and the global names that it reads: plain
values and arrays by value, containers and objects by what they hold, functions among them by all this; tensors,
variables, and the objects of TensorFlow and Keras by identity. Where something can't be seen whole, such as a large
array that may be written to, `complete` is false, and no program should be kept.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

_PLAIN = (int, bool, str, bytes, type(None), type(...), slice, range, tf.DType, tf.TensorShape)
_LIBRARIES = ("tensorflow", "keras", "numpy")
_MOST_VALUES = 4096
_LARGEST_ARRAY_BYTES = 2**20


class Dependencies:
    """`key` is equal for two looks at a function exactly if nothing that is seen has changed between them.

    `held` keeps alive what the key knows by identity. `complete`: everything was seen.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.held: list[Any] = []
        self.complete = True
        self._seen: dict[int, int] = {}
        self.key: Hashable = self._look(fn)

    def _look(self, value: Any) -> Hashable:
        if isinstance(value, _PLAIN):
            return type(value).__name__, repr(value) if isinstance(value, slice | tf.TensorShape) else value
        if isinstance(value, types.ModuleType | type | tf.Variable) or tf.is_tensor(value):
            return self._identity(value)
        if isinstance(value, float | complex | np.generic):
            return type(value).__name__, repr(value)  # 0.0 equals -0.0, and NaN nothing
        if id(value) in self._seen:
            return "again", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        if len(self._seen) > _MOST_VALUES:
            return self._unseen(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, tuple | list):
            return type(value).__name__, *(self._look(item) for item in value)
        if isinstance(value, dict):
            return "dict", *((self._look(name), self._look(item)) for name, item in value.items())
        if isinstance(value, set | frozenset):
            return type(value).__name__, frozenset(self._look(item) for item in value)
        return self._callable_or_object(value)

    def _callable_or_object(self, value: Any) -> Hashable:
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return "method", self._look(value.__func__), self._look(value.__self__)
        if isinstance(value, functools.partial):
            return "partial", self._look(value.func), self._look(value.args), self._look(value.keywords)
        if callable(getattr(value, "python_function", None)):  # a tf.function
            return "tf.function", self._identity(value), self._look(value.python_function)
        if isinstance(value, types.BuiltinFunctionType):
            return "builtin", self._identity(value), self._look(value.__self__)
        if type(value).__module__.split(".")[0] in _LIBRARIES:
            return self._identity(value)
        return "object", self._identity(value), *self._attributes(value)

    def _array(self, value: Any) -> Hashable:
        if not value.flags.writeable and value.base is None:
            return self._identity(value)
        if value.dtype == object or value.nbytes > _LARGEST_ARRAY_BYTES:
            return self._unseen(value)
        return "array", value.shape, value.dtype.str, hashlib.blake2b(value.tobytes()).digest()

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
        slots = [name for kind in type(value).__mro__ for name in _as_names(getattr(kind, "__slots__", ()))]
        held = {name: getattr(value, name) for name in slots if name != "__dict__" and hasattr(value, name)}
        held |= getattr(value, "__dict__", {})
        if not held and not slots and not hasattr(value, "__dict__"):
            self.complete = False  # what it holds is its own secret
        for name, item in held.items():
            yield name, self._look(item)

    def _unseen(self, value: Any) -> Hashable:
        self.complete = False
        return self._identity(value)

    def _identity(self, value: Any) -> Hashable:
        self.held.append(value)
        return id(value)


def _as_names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


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
