"""One example's graph, grown by running its program: loops unrolled as they run, branches taken for real.

An expansion is a generator. It yields a Ref when it needs that value to go on (the predicate of a loop that a network
decides), and is sent it as numpy; meanwhile the other examples expand as far, and all that is pending runs at once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic import host, layout, lists
from server.engines.dynamic.signatures import Signatures
from server.engines.dynamic.tape import Tape
from server.engines.dynamic.templates import Kind, Template, compile_template, kind_of
from server.engines.dynamic.values import ExampleFailed, Items, Ref, Rows, Shared, shape_of
from vectorizer.program import Op, Program, Var
from vectorizer.registry import replay

Growing = Generator[Ref, Any, Any]


class Expander:
    """What outlives batches: the program, its signatures, and what is the same for every example."""

    def __init__(self, program: Program, signatures: Signatures) -> None:
        self.program = program
        self.signatures = signatures
        self.captures = {var: Shared(tensor) for var, tensor in program.captures.items()}
        self._constants: dict[Var, Any] = {}
        self._shared: dict[tuple[Any, ...], list[Shared]] = {}
        self._arrays: dict[int, tuple[Shared, Any]] = {}
        self._templates: dict[Any, Template | None] = {}

    def template(self, program: Program, kinds: tuple[Kind, ...]) -> Template | None:
        """The template of a body for inputs of these kinds, if it has one."""
        key = (id(program), kinds)
        if key not in self._templates:
            self._templates[key] = compile_template(self, program, kinds)
        return self._templates[key]

    def constant(self, var: Var) -> Any:
        """A Const: bookkeeping on the host, numbers as a shared tensor."""
        if var not in self._constants:
            array = np.asarray(var.constant)
            numbers = array.dtype.kind not in "iubOSU"
            self._constants[var] = Shared(tf.constant(var.constant, var.dtype)) if numbers else array
        return self._constants[var]

    def once(self, op: Op, operands: Sequence[Any]) -> list[Shared]:
        """The results of an op that is the same for every example."""
        key = (id(op), *(id(operand) for operand in operands))
        if key not in self._shared:
            tensors = [
                operand.tensor if isinstance(operand, Shared) else tf.constant(operand, var.dtype)
                for operand, var in zip(operands, op.inputs, strict=True)
            ]
            self._shared[key] = [Shared(tensor) for tensor in replay(op, tensors)]
        return self._shared[key]

    def array(self, value: Shared) -> Any:
        """A shared tensor as numpy."""
        if id(value) not in self._arrays:
            self._arrays[id(value)] = (value, host.as_host(value.tensor.numpy(), value.tensor.dtype))
        return self._arrays[id(value)][1]


class Expansion:
    """One example on one tape."""

    def __init__(self, expander: Expander, tape: Tape, example: int) -> None:
        self.tape, self.example = tape, example
        self._expander = expander

    def grow(self, inputs: Sequence[Any]) -> Growing:
        """Expand the whole program; its outputs, as Refs, Shared values or arrays, are the generator's value."""
        program = self._expander.program
        captured = [self._expander.captures[var] for var in program.inputs[len(inputs) :]]
        outputs = yield from self._run(program, [*inputs, *captured])
        return [self._plain(value) for value in outputs]

    def _run(self, program: Program, inputs: Sequence[Any]) -> Growing:
        values: dict[Var, Any] = dict(zip(program.inputs, inputs, strict=True))
        for op in program.ops:
            if op.type == "Const":
                continue
            operands = [values[var] if var.constant is None else self._expander.constant(var) for var in op.inputs]
            if op.type == "While":
                results = yield from self._loop(op, operands)
            elif op.bodies:
                results = yield from self._branch(op, operands)
            elif lists.handles(op):
                results = yield from lists.apply(op, operands, self)
            else:
                results = yield from self._apply(op, operands)
            values.update(zip(op.outputs, results, strict=True))
        return [values[var] if var.constant is None else self._expander.constant(var) for var in program.outputs]

    # -- control ----------------------------------------------------------------------------------------------------

    def _loop(self, op: Op, operands: Sequence[Any]) -> Growing:
        condition, body = op.bodies["cond"], op.bodies["body"]
        changing = [new is not old for new, old in zip(body.outputs, body.inputs, strict=True)]
        values = [self._own(value) if changes else value for value, changes in zip(operands, changing, strict=True)]
        kinds: tuple[Kind, ...] = ()
        settled = False
        while True:
            now = kinds if settled else tuple(map(kind_of, values))
            if now != kinds:
                kinds = now
                test, step = self._expander.template(condition, kinds), self._expander.template(body, kinds)
                settled = step is not None and step.keeps(kinds)
            predicate = test.expand(values, self) if test else (yield from self._run(condition, values))
            if not (yield from self.known(predicate[0])):
                return values
            values = step.expand(values, self) if step else (yield from self._run(body, values))

    def _own(self, value: Any) -> Any:
        """A loop starts with a value like those that follow, so that the first step has the others' signature."""
        return self.ref(value) if isinstance(value, Shared) and value.tensor.dtype.is_floating else value

    def _branch(self, op: Op, operands: Sequence[Any]) -> Growing:
        choice = np.asarray((yield from self.known(operands[0])))
        bodies = list(op.bodies.values())
        if op.type == "If":
            taken = 0 if bool(choice) else 1
        else:
            taken = int(choice) if 0 <= int(choice) < len(bodies) else len(bodies) - 1
        return (yield from self._run(bodies[taken], operands[1:]))

    def known(self, value: Any) -> Growing:
        """The value as numpy; a node is run for it."""
        if isinstance(value, Rows):
            value = value.whole()
        if isinstance(value, Shared):
            return self._expander.array(value)
        if isinstance(value, Ref):
            return (yield value)
        return value

    # -- ops --------------------------------------------------------------------------------------------------------

    def _apply(self, op: Op, operands: Sequence[Any]) -> Growing:
        if op.type == "Assert":
            return (yield from self._assert(op, operands))
        if op.type in ("Identity", "StopGradient", "PreventGradient", "IdentityN", "EnsureShape"):
            return list(operands)
        first = operands[0] if operands else None
        if isinstance(first, Rows):
            picked = self._pick(op, operands)
            if picked is not None:
                return [picked]
        if op.type in ("Shape", "Size", "Rank") and isinstance(first, Ref | Rows):
            return host.compute(op, [np.broadcast_to(np.zeros((), np.int8), shape_of(first))])
        operands = [self._plain(operand) for operand in operands]
        on_host = [isinstance(operand, np.ndarray) for operand in operands]
        if all(on_host) and host.stays_on_host(op):
            return host.compute(op, operands)
        constant = [
            isinstance(operand, Shared) or var.constant is not None
            for operand, var in zip(operands, op.inputs, strict=True)
        ]
        if all(constant):
            return self._expander.once(op, operands)
        if op.type == "GatherV2" and isinstance(operands[0], Shared) and on_host[1]:
            rows = self._lookups(op, operands)
            if rows is not None:
                return [rows]
        if op.type == "Pack" and not op.attrs.get("axis", 0):
            return [self.rows(operands)]
        return (yield from self._node(op, operands))

    def _node(self, op: Op, operands: Sequence[Any]) -> Growing:
        fixed = layout.positions(op)
        if any(isinstance(operands[k], Ref) for k in fixed):
            operands = list(operands)
            for k in fixed:
                operands[k] = np.asarray((yield from self.known(operands[k])))
        own = [
            self.ref(operand, var.dtype)
            if isinstance(operand, np.ndarray) and k not in fixed and var.constant is None
            else operand
            for k, (operand, var) in enumerate(zip(operands, op.inputs, strict=True))
        ]
        signature = self._expander.signatures.of(op, own)
        dtypes = [var.dtype for var in op.outputs]
        results = self.tape.node(self.example, signature, [item for item in own if isinstance(item, Ref)], dtypes)
        if signature.single and results:
            yield results[0]
            results = [Ref(ref.index, self.tape.shape(ref), ref.dtype) for ref in results]
        return results

    def _assert(self, op: Op, operands: Sequence[Any]) -> Growing:
        condition = operands[0]
        if isinstance(condition, np.ndarray | Shared):
            if not np.all((yield from self.known(condition))):
                raise ExampleFailed("an assertion fails")
            return []
        data = [self._plain(operand) for operand in operands]
        return (yield from self._node(op, data))

    def _pick(self, op: Op, operands: Sequence[Any]) -> Any:
        """One of the rows, or some, without putting them together; None if the op wants more than that."""
        rows = operands[0]
        if not all(isinstance(item, np.ndarray) for item in operands[1:]):
            return None
        if op.type == "GatherV2" and operands[2] == 0 and not op.attrs.get("batch_dims", 0) and operands[1].ndim < 2:
            return self.picked(rows, operands[1])
        if op.type == "StridedSlice":
            masks = [int(op.attrs[f"{name}_mask"]) for name in ("shrink_axis", "new_axis", "ellipsis")]
            if masks == [1, 0, 0] and len(operands[1]) == 1:
                position = int(operands[1][0])
                return self.picked(rows, np.asarray(position + rows.count if position < 0 else position))
        return None

    def picked(self, rows: Rows, index: Any) -> Any:
        """Row `index`, or the rows of a vector of them."""
        if ((index < 0) | (index >= rows.count)).any():
            raise ExampleFailed(f"index {index} is out of range")
        if index.ndim == 0:
            return rows.row(int(index))
        return self.rows([rows.row(position) for position in index.tolist()], rows.shape, rows.dtype)

    def _lookups(self, op: Op, operands: Sequence[Any]) -> Rows | None:
        """Rows of a shared table by indices known now: looked up one by one if that's how they are read."""
        table, index, axis = operands
        if index.ndim != 1 or axis != 0 or op.attrs.get("batch_dims", 0):
            return None
        shape = tuple(table.tensor.shape[1:])
        made: dict[int, Any] = {}

        def row(position: int) -> Any:
            if position not in made:
                made[position] = self._at_once(op, [table, np.asarray(index[position]), axis])
            return made[position]

        return Rows(len(index), shape, op.outputs[0].dtype, row, lambda: self._at_once(op, operands))

    def _at_once(self, op: Op, operands: Sequence[Any]) -> Any:
        """A node whose results' shapes are known."""
        own = [self.ref(item) if k == 1 else item for k, item in enumerate(operands)]
        signature = self._expander.signatures.of(op, own)
        dtypes = [op.outputs[0].dtype]
        return self.tape.node(self.example, signature, [item for item in own if isinstance(item, Ref)], dtypes)[0]

    # -- values -----------------------------------------------------------------------------------------------------

    def ref(self, value: Any, dtype: Any = None) -> Ref:
        """The value as one that nodes can take."""
        if isinstance(value, Ref):
            return value
        if isinstance(value, Shared):
            return self.tape.leaf(self._expander.array(value), value.tensor.dtype)
        if isinstance(value, Rows):
            return self.ref(value.whole(), value.dtype)
        return self.tape.leaf(value, dtype if dtype is not None else tf.as_dtype(value.dtype))

    def rows(self, items: Sequence[Any], shape: Any = None, dtype: Any = None) -> Any:
        """Values side by side; arrays at once, others when somebody needs them as one."""
        if all(isinstance(item, np.ndarray) for item in items) and items:
            return np.stack(items)
        if shape is None:
            shape, dtype = shape_of(items[0]), _dtype(items[0])
        items = [self._plain(item) for item in items]
        stacked: list[Any] = []

        def whole() -> Any:
            if not stacked:
                refs = [self.ref(item, dtype) for item in items]
                signature = self._expander.signatures.of_stack(len(refs), shape, dtype)
                stacked.extend(
                    self.tape.node(self.example, signature, refs, [dtype])
                    if refs
                    else [np.zeros([0, *shape], dtype.as_numpy_dtype)]
                )
            return stacked[0]

        return Rows(len(items), shape, dtype, items.__getitem__, whole)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Rows):
            return value.whole()
        if isinstance(value, Items):
            raise ExampleFailed("a list of tensors is used as a tensor")
        return value


def _dtype(value: Any) -> Any:
    return tf.as_dtype(value.tensor.dtype if isinstance(value, Shared) else value.dtype)
