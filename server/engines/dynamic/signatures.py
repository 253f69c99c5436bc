"""Signatures: nodes of one signature can be one launch. The op with its attributes, the operands' shapes, and which
operands are shared, by identity; as in DyNet, where they are op type, dimensions and the ids of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from server.engines.dynamic.values import ExampleFailed, Ref, Shape, Shared
from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import convert, replay
from vectorizer.values import NotConvertible, batched, shared

COSTLY = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv3D"})


@dataclass(frozen=True, eq=False)
class Signature:
    """`operands`: None where each node has its own, else what all share. `outputs`: shapes of one example's results.

    `single`: the shapes of its results depend on values, so nodes run one by one. `op` is None for the one signature
    that isn't an op: `stacked` values put side by side.
    """

    index: int
    op: Op | None
    operands: tuple[Any, ...]
    outputs: tuple[Shape, ...]
    single: bool = False
    stacked: int = 0

    @property
    def own(self) -> int:
        """How many operands each node has of its own."""
        return sum(operand is None for operand in self.operands)

    @property
    def costly(self) -> bool:
        """Whether the agenda prefers cheap nodes of the same depth."""
        return self.op is not None and self.op.type in COSTLY

    def launch(self, own: Sequence[Any], count: int) -> tuple[list[Any], Any]:
        """Runs `count` nodes; `own` has the operands that each has its own, `[count, ...]`.

        Returns the results, `[count, ...]`, and which nodes are fine (bool [count]), None if nothing can go wrong.
        """
        if self.op is None:
            (values,) = own
            return [tf.reshape(values, [count, self.stacked, *values.shape[1:]])], None
        if self.single:
            results = replay(self.op, self._filled([tensor[0] for tensor in own]))
            return [tensor[None] for tensor in results], None
        rest = iter(own)
        operands = [batched(next(rest)) if operand is None else shared(operand) for operand in self.operands]
        batch = Batch(count)
        try:
            results = [batch.rows(value) for value in convert(self.op, operands, batch)]
        except (NotConvertible, KeyError):
            rows = [replay(self.op, self._filled([tensor[row] for tensor in own])) for row in range(count)]
            return [tf.stack(column) for column in zip(*rows, strict=True)], None
        return [
            self._cut(*pair) for pair in zip(results, self.outputs, strict=True)
        ], batch.ok if batch.checked else None

    def _filled(self, own: Sequence[Any]) -> list[Any]:
        rest = iter(own)
        return [next(rest) if operand is None else operand for operand in self.operands]

    @staticmethod
    def _cut(tensor: Any, shape: Shape) -> Any:
        """Without the padding that a converter may have left behind a dimension."""
        if tuple(tensor.shape[1:]) == shape:
            return tensor
        return tensor[(slice(None), *(slice(0, size) for size in shape))]


class Signatures:
    """All signatures met so far; the table outlives batches."""

    def __init__(self) -> None:
        self.all: list[Signature] = []
        self._by_key: dict[Any, Signature] = {}
        self._ops: dict[int, tuple[Any, ...]] = {}

    def of(self, op: Op, operands: Sequence[Any]) -> Signature:
        """The signature of `op` on Refs (each node its own), Shared values and arrays (fixed by the signature)."""
        parts: list[Any] = []
        for operand in operands:
            if isinstance(operand, Ref):
                parts.append((operand.shape, operand.dtype))
            elif isinstance(operand, Shared):
                parts.append(id(operand))
            else:
                text = operand.dtype.kind == "O"
                parts.append((operand.shape, operand.dtype.str, tuple(operand.ravel()) if text else operand.tobytes()))
        key = (self._name(op), *parts)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._make(op, operands)
        return found

    def of_stack(self, count: int, shape: Shape, dtype: Any) -> Signature:
        """The signature of `count` values put side by side."""
        key = ("stack", count, shape, dtype)
        if key not in self._by_key:
            self._by_key[key] = self._added(Signature(len(self.all), None, (None,), ((count, *shape),), False, count))
        return self._by_key[key]

    def _added(self, signature: Signature) -> Signature:
        self.all.append(signature)
        return signature

    def _name(self, op: Op) -> tuple[Any, ...]:
        name = self._ops.get(id(op))
        if name is None:
            name = (op.type, *(f"{key}={value!r}" for key, value in sorted(op.attrs.items())))
            self._ops[id(op)] = name
        return name

    def _make(self, op: Op, operands: Sequence[Any]) -> Signature:
        fixed: list[Any] = []
        for operand, var in zip(operands, op.inputs, strict=True):
            if isinstance(operand, Ref):
                fixed.append(None)
            elif isinstance(operand, Shared):
                fixed.append(operand.tensor)
            else:
                fixed.append(tf.constant(operand, var.dtype))
        shapes = _result_shapes(op, operands, fixed)
        single = any(None in shape for shape in shapes)
        return self._added(Signature(len(self.all), op, tuple(fixed), tuple(shapes), single))


def _result_shapes(op: Op, operands: Sequence[Any], fixed: Sequence[Any]) -> list[Any]:
    """Shapes of one example's results, by TensorFlow's own inference; None where a size depends on values."""
    with tf.__internal__.FuncGraph("shapes").as_default():
        inputs = [
            tf.compat.v1.placeholder(operand.dtype, operand.shape) if tensor is None else tensor
            for operand, tensor in zip(operands, fixed, strict=True)
        ]
        try:
            results = replay(op, inputs)
        except (ValueError, tf.errors.OpError) as error:
            raise ExampleFailed(str(error)) from error
    shapes: list[Any] = []
    for tensor in results:
        if tensor.shape.rank is None:
            shapes.append((None,))
        else:
            shapes.append(tuple(tensor.shape.as_list()))
    return shapes
