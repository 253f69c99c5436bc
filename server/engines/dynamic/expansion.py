"""The graphs of all examples of a batch, grown together by running the program: loops unrolled as they run, branches
taken for real.

All examples that are at the same place of the program take each step at once, so that a step costs the same for one as
for hundreds: straight-line stretches are templates (`templates.py`), loops let go of examples that are done, branches
part the examples and bring them together again. Nothing is computed here but bookkeeping; what the network computes
becomes nodes.

Growing is a generator. It yields where it can't go on without values (the predicate of a loop that a network decides);
meanwhile the other side of a branch grows as far, and all that is pending runs at once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic import host, layout, lists
from server.engines.dynamic.compiling import HANDED_ON, Compiler, Tables, leaves, shared_column
from server.engines.dynamic.counted_loops import CountedLoop, Flat, as_counted, flattened, written
from server.engines.dynamic.launching import alone
from server.engines.dynamic.merging import at_once, merged
from server.engines.dynamic.rowwise import as_sequence, flat_rows, row_op, segment_sums
from server.engines.dynamic.tape import Tape
from server.engines.dynamic.templates import Place, Template, Untemplatable
from server.engines.dynamic.values import (
    Column,
    Entry,
    ExamplesFailed,
    Kind,
    OpFailed,
    Seq,
    Shared,
    collected,
    entries,
    is_readable,
    loose,
    on_host,
    ragged,
    seq_column,
    taken,
    value_column,
)
from vectorizer.program import Op, Program, Var

Growing = Generator[None, None, Any]
Values = dict[Var, Column]


class Expander:
    """What outlives batches: the program, and what was found out about it."""

    def __init__(self, program: Program, *, fuse: bool = False) -> None:
        self.program = program
        self._fuse = fuse
        self.captures = {var: shared_column(Shared(tensor)) for var, tensor in program.captures.items()}
        self._tables = Tables(fuse=fuse)
        self._ops: dict[int, list[Op]] = {}
        self._counted: dict[int, CountedLoop | None] = {}
        self._live: dict[tuple[int, int], tuple[list[Var], frozenset[Var]]] = {}

    def tables(self) -> Tables:
        """Templates and signatures. Shapes that are ever new fill them: then they start anew."""
        if len(self._tables.signatures.all) > _LARGEST_TABLE or len(self._tables.templates) > _LARGEST_TABLE:
            self._tables = Tables(fuse=self._fuse)
        return self._tables

    def counted(self, op: Op) -> CountedLoop | None:
        """The loop as one that counts, if it is one."""
        if id(op) not in self._counted:
            self._counted[id(op)] = as_counted(op)
        return self._counted[id(op)]

    def ops(self, program: Program) -> list[Op]:
        """The program's ops but for its constants."""
        found = self._ops.get(id(program))
        if found is None:
            found = self._ops[id(program)] = [op for op in program.ops if op.type != "Const"]
        return found

    def live(self, program: Program, position: int) -> tuple[list[Var], frozenset[Var]]:
        """What ops from `position` on and the outputs read of what was there before; and the same as a set."""
        key = (id(program), position)
        if key not in self._live:
            made = {var for op in self.ops(program)[position:] for var in op.outputs}
            read = [var for op in self.ops(program)[position:] for var in op.inputs]
            live = [var for var in dict.fromkeys((*read, *program.outputs)) if var.constant is None and var not in made]
            self._live[key] = (live, frozenset(live))
        return self._live[key]


_LARGEST_TABLE = 5_000


class Expansion:
    """One batch on one tape."""

    def __init__(self, expander: Expander, tape: Tape, tables: Tables) -> None:
        self.tape = tape
        self._expander, self._tables = expander, tables
        self._wholes: dict[int, tuple[Seq, Column]] = {}

    def grow(self, rows: Sequence[Sequence[Any]], numbers: Sequence[int]) -> Growing:
        """Expand the whole program for these examples; its outputs, as columns, are the generator's value."""
        program = self._expander.program
        place = Place(self.tape, np.array(numbers, np.int64))
        given = [
            self._input(var, list(arrays), place)
            for var, arrays in zip(program.inputs, zip(*rows, strict=True), strict=False)
        ]
        captured = [self._expander.captures[var] for var in program.inputs[len(given) :]]
        outputs = yield from self._run(program, [*given, *captured], place)
        return [column if is_readable(column) else self._whole(column, place) for column in outputs]

    def _input(self, var: Var, arrays: list[Any], place: Place) -> Column:
        dtype = var.dtype
        if not (dtype.is_floating or dtype.is_complex):
            if var.shape.rank and var.shape[0] is None and None not in var.shape[1:]:
                return ragged(arrays, dtype)
            return collected([Entry(None, array.shape, array) for array in arrays], dtype)
        if var.shape.is_fully_defined():
            return value_column(self.tape.leaves(np.stack(arrays), dtype), arrays[0].shape, dtype)
        if var.shape[0] is None and None not in var.shape[1:]:
            counts = np.array([len(array) for array in arrays], np.int64)
            first = self.tape.leaves(np.concatenate(arrays), dtype)
            starts = np.cumsum(counts) - counts + (int(first[0]) if len(first) else 0)
            ids = starts[:, None] + np.arange(int(counts.max()))
            return seq_column(Seq(ids, counts, arrays), tuple(var.shape[1:]), dtype)
        return self._placed(collected([Entry(None, array.shape, array) for array in arrays], dtype), place)

    def _run(self, program: Program, inputs: Sequence[Column], place: Place) -> Growing:
        values: Values = dict(zip(program.inputs, inputs, strict=True))
        ops, position = self._expander.ops(program), 0
        while position < len(ops):
            stop = self._straight(program, position, values, place)
            if stop == position:
                results = yield from self._apply(ops[position], values, place)
                values.update(zip(ops[position].outputs, results, strict=True))
                stop += 1
            position = stop
        return [self._value(values, var) for var in program.outputs]

    def _value(self, values: Values, var: Var) -> Column:
        found = values.get(var)
        return self._tables.constant(var) if found is None else found

    def _straight(self, program: Program, position: int, values: Values, place: Place) -> int:
        """Expands the straight-line stretch that begins there; where it ends."""
        live = self._expander.live(program, position)[0]
        columns = [values[var] for var in live]
        key = (id(program), position, tuple([column.kind for column in columns]))
        found = self._tables.templates.get(key)
        if found is None:
            found = self._tables.templates[key] = self._compile(program, position, live, columns)
        template, outputs, stop = found
        if template is not None:
            results = template.expand([column.data for column in columns], place)
            values.update(zip(outputs, results, strict=True))
        return int(stop)

    def _compile(
        self, program: Program, position: int, live: Sequence[Var], columns: Sequence[Column]
    ) -> tuple[Template | None, list[Var], int]:
        compiler = Compiler(self._tables, list(zip(live, columns, strict=True)))
        ops, stop = self._expander.ops(program), position
        while stop < len(ops):
            snapshot = compiler.template.snapshot()
            try:
                compiler.compile(ops[stop])
            except (Untemplatable, OpFailed):
                compiler.template.back_to(snapshot)
                break
            stop += 1
        if stop == position:
            return None, [], stop
        needed, made = self._expander.live(program, stop)[1], {var for op in ops[position:stop] for var in op.outputs}
        outputs = [var for var in compiler.known if var in needed and var in made]
        return compiler.finish([compiler.known[var] for var in outputs]), outputs, stop

    # -- control ----------------------------------------------------------------------------------------------------

    def _apply(self, op: Op, values: Values, place: Place) -> Growing:
        operands = [self._value(values, var) for var in op.inputs]
        if op.type == "While":
            return (yield from self._loop(op, operands, place))
        if op.bodies:
            return (yield from self._branch(op, operands, place))
        return (yield from self._uneven(op, operands, place))

    def _loop(self, op: Op, operands: Sequence[Column], place: Place) -> Growing:
        condition, body = op.bodies["cond"], op.bodies["body"]
        changing = [k for k, (new, old) in enumerate(zip(body.outputs, body.inputs, strict=True)) if new is not old]
        values = list(operands)
        for k in changing:
            values[k] = self._own(values[k], place)
        counted = self._expander.counted(op)
        if counted is not None:
            results = self._chain(counted, values, place)
            if results is None and counted.independent:
                results = yield from self._independent(counted, values, place)
            if results is not None:
                return results
        whole, positions = place, np.arange(place.count)
        done: list[tuple[Any, list[Column]]] = []
        while True:
            predicate = yield from self._run(condition, values, place)
            going = yield from self.known(predicate[0], place)
            if not np.all(going):
                leaving = np.broadcast_to(~np.asarray(going, bool), (place.count,))
                done.append((positions[leaving], [taken(values[k], leaving) for k in changing]))
                if leaving.all():
                    break
                staying = ~leaving
                values, place = [taken(value, staying) for value in values], place.some(staying)
                positions = positions[staying]
            values = yield from self._run(body, values, place)
        results = list(operands)
        for column, k in enumerate(changing):
            results[k] = self._merged([(rows, columns[column]) for rows, columns in done], whole)
        return results

    def _counted_results(self, loop: CountedLoop, flat: Flat, values: list[Column]) -> list[Column]:
        results = list(values)
        for k in loop.counters:
            kind, start = values[k]
            end = (np.asarray(start) + flat.trips).astype(kind.dtype.as_numpy_dtype)
            results[k] = Column(Kind("host", (), kind.dtype), end)
        return results

    def _chain(self, loop: CountedLoop, values: list[Column], place: Place) -> list[Column] | None:
        """All steps as instances of one template; None where the body isn't one, or reads ahead in a list."""
        if any(values[k].kind.what != "value" for k in loop.values):
            return None
        if any(values[write.position].kind.what != "list" for write in loop.writes):
            return None
        flat = flattened(loop, values, place, indirect=True)
        if flat is None:
            return None
        results = self._counted_results(loop, flat, values)
        if not len(flat.rows):
            return results
        live = self._expander.live(loop.body, 0)[0]
        given = dict(zip(loop.body.inputs, flat.columns, strict=True))
        columns = [given[var] for var in live]
        key = (id(loop), tuple([column.kind for column in columns]))
        if key not in self._tables.templates:
            self._tables.templates[key] = self._compile_chain(loop, live, columns)
        template = self._tables.templates[key]
        if template is None:
            return None
        position = {var: k for k, var in enumerate(live)}
        carried = [
            (position.get(loop.body.inputs[k]), output, values[k].data)
            for output, k in enumerate(loop.values, len(loop.writes))
        ]
        lists_ = [
            (
                position[loop.body.inputs[write.position]],
                output,
                values[write.position],
                flat.at(values[write.counter].data),
            )
            for output, write in enumerate(loop.writes)
            if write.counter is not None and loop.body.inputs[write.position] in position
        ]
        made = template.expand_chain([column.data for column in columns], flat, carried, lists_)
        if made is None:
            return None
        last = np.cumsum(flat.trips) - 1
        for (kind, ids), k in zip(made[len(loop.writes) :], loop.values, strict=False):
            results[k] = Column(kind, np.where(flat.trips > 0, ids[np.maximum(last, 0)], values[k].data))
        return results if self._write_all(loop, flat, made, values, results) else None

    def _write_all(
        self, loop: CountedLoop, flat: Flat, made: Sequence[Column], values: list[Column], results: list[Column]
    ) -> bool:
        """Puts into `results` the lists with what the steps wrote; false where two steps wrote one element."""
        for (kind, ids), write in zip(made, loop.writes, strict=False):
            at = made[write.index].data if write.counter is None else flat.at(values[write.counter].data)
            full = written(values[write.position], flat, ids, kind.shape, at)
            if full is None:
                return False
            results[write.position] = full
        return True

    def _compile_chain(self, loop: CountedLoop, live: Sequence[Var], columns: Sequence[Column]) -> Template | None:
        compiler = Compiler(self._tables, list(zip(live, columns, strict=True)))
        try:
            for op in self._expander.ops(loop.body):
                compiler.compile(op)
        except (Untemplatable, OpFailed):
            return None
        outputs = [compiler.known.get(var) for var in loop.body.outputs]
        count = len(loop.writes) + len(loop.values)
        if any(known is None or known[0] not in compiler.template.made for known in outputs[:count]):
            return None
        if any(known is None or known[1].what not in ("fixed", "const", "host") for known in outputs[count:]):
            return None
        if any(write.counter is None and write.position in loop.read for write in loop.writes):
            return None
        kinds = {var: column.kind for var, column in zip(live, columns, strict=True)}
        for k, known in zip(loop.values, outputs[len(loop.writes) :], strict=False):
            if kinds.get(loop.body.inputs[k], known[1]) != known[1]:  # type: ignore[index]  # none is missing
                return None
        for write, known in zip(loop.writes, outputs, strict=False):
            kind = kinds.get(loop.body.inputs[write.position])
            if kind is not None and kind.shape != known[1].shape:  # type: ignore[index]  # none is missing
                return None
        return compiler.finish(outputs)  # type: ignore[arg-type]  # none is missing

    def _independent(self, loop: CountedLoop, values: list[Column], place: Place) -> Growing:
        """Steps that don't need each other, as examples of their own; None where they are too many."""
        flat = flattened(loop, values, place, indirect=False)
        if flat is None:
            return None
        results = self._counted_results(loop, flat, values)
        if not len(flat.rows):
            return results
        elements = yield from self._run(loop.body, flat.columns, flat.place)
        count = len(loop.writes)
        made = [self._one_value(column, flat.place) for column in elements[:count]]
        for column in elements[count:]:
            made.append(column)
            if column.kind.what not in ("fixed", "const", "host"):
                return None
        return results if self._write_all(loop, flat, made, values, results) else None

    def _one_value(self, column: Column, place: Place) -> Column:
        """The column as values of one shape."""
        kind, data = self._whole(column, place)
        if kind.what in ("fixed", "const", "host", "shared"):
            shape = data.array.shape if kind.what == "shared" else kind.shape
            return value_column(leaves(kind, data, place), shape, kind.dtype)
        if kind.what != "value":
            raise Unbatchable("elements of a list differ in shape")
        return Column(kind, data)

    def _own(self, column: Column, place: Place) -> Column:
        """A loop starts with a value like those that follow, so that the first step has the others' signature."""
        kind, data = column
        if kind.what == "shared" and kind.dtype not in (tf.resource, tf.variant):
            if kind.dtype.is_floating or kind.dtype.is_complex:
                return value_column(leaves(kind, data, place), data.array.shape, kind.dtype)
            return Column(Kind("const", data.array.shape, kind.dtype), data.array)
        return loose(column)

    def _branch(self, op: Op, operands: Sequence[Column], place: Place) -> Growing:
        choice = np.asarray((yield from self.known(operands[0], place)))
        bodies = list(op.bodies.values())
        last = len(bodies) - 1
        if op.type == "If":
            taking = np.where(choice.astype(bool), 0, 1)
        else:
            taking = np.where((choice < 0) | (choice > last), last, choice)
        taking = np.broadcast_to(taking, (place.count,))
        if (taking == taking[0]).all():
            return (yield from self._run(bodies[int(taking[0])], operands[1:], place))
        parts, sides = [], []
        for number in np.unique(taking).tolist():
            rows = np.flatnonzero(taking == number)
            parts.append(rows)
            inputs = [taken(column, rows) for column in operands[1:]]
            sides.append(self._run(bodies[number], inputs, place.some(rows)))
        answers = yield from at_once(sides)
        return [self._merged(list(zip(parts, columns, strict=True)), place) for columns in zip(*answers, strict=True)]

    def known(self, column: Column, place: Place) -> Growing:
        """The content as numpy, `[E, ...]` or the same for all; what nodes compute is run for it."""
        kind, data = column
        if kind.what == "value":
            if not self.tape.ready(data):
                yield
            return self.tape.read(data, kind.shape, kind.dtype)
        if kind.what == "shared":
            return data.array
        if kind.what in ("fixed", "const", "host"):
            return data
        raise Unbatchable(f"a value of kind {kind.what} decides what is computed")

    def _merged(self, parts: Sequence[tuple[Any, Column]], place: Place) -> Column:
        return merged(parts, place, self._whole)

    # -- what isn't straight-line: shapes that differ, positions that are computed ------------------------------------

    def _uneven(self, op: Op, operands: Sequence[Column], place: Place) -> Growing:
        """An op for examples of different shapes: for those of one shape at a time."""
        if op.type in HANDED_ON:
            return list(operands)
        of_lists = lists.handles(op)
        positions = layout.positions(op) if not of_lists else frozenset(range(1, len(operands)))
        if op.type == "TensorListSetItem" or op.type == "TensorListPushBack":
            positions = frozenset({1}) if op.type == "TensorListSetItem" else frozenset()
        elif of_lists and op.type in ("TensorListScatter", "TensorListScatterV2"):
            positions = frozenset(range(1, len(operands)))
        elif op.type == "TensorListScatterIntoExistingList":
            positions = frozenset({2})
        columns = list(operands)
        if op.type == "GatherV2" and operands[0].kind.what in ("seq", "shared") and operands[1].kind.what == "ragged":
            found = self._many_rows(op, columns, place)
            if found is not None:
                return [found]
        found = yield from self._by_rows(op, columns, place)
        if found is not None:
            return [found]
        for k, column in enumerate(columns):
            if column.kind.what == "seq" and not (of_lists and op.type == "TensorListFromTensor"):
                columns[k] = self._whole(column, place)
        for k in positions:
            columns[k] = yield from self._on_host(columns[k], place)
        on_host_only = all(_is_host(column) for column in columns)
        if on_host_only and host.stays_on_host(op):
            return self._host_rows(op, columns, place)
        if op.type == "Assert":
            columns = columns[:1]
        groups = self._groups(columns, positions, place)
        answers = []
        for rows, few in groups:
            answers.append((rows, (yield from self._group(op, few, place.some(rows)))))
        return [self._merged([(rows, columns[k]) for rows, columns in answers], place) for k in range(len(op.outputs))]

    def _by_rows(self, op: Op, operands: Sequence[Column], place: Place) -> Growing:
        """The op row by row; None where it isn't the same for each row of sequences."""
        kinds = [column.kind for column in operands]
        sequence = next((column for column in operands if column.kind.what == "seq"), None)
        if sequence is None or not (sequence.kind.dtype.is_floating or sequence.kind.dtype.is_complex):
            return None
        if op.type == "UnsortedSegmentSum" and kinds[0].what == "seq" and kinds[1].what == "ragged":
            if kinds[1].shape != () or kinds[2].what not in ("fixed", "const", "host"):
                return None
            tables = self._tables
            return segment_sums(operands[0], operands[1], operands[2].data, place, tables.signatures, tables.templates)
        sizes = sequence.data.sizes()
        columns = row_op(op, operands, sizes)
        if columns is None or not sizes.any():
            return None
        each = Place(self.tape, np.repeat(place.examples, sizes))
        (made,) = yield from self._group(op, flat_rows(op, columns, sizes), each)
        return as_sequence(op, made, sizes)

    def _on_host(self, column: Column, place: Place) -> Growing:
        """The column with its content known."""
        kind = column.kind
        if kind.what == "value":
            array = yield from self.known(column, place)
            return Column(Kind("host", kind.shape, kind.dtype), array)
        if kind.what == "uneven" and kind.extra == "value":
            if not self.tape.ready(np.array([entry.number for entry in column.data], np.int64)):
                yield
            return collected([self._read(entry, kind.dtype) for entry in column.data], kind.dtype)
        return column

    def _read(self, entry: Entry, dtype: Any) -> Entry:
        if entry.number is None:
            return entry
        return Entry(None, entry.shape, self.tape.read(np.array([entry.number]), entry.shape, dtype)[0])

    def _host_rows(self, op: Op, columns: Sequence[Column], place: Place) -> list[Column]:
        by_example = zip(*(entries(column, place.count) for column in columns), strict=True)
        rows = []
        for row, operands in enumerate(by_example):
            try:
                rows.append(host.compute(op, [np.asarray(entry.array) for entry in operands]))
            except OpFailed as error:
                raise ExamplesFailed(place.examples[row], str(error)) from error
        return [
            collected([Entry(None, array.shape, array) for array in arrays], var.dtype)
            for var, arrays in zip(op.outputs, zip(*rows, strict=True), strict=True)
        ]

    def _groups(
        self, columns: Sequence[Column], positions: frozenset[int], place: Place
    ) -> list[tuple[Any, list[Column]]]:
        """Examples whose operands have one shape, and the same layout; as columns of one shape."""
        split: dict[int, list[Entry]] = {}
        for k, (kind, _) in enumerate(columns):
            if kind.what in ("uneven", "ragged") or (k in positions and kind.what == "host"):
                split[k] = entries(columns[k], place.count)
        if not split:
            return [(np.arange(place.count), [self._fixed(k, column, positions) for k, column in enumerate(columns)])]
        by_key: dict[Any, list[int]] = {}
        for row in range(place.count):
            key = tuple(
                (
                    found[row].shape,
                    np.asarray(found[row].array).tobytes() if k in positions else found[row].number is None,
                )
                for k, found in split.items()
            )
            by_key.setdefault(key, []).append(row)
        groups = []
        for rows in by_key.values():
            few = []
            for k, column in enumerate(columns):
                if k not in split:
                    few.append(self._fixed(k, taken(column, np.array(rows)), positions))
                elif k in positions:
                    few.append(on_host(split[k][rows[0]].array, column.kind.dtype))
                    few[-1] = self._pinned(few[-1])
                else:
                    few.append(collected([split[k][row] for row in rows], column.kind.dtype))
            groups.append((np.array(rows), few))
        return groups

    def _fixed(self, position: int, column: Column, positions: frozenset[int]) -> Column:
        if position in positions and column.kind.what in ("const", "shared"):
            array = column.data.array if column.kind.what == "shared" else column.data
            return self._pinned(on_host(array, column.kind.dtype))
        return column

    @staticmethod
    def _pinned(column: Column) -> Column:
        """What says how a result is laid out is part of the kind, however large."""
        if column.kind.what == "const":
            return Column(Kind("fixed", column.kind.shape, column.kind.dtype, column.data.tobytes()), column.data)
        return column

    def _group(self, op: Op, columns: Sequence[Column], place: Place) -> Growing:
        """An op for examples whose operands have one shape."""
        inputs = op.inputs[: len(columns)]
        key = (id(op), tuple([column.kind for column in columns]))
        found = self._tables.templates.get(key)
        if found is None:
            found = self._tables.templates[key] = self._compile_one(op, inputs, columns, place)
        if found[0] is not None:
            results: list[Column] = found[0].expand([column.data for column in columns], place)
            return results
        if lists.handles(op):
            raise Unbatchable(f"{op.type} {op.where()}: {found[1] or 'not on these operands'}")
        return (yield from self._one_by_one(op, columns, place))

    def _compile_one(
        self, op: Op, inputs: Sequence[Var], columns: Sequence[Column], place: Place
    ) -> tuple[Template | None, str]:
        stand_ins = [Var(var.name, var.dtype, var.shape) for var in inputs]
        outputs = tuple(Var(var.name, var.dtype, var.shape) for var in op.outputs)
        alike = Op(op.type, op.name, tuple(stand_ins), outputs, op.attrs, op.definition, op.source)
        compiler = Compiler(self._tables, list(zip(stand_ins, columns, strict=True)))
        try:
            compiler.compile(alike)
        except Untemplatable as reason:
            return None, str(reason)
        except OpFailed as error:
            raise ExamplesFailed(place.examples, str(error)) from error
        self._tables.keep.append(op)
        return compiler.finish([compiler.known[var] for var in outputs]), ""

    def _one_by_one(self, op: Op, columns: Sequence[Column], place: Place) -> Growing:
        """An op whose results' shapes depend on values: run at once, example by example."""
        known = []
        for column in columns:
            known.append((yield from self._on_host(column, place)))
        contents = [
            [column.data.tensor] * place.count
            if column.kind.what == "shared"
            else [entry.array for entry in entries(column, place.count)]
            for column in known
        ]
        rows = []
        for example, operands in zip(place.examples.tolist(), zip(*contents, strict=True), strict=True):
            try:
                rows.append(alone(op, operands))
            except (tf.errors.OpError, ValueError) as error:
                raise ExamplesFailed(example, str(error)) from error
        self.tape.spent.nodes += place.count
        self.tape.spent.launches += place.count
        return [
            self._placed(collected([Entry(None, array.shape, array) for array in arrays], var.dtype), place)
            for var, arrays in zip(op.outputs, zip(*rows, strict=True), strict=True)
        ]

    # -- values -----------------------------------------------------------------------------------------------------

    def _placed(self, column: Column, place: Place) -> Column:
        """Numbers that are known, as values that nodes can take; bookkeeping stays as it is."""
        dtype = column.kind.dtype
        if not (dtype.is_floating or dtype.is_complex):
            return column
        placed = []
        for entry in entries(column, place.count):
            if entry.number is None:
                (number,) = self.tape.leaves(np.asarray(entry.array)[None], dtype).tolist()
                entry = Entry(number, entry.shape)
            placed.append(entry)
        return collected(placed, dtype)

    def _whole(self, column: Column, place: Place) -> Column:
        """A sequence put together to one value for each example."""
        kind, seq = column
        if kind.what != "seq":
            return column
        found = self._wholes.get(id(seq))
        if found is None:
            found = self._wholes[id(seq)] = (seq, self._put_together(kind, seq, place))
        return found[1]

    def _put_together(self, kind: Kind, seq: Seq, place: Place) -> Column:
        if seq.arrays is not None:
            return self._placed(collected([Entry(None, array.shape, array) for array in seq.arrays], kind.dtype), place)
        sizes, parts = seq.sizes(), []
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            signature = self._tables.signatures.of_stack(size, kind.shape, kind.dtype)
            key = ("stack", size, kind.shape, kind.dtype)
            template = self._tables.templates.get(key)
            if template is None:
                template = self._tables.templates[key] = Template()
                (made,) = template.node(signature, [template.register() for _ in range(size)])
                template.finish([(made, Kind("value", (size, *kind.shape), kind.dtype))])
            parts.append((rows, template.expand(list(seq.ids[rows, :size].T), place.some(rows))[0]))
        return self._merged(parts, place)

    def _many_rows(self, op: Op, columns: Sequence[Column], place: Place) -> Column | None:
        """Rows of a table, or of a sequence, at as many known positions as each example has."""
        rows, axis = columns[0], columns[2]
        if axis.kind.what != "fixed" or int(axis.data) or op.attrs.get("batch_dims", 0) or columns[1].kind.shape != ():
            return None
        index, sizes = columns[1].data
        inside = np.arange(index.shape[1]) < sizes[:, None]
        if rows.kind.what == "seq":
            bad = (inside & ((index < 0) | (index >= rows.data.sizes()[:, None]))).any(axis=1)
            if bad.any():
                raise ExamplesFailed(place.examples[bad], "an index is out of range")
            ids = (
                rows.data.ids[place.order[:, None], np.where(inside, index, 0)]
                if index.size
                else index.astype(np.int64)
            )
            return seq_column(Seq(ids, sizes), rows.kind.shape, rows.kind.dtype)
        if rows.data.tensor.shape.rank is None or not rows.data.tensor.shape.is_fully_defined():
            return None
        flat = index[inside]
        column = Column(Kind("host", (), columns[1].kind.dtype), flat)
        each = Place(self.tape, np.repeat(place.examples, sizes))
        growing = self._group(op, [rows, column, axis], each)
        try:
            next(growing)
        except StopIteration as done:
            (made,) = done.value
        else:
            return None
        ids = np.full(index.shape, -1, np.int64)
        ids[inside] = made.data
        return seq_column(Seq(ids, sizes), made.kind.shape, made.kind.dtype)


class Unbatchable(Exception):
    """The batch can't be grown together; its message says why. Its examples are answered alone."""


def _is_host(column: Column) -> bool:
    what = column.kind.what
    return what in ("fixed", "const", "host", "ragged") or (what == "uneven" and column.kind.extra == "host")
