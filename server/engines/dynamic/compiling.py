"""Compiles a straight-line stretch of a program, for columns of given kinds, to a template."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic import host, layout, lists
from server.engines.dynamic.signatures import Signatures
from server.engines.dynamic.templates import Place, Registers, Template, Untemplatable
from server.engines.dynamic.values import Column, ExamplesFailed, Kind, OpFailed, Seq, Shared, on_host
from vectorizer.program import Op, Var
from vectorizer.registry import replay

HANDED_ON = frozenset({"Identity", "StopGradient", "PreventGradient", "IdentityN", "EnsureShape"})
Known = tuple[int, Kind]


@dataclass
class Tables:
    """What outlives batches: signatures, templates, and what is the same for every example.

    `fuse`: whether a template's nodes are launched as one.
    """

    fuse: bool = False
    signatures: Signatures = field(default_factory=Signatures)
    templates: dict[Any, Any] = field(default_factory=dict)
    constants: dict[Var, Column] = field(default_factory=dict)
    shared: dict[Any, list[Column]] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)

    def constant(self, var: Var) -> Column:
        """A Const: bookkeeping on the host, numbers as a shared tensor."""
        found = self.constants.get(var)
        if found is None:
            array = np.asarray(var.constant)
            if array.dtype.kind in "iubOSU":
                found = on_host(np.asarray(array, object if var.dtype == tf.string else None), var.dtype)
            else:
                found = shared_column(Shared(tf.constant(var.constant, var.dtype)))
            self.constants[var] = found
        return found

    def once(self, op: Op, operands: Sequence[Column]) -> list[Column]:
        """The results of an op that is the same for every example."""
        key = (id(op), *(column.kind for column in operands))
        found = self.shared.get(key)
        if found is None:
            tensors = [
                column.data.tensor if column.kind.what == "shared" else tf.constant(column.data, var.dtype)
                for column, var in zip(operands, op.inputs, strict=True)
            ]
            try:
                found = [shared_column(Shared(tensor)) for tensor in replay(op, tensors)]
            except (ValueError, tf.errors.OpError) as error:
                raise OpFailed(str(error)) from error
            self.shared[key] = found
            self.keep.append(op)
        return found


def shared_column(value: Shared) -> Column:
    return Column(Kind("shared", None, value.tensor.dtype, value), value)


class Compiler:
    """Goes through ops until one isn't straight-line. `known` says of each Var its register and kind."""

    def __init__(self, tables: Tables, inputs: Sequence[tuple[Var, Column]]) -> None:
        self._tables = tables
        self.template = Template()
        self.known: dict[Var, Known] = {}
        self._alike: dict[Any, list[Known]] = {}
        self._packed: dict[int, Known] = {}  # by the register of a vector: the number that alone is in it
        for var, (kind, data) in inputs:
            self.known[var] = (self.template.register(data if kind.what in ("fixed", "shared") else None), kind)

    def compile(self, op: Op) -> None:
        """One more op. Raises Untemplatable, and leaves the template as it was, where it can't be part of it."""
        operands = [self._operand(var) for var in op.inputs]
        whats = {kind.what for _, kind in operands}
        if op.bodies or "uneven" in whats:
            raise Untemplatable
        first = operands[0][1].what if operands else ""
        if op.type == "Assert":
            self._assert(operands[0])
        elif op.type in HANDED_ON:
            self.known.update(zip(op.outputs, operands, strict=True))
        elif lists.handles(op):
            self.put(op.outputs[0], lists.compile_list(self, op, operands))
        elif op.type in ("Shape", "Size", "Rank") and first in ("value", "seq", "ragged"):
            self._shape(op, operands[0])
        elif first in ("seq", "ragged") and op.type in ("GatherV2", "StridedSlice"):
            self._pick(op, operands)
        elif whats <= {"fixed", "const", "host"} and host.stays_on_host(op):
            self._on_host(op, operands)
        elif whats <= {"fixed", "shared"}:
            self._once(op, operands)
        elif (
            op.type in ("Reshape", "ExpandDims", "Squeeze", "StridedSlice")
            and first == "value"
            and self._alias(op, operands)
        ):
            pass
        elif op.type == "Pack" and not op.attrs.get("axis", 0) and whats == {"value"}:
            self._pack(op, operands)
        else:
            self._node(op, operands)

    def unstack(self, register: int, count: int, shape: Any, dtype: Any) -> list[int]:
        """A node that takes a value apart along its first axis; the registers of the parts."""
        return self.template.node(self._tables.signatures.of_unstack(count, shape, dtype), [register]) if count else []

    def put(self, var: Var, known: Known) -> None:
        """What a Var is."""
        self.known[var] = known

    def content(self, known: Known) -> Any:
        """What is known when compiling, as numpy; None if it isn't."""
        register, kind = known
        if kind.what == "fixed":
            return self.template.registers[register]
        if kind.what == "shared" and kind.dtype not in (tf.resource, tf.variant):
            return kind.extra.array
        return None

    def _operand(self, var: Var) -> Known:
        if var.constant is not None and var not in self.known:
            kind, data = self._tables.constant(var)
            self.known[var] = (self.template.register(data), kind)
        return self.known[var]

    def finish(self, outputs: Sequence[Known]) -> Template:
        """The template, whose outputs these are."""
        self.template.finish(outputs, self._tables.signatures if self._tables.fuse else None)
        return self.template

    def step(self, compute: Callable[..., Any], reads: Sequence[Known], kind: Kind) -> Known:
        """A step on the host: `compute(data of reads, place)` is the result's data."""
        made, registers = self.template.register(), [register for register, _ in reads]

        def step(values: Registers, place: Place) -> None:
            values[made] = compute([values[k] for k in registers], place)

        self.template.step(step, registers, [made])
        return made, kind

    # -- host -------------------------------------------------------------------------------------------------------

    def _on_host(self, op: Op, operands: Sequence[Known]) -> None:
        """Each thing once: tracing leaves many a `t + 1`."""
        key = (
            self._tables.signatures.name(op),
            *(known[1] if known[1].what == "fixed" else known[0] for known in operands),
        )
        if key not in self._alike:
            self._compute_on_host(op, operands)
            self._alike[key] = [self.known[var] for var in op.outputs]
            if op.type == "Pack" and len(operands) == 1 and operands[0][1].shape == ():
                self._packed[self.known[op.outputs[0]][0]] = operands[0]
        self.known.update(zip(op.outputs, self._alike[key], strict=True))

    def _compute_on_host(self, op: Op, operands: Sequence[Known]) -> None:
        kinds = [kind for _, kind in operands]
        content = [self.content(known) for known in operands]
        if all(kind.what == "fixed" for kind in kinds):
            for var, array in zip(op.outputs, host.compute(op, content), strict=True):
                kind, data = on_host(array, var.dtype)
                self.put(var, (self.template.register(data), kind))
            return
        if len(op.outputs) != 1 or not op.outputs[0].shape.is_fully_defined():
            raise Untemplatable
        var, registers = op.outputs[0], [register for register, _ in operands]
        shape = tuple(var.shape.as_list())
        if any(kind.what == "host" for kind in kinds):
            together = host.batched(op, kinds, content)
            compute = lambda data, place: together(data, place.examples)  # noqa: E731
            self.put(var, self.step(compute, operands, Kind("host", shape, var.dtype)))
            return
        made = self.template.register()

        def step(values: Registers, place: Place) -> None:
            try:
                values[made] = host.compute(op, [values[k] for k in registers])[0]
            except OpFailed as error:
                raise ExamplesFailed(place.examples, str(error)) from error

        self.template.step(step, registers, [made])
        self.put(var, (made, Kind("const", shape, var.dtype)))

    def _once(self, op: Op, operands: Sequence[Known]) -> None:
        columns = [Column(kind, self.template.registers[register]) for register, kind in operands]
        for var, (kind, data) in zip(op.outputs, self._tables.once(op, columns), strict=True):
            self.put(var, (self.template.register(data), kind))

    def _assert(self, condition: Known) -> None:
        register, kind = condition
        if kind.what == "value":

            def require(values: Registers, place: Place) -> None:
                place.tape.require(values[register], place.examples, kind.shape, kind.dtype)

            self.template.step(require, [register], None)
            return
        if kind.what == "shared" or kind.what == "fixed":
            if not np.all(self.content(condition)):
                raise Untemplatable
            return
        if kind.what not in ("const", "host"):
            raise Untemplatable

        def check(values: Registers, place: Place) -> None:
            fine = values[register]
            if not np.all(fine):
                bad = ~fine.reshape(place.count, -1).all(axis=1) if kind.what == "host" else slice(None)
                raise ExamplesFailed(place.examples[bad], "an assertion fails")

        self.template.step(check, [register], None)

    def _shape(self, op: Op, known: Known) -> None:
        kind, dtype = known[1], op.outputs[0].dtype
        number = dtype.as_numpy_dtype
        if kind.what == "value" or isinstance(kind.extra, int):
            shape = kind.shape if kind.what == "value" else (kind.extra, *kind.shape)
            answer = {"Shape": shape, "Size": math.prod(shape), "Rank": len(shape)}[op.type]
            fixed, data = on_host(np.array(answer, number), dtype)
            self.put(op.outputs[0], (self.template.register(data), fixed))
            return
        row, ragged = kind.shape, kind.what == "ragged"

        def sizes(data: Sequence[Any], place: Place) -> Any:
            counts = data[0][1] if ragged else data[0].sizes()
            if op.type == "Size":
                return (counts * math.prod(row)).astype(number)
            shape = np.empty((place.count, 1 + len(row)), number)
            shape[:, 0] = counts
            shape[:, 1:] = row
            return shape

        if op.type == "Rank":
            fixed, data = on_host(np.array(1 + len(row), number), dtype)
            self.put(op.outputs[0], (self.template.register(data), fixed))
            return
        self.put(
            op.outputs[0], self.step(sizes, [known], Kind("host", () if op.type == "Size" else (1 + len(row),), dtype))
        )

    # -- rows -------------------------------------------------------------------------------------------------------

    def _pick(self, op: Op, operands: Sequence[Known]) -> None:
        (_, kind), (_, index_kind) = rows, index = operands[0], operands[1]
        negative = op.type == "StridedSlice"
        if negative:
            masks = [int(op.attrs[f"{name}_mask"]) for name in ("shrink_axis", "new_axis", "ellipsis", "begin")]
            if masks != [1, 0, 0, 0] or index_kind.shape != (1,):
                raise Untemplatable
        elif self.content(operands[2]) is None or int(self.content(operands[2])) or op.attrs.get("batch_dims", 0):
            raise Untemplatable
        if index_kind.what not in ("fixed", "const", "host") or len(index_kind.shape) > 1:
            raise Untemplatable
        one = negative or index_kind.shape == ()
        unpacked = self._packed.get(index[0])
        vector = negative and unpacked is None
        index = unpacked or index
        pick = _from_ragged if kind.what == "ragged" else _from_sequence

        def picked(data: Sequence[Any], place: Place) -> Any:
            return pick(data[0], data[1][..., 0] if vector else data[1], place, one, negative)

        if one:
            what = "host" if kind.what == "ragged" else "value"
            self.put(op.outputs[0], self.step(picked, [rows, index], Kind(what, kind.shape, kind.dtype)))
        elif kind.what == "seq":
            made = Kind("seq", kind.shape, kind.dtype, index_kind.shape[0])
            self.put(op.outputs[0], self.step(picked, [rows, index], made))
        else:
            made = Kind("host", (index_kind.shape[0], *kind.shape), kind.dtype)
            self.put(op.outputs[0], self.step(picked, [rows, index], made))

    # -- nodes ------------------------------------------------------------------------------------------------------

    def leaf(self, known: Known) -> Known:
        """What is known on the host, as a value that nodes can take."""
        kind = known[1]
        if kind.what == "value":
            return known
        if kind.what == "seq" and isinstance(kind.extra, int):
            return self._stacked(known)
        if kind.what not in ("fixed", "const", "host", "shared"):
            raise Untemplatable
        shape, dtype = kind.shape, kind.dtype
        if kind.what == "shared":
            shape = kind.extra.array.shape
        return self.step(lambda data, place: leaves(kind, data[0], place), [known], Kind("value", shape, dtype))

    def _stacked(self, known: Known) -> Known:
        register, kind = known
        count = kind.extra
        columns = [self.template.register() for _ in range(count)]

        def unpack(values: Registers, place: Place) -> None:
            for column, ids in zip(columns, values[register].ids.T, strict=False):
                values[column] = ids

        signature = self._tables.signatures.of_stack(count, kind.shape, kind.dtype)
        self.template.step(unpack, [register], columns)
        (made,) = self.template.node(signature, columns)
        return made, Kind("value", (count, *kind.shape), kind.dtype)

    def _pack(self, op: Op, operands: Sequence[Known]) -> None:
        kind = operands[0][1]
        if any(other != kind for _, other in operands):
            raise Untemplatable
        stacked = Kind("seq", kind.shape, kind.dtype, len(operands))
        self.put(
            op.outputs[0], self.step(lambda data, place: Seq(np.stack(data, axis=1), len(data)), operands, stacked)
        )

    def _alias(self, op: Op, operands: Sequence[Known]) -> bool:
        """Whether the result is the operand with another shape: the same value then."""
        register, kind = operands[0]
        content = [self.content(known) for known in operands[1:]]
        if any(item is None for item in content):
            return False
        shape, size = kind.shape, math.prod(kind.shape)
        if op.type == "Reshape":
            new = [int(item) for item in content[0]]
            if -1 in new:
                rest = -math.prod(new)
                new[new.index(-1)] = size // rest if rest else 0
            if math.prod(new) != size:
                return False
        elif op.type == "ExpandDims":
            new = list(shape)
            axis = int(content[0])
            new.insert(axis if axis >= 0 else len(shape) + 1 + axis, 1)
        elif op.type == "Squeeze":
            axes = {axis % len(shape) for axis in op.attrs.get("squeeze_dims") or ()}
            axes = axes or {k for k, extent in enumerate(shape) if extent == 1}
            new = [extent for k, extent in enumerate(shape) if k not in axes]
            if math.prod(new) != size:
                return False
        else:
            if (content[2] < 0).any() or 0 in shape:
                return False
            column = (
                Column(kind, None),
                *(on_host(item, var.dtype) for item, var in zip(content, op.inputs[1:], strict=True)),
            )
            signature = self._tables.signatures.of(op, column)
            if signature is None or math.prod(signature.outputs[0]) != size:
                return False
            new = list(signature.outputs[0])
        self.put(op.outputs[0], (register, Kind("value", tuple(new), kind.dtype)))
        return True

    def _node(self, op: Op, operands: Sequence[Known]) -> None:
        fixed = layout.positions(op)
        own, columns = [], []
        for k, known in enumerate(operands):
            register, kind = known
            if kind.what in ("fixed", "shared"):
                columns.append(Column(kind, self.template.registers[register]))
                continue
            if k in fixed:
                raise Untemplatable
            place, value = self.leaf(known)
            own.append(place)
            columns.append(Column(value, None))
        signature = self._tables.signatures.of(op, columns)
        if signature is None:
            raise Untemplatable
        made = self.template.node(signature, own)
        for var, shape, register in zip(op.outputs, signature.outputs, made, strict=True):
            self.put(var, (register, Kind("value", shape, var.dtype)))


def leaves(kind: Kind, data: Any, place: Place) -> Any:
    """The numbers of host values, [E]; one for all where it's the same for all."""
    if kind.what == "host":
        return place.tape.leaves(data, kind.dtype)
    array = data.array if kind.what == "shared" else data
    return np.broadcast_to(place.tape.leaves(array[None], kind.dtype), (place.count,))


def _wrapped(index: Any, sizes: Any, place: Place, negative: bool) -> Any:
    """Positions that are in range; those of a slice may be negative, counted from the end."""
    if negative and np.minimum.reduce(index, axis=None) < 0:
        index = np.where(index < 0, index + sizes, index)
    if np.logical_or.reduce(
        np.asarray(index, np.int64).view(np.uint64) >= np.asarray(sizes).view(np.uint64), axis=None
    ):
        bad = (index < 0) | (index >= sizes)
        rows = np.broadcast_to(bad, np.broadcast_shapes(bad.shape, (place.count,) if index.ndim < 2 else bad.shape))
        raise ExamplesFailed(place.examples[rows.reshape(place.count, -1).any(axis=1)], "an index is out of range")
    return index


def _from_sequence(seq: Seq, index: Any, place: Place, one: bool, negative: bool) -> Any:
    if one:
        return seq.ids[place.table_rows, _wrapped(index, place.of_table(seq.counts), place, negative)]
    where = _wrapped(
        np.broadcast_to(index, (place.count, index.shape[-1])), place.of_table(seq.sizes())[:, None], place, False
    )
    return Seq(seq.ids[place.table_rows[:, None], where], where.shape[1])


def _from_ragged(data: Any, index: Any, place: Place, one: bool, negative: bool) -> Any:
    array, sizes = data
    if one:
        return array[place.table_rows, _wrapped(index, place.of_table(sizes), place, negative)]
    where = _wrapped(
        np.broadcast_to(index, (place.count, index.shape[-1])), place.of_table(sizes)[:, None], place, False
    )
    return array[place.table_rows[:, None], where]
