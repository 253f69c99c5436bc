"""What a value is while one example's graph is being expanded.

* a numpy array: known now, on the host. Integers, booleans and text that no network has touched, and the example's own
  inputs: what a DyNet user's Python would compute with.
* `Shared`: one tensor for every example, such as a weight.
* `Ref`: the result of a node, or of a leaf, that is computed later, for many examples at once.
* `Rows`: values side by side along a first axis, put together only if somebody needs them as one tensor.
* `Items`: a TensorList; its elements are any of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


class ExampleFailed(Exception):
    """The example can't go on: the function would raise for it. It is answered alone, with the function's message."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A tensor that is the same for every example; signatures tell shared operands apart by identity."""

    tensor: Any


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """Value number `index` of the batch; `shape` and `dtype` (tf.DType) are one example's."""

    index: int
    shape: Shape
    dtype: Any


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """`count` values of `shape`: `row(i)` is one of them, `whole()` all, as one tensor."""

    count: int
    shape: Shape
    dtype: Any
    row: Callable[[int], Any]
    whole: Callable[[], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A TensorList. An element that was never written is None, and reads as zeros of `shape` where that is known."""

    elements: tuple[Any, ...]
    dtype: Any
    shape: Shape | None

    def replaced(self, position: int, value: Any) -> Items:
        """The list with one element replaced."""
        elements = list(self.elements)
        elements[position] = value
        return Items(tuple(elements), self.dtype, self.shape)

    def with_elements(self, elements: tuple[Any, ...]) -> Items:
        """A list of the same kind with other elements."""
        return Items(elements, self.dtype, self.shape)


def shape_of(value: Any) -> Shape:
    """The shape of any value but a list."""
    if isinstance(value, Rows):
        return (value.count, *value.shape)
    return tuple((value.tensor if isinstance(value, Shared) else value).shape)
