"""TensorLists while a graph grows: plain sequences of values, whose positions are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from server.engines.dynamic.values import ExampleFailed, Items, Ref, Rows, Shape, Shared, shape_of
from vectorizer.program import Op

Growing = Generator[Ref, Any, Any]


def handles(op: Op) -> bool:
    """Whether the op makes, reads or writes a TensorList."""
    return op.type in _RULES


def apply(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    """The results of one such op."""
    return (yield from _RULES[op.type](op, operands, expansion))


def _shape(array: Any) -> Shape | None:
    sizes = np.atleast_1d(array)
    return None if np.ndim(array) == 0 or (sizes < 0).any() else tuple(sizes.tolist())


def _reserve(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    shape, count = operands
    size = int((yield from expansion.known(count)))
    if size < 0:
        raise ExampleFailed(f"a list of {size} elements")
    return [Items((None,) * size, op.attrs["element_dtype"], _shape((yield from expansion.known(shape))))]


def _empty(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    return [Items((), op.attrs["element_dtype"], _shape((yield from expansion.known(operands[0]))))]


def _position(items: Items, index: Any) -> int:
    position = int(index)
    if not 0 <= position < len(items.elements):
        raise ExampleFailed(f"element {position} of a list of {len(items.elements)}")
    return position


def written(items: Items, index: Any, value: Any) -> Items:
    """The list with one element replaced."""
    return items.replaced(_position(items, index), value)


def read(items: Items, index: Any, shape: Shape | None) -> Any:
    """One element."""
    return _element(items, _position(items, index), shape)


def _set(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    items, index, value = operands
    position = int((yield from expansion.known(index)))
    if op.attrs.get("resize_if_index_out_of_bounds") and position >= len(items.elements):
        items = items.with_elements(items.elements + (None,) * (position + 1 - len(items.elements)))
    return [items.replaced(_position(items, position), value)]


def _element(items: Items, position: int, shape: Shape | None) -> Any:
    value = items.elements[position]
    if value is not None:
        return value
    known = items.shape or shape or next((shape_of(item) for item in items.elements if item is not None), None)
    if known is None:
        raise ExampleFailed("an element that was never written is read, and its shape isn't known")
    return _zeros(known, items.dtype)


@functools.cache
def _zeros(shape: Shape, dtype: Any) -> Any:
    return np.zeros(shape, dtype.as_numpy_dtype)


def _get(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    items, index, shape = operands
    position = _position(items, (yield from expansion.known(index)))
    return [_element(items, position, _shape((yield from expansion.known(shape))))]


def _gather(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    items, indices, shape = operands
    known = _shape((yield from expansion.known(shape)))
    positions = np.asarray((yield from expansion.known(indices)))
    values = [_element(items, _position(items, index), known) for index in positions.tolist()]
    return [_side_by_side(values, items, known, expansion)]


def _stack(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    items, shape = operands
    known = _shape((yield from expansion.known(shape)))
    values = [_element(items, position, known) for position in range(len(items.elements))]
    return [_side_by_side(values, items, known, expansion)]


def _side_by_side(values: Sequence[Any], items: Items, shape: Shape | None, expansion: Any) -> Any:
    known = items.shape or shape or (shape_of(values[0]) if values else None)
    if known is None:
        raise ExampleFailed("an empty list whose elements' shape isn't known is stacked")
    if len({shape_of(value) for value in values}) > 1:
        raise ExampleFailed("elements of different shapes are stacked")
    return expansion.rows(values, known, items.dtype)


def _from_tensor(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    value = operands[0]
    if isinstance(value, Rows):
        elements = tuple(value.row(position) for position in range(value.count))
        return [Items(elements, value.dtype, value.shape)]
    if isinstance(value, Ref):
        value = np.asarray((yield value))
    array = (yield from expansion.known(value)) if isinstance(value, Shared) else value
    return [Items(tuple(np.asarray(row) for row in array), op.attrs["element_dtype"], array.shape[1:])]


def _scatter(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    tensor, indices = operands[0], np.asarray((yield from expansion.known(operands[1])))
    (whole,) = yield from _from_tensor(op, [tensor], expansion)
    if op.type == "TensorListScatterIntoExistingList":
        raise ExampleFailed("scattering into a list that exists")
    size = int((yield from expansion.known(operands[3]))) if op.type == "TensorListScatterV2" else -1
    size = max(size, int(indices.max()) + 1 if len(indices) else 0)
    items = Items((None,) * size, whole.dtype, whole.shape)
    for position, value in zip(indices.tolist(), whole.elements, strict=True):
        items = items.replaced(_position(items, position), value)
    return [items]


def _push(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    items, value = operands
    return [items.with_elements((*items.elements, value))]
    yield


def _pop(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    items, shape = operands
    if not items.elements:
        raise ExampleFailed("the last element of an empty list is taken")
    value = _element(items, len(items.elements) - 1, _shape((yield from expansion.known(shape))))
    return [items.with_elements(items.elements[:-1]), value]


def _length(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    return [np.asarray(len(operands[0].elements), np.int32)]
    yield


def _resize(op: Op, operands: Sequence[Any], expansion: Any) -> Growing:
    items, size = operands[0], int((yield from expansion.known(operands[1])))
    return [items.with_elements((items.elements + (None,) * max(size - len(items.elements), 0))[:size])]


_RULES: dict[str, Callable[[Op, Sequence[Any], Any], Growing]] = {
    "TensorListReserve": _reserve,
    "EmptyTensorList": _empty,
    "TensorListSetItem": _set,
    "TensorListGetItem": _get,
    "TensorListGather": _gather,
    "TensorListStack": _stack,
    "TensorListFromTensor": _from_tensor,
    "TensorListScatter": _scatter,
    "TensorListScatterV2": _scatter,
    "TensorListScatterIntoExistingList": _scatter,
    "TensorListPushBack": _push,
    "TensorListPopBack": _pop,
    "TensorListLength": _length,
    "TensorListResize": _resize,
}
