"""Pass 5: emit the batched program into the current graph (or run it eagerly).

Walks the normalised program once; every value is converted by its op's own rule. Loops and branches are in
`loops.py` and `branches.py`, ops without a rule in `fallback.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import branches, custom_gradients, fallback, loops, reductions
from vectorizer.analysis import analyse
from vectorizer.batch import Batch
from vectorizer.carries import KindRaised
from vectorizer.converters.tensor_lists import convert_list_arithmetic
from vectorizer.effects import Options
from vectorizer.errors import Finding, Unconvertible, VectorizationError
from vectorizer.kinds import Abstract, Kind
from vectorizer.plan import Plan, make_plan
from vectorizer.program import Op, Program, Var
from vectorizer.registry import convert, find, run_unchanged
from vectorizer.report import Report
from vectorizer.values import NotConvertible, Size, Value, batched, constant, pad_axis, shared

_LARGE_CONSTANT = 1024  # elements; larger ones are held once, as a captured tensor, not copied into every graph


class _Missing:
    """In the place of a list that could not be made: what reads it isn't emitted."""


_MISSING = _Missing()


class Emitter:
    """Emits one plan. `report` collects what could not be converted natively.

    `findings` has the ops for which not even a loop over the rows can stand in, with reasons. Zeros are put in the
    place of their results and emission goes on, so that one run finds them all; the program is worth nothing then.
    """

    def __init__(self, plan: Plan, report: Report, constants: dict[Var, Any]) -> None:
        self.plan = plan
        self.report = report
        self.findings: dict[Op, str] = {}
        self._refused = {finding.op: finding.reason for finding in plan.refused}
        self.size_names: dict[int, str] = {}
        self._places = {
            var: f"{made.type} of {made.source}" for made in plan.program.walk() if made.source for var in made.outputs
        }
        self._large = constants
        self._small: dict[tuple[Any, ...], Value] = {}

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
        if np.size(var.constant) > _LARGE_CONSTANT:
            return shared(self._large_constant(var))
        key = (var.dtype, var.constant.shape, var.constant.tobytes() if var.constant.dtype != object else id(var))
        if key not in self._small:
            self._small[key] = constant(var.constant, var.dtype)
        return self._small[key]

    def _large_constant(self, var: Var) -> Any:
        if var not in self._large:
            with tf.init_scope():
                self._large[var] = tf.constant(var.constant, dtype=var.dtype)
        return self._large[var]

    def emit(self, op: Op, inputs: Sequence[Any], batch: Batch) -> Sequence[Any]:
        """The results of one op."""
        if any(value is _MISSING for value in inputs):
            return [_MISSING] * len(op.outputs)
        try:
            if op in self._refused:
                raise NotConvertible(self._refused[op])
            results = self._emit(op, inputs, batch)
            self.report.add_results(op, [value for value in results if not any(value is given for given in inputs)])
            return results
        except NotConvertible as reason:
            self.findings.setdefault(op, str(reason))
        except Unconvertible as stopped:
            self.findings.setdefault(stopped.finding.op, stopped.finding.reason)
        except KindRaised:
            raise
        except Exception:
            if not self.findings:
                raise  # else it comes of the zeros
        return [_stand_in(var, batch) for var in op.outputs]

    def _steps(self, op: Op, inputs: Sequence[Any]) -> str:
        """In words, how often a loop's body runs."""
        plan = self.plan.loops[op]
        if plan.predicate != Kind.BATCHED:
            return "as many steps as the function alone takes"
        if plan.bound is None:
            return ""
        limit = None if plan.bound.limit is None else op.inputs[plan.bound.limit]
        value = None if plan.bound.limit is None else inputs[plan.bound.limit]
        if value is not None and id(value.size) in self.size_names:
            return f"as many steps as the longest {self.size_names[id(value.size)]} has elements"
        limited = f", whose limit is the {self._places[limit]}" if limit in self._places else ""
        return f"as many steps as the row that takes most{limited}"

    def _emit(self, op: Op, inputs: Sequence[Any], batch: Batch) -> Sequence[Any]:
        if op.type == "While":
            self.report.add_steps(op, self._steps(op, inputs))
            return loops.emit_while(self, op, inputs, batch)
        if op.type == reductions.OP_TYPE:
            return reductions.emit(op, inputs, batch)
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
            emitter = Emitter(plan, self.report.scratch(), self._large)
            results = emitter.run(program, values, inner)
            if emitter.findings:
                findings = [Finding(found, reason) for found, reason in emitter.findings.items()]
                raise VectorizationError(f"the gradient function {op.where()}", findings)
            return results

        return custom_gradients.emit(op, inputs, batch, run)


def _stand_in(var: Var, batch: Batch) -> Any:
    if var.rank is None or var.dtype in (tf.variant, tf.resource):
        return _MISSING
    shape = var.shape.as_list()
    one = Size(tf.ones([batch.size], tf.int32), 1)
    zeros = tf.zeros([batch.size, *(size if size is not None else 1 for size in shape)], var.dtype)
    return batched(zeros, {axis: one for axis, size in enumerate(shape) if size is None})


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
