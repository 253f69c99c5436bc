"""Matrix products. A shared right operand folds the batch into the rows of one product."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.alignment import align_axis, align_pair
from vectorizer.program import Op
from vectorizer.registry import converts
from vectorizer.values import NotConvertible, Size, Value, batched, fill_padding, insert_axis, remove_axis


@converts("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3")
def convert_matmul(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """`[..., m, k] @ [..., k, n]`, either side transposed or adjoint."""
    left, right = inputs
    adjoint = op.type != "MatMul"
    flip_left = bool(op.attrs["adj_x" if adjoint else "transpose_a"])
    flip_right = bool(op.attrs["adj_y" if adjoint else "transpose_b"])
    if op.attrs.get("Tout", op.outputs[0].dtype) != left.dtype:
        raise NotConvertible("a product whose result has another dtype")
    inner_left = left.rank - (2 if flip_left else 1)
    inner_right = right.rank - (1 if flip_right else 2)
    left, right = _contract(left, inner_left, right, inner_right, batch)
    outer_left = left.rank - (1 if flip_left else 2)
    outer_right = right.rank - (2 if flip_right else 1)
    rank = max(left.rank, right.rank)
    tensors = [_with_rank(left, rank), _with_rank(right, rank)]
    sizes = _leading_sizes(left, right, tensors, rank, batch)
    if outer_left in left.sizes:
        sizes[rank - 2] = left.sizes[outer_left]
    if outer_right in right.sizes:
        sizes[rank - 1] = right.sizes[outer_right]
    one_row = left.inserted is not None and left.inserted[0] == 0 and left.rank == 2 and not flip_left
    if one_row and not left.sizes and not right.batched and right.rank == 2:
        row = _fold_rows(remove_axis(left, 0).tensor, right.tensor, flip_right, adjoint)
        return [insert_axis(batched(row), 0)]
    if not right.batched and right.rank == 2 and not flip_left:
        return [batched(_fold_rows(left.tensor, right.tensor, flip_right, adjoint), sizes)]
    if not left.batched and left.rank == 2 and right.rank == 2 and not flip_right and not right.sizes:
        if right.shape[1] == 1:
            columns = remove_axis(right, 1).tensor
            return [insert_axis(batched(_columns_times(left.tensor, columns, flip_left, adjoint)), 1)]
        columns = _columns_times(left.tensor, tf.transpose(right.tensor, [0, 2, 1]), flip_left, adjoint)
        return [batched(tf.transpose(columns, [0, 2, 1]), sizes)]
    keywords = {
        "adjoint_a" if adjoint else "transpose_a": flip_left,
        "adjoint_b" if adjoint else "transpose_b": flip_right,
    }
    return [batched(tf.matmul(*tensors, **keywords), sizes)]


def _fold_rows(left: Any, right: Any, flip_right: bool, adjoint: bool) -> Any:
    """`[B, ..., k] @ [k, n]` as one product of two matrices."""
    flat = left if left.shape.rank == 2 else tf.reshape(left, [-1, _dim(left, -1)])
    result = tf.matmul(flat, right, **{"adjoint_b" if adjoint else "transpose_b": flip_right})
    if left.shape.rank == 2:
        return result
    columns = right.shape[0 if flip_right else 1]
    static = left.shape.as_list()[:-1]
    if sum(size is None for size in static) <= 1 and columns is not None and 0 not in static:
        return tf.reshape(result, [-1 if size is None else size for size in static] + [columns])
    return tf.reshape(result, tf.concat([tf.shape(left)[:-1], tf.shape(result)[-1:]], 0))


def _columns_times(left: Any, columns: Any, flip_left: bool, adjoint: bool) -> Any:
    """`[m, k]` times the columns `[B, ..., k]`, as one product of which they are the rows: `[B, ..., m]`."""
    transposed = left if flip_left and not (adjoint and left.dtype.is_complex) else None
    if transposed is not None:
        return _fold_rows(columns, transposed, False, adjoint)
    return _fold_rows(columns, *_upright(tf.math.conj(left) if flip_left else left, not flip_left), False)


def _upright(matrix: Any, flipped: bool) -> tuple[Any, bool]:
    """A constant matrix is transposed once, now: kernels take twice as long to read one the other way round."""
    if flipped and isinstance(matrix, tf.__internal__.EagerTensor):
        with tf.init_scope():
            return tf.transpose(matrix), False
    return matrix, flipped


def _dim(tensor: Any, axis: int) -> Any:
    return tensor.shape[axis] if tensor.shape[axis] is not None else tf.shape(tensor)[axis]


def _contract(left: Value, left_axis: int, right: Value, right_axis: int, batch: Batch) -> tuple[Value, Value]:
    """Make a contracted ragged dimension agree and zero both sides' padding (zero times NaN is NaN)."""
    if left_axis not in left.sizes and right_axis not in right.sizes:
        return left, right
    left, right = align_pair(left, left_axis, right, right_axis, batch)
    return _zeroed(left, left_axis), _zeroed(right, right_axis)


def _zeroed(value: Value, axis: int) -> Value:
    return batched(fill_padding(value, [axis], tf.zeros([], value.dtype)), value.sizes) if value.batched else value


def _leading_sizes(left: Value, right: Value, tensors: list[Any], rank: int, batch: Batch) -> dict[int, Size]:
    """Stacks of matrices broadcast; `tensors` may be stretched."""
    sizes: dict[int, Size] = {}
    for axis in range(rank - 2):
        present = {}
        for position, value in enumerate((left, right)):
            own = axis - (rank - value.rank)
            if own in value.sizes:
                present[position] = value.sizes[own]
        if present:
            sizes[axis] = align_axis((left, right), tensors, present, axis, rank, batch)
    return sizes


def _with_rank(value: Value, rank: int) -> Any:
    if not value.batched:
        return value.tensor
    return value.tensor[(slice(None), *([None] * (rank - value.rank)), ...)]


@converts("Einsum")
def convert_einsum(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The batch is one more letter of every batched operand and of the result."""
    equation = op.attrs["equation"].decode()
    if "..." in equation:
        if not any(value.sizes for value in inputs):
            return [_einsum_of_dense(equation.replace(" ", ""), inputs)]
        equation = _expand_ellipsis(equation, inputs)
    terms, result = equation.replace(" ", "").split("->")
    letters = terms.split(",")
    operands = list(inputs)
    sizes: dict[str, Size] = {}
    for index, term in enumerate(letters):
        for other in range(index):
            for letter in set(term) & set(letters[other]):
                left, right = operands[other], operands[index]
                axes = letters[other].index(letter), term.index(letter)
                if axes[0] in left.sizes or axes[1] in right.sizes:
                    operands[other], operands[index] = align_pair(left, axes[0], right, axes[1], batch)
    for term, value in zip(letters, operands, strict=True):
        sizes.update({term[axis]: size for axis, size in value.sizes.items()})
    summed = [letter for letter in sizes if letter not in result]
    for index, term in enumerate(letters):
        contracted = [axis for axis, letter in enumerate(term) if letter in summed]
        value = operands[index]
        if value.batched and contracted:
            operands[index] = batched(fill_padding(value, contracted, tf.zeros([], value.dtype)), value.sizes)
    free = _free_letter(equation)
    prefixed = ",".join(free + term if value.batched else term for term, value in zip(letters, operands, strict=True))
    tensor = tf.einsum(f"{prefixed}->{free}{result}", *(value.tensor for value in operands))
    return [batched(tensor, {axis: sizes[letter] for axis, letter in enumerate(result) if letter in sizes})]


def _free_letter(equation: str) -> str:
    return next(letter for letter in string.ascii_letters[::-1] if letter not in equation)


def _einsum_of_dense(equation: str, inputs: Sequence[Value]) -> Value:
    """An ellipsis may broadcast: the batch's letter stands in front of it."""
    free = _free_letter(equation)
    terms, result = equation.split("->")
    prefixed = [free + term if value.batched else term for term, value in zip(terms.split(","), inputs, strict=True)]
    return batched(tf.einsum(f"{','.join(prefixed)}->{free}{result}", *(value.tensor for value in inputs)))


def _expand_ellipsis(equation: str, inputs: Sequence[Value]) -> str:
    terms, result = equation.replace(" ", "").split("->")
    free = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
    covered = [value.rank - len(term.replace("...", "")) for term, value in zip(terms.split(","), inputs, strict=True)]
    most = max(count for term, count in zip(terms.split(","), covered, strict=True) if "..." in term)
    names = free[:most]
    for term, count, value in zip(terms.split(","), covered, inputs, strict=True):
        axes = range(term.find("..."), term.find("...") + count)
        if "..." in term and any(value.shape[axis] == 1 for axis in axes):
            raise NotConvertible("an einsum whose ellipsis broadcasts")
    expanded = [
        term.replace("...", "".join(names[most - count :]))
        for term, count in zip(terms.split(","), covered, strict=True)
    ]
    return ",".join(expanded) + "->" + result.replace("...", "".join(names))
