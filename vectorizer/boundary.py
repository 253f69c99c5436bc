"""Values as flat tensors across the edge of a compiled region, with everything static kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.compounds import is_compound
from vectorizer.values import NotConvertible, Size, Value

_SMALL = 64  # elements; what is known now and no larger is made again on the other side


def _small_constant(value: Value) -> Any:
    """The numpy array that a value is known to be, if it is one and small; else None."""
    count = value.tensor.shape.num_elements()
    if count is None or count > _SMALL or value.dtype in (tf.resource, tf.variant):
        return None
    return value.static()


class Boundary:
    """`tensors` carries the given values over; `rebuild` makes the same values of the tensors on the other side."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.tensors: list[Any] = []
        self._sizes: dict[int, int] = {}
        self._values = list(values)
        self._plan = [self._add(value) for value in values]

    def _add(self, value: Any) -> Any:
        if is_compound(value):
            raise NotConvertible("a list of tensors crosses into a compiled region")
        for size in (*value.sizes.values(), *([value.size] if value.size is not None else [])):
            if id(size) not in self._sizes:
                self._sizes[id(size)] = len(self.tensors)
                self.tensors.append(size.lengths)
        if value.dense is None and value.parts is not None:
            return [self._add(part) for part in value.parts]
        known = _small_constant(value)
        if known is not None:
            return known
        self.tensors.append(value.tensor)
        return len(self.tensors) - 1

    def rebuild(self, tensors: Sequence[Any]) -> list[Value]:
        """The values over other tensors of the same shapes."""
        made: dict[int, Size] = {}

        def size_of(size: Size) -> Size:
            if id(size) not in made:
                padded = size.padded
                if not isinstance(padded, int):
                    raise NotConvertible("a size that isn't static crosses into a compiled region")
                made[id(size)] = Size(tensors[self._sizes[id(size)]], padded)
            return made[id(size)]

        def build(value: Value, plan: Any) -> Value:
            sizes = {axis: size_of(size) for axis, size in value.sizes.items()}
            own = None if value.size is None else size_of(value.size)
            upper = value.upper if isinstance(value.upper, int) else None
            if isinstance(plan, list):
                assert value.parts is not None
                parts = tuple(build(part, inner) for part, inner in zip(value.parts, plan, strict=True))
                return Value(None, True, parts=parts)
            tensor = tf.constant(plan, value.dtype) if isinstance(plan, np.ndarray | np.generic) else tensors[plan]
            return Value(tensor, value.batched, sizes, size=own, upper=upper)

        return [build(value, plan) for value, plan in zip(self._values, self._plan, strict=True)]
