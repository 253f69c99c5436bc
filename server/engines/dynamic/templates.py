"""A loop's body, ready to be expanded again and again: what expanding it did once, without deciding anything anew.

Which nodes a body appends follows from what its inputs *are* (see `Kind`), not from their values, as long as it has no
loop or branch of its own. So it is compiled, for each combination of kinds met, to a template: steps on the host, and
nodes whose operands are registers. A register holds an array, a list, or the index of a value on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic import host, layout, lists
from server.engines.dynamic.signatures import Signature
from server.engines.dynamic.values import ExampleFailed, Items, Ref, Rows, Shape, Shared
from vectorizer.program import Op, Program, Var

if TYPE_CHECKING:
    from server.engines.dynamic.expansion import Expander, Expansion

Registers = list[Any]
Step = Callable[[Registers, "Expansion"], None]


@dataclass(frozen=True)
class Kind:
    """What a value is: `what` is "array", "value" (on the tape), "shared", "rows" or "list".

    `shape`: None for an unknown size, such as the first of an array of any length. `shared`: the Shared value itself.
    """

    what: str
    shape: tuple[int | None, ...] | None
    dtype: Any
    shared: Any = None


def kind_of(value: Any) -> Kind:
    """The kind of a value."""
    if isinstance(value, Ref):
        return Kind("value", value.shape, value.dtype)
    if isinstance(value, Shared):
        return Kind("shared", None, None, value)
    if isinstance(value, Rows):
        return Kind("rows", value.shape, value.dtype)
    if isinstance(value, Items):
        return Kind("list", value.shape, value.dtype)
    return Kind("array", (None, *value.shape[1:]) if value.ndim else (), tf.as_dtype(value.dtype))


class Untemplatable(Exception):
    """The body must be expanded op by op."""


@dataclass
class Template:
    """Nodes as columns: signature, number of operands, first result (counted from the instance's first value), and the
    registers of all operands."""

    inputs: int
    registers: Registers = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    signatures: list[int] = field(default_factory=list)
    arities: list[int] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    results: list[tuple[int, int]] = field(default_factory=list)  # register, offset of the value that it holds
    values: int = 0
    outputs: list[tuple[int, Kind]] = field(default_factory=list)

    def keeps(self, kinds: tuple[Kind, ...]) -> bool:
        """Whether the outputs are of these kinds: then the next step of the loop has the same template."""
        return tuple(kind for _, kind in self.outputs) == kinds

    def expand(self, inputs: Sequence[Any], expansion: Expansion) -> list[Any]:
        """Appends the nodes to the expansion's tape; the outputs as values."""
        registers = self.registers.copy()
        for k, value in enumerate(inputs):
            registers[k] = value.index if type(value) is Ref else value
        first = expansion.tape.new_values(self.values)
        for register, offset in self.results:
            registers[register] = first + offset
        for step in self.steps:
            step(registers, expansion)
        nodes = expansion.tape.nodes
        nodes.example += [expansion.example] * len(self.signatures)
        nodes.signature += self.signatures
        nodes.arity += self.arities
        nodes.result += [first + offset for offset in self.offsets]
        nodes.operands += [registers[k] for k in self.operands]
        return [
            Ref(registers[k], kind.shape, kind.dtype) if kind.what == "value" else registers[k]  # type: ignore[arg-type]  # known in full
            for k, kind in self.outputs
        ]


def compile_template(expander: Expander, program: Program, kinds: Sequence[Kind]) -> Template | None:
    """The template of a body whose inputs are of these kinds; None if it has none."""
    try:
        return _Compiler(expander, program, kinds).template
    except (Untemplatable, ExampleFailed):
        return None


class _Compiler:
    """Goes through the body once. `_known` says of each Var its register and kind."""

    def __init__(self, expander: Expander, program: Program, kinds: Sequence[Kind]) -> None:
        self._expander = expander
        self.template = Template(len(kinds))
        self._known: dict[Var, tuple[int, Kind]] = {}
        for var, kind in zip(program.inputs, kinds, strict=True):
            self._known[var] = (self._register(), kind)
        for op in program.ops:
            if op.type != "Const":
                self._compile(op)
        self.template.outputs = [self._operand(var) for var in program.outputs]

    def _register(self, value: Any = None) -> int:
        self.template.registers.append(value)
        return len(self.template.registers) - 1

    def _operand(self, var: Var) -> tuple[int, Kind]:
        if var.constant is not None and var not in self._known:
            value = self._expander.constant(var)
            self._known[var] = (self._register(value), kind_of(value))
        return self._known[var]

    def _compile(self, op: Op) -> None:
        operands = [self._operand(var) for var in op.inputs]
        kinds = [kind.what for _, kind in operands]
        if op.bodies or op.type == "Assert":
            raise Untemplatable
        if op.type in ("Identity", "StopGradient", "PreventGradient", "IdentityN", "EnsureShape"):
            self._known.update(zip(op.outputs, operands, strict=True))
        elif lists.handles(op):
            self._compile_list(op, operands)
        elif kinds and kinds[0] == "rows":
            self._compile_pick(op, operands)
        elif all(what == "array" for what in kinds):
            self._compile_host(op, operands)
        elif all(what == "shared" or var.constant is not None for what, var in zip(kinds, op.inputs, strict=True)):
            values = [kind.shared if kind.what == "shared" else self.template.registers[k] for k, kind in operands]
            for var, value in zip(op.outputs, self._expander.once(op, values), strict=True):
                self._known[var] = (self._register(value), kind_of(value))
        else:
            self._compile_node(op, operands)

    # -- host -------------------------------------------------------------------------------------------------------

    def _compile_host(self, op: Op, operands: Sequence[tuple[int, Kind]]) -> None:
        if not host.stays_on_host(op):
            self._compile_node(op, operands)
            return
        registers = [k for k, _ in operands]
        constant = [
            self.template.registers[k] if var.constant is not None else None
            for k, var in zip(registers, op.inputs, strict=True)
        ]
        compute = host.compiled(op, constant)
        made = [self._register() for _ in op.outputs]
        for register, var in zip(made, op.outputs, strict=True):
            self._known[var] = (register, self._host_kind(op, var, operands))

        def step(values: Registers, expansion: Expansion) -> None:
            for register, value in zip(made, compute([values[k] for k in registers]), strict=True):
                values[register] = value

        self.template.steps.append(step)

    @staticmethod
    def _host_kind(op: Op, var: Var, operands: Sequence[tuple[int, Kind]]) -> Kind:
        if var.shape.rank is None:
            raise Untemplatable
        return Kind("array", tuple(var.shape.as_list()), var.dtype)

    def _leaf(self, register: int, kind: Kind) -> tuple[int, Kind]:
        """The array as a value on the tape."""
        if kind.shape is None or None in kind.shape:
            raise Untemplatable
        made, dtype = self._register(), kind.dtype

        def step(values: Registers, expansion: Expansion) -> None:
            values[made] = expansion.tape.leaf(values[register], dtype).index

        self.template.steps.append(step)
        return made, Kind("value", kind.shape, dtype)

    # -- rows and lists ---------------------------------------------------------------------------------------------

    def _compile_pick(self, op: Op, operands: Sequence[tuple[int, Kind]]) -> None:
        (rows, kind), (index, index_kind) = operands[0], operands[1]
        if op.type != "GatherV2" or index_kind.what != "array" or index_kind.shape != () or not self._plain_gather(op):
            raise Untemplatable
        made, dtype = self._register(), kind.dtype

        def step(values: Registers, expansion: Expansion) -> None:
            values[made] = expansion.ref(expansion.picked(values[rows], values[index]), dtype).index

        self.template.steps.append(step)
        self._known[op.outputs[0]] = (made, Kind("value", kind.shape, dtype))

    @staticmethod
    def _plain_gather(op: Op) -> bool:
        axis = op.inputs[2].constant
        return axis is not None and int(axis) == 0 and not op.attrs.get("batch_dims", 0)

    def _compile_list(self, op: Op, operands: Sequence[tuple[int, Kind]]) -> None:
        if op.type == "TensorListSetItem" and not op.attrs.get("resize_if_index_out_of_bounds"):
            self._compile_set(op, operands)
        elif op.type in ("TensorListGetItem", "TensorListGather"):
            self._compile_get(op, operands)
        else:
            raise Untemplatable

    def _compile_set(self, op: Op, operands: Sequence[tuple[int, Kind]]) -> None:
        (items, kind), (index, index_kind), (value, value_kind) = operands
        if index_kind.what != "array" or value_kind.what not in ("value", "array"):
            raise Untemplatable
        made, shape, dtype = self._register(), value_kind.shape, value_kind.dtype
        on_tape = value_kind.what == "value"

        def step(values: Registers, expansion: Expansion) -> None:
            new = Ref(values[value], shape, dtype) if on_tape else values[value]  # type: ignore[arg-type]  # known in full
            values[made] = lists.written(values[items], values[index], new)

        self.template.steps.append(step)
        self._known[op.outputs[0]] = (made, kind)

    def _compile_get(self, op: Op, operands: Sequence[tuple[int, Kind]]) -> None:
        (items, kind), (index, index_kind) = operands[0], operands[1]
        shape = kind.shape or _full(op.outputs[0], op.type == "TensorListGather")
        if index_kind.what != "array" or shape is None or None in shape or not kind.dtype.is_floating:
            raise Untemplatable
        element: Shape = shape  # type: ignore[assignment]  # known in full
        count = index_kind.shape[0] if index_kind.shape else None
        if op.type == "TensorListGather" and count is None:
            raise Untemplatable
        made = [self._register() for _ in range(count or 1)]
        dtype = kind.dtype

        def step(values: Registers, expansion: Expansion) -> None:
            positions = np.atleast_1d(values[index]).tolist()
            for register, position in zip(made, positions, strict=True):
                values[register] = expansion.ref(lists.read(values[items], position, element), dtype).index

        self.template.steps.append(step)
        one = Kind("value", element, dtype)
        if op.type == "TensorListGetItem":
            self._known[op.outputs[0]] = (made[0], one)
            return
        signature = self._expander.signatures.of_stack(len(made), element, dtype)
        self._add_node(signature, made, op.outputs)

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _compile_node(self, op: Op, operands: Sequence[tuple[int, Kind]]) -> None:
        fixed = layout.positions(op)
        stand_ins, own = [], []
        for k, ((register, kind), var) in enumerate(zip(operands, op.inputs, strict=True)):
            if kind.what == "shared":
                stand_ins.append(kind.shared)
            elif kind.what == "array" and var.constant is not None:
                stand_ins.append(self.template.registers[register])
            elif k in fixed or kind.what not in ("array", "value"):
                raise Untemplatable
            else:
                place, value = (register, kind) if kind.what == "value" else self._leaf(register, kind)
                own.append(place)
                stand_ins.append(Ref(0, value.shape, value.dtype))  # type: ignore[arg-type]  # known in full
        signature = self._expander.signatures.of(op, stand_ins)
        if signature.single:
            raise Untemplatable
        self._add_node(signature, own, op.outputs)

    def _add_node(self, signature: Signature, own: Sequence[int], outputs: Sequence[Var]) -> None:
        template = self.template
        template.signatures.append(signature.index)
        template.arities.append(len(own))
        template.operands += own
        template.offsets.append(template.values)
        for var, shape in zip(outputs, signature.outputs, strict=True):
            register = self._register()
            template.results.append((register, template.values))
            template.values += 1
            self._known[var] = (register, Kind("value", shape, var.dtype))


def _full(var: Var, drop_first: bool) -> tuple[int | None, ...] | None:
    if var.shape.rank is None:
        return None
    return tuple(var.shape.as_list()[1 if drop_first else 0 :])
