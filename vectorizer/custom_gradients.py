"""Gradients that the user put in the place of TensorFlow's: `tf.custom_gradient`, and override maps.

TensorFlow marks an op with the name of a Python function, which it calls when somebody asks for the gradient. That
function was written for one example, and reads tensors of the per-example graph. So it is traced into a program of its
own (what it reads are operands), and the batched program gets a custom gradient too: the vectorized one of that
program. It is emitted only if a tape outside of the vectorized function asks for it; a gradient taken inside of the
function is part of its graph already.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from vectorizer import tf_internals
from vectorizer.batch import Batch
from vectorizer.program import Op, Program
from vectorizer.values import Value, at_axis, fill_padding, pad_axis

Run = Callable[[Program, Sequence[Value], Batch], list[Value]]


def trace_gradient(op: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """The gradient function registered as `name`, traced for a TensorFlow `op`, and which operands it has results for.

    Its inputs are the gradients of the op's differentiable outputs. Raises LookupError if nothing is registered, and
    whatever the function raises.
    """
    function = tf_internals.registered_gradient(name)
    differentiable = [_is_differentiable(tensor.dtype) for tensor in op.outputs]
    specs = [
        tf.TensorSpec(tensor.shape, tensor.dtype) for tensor, own in zip(op.outputs, differentiable, strict=True) if own
    ]
    positions: list[int] = []

    def gradient(*given: Any) -> list[Any]:
        rest = iter(given)
        found = function(op, *(next(rest) if own else None for own in differentiable))
        found = list(found) if isinstance(found, list | tuple) else [found]
        kept = [k for k, item in enumerate(found) if item is not None and _is_differentiable(op.inputs[k].dtype)]
        positions[:] = kept
        return [tf.convert_to_tensor(found[k]) for k in kept]

    with op.graph.as_default():
        concrete = tf.function(gradient, autograph=False).get_concrete_function(*specs)
    return concrete, tuple(positions)


def _is_differentiable(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_complex)


def emit(op: Op, inputs: Sequence[Any], batch: Batch, run: Run) -> list[Any]:
    """The results handed on, with the gradient of `op`; `run` emits a program on values."""
    assert op.gradient is not None
    count = len(op.outputs)
    results, arguments = list(inputs[:count]), inputs[count : count + op.gradient.arguments]
    own = [k for k, var in enumerate(op.outputs) if _is_differentiable(var.dtype)]
    taking = list(op.gradient.positions) or [
        k for k in range(len(arguments)) if _is_differentiable(op.inputs[count + k].dtype)
    ]

    def backward(*given: Any) -> list[Any]:
        gradients = [Value(tensor, results[k].batched, results[k].sizes) for k, tensor in zip(own, given, strict=True)]
        return [None] * len(own) + _gradients(op, gradients, inputs, batch, run)

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def handed_on(*tensors: Any) -> Any:
        return [tf.identity(tensor) for tensor in tensors[: len(own)]], backward

    operands = [results[k].tensor for k in own] + [arguments[k].tensor for k in taking]
    for k, tensor in zip(own, handed_on(*operands), strict=True):
        results[k] = Value(tensor, results[k].batched, results[k].sizes)
    return results


def _gradients(op: Op, given: Sequence[Value], inputs: Sequence[Any], batch: Batch, run: Run) -> list[Any]:
    """The gradients of the arguments: the user's, for each row."""
    gradient = op.gradient
    assert gradient is not None
    if gradient.program is None:
        raise NotImplementedError(
            f"no gradient {op.where()}: its custom gradient can't be vectorized: {gradient.reason}; take the gradient "
            "inside of the function (vectorizer.grad), or use the function without it"
        )
    count = len(op.outputs)
    arguments = inputs[count : count + gradient.arguments]
    inner = batch.within(batch.active)
    found = run(gradient.program, [*given, *inputs[count + gradient.arguments :]], inner)
    if not any(value.batched for value in given):
        warnings.warn(
            f"the custom gradient {op.where()} is of a value that all rows share: it would get the sum of the rows' "
            "gradients instead of each; its own gradient is NaN",
            stacklevel=2,
        )
        return [tf.fill(tf.shape(item.tensor), tf.constant(float("nan"), item.dtype)) for item in found]
    counted = batch.counted()
    return [
        _for_argument(value, arguments[k], counted, inner, batch)
        for k, value in zip(gradient.positions, found, strict=True)
    ]


def _for_argument(value: Value, argument: Value, counted: Any, inner: Batch, batch: Batch) -> Any:
    """Zero where a row isn't part of this, NaN where the gradient function would have raised; summed if shared."""
    rows = fill_padding(Value(batch.rows(value), True, value.sizes), sorted(value.sizes), 0)
    for axis, size in argument.sizes.items():
        rows = pad_axis(rows, axis + 1, size.padded)
    if inner.checked:
        rows = tf.where(at_axis(inner.ok, value.rank), rows, tf.constant(float("nan"), rows.dtype))
    rows = tf.where(at_axis(counted, value.rank), rows, tf.zeros([], rows.dtype))
    return rows if argument.batched else tf.reduce_sum(rows, axis=0)
