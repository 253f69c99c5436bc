"""Which op type is converted by which rule, and `convert`, the one way to apply a rule.

A converter is a function `(op, inputs, batch) -> outputs` over `Value`s. It is called only if an operand is
batched (otherwise the op runs unchanged), unless the op can raise: then always, so that the check is made in
`batch.ok`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vectorizer import tf_internals, xla_kernels
from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.values import Value, shared

ConverterFunction = Callable[[Op, Sequence[Value], Batch], Sequence[Value]]
Compilable = bool | Callable[[Op], bool]

_CONVERTER_MODULES = (
    "elementwise",
    "reductions",
    "matmul",
    "convolution",
    "blocks",
    "shapes",
    "reshaping",
    "joining",
    "indexing",
    "slicing",
    "ordering",
    "strings",
    "counting",
    "checks",
    "tensor_lists",
    "optionals",
    "linalg",
    "gradients",
    "state",
    "random",
    "printing",
    "segments",
    "selecting",
    "filters",
    "normalisation",
    "pooling",
    "images",
    "matrices",
    "diagonals",
    "quantizing",
    "rearranging",
    "parsing",
    "sparse",
    "padding",
)


@dataclass(frozen=True)
class SupportedOp:
    """One op type that is vectorized natively. `checks`: what is checked into `ok`, "" if it can't raise."""

    name: str
    family: str
    function: ConverterFunction
    checks: str = ""
    compilable: Compilable = True
    always: bool = False

    def compiles(self, op: Op) -> bool:
        """Whether XLA can compile this op of the type."""
        return self.compilable(op) if callable(self.compilable) else self.compilable


_REGISTRY: dict[str, SupportedOp] = {}


def converts(
    *op_types: str, checks: str = "", compilable: Compilable = True, always: bool = False
) -> Callable[[ConverterFunction], ConverterFunction]:
    """Register the decorated function as the converter of `op_types`; a type is registered once only.

    `checks`: what an op of these types can raise for, in words, if it can. `compilable`: whether XLA has
    a kernel that answers as TensorFlow's does, or a function that says so of an op, by its attributes. `always`:
    called even if no operand is batched.
    """

    def register(function: ConverterFunction) -> ConverterFunction:
        family = function.__name__.removeprefix("convert_")
        for op_type in (name for names in op_types for name in names.split()):
            if op_type in _REGISTRY:
                known = _REGISTRY[op_type]
                where = inspect.getmodule(known.function)
                raise ValueError(f"{op_type!r} is converted twice: by {family}, and by {known.family} in {where}")
            _REGISTRY[op_type] = SupportedOp(op_type, family, function, checks, compilable, always or bool(checks))
        return function

    return register


def supported_ops() -> list[SupportedOp]:
    """Every op type with a converter, by name."""
    _load()
    return [_REGISTRY[name] for name in sorted(_REGISTRY)]


def find(op_type: str) -> SupportedOp | None:
    """The record of one op type, or None if it has no converter."""
    _load()
    return _REGISTRY.get(op_type)


def convert(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """One op over the batch, by its converter; emits into the current graph, or runs eagerly.

    Raises NotConvertible if there is no rule for these operands, KeyError for an op type without converter.
    """
    rule = find(op.type)
    for position, value in enumerate(inputs if op.type in xla_kernels.DOMAINS else ()):
        foreign = xla_kernels.outside_domain(op.type, position, value.tensor)
        if foreign is not None:
            batch.fail_where(foreign, value)
    if not any(value.batched for value in inputs) and not (rule and rule.always):
        return run_unchanged(op, inputs)
    if rule is None:
        raise KeyError(op.type)
    return list(rule.function(op, inputs, batch))


def run_unchanged(op: Op, inputs: Sequence[Value]) -> list[Value]:
    """The op on shared operands: once, for all rows."""
    return [shared(tensor) for tensor in replay(op, [value.tensor for value in inputs])]


def replay(op: Op, tensors: Sequence[Any]) -> list[Any]:
    """The op's own kernel on other tensors, with the op's attributes."""

    def kernel(operands: Sequence[Any]) -> list[Any]:
        types = [[var.dtype for var in end] for end in (op.inputs, op.outputs)]
        same = tf_internals.same_op(op.type, op.attrs, operands, *types)
        return tf_internals.replay(op.type, op.definition, operands, dict(op.attrs)) if same is None else same

    return xla_kernels.run(op.type, kernel, tensors, op.attrs)


_loaded = False


def _load() -> None:
    global _loaded
    if not _loaded:
        for name in _CONVERTER_MODULES:
            importlib.import_module(f"vectorizer.converters.{name}")
        _loaded = True
