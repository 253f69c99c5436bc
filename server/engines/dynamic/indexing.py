"""TensorFlow's slices as numpy's indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engines.dynamic.values import Shape
from vectorizer.program import Op

MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def numpy_index(op: Op, operands: Sequence[Any], shape: Shape | None) -> Any:
    """The index of a StridedSlice or Slice whose positions are known; None where it can't be had, or may be out of
    range. `shape`: of what is sliced; None where it isn't known."""
    if op.type == "Slice":
        begins, sizes = (item.ravel().tolist() for item in operands[1:])
        if shape is None or any(begin < 0 for begin in begins):
            return None
        ends = [full if size < 0 else begin + size for begin, size, full in zip(begins, sizes, shape, strict=True)]
        if any(end > full for end, full in zip(ends, shape, strict=True)):
            return None
        return tuple(slice(begin, end) for begin, end in zip(begins, ends, strict=True))
    begins, ends, strides = (item.ravel().tolist() for item in operands[1:])
    masks = {name: int(op.attrs[f"{name}_mask"]) for name in MASKS}
    index: list[Any] = []
    axis = 0
    for position, (begin, end, stride) in enumerate(zip(begins, ends, strides, strict=True)):
        flags = {name: mask >> position & 1 for name, mask in masks.items()}
        if flags["ellipsis"]:
            index.append(Ellipsis)
            axis = -1000  # sizes of the axes behind aren't looked at
        elif flags["new_axis"]:
            index.append(None)
        elif flags["shrink_axis"]:
            if shape is None or axis < 0 or not -shape[axis] <= begin < shape[axis]:
                return None
            index.append(begin)
            axis += 1
        else:
            index.append(slice(None if flags["begin"] else begin, None if flags["end"] else end, stride))
            axis += 1
    return tuple(index)
