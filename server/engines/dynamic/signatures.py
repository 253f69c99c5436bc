"""Signatures: nodes of one signature can be one launch. The op with its attributes, the operands' shapes, and which
operands are shared, by identity; as in DyNet, where they are op type, dimensions and the ids of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic import kernels
from server.engines.dynamic.launching import by_tensorflow
from server.engines.dynamic.values import Column, OpFailed, Shape, Shared
from vectorizer.program import Op
from vectorizer.registry import replay

_KEPT_BYTES = 2**28
COSTLY = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv3D"})


@dataclass(frozen=True, eq=False)
class Signature:
    """What a launch does.

    `reads`, `writes`: the arenas of a node's own operands and of its results. `outputs`: shapes of one example's
    results. `packed`: its operands lie in one arena and are read side by side, as one. `view`: a kernel whose results
    are views of the operands, where that is all there is to do.
    """

    index: int
    name: str
    kernel: kernels.Kernel
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    outputs: tuple[Shape, ...]
    costly: bool = False
    packed: bool = False
    view: Any = None


class Signatures:
    """All signatures met so far, and the arenas: values of one size and dtype lie in one. Outlives batches."""

    def __init__(self) -> None:
        self.all: list[Signature] = []
        self.arenas: list[tuple[int, Any]] = []
        self.memory: list[
            Any
        ] = []  # the arenas' rows, kept from batch to batch: fresh memory costs as much as computing
        self._arena_of: dict[Any, int] = {}
        self._by_key: dict[Any, Signature | None] = {}
        self._ops: dict[int, tuple[Any, ...]] = {}
        self._inferred: dict[Any, list[Any]] = {}

    def trim(self) -> None:
        """Lets go of memory that only a batch out of the ordinary needed."""
        if sum(rows.nbytes for rows in self.memory) > _KEPT_BYTES:
            self.memory.clear()

    def arena(self, shape: Shape, dtype: Any) -> int:
        """Which arena has values of that shape and dtype (tf.DType)."""
        key = (math.prod(shape), dtype)
        if key not in self._arena_of:
            self._arena_of[key] = len(self.arenas)
            kind = object if dtype == tf.string else dtype.as_numpy_dtype
            self.arenas.append((key[0], np.dtype(kind)))
        return self._arena_of[key]

    def of(self, op: Op, operands: Sequence[Column]) -> Signature | None:
        """The signature of `op` on columns of kind value (each node its own), shared and fixed; None where the shapes
        of the results depend on values."""
        key = (self.name(op), *(column.kind for column in operands))
        if key not in self._by_key:
            self._by_key[key] = self._make(op, operands)
        return self._by_key[key]

    def of_stack(self, count: int, shape: Shape, dtype: Any) -> Signature:
        """The signature of `count` values put side by side."""
        key = ("stack", count, shape, dtype)
        found = self._by_key.get(key)
        if found is None:
            ends = (self.arena(shape, dtype),) * min(count, 1), (self.arena((count, *shape), dtype),)
            found = self._by_key[key] = self._added("Stack", _stack, *ends, ((count, *shape),), packed=True)
        return found

    def of_sum(self, count: int, shape: Shape, dtype: Any) -> Signature:
        """The signature of `count` values added up."""
        key = ("sum", count, shape, dtype)
        found = self._by_key.get(key)
        if found is None:
            arena = self.arena(shape, dtype)
            found = self._by_key[key] = self._added("Sum", _sum, (arena,), (arena,), (shape,), packed=True)
        return found

    def of_unstack(self, count: int, shape: Shape, dtype: Any) -> Signature:
        """The signature of a value of `count` rows taken apart."""
        key = ("unstack", count, shape, dtype)
        found = self._by_key.get(key)
        if found is None:
            ends = (self.arena((count, *shape), dtype),), (self.arena(shape, dtype),) * count
            found = self._by_key[key] = self._added("Unstack", _unstack, *ends, (shape,) * count)
        return found

    def of_region(self, key: Any, kernel: kernels.Kernel, reads: Any, writes: Any, outputs: Any) -> Signature:
        """The signature of a region whose nodes run as one."""
        found = self._by_key.get(key)
        if found is None:
            ends = tuple(reads), tuple(writes), tuple(outputs)
            found = self._by_key[key] = self._added("Region", kernel, *ends, costly=True)
        return found

    def _added(self, name: str, kernel: Any, reads: Any, writes: Any, outputs: Any, **more: Any) -> Signature:
        signature = Signature(len(self.all), name, kernel, reads, writes, outputs, **more)
        self.all.append(signature)
        return signature

    def name(self, op: Op) -> tuple[Any, ...]:
        """What an op is, whatever its operands."""
        name = self._ops.get(id(op))
        if name is None:
            name = (op.type, *(f"{key}={value!r}" for key, value in sorted(op.attrs.items())))
            self._ops[id(op)] = name
        return name

    def _make(self, op: Op, operands: Sequence[Column]) -> Signature | None:
        shapes = result_shapes(op, operands)
        if any(shape is None or None in shape for shape in shapes):
            return None
        fixed = [_content(column) for column in operands]
        own = [column.kind for column in operands if column.kind.what == "value"]
        case = kernels.Case(op, fixed, [_shape(column) for column in operands], shapes)
        kernel = kernels.find(case)
        if kernel is None:
            kernel = by_tensorflow(op, [_tensor(*pair) for pair in zip(operands, op.inputs, strict=True)], case)
        return self._added(
            op.type,
            kernel,
            tuple(self.arena(kind.shape, kind.dtype) for kind in own),
            tuple(self.arena(shape, var.dtype) for shape, var in zip(shapes, op.outputs, strict=True)),
            tuple(shapes),
            costly=op.type in COSTLY,
            view=kernels.as_view(case),
        )


def _stack(count: int, operands: Sequence[Any], results: Sequence[Any]) -> None:
    if operands:
        np.copyto(results[0].reshape(operands[0].shape), operands[0])


def _sum(count: int, operands: Sequence[Any], results: Sequence[Any]) -> None:
    np.sum(operands[0].reshape(count, -1, results[0].shape[1]), axis=1, out=results[0])


def _unstack(count: int, operands: Sequence[Any], results: Sequence[Any]) -> None:
    rows = operands[0].reshape(count, len(results), -1)
    for position, out in enumerate(results):
        out[:] = rows[:, position]


def _content(column: Column) -> Any:
    if column.kind.what == "value":
        return None
    if column.kind.what == "shared":
        tensor = column.data.tensor
        return None if tensor.dtype in (tf.resource, tf.variant) else column.data.array
    return column.data


def _shape(column: Column) -> Shape:
    if isinstance(column.data, Shared):
        return tuple(column.data.tensor.shape)
    return tuple(column.kind.shape)


def _tensor(column: Column, var: Any) -> Any:
    """What all nodes share, as a tensor; None for what is a node's own."""
    if column.kind.what == "value":
        return None
    return column.data.tensor if column.kind.what == "shared" else tf.constant(column.data, var.dtype)


def result_shapes(op: Op, operands: Sequence[Column]) -> list[Any]:
    """Shapes of one example's results, by TensorFlow's own inference; None for sizes that depend on values."""
    with tf.__internal__.FuncGraph("shapes").as_default():
        inputs = [
            tf.compat.v1.placeholder(column.kind.dtype, column.kind.shape)
            if column.kind.what == "value"
            else _tensor(column, var)
            for column, var in zip(operands, op.inputs, strict=True)
        ]
        try:
            results = replay(op, inputs)
        except (ValueError, tf.errors.OpError) as error:
            raise OpFailed(str(error)) from error
    return [None if tensor.shape.rank is None else tuple(tensor.shape.as_list()) for tensor in results]
