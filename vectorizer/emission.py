"""Pass 5: emit the batched program into the current graph (or run it eagerly).

Walks the normalised program once; every value is converted by its op's own rule. Loops and branches are in
`loops.py` and `branches.py`, ops without a rule in `fallback.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import branches, custom_gradients, fallback, loops
from vectorizer.analysis import analyse
from vectorizer.batch import Batch
from vectorizer.converters.tensor_lists import convert_list_arithmetic
from vectorizer.effects import Options
from vectorizer.errors import Unconvertible, VectorizationError
from vectorizer.kinds import Abstract, Kind
from vectorizer.plan import Plan, make_plan
from vectorizer.program import Op, Program, Var
from vectorizer.registry import convert, find, run_unchanged
from vectorizer.report import Report
from vectorizer.values import NotConvertible, batched, pad_axis, shared

_LARGE_CONSTANT = 1024  # elements; larger ones are held once, as a captured tensor, not copied into every graph


class Emitter:
    """Emits one plan. `report` collects what could not be converted natively."""

    def __init__(self, plan: Plan, report: Report, constants: dict[Var, Any]) -> None:
        self.plan = plan
        self.report = report
        self._large = constants
        self._small: dict[tuple[Any, Var], Any] = {}

    def run(self, program: Program, inputs: Sequence[Any], batch: Batch) -> list[Any]:
        """Emit a nested or whole program on the given values."""
        env: dict[Var, Any] = dict(zip(program.inputs, inputs, strict=True))
        self.run_ops(program.ops, env, batch)
        return [self.value(var, env) for var in program.outputs]

    def run_ops(self, ops: Sequence[Op], env: dict[Var, Any], batch: Batch) -> None:
        """Emit ops in order; their results are added to `env`."""
        for op in ops:
            if op.type == "Const":
                continue  # made where it is used
            inputs = [self.value(var, env) for var in op.inputs]
            env.update(zip(op.outputs, self.emit(op, inputs, batch), strict=True))

    def value(self, var: Var, env: Mapping[Var, Any]) -> Any:
        """What a Var stands for here; constants are made in whatever graph is current."""
        if var.constant is None:
            return env[var]
        return shared(self._constant(var))

    def _constant(self, var: Var) -> Any:
        if np.size(var.constant) > _LARGE_CONSTANT:
            if var not in self._large:
                with tf.init_scope():
                    self._large[var] = tf.constant(var.constant, dtype=var.dtype)
            return self._large[var]
        if tf.executing_eagerly():
            return tf.constant(var.constant, dtype=var.dtype)
        key = (tf.compat.v1.get_default_graph(), var)
        if key not in self._small:
            self._small[key] = tf.constant(var.constant, dtype=var.dtype)
        return self._small[key]

    def emit(self, op: Op, inputs: Sequence[Any], batch: Batch) -> Sequence[Any]:
        """The results of one op. Raises Unconvertible where not even a loop over the rows can stand in for it."""
        try:
            return self._emit(op, inputs, batch)
        except NotConvertible as reason:
            raise Unconvertible(op, str(reason)) from reason

    def _emit(self, op: Op, inputs: Sequence[Any], batch: Batch) -> Sequence[Any]:
        if op.type == "While":
            return loops.emit_while(self, op, inputs, batch)
        if op.bodies:
            return branches.emit_branches(self, op, inputs, batch)
        if op.inputs and op.inputs[0].dtype == tf.variant:
            results = convert_list_arithmetic(op, inputs, batch)
            if results is not None:
                return results
        if op.gradient is not None:
            return self._custom_gradient(op, inputs, batch)
        if find(op.type) is None and not any(value.batched for value in inputs):
            return run_unchanged(op, inputs)
        try:
            if find(op.type) is None:
                raise NotConvertible("no converter for this op")
            results = convert(op, inputs, batch)
            return [_settled(value, var, batch) for value, var in zip(results, op.outputs, strict=True)]
        except NotConvertible as reason:
            if any(var.dtype == tf.variant for var in (*op.inputs, *op.outputs)):
                raise  # lists have no rows that could be taken one by one
            self.report.add_fallback(op, str(reason))
            return fallback.emit_per_row(op, inputs, batch)

    def _custom_gradient(self, op: Op, inputs: Sequence[Any], batch: Batch) -> Sequence[Any]:
        """The gradient is planned and emitted when it is asked for, into the graph of the gradients."""

        def run(program: Program, values: Sequence[Any], inner: Batch) -> list[Any]:
            operands = zip(program.inputs, values, strict=True)
            kinds = {var: Abstract(Kind.BATCHED if value.batched else Kind.SHARED) for var, value in operands}
            plan = make_plan(program, analyse(program, kinds, inner.randomness), Options(inner.randomness))
            if plan.refused:
                raise VectorizationError(f"the gradient function {op.where()}", plan.refused)
            return Emitter(plan, self.report.scratch(), self._large).run(program, values, inner)

        return custom_gradients.emit(op, inputs, batch, run)


def _settled(value: Any, var: Var, batch: Batch) -> Any:
    """A dimension that came out ragged although TensorFlow knows its size is that size in every row."""
    known = [axis for axis in value.sizes if var.shape.rank is not None and var.shape[axis] is not None]
    if not known:
        return value
    tensor, sizes = value.tensor, dict(value.sizes)
    for axis in known:
        batch.check(sizes.pop(axis).lengths == var.shape[axis])
        tensor = pad_axis(tensor, axis + 1, var.shape[axis])
    return batched(tensor, sizes)
