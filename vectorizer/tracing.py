"""Passes 1 and 2: trace a per-example function and normalise its graph into a `Program`.

TensorFlow traces the function once, with every variable dimension as None, into a graph that never runs.
Normalising then

* orders the ops topologically, control inputs included (creation order is not topological once gradients
  or TensorArrays are involved);
* inlines function calls;
* moves what a loop never changes in front of it (`hoisting.py`);
* drops identities and everything that neither an output nor an effect needs, inside loops too: a loop
  variable that only feeds itself (TensorFlow's own hidden counter) disappears.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import custom_gradients, tf_internals
from vectorizer.effects import has_own_effect
from vectorizer.hoisting import hoist
from vectorizer.program import CUSTOM_GRADIENT, Gradient, Op, Program, Var
from vectorizer.reductions import OP_TYPE as REDUCTION
from vectorizer.reductions import Reduction, reduction_of

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_LARGEST_FOLDED = 4096  # elements
_BODY_ATTRS = {
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
_CANONICAL_TYPE = {"StatelessWhile": "While", "StatelessIf": "If", "StatelessCase": "Case"}


def trace(fn: Callable[..., Any], specs: Sequence[Any] | Mapping[str, Any]) -> Program:
    """Trace `fn` on `specs` (tf.TensorSpecs of ONE example; a mapping calls it by keyword) and normalise.

    Raises whatever `fn` raises while being traced.
    """
    concrete, _ = trace_function(fn, specs)
    return normalise(concrete)


def trace_function(fn: Callable[..., Any], specs: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, Any]:
    """The ConcreteFunction of `fn` with flat positional inputs, and the tf.function it came from."""
    if isinstance(specs, Mapping):
        names = list(specs)
        original = fn if isinstance(fn, _function_types()) else tf_internals.with_autograph(fn)
        named = tf.function(lambda *arguments: original(**dict(zip(names, arguments, strict=True))), autograph=False)
        return named.get_concrete_function(*specs.values()), named
    function = fn if isinstance(fn, _function_types()) else tf_internals.with_autograph(fn)
    positional = tf.function(lambda *arguments: function(*arguments), autograph=False)
    return positional.get_concrete_function(*specs), positional


def _function_types() -> tuple[type, ...]:
    return (type(tf.function(lambda: None)),)


def normalise(concrete: Any, *, gradients: bool = False) -> Program:
    """The Program of a ConcreteFunction; its captured tensors become `Program.captures`.

    `gradients`: keep custom gradients, as ops of type `CUSTOM_GRADIENT`.
    """
    graph = concrete.graph
    normaliser = _Normaliser(graph, gradients=gradients, read_only_by_gradients={})
    inputs, ops, outputs = normaliser.run(graph.outputs)
    captured = inputs[len(inputs) - len(concrete.captured_inputs) :]
    captures = dict(zip(captured, concrete.captured_inputs, strict=True)) | normaliser.captures
    program = eliminate_dead_code(Program([*inputs, *normaliser.captures], ops, outputs, captures))
    return eliminate_dead_code(hoist(program))


class _Normaliser:
    """Turns one FuncGraph into Vars and Ops; calls are inlined by recursion with their arguments bound.

    `known`: inputs, by position, that are constants wherever this graph is used. `read_only_by_gradients` collects what
    custom gradients capture from outside of the function; None inside loops and branches, which can't be given more
    operands.
    """

    def __init__(
        self,
        graph: Any,
        *,
        gradients: bool,
        read_only_by_gradients: dict[Var, Any] | None = None,
        known: Mapping[int, Any] | None = None,
    ) -> None:
        self._graph = graph
        self._known = known or {}
        self._gradients = gradients
        self._more = read_only_by_gradients
        self._vars: dict[int, Var] = {}
        self._ops: list[Op] = []

    @property
    def captures(self) -> dict[Var, Any]:
        """What only custom gradients read from outside of the function."""
        return self._more or {}

    def run(self, outputs: Sequence[Any]) -> tuple[list[Var], list[Op], list[Var]]:
        inputs = []
        for position, tensor in enumerate(self._graph.inputs):
            var = Var(tensor.op.name, tensor.dtype, tensor.shape, self._known.get(position))
            self._vars[id(tensor)] = var
            inputs.append(var)
        self._emit_graph(self._graph, self._vars, "")
        return inputs, self._ops, [self._vars[id(tensor)] for tensor in outputs]

    def _emit_graph(self, graph: Any, scope: dict[int, Var], prefix: str) -> None:
        bound = {id(tensor.op) for tensor in graph.inputs}
        for op in topological_order(graph.get_operations()):
            if id(op) not in bound:
                self._emit(op, graph, scope, prefix)

    def _emit(self, op: Any, graph: Any, scope: dict[int, Var], prefix: str) -> None:
        if op.type in ("NoOp", "Placeholder") and not op.inputs:
            for tensor in op.outputs:  # an unused placeholder that while_v2 leaves behind
                scope[id(tensor)] = Var(prefix + op.name, tensor.dtype, tensor.shape)
            return
        inputs = tuple(scope[id(tensor)] for tensor in op.inputs)
        override = tf_internals.gradient_override(op) if self._gradients else ""
        if op.type == "Identity" and not override and not op.outputs[0].dtype.is_compatible_with(tf.resource):
            scope[id(op.outputs[0])] = inputs[0]
            return
        if op.type in _CALLS:
            self._inline(op, graph, scope, prefix, inputs)
            return
        reduction = reduction_of(op)
        if reduction is not None:
            self._reduce(op, reduction, scope, prefix)
            return
        constant = tf.make_ndarray(op.get_attr("value")) if op.type == "Const" else None
        outputs = tuple(
            Var(prefix + tensor.name.removesuffix(":0"), tensor.dtype, tensor.shape, constant) for tensor in op.outputs
        )
        for tensor, var in zip(op.outputs, outputs, strict=True):
            scope[id(tensor)] = var
        attrs: Any = tf_internals.Attributes(op)
        if op.type in _BODY_ATTRS:
            attrs = dict(attrs)
        known = fold(op, inputs, attrs)
        if known is not None:
            scope[id(op.outputs[0])] = Var(outputs[0].name, outputs[0].dtype, outputs[0].shape, known)
            self._ops.append(Op("Const", prefix + op.name, (), (scope[id(op.outputs[0])],), {}, op.op_def))
            return
        bodies = self._bodies(op, graph, attrs, inputs)
        self._ops.append(
            Op(
                _CANONICAL_TYPE.get(op.type, op.type),
                prefix + op.name,
                inputs,
                outputs,
                attrs,
                op.op_def,
                tf_internals.user_source(op),
                bodies,
            )
        )
        if override and not bodies:
            self._override_gradient(op, override, scope, outputs)

    def _override_gradient(self, op: Any, name: str, scope: dict[int, Var], results: Sequence[Var]) -> None:
        """Put an op behind `op` that hands its results on and has the gradient that is registered as `name`."""
        made = tuple(Var(f"{var.name}/custom_gradient", var.dtype, var.shape) for var in results)
        captured: list[Var] = []
        try:
            concrete, positions = custom_gradients.trace_gradient(op, name)
            captured = [self._captured(tensor, op.graph, scope) for tensor in concrete.captured_inputs]
            gradient = Gradient(normalise(concrete, gradients=True), len(op.inputs), positions)
        except (LookupError, TypeError, ValueError, NotImplementedError) as error:
            gradient = Gradient(None, len(op.inputs), reason=str(error))
        operands = (*results, *(scope[id(tensor)] for tensor in op.inputs), *captured)
        source = tf_internals.user_source(op)
        self._ops.append(
            Op(CUSTOM_GRADIENT, f"{op.name}/custom_gradient", operands, made, {}, None, source, gradient=gradient)
        )
        for tensor, var in zip(op.outputs, made, strict=True):
            scope[id(tensor)] = var

    def _captured(self, tensor: Any, graph: Any, scope: dict[int, Var]) -> Var:
        """What a custom gradient reads, as a value of this program."""
        if id(tensor) in scope:
            return scope[id(tensor)]
        for outer, inner in graph.captures:
            if outer is tensor and id(inner) in scope:
                return scope[id(inner)]
        if self._more is None or not hasattr(tensor, "numpy"):
            raise LookupError("it reads a value from outside of the loop, branch or function that it is in")
        known = next((var for var, other in self._more.items() if other is tensor), None)
        if known is None:
            known = Var("read_by_gradient", tensor.dtype, tensor.shape)
            self._more[known] = tensor
        return known

    def _reduce(self, op: Any, reduction: Reduction, scope: dict[int, Var], prefix: str) -> None:
        within = all(id(tensor) in scope for tensor in reduction.arguments)  # not handed into a loop or branch
        arguments = tuple(scope[id(tensor)] for tensor in reduction.arguments) if within else ()
        results = tuple(Var(prefix + tensor.name, tensor.dtype, tensor.shape) for tensor in op.outputs)
        scope.update((id(tensor), var) for tensor, var in zip(op.outputs, results, strict=True))
        attrs, source = {"function": reduction.function}, tf_internals.user_source(op)
        self._ops.append(Op(REDUCTION, prefix + op.name, arguments, results, attrs, op.op_def, source))

    def _bodies(self, op: Any, graph: Any, attrs: dict[str, Any], inputs: Sequence[Var]) -> dict[str, Program]:
        """The nested programs of a loop or branch; their functions leave `attrs`. Constants enter them as such."""
        graphs = {}
        for role in _BODY_ATTRS.get(op.type, ()):
            names = attrs.pop(role)
            many = isinstance(names, list)
            for index, name in enumerate(names if many else [names]):
                nested = tf_internals.nested_graph(graph, name.name if hasattr(name, "name") else str(name))
                graphs[f"branch_{index}" if many else role] = nested
        operands = inputs if "body" in graphs else inputs[1:]
        known = {k: var.constant for k, var in enumerate(operands) if var.constant is not None}
        if "body" in graphs and known:
            unchanged = self._nested(graphs["body"], {})
            known = {k: value for k, value in known.items() if unchanged.outputs[k] is unchanged.inputs[k]}
        return {role: self._nested(nested, known) for role, nested in graphs.items()}

    def _nested(self, graph: Any, known: Mapping[int, Any]) -> Program:
        return Program(*_Normaliser(graph, gradients=self._gradients, known=known).run(graph.outputs))

    def _inline(self, op: Any, graph: Any, scope: dict[int, Var], prefix: str, inputs: tuple[Var, ...]) -> None:
        function = tf_internals.attribute(op, "f")
        nested = tf_internals.nested_graph(graph, str(function))
        inner = {id(tensor): var for tensor, var in zip(nested.inputs, inputs, strict=True)}
        self._emit_graph(nested, inner, f"{prefix}{op.name}/")
        for tensor, result in zip(op.outputs, nested.outputs, strict=True):
            scope[id(tensor)] = inner[id(result)]


def fold(op: Any, inputs: Sequence[Var], attrs: Mapping[str, Any]) -> Any:
    """The numpy value of an op that depends on small constants only, or on a static shape; None if it doesn't."""
    if len(op.outputs) != 1 or op.type == "Const" or op.outputs[0].dtype in (tf.variant, tf.resource, tf.string):
        return None
    if op.type in ("Shape", "Size", "Rank") and op.inputs[0].shape.rank is not None:
        shape = op.inputs[0].shape
        if op.type == "Rank":
            return np.array(shape.rank, np.int32)
        if shape.is_fully_defined():
            sizes = np.array(shape.as_list(), op.outputs[0].dtype.as_numpy_dtype)
            return sizes if op.type == "Shape" else sizes.prod(dtype=sizes.dtype)
        return None
    if not inputs or op.op_def.is_stateful or op.type in _BODY_ATTRS or op.type in _CALLS:
        return None
    if any(var.constant is None or np.size(var.constant) > _LARGEST_FOLDED for var in inputs):
        return None
    try:
        with tf.init_scope():
            operands = [tf.constant(var.constant, dtype=var.dtype) for var in inputs]
            (result,) = tf_internals.replay(op.type, op.op_def, operands, dict(attrs))
    except (tf.errors.OpError, ValueError, TypeError):
        return None  # it would raise: left to raise, or be checked, for each row
    value = result.numpy()
    return value if np.size(value) <= _LARGEST_FOLDED else None


def topological_order(ops: Sequence[Any]) -> list[Any]:
    """Ops of one graph such that data and control inputs come first; stable in creation order otherwise."""
    members = {id(op) for op in ops}
    done: set[int] = set()
    ordered: list[Any] = []
    for root in ops:
        stack = [(root, False)]
        while stack:
            op, expanded = stack.pop()
            if id(op) in done:
                continue
            if expanded:
                done.add(id(op))
                ordered.append(op)
                continue
            stack.append((op, True))
            needed = [tensor.op for tensor in op.inputs] + list(op.control_inputs)
            stack.extend((other, False) for other in reversed(needed) if id(other) in members and id(other) not in done)
    return ordered


def eliminate_dead_code(program: Program) -> Program:
    """Keep what an output or an effect needs; shrink the carries of loops to the live ones."""
    live: set[Var] = set(program.outputs)
    kept: list[Op] = []
    for op in reversed(program.ops):
        if not (any(var in live for var in op.outputs) or has_effect(op)):
            continue
        if op.type == "While":
            op = _shrink_loop(op, live)
        elif op.bodies:
            op = _shrink_branches(op, live)
        live.update(op.inputs)
        kept.append(op)
    return Program(program.inputs, kept[::-1], program.outputs, program.captures)


def has_effect(op: Op) -> bool:
    """Whether `op`, or an op nested in it, must run although nobody reads its outputs."""
    return has_own_effect(op) or any(has_effect(inner) for body in op.bodies.values() for inner in body.ops)


def _shrink_loop(op: Op, live: set[Var]) -> Op:
    """A loop variable lives if it is read after the loop, by the condition, by an effect, or by a live one.

    A live but invariant variable (handed on unchanged) is read before the loop, not carried out of it.
    """
    cond, body = eliminate_dead_code(op.bodies["cond"]), op.bodies["body"]
    count = len(op.inputs)
    cond_reads = _reads(cond)
    alive = {k for k in range(count) if op.outputs[k] in live or cond.inputs[k] in cond_reads}
    while True:
        trimmed = eliminate_dead_code(Program(body.inputs, body.ops, [body.outputs[k] for k in sorted(alive)]))
        reads = _reads(trimmed)
        grown = alive | {k for k in range(count) if body.inputs[k] in reads}
        if grown == alive:
            break
        alive = grown
    keep = sorted(alive)
    return Op(
        op.type,
        op.name,
        tuple(op.inputs[k] for k in keep),
        tuple(op.outputs[k] for k in keep),
        op.attrs,
        op.definition,
        op.source,
        {
            "cond": Program([cond.inputs[k] for k in keep], cond.ops, cond.outputs),
            "body": Program([body.inputs[k] for k in keep], trimmed.ops, trimmed.outputs),
        },
    )


def _shrink_branches(op: Op, live: set[Var]) -> Op:
    """Outputs nobody reads go, then the inputs that no branch reads any more."""
    keep_out = [k for k, var in enumerate(op.outputs) if var in live]
    bodies = {
        role: eliminate_dead_code(Program(body.inputs, body.ops, [body.outputs[k] for k in keep_out]))
        for role, body in op.bodies.items()
    }
    keep_in = [k for k in range(len(op.inputs) - 1) if any(body.inputs[k] in _reads(body) for body in bodies.values())]
    return Op(
        op.type,
        op.name,
        (op.inputs[0], *(op.inputs[1 + k] for k in keep_in)),
        tuple(op.outputs[k] for k in keep_out),
        op.attrs,
        op.definition,
        op.source,
        {role: Program([body.inputs[k] for k in keep_in], body.ops, body.outputs) for role, body in bodies.items()},
    )


def _reads(program: Program) -> set[Var]:
    return {var for op in program.ops for var in op.inputs} | set(program.outputs)
