"""Reshape, where dimensions may be ragged.

Three cases, cheapest first. Without a ragged dimension the batch axis is kept and the rest reshaped. Equal
dimensions at the front and at the back drop out; if what remains has its ragged dimension leading, rows are
contiguous in the padded tensor too, and a dense reshape does it. Otherwise elements move: each position of
the result is traced through the row's own flat index back to where it lies in the padded operand (one
gather).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import converts, run_unchanged
from vectorizer.values import (
    NotConvertible,
    Size,
    Value,
    batched,
    dimension,
    insert_axis,
    number,
    pad_axis,
    remove_axis,
    shared,
)


@converts("Reshape", checks="the number of elements differs")
def convert_reshape(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A new shape, one dimension of which may be -1."""
    value, shape = inputs
    if not value.batched and not shape.batched:
        return run_unchanged(op, inputs)
    target = list(shape.elements()) if shape.shape != [0] else []
    tracked = value.parts is not None and len(target) == 1
    if tracked and target[0].static() in (-1, len(value.parts or ())):
        return [value]
    value = value if value.batched else Value(batch.rows(value), True, value.sizes)
    source = [_axis(value, axis) for axis in range(value.rank)]
    if not value.sizes and not any(element.batched for element in target):
        return [_one_axis_apart(value, target) or batched(_dense(value.tensor, target, batch))]
    front, back = _common_ends(source, target)
    while front < len(source) - back and _fixed(source[front]) == 1:  # axes of size 1 may come and go
        source.pop(front)
        value = remove_axis(value, front)
    ones = 0
    while front + ones < len(target) - back and _fixed(target[front + ones]) == 1:
        ones += 1
    middle_source, middle_target = (
        source[front : len(source) - back],
        target[front + ones : len(target) - back],
    )
    if not middle_source and not middle_target:
        return [_with_ones(value, front, ones)]
    rule = _leading(middle_source, middle_target)
    if rule is None:
        return [_general(value, source, target, batch)]
    factors, inner = rule
    return [_with_ones(_contiguous(value, source, (front, back), factors, inner, batch), front, ones)]


def _one_axis_apart(value: Value, target: Sequence[Value]) -> Value | None:
    """The result, if all that differs is one axis of size 1, which is inserted or removed."""
    known, wanted = value.shape, [_fixed(element) for element in target]
    if None in known or None in wanted or 0 in known:
        return None
    if -1 in wanted:
        rest = _product([size for size in wanted if size != -1])
        wanted[wanted.index(-1)] = _product(known) // rest if rest else 0
    for axis, size in enumerate(wanted):
        if size == 1 and wanted[:axis] + wanted[axis + 1 :] == known:
            return insert_axis(value, axis)
    for axis, size in enumerate(known):
        if size == 1 and known[:axis] + known[axis + 1 :] == wanted:
            return remove_axis(value, axis)
    return None


def _with_ones(value: Value, front: int, count: int) -> Value:
    """`count` axes of size 1 inserted before per-example axis `front`."""
    for _ in range(count):
        value = insert_axis(value, front)
    return value


def _axis(value: Value, axis: int) -> Value:
    """Size of one axis of the operand, as a number."""
    if axis in value.sizes:
        return number(value.sizes[axis].lengths, value.sizes[axis])
    size = dimension(value.tensor, axis + 1)
    return shared(tf.constant(size) if isinstance(size, int) else size)


def _fixed(element: Value) -> int | None:
    known = element.static()
    return None if known is None else int(known)


def _dense(tensor: Any, target: Sequence[Value], batch: Batch) -> Any:
    """No ragged dimension anywhere; -1 is worked out, since an empty batch would leave it open."""
    sizes: list[Any] = [
        _fixed(element) if _fixed(element) is not None else tf.cast(element.tensor, tf.int32) for element in target
    ]
    rest = tensor.shape.as_list()[1:]
    if -1 in [size for size in sizes if isinstance(size, int)]:
        position = next(k for k, size in enumerate(sizes) if isinstance(size, int) and size == -1)
        others = [size for k, size in enumerate(sizes) if k != position]
        if None not in rest and all(isinstance(size, int) for size in others):
            product = _product(others)
            sizes[position] = _product(rest) // product if product else 0
        else:
            total = tf.reduce_prod(tf.shape(tensor)[1:])
            sizes[position] = total // tf.maximum(_product(others), 1)
    return tf.reshape(tensor, [batch.size, *sizes])


def _product(sizes: Sequence[Any]) -> Any:
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


def _same(left: Value, right: Value) -> bool:
    if left.size is not None or right.size is not None:
        return left.size is right.size
    return _fixed(left) is not None and _fixed(left) == _fixed(right)


def _common_ends(source: Sequence[Value], target: Sequence[Value]) -> tuple[int, int]:
    """How many dimensions agree at the front and at the back."""
    front = 0
    while front < min(len(source), len(target)) and _same(source[front], target[front]):
        front += 1
    back = 0
    while back < min(len(source), len(target)) - front and _same(source[-1 - back], target[-1 - back]):
        back += 1
    return front, back


def _leading(source: Sequence[Value], target: Sequence[Value]) -> tuple[tuple[int, int], list[int]] | None:
    """If `[n, s...] -> [m, t...]` with n ragged and the rest fixed: ((prod s, prod t), t); else None."""
    if not source or source[0].size is None or not target:
        return None  # nothing ragged leads
    inner_source, inner_target = [_fixed(item) for item in source[1:]], [_fixed(item) for item in target[1:]]
    if None in inner_source or None in inner_target or -1 in inner_target:
        return None
    if _fixed(target[0]) != -1 and not target[0].batched:
        return None
    left, right = _product(inner_source), _product(inner_target)
    if left == 0 or right == 0 or (left % right and right % left):
        return None
    if target[0].batched and not (left == right and target[0].size is source[0].size):
        return None
    return (left, right), [size for size in inner_target if size is not None]


def _contiguous(
    value: Value,
    source: Sequence[Value],
    ends: tuple[int, int],
    factors: tuple[int, int],
    inner: list[int],
    batch: Batch,
) -> Value:
    """Merge or split a leading ragged dimension with the fixed ones behind it, in place."""
    front, back = ends
    size = source[front].size
    assert size is not None
    left, right = factors
    tensor = value.tensor
    if left == right:
        grown = size
    elif left % right == 0:
        factor = left // right
        grown = Size(size.lengths * factor, size.padded * factor)
    else:
        factor = right // left
        batch.check(size.lengths % factor == 0)
        rooms = (size.padded + factor - 1) // factor
        tensor = pad_axis(tensor, front + 1, rooms * factor)
        grown = Size(size.lengths // factor, rooms)
    before = [dimension(tensor, axis) for axis in range(front + 1)]
    after = [dimension(tensor, axis) for axis in range(tensor.shape.rank - back, tensor.shape.rank)]
    result = tf.reshape(tensor, [*before, grown.padded, *inner, *after])
    sizes = {axis: own for axis, own in value.sizes.items() if axis < front}
    sizes[front] = grown
    shift = front + 1 + len(inner) - (value.rank - back)
    sizes |= {axis + shift: own for axis, own in value.sizes.items() if axis >= value.rank - back}
    return batched(result, sizes)


def _general(value: Value, source: Sequence[Value], target: Sequence[Value], batch: Batch) -> Value:
    """Any reshape: gather each position of the result through its row's flat index."""
    rows = batch.size
    source_sizes = [tf.cast(batch.rows(item), tf.int32) for item in source]
    total = _product(source_sizes) if source_sizes else tf.ones([rows], tf.int32)
    total = tf.broadcast_to(total, [rows])
    wanted: list[Any] = []
    hole = None
    for axis, element in enumerate(target):
        if _fixed(element) == -1:
            hole = axis
            wanted.append(None)
        else:
            wanted.append(batch.int32_rows(element))
    sizes: dict[int, Size] = {}
    padded: list[Any] = []
    fits = [item >= 0 for item in wanted if item is not None]
    if hole is not None:
        wanted[hole] = _missing(source_sizes, [item for item in wanted if item is not None])
    in_all = _product([tf.cast(item, tf.int64) for item in wanted]) if wanted else tf.ones([rows], tf.int64)
    batch.check(functools.reduce(tf.logical_and, fits, in_all == tf.cast(total, tf.int64)))
    for axis, element in enumerate(target):
        if axis == hole:
            bound = _bound_of_rest(value, target, axis)
            sizes[axis] = batch.new_size(number(wanted[axis], upper=bound))
            padded.append(sizes[axis].padded)
        elif element.batched:
            sizes[axis] = batch.new_size(element)
            padded.append(sizes[axis].padded)
        else:
            fixed = _fixed(element)
            padded.append(fixed if fixed is not None else tf.cast(element.tensor, tf.int32))
    flat_index: Any = 0
    for axis in range(len(target)):
        along = tf.reshape(tf.range(padded[axis]), [1] * (axis + 1) + [-1] + [1] * (len(target) - axis - 1))
        per_row = tf.reshape(wanted[axis], [-1] + [1] * len(target))
        flat_index = flat_index * per_row + along
    position, stride = tf.zeros_like(flat_index), 1
    for axis in reversed(range(value.rank)):
        own = tf.maximum(tf.reshape(source_sizes[axis], [-1] + [1] * len(target)), 1)
        position = position + (flat_index % own) * stride
        flat_index = flat_index // own
        stride = stride * dimension(value.tensor, axis + 1)
    flat = tf.reshape(value.tensor, [rows, stride])
    position = tf.clip_by_value(position, 0, tf.maximum(stride - 1, 0))
    return batched(tf.gather(flat, position, axis=1, batch_dims=1), sizes)


def _missing(source: Sequence[Any], others: Sequence[Any]) -> Any:
    """What -1 stands for. Beside a size of zero TensorFlow leaves out the zeros on both sides."""
    empty = functools.reduce(tf.logical_or, [item == 0 for item in others], tf.constant(False))
    elements = _product([tf.where(tf.logical_and(empty, item == 0), 1, item) for item in source])
    return elements // tf.maximum(_product([tf.where(item == 0, 1, item) for item in others]), 1)


def _bound_of_rest(value: Value, target: Sequence[Value], hole: int) -> Any:
    """Upper bound of the dimension that -1 stands for: padded elements over the fixed other dimensions."""
    total = _product([dimension(value.tensor, axis + 1) for axis in range(value.rank)])
    fixed = _product([_fixed(item) or 1 for axis, item in enumerate(target) if axis != hole and not item.batched])
    if any(_fixed(item) is None for axis, item in enumerate(target) if axis != hole and not item.batched):
        raise NotConvertible("a reshape of a ragged tensor to sizes that aren't known when the program is built")
    return total // max(fixed, 1)
