"""Quantisation as training simulates it, and numbers taken apart bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched


@converts("FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel")
def convert_fake_quantisation(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rounds to levels between bounds that all examples share."""
    value, low, high = inputs
    if low.batched or high.batched:
        raise NotConvertible("quantisation between bounds that differ between examples")
    if op.type.endswith("PerChannel") and value.rank - 1 in value.sizes:
        raise NotConvertible("quantisation of a variable number of channels")
    (tensor,) = replay(op, [value.tensor, low.tensor, high.tensor])
    return [batched(tensor, value.sizes)]


@converts("QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4")
def convert_quantisation(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rounds to levels between given bounds, or each example's extremes: the kernel's axis is then the batch's."""
    value, *bounds = inputs[:3]
    if op.attrs["axis"] != -1 or any(item.batched for item in inputs[3:]):
        raise NotConvertible("quantisation along an axis, or by a number of bits that differs between examples")
    rest = [item.tensor for item in inputs[3:]]
    if op.attrs["range_given"]:
        if any(item.batched for item in bounds):
            raise NotConvertible("quantisation between bounds that differ between examples")
        (tensor,) = replay(op, [value.tensor, *(item.tensor for item in bounds), *rest])
        return [batched(tensor, value.sizes)]
    if value.sizes:
        raise NotConvertible("quantisation between the extremes of a ragged tensor")
    along = Op(op.type, op.name, op.inputs, op.outputs, {**op.attrs, "axis": 0}, op.definition, op.source)
    (tensor,) = replay(along, [batch.rows(value), *(batch.rows(item) for item in bounds), *rest])
    return [batched(tensor)]


@converts("Bitcast")
def convert_bitcast(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The same bits read as another type."""
    (value,) = inputs
    if value.rank - 1 in value.sizes and op.outputs[0].dtype.size > value.dtype.size:
        raise NotConvertible("the bits of a variable number of elements read as wider ones")
    return [batched(tf.bitcast(value.tensor, op.outputs[0].dtype), value.sizes)]
