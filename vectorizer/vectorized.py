"""`vectorize`: from a per-example function to programs that run a whole batch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import regions
from vectorizer.analysis import analyse
from vectorizer.batch import Batch
from vectorizer.batched_program import BatchedProgram
from vectorizer.boundary import Boundary
from vectorizer.effects import SUMMED, Options, Randomness
from vectorizer.emission import Emitter
from vectorizer.errors import Finding, VectorizationError
from vectorizer.kinds import Abstract, Kind
from vectorizer.plan import make_plan
from vectorizer.program import Op, Var
from vectorizer.report import Report
from vectorizer.tf_internals import watch_variables
from vectorizer.tracing import normalise, trace_function
from vectorizer.values import Size, Value, batched, dimension, pad_axis, shared
from vectorizer.xla_kernels import under_xla


@dataclass(frozen=True)
class Bound:
    """Something whose size the caller measures and pads: a variable dimension, or the bytes of a text.

    `axis` is None for text: a size born inside the program, such as its number of characters, is padded to that bound.
    """

    input: int
    axis: int | None


def vectorize(
    fn: Callable[..., Any],
    specs: Sequence[Any] | Mapping[str, Any],
    *,
    strict: bool = False,
    randomness: Randomness = "error",
    sum_assign_add: bool = False,
) -> Vectorized:
    """Vectorize a per-example function once.

    `specs`: tf.TensorSpecs of ONE example, None for variable dimensions; a mapping has `fn` called by keyword.
    `strict`: an op that could only be looped over the rows is an error.
    `randomness`: what ops that draw from hidden state (`tf.random.normal`, a `tf.random.Generator`) do in a batch:
    "error" refuses them, "different" draws independently for each row, "same" draws once for all rows.
    `sum_assign_add`: allow `variable.assign_add` and `assign_sub` outside of loops and branches; the values of the
    real rows that are `ok` are summed and added once for the batch.

    Raises VectorizationError, which lists every op that stands in the way.
    """
    return Vectorized(fn, specs, strict=strict, options=Options(randomness, sum_assign_add))


class Vectorized:
    """A per-example function and its batched programs. See `docs/architecture.md` for what crosses `compile`."""

    def __init__(
        self,
        fn: Callable[..., Any],
        specs: Sequence[Any] | Mapping[str, Any],
        *,
        strict: bool,
        options: Options | None = None,
        equal_dims: Collection[tuple[int, int]] = (),
        build: bool = True,
    ) -> None:
        """What `vectorize` doesn't ask for: `equal_dims` are variable (input, axis) whose size is the same in every
        row; without `build` there are no programs, only `emit`.
        """
        self._options = options or Options()
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self.concrete, self._positional = trace_function(fn, specs)
        named = isinstance(specs, Mapping)
        self.input_names = tuple(specs) if isinstance(specs, Mapping) else tuple(map(str, range(len(specs))))
        self.input_specs = tuple(specs.values()) if isinstance(specs, Mapping) else tuple(specs)
        self.per_example = fn if hasattr(fn, "get_concrete_function") else tf.function(fn)
        self.named = named
        self._structure = self.concrete.structured_outputs
        self.program = normalise(self.concrete, gradients=True)
        self._check_inputs()
        self.output_specs = tuple(tf.TensorSpec(var.shape, var.dtype) for var in self.program.outputs)
        self.output_names = _output_names(self._structure, len(self.output_specs))
        self.input_dims = tuple(
            (k, axis)
            for k, spec in enumerate(self.input_specs)
            for axis, size in enumerate(spec.shape)
            if size is None and (k, axis) not in equal_dims
        )
        texts = [Bound(k, None) for k, spec in enumerate(self.input_specs) if spec.dtype == tf.string]
        self.bounds = (*(Bound(k, axis) for k, axis in self.input_dims), *texts)
        self._explicit = self.program.inputs[: len(self.input_specs)]
        self._strict = strict
        self._plan_programs()
        self._constants: dict[Var, Any] = {}
        self.output_dims: tuple[tuple[int, int], ...] = ()
        if build:
            self._flexible = self._build(self.report, None, None, jit=False)

    def _plan_programs(self) -> None:
        """Everything that follows from `self.program`."""
        abstract = {var: Abstract(Kind.BATCHED) for var in self._explicit}
        abstract |= {var: Abstract(Kind.SHARED) for var in self.program.captures}
        analysis = analyse(self.program, abstract, self._options.randomness)
        self._plan = make_plan(self.program, analysis, self._options, self._resource_names())
        self.report = Report(self.name, self._plan, compiled=lambda: _all_within(self._stages.compiled))
        # What is summed into variables comes last, when it is known which rows are ok.
        self._sums = [op for op in self.program.ops if op.type in SUMMED]
        summed = [var for op in self._sums for var in op.inputs]
        others = [op for op in self.program.ops if op not in self._sums]
        self._before_sums = replace(self.program, ops=others, outputs=[*self.program.outputs, *summed])

    def _check_inputs(self) -> None:
        for name, spec in zip(self.input_names, self.input_specs, strict=True):
            if spec.shape.rank is None:
                raise ValueError(
                    f"input {name!r}: its rank must be known; give a shape, with None for variable dimensions"
                )

    def _refuse(self, emitter: Emitter) -> None:
        """Raise if there is anything that can't be vectorized, naming all of it."""
        reasons = {finding.op: finding.reason for finding in self._plan.refused} | emitter.findings
        if self._strict:
            looped = {op: f"would run once for each row: {reason}" for op, reason in self.report.looped.items()}
            reasons = looped | reasons
        if reasons:
            raise VectorizationError(
                self.name, [Finding(op, reasons[op]) for op in self.program.walk() if op in reasons]
            )

    def _resource_names(self) -> dict[Var, str]:
        names = {id(variable.handle): variable.name.removesuffix(":0") for variable in self.concrete.graph.variables}
        return {var: names[id(tensor)] for var, tensor in self.program.captures.items() if id(tensor) in names}

    # -- programs ---------------------------------------------------------------------------------------------------

    def compile(
        self, rows: int | None = None, lengths: Sequence[int] | None = None, *, jit: bool = False
    ) -> BatchedProgram:
        """A program for batches of one shape, or of any.

        `rows` and `lengths` (one per `self.bounds`) fix all shapes; without them the one flexible program is returned.
        `jit`: compiled by XLA as far as it can be; needs fixed shapes.
        """
        if rows is None and lengths is None:
            if jit:
                raise ValueError("a program compiled by XLA needs fixed shapes: give rows and lengths")
            return self._flexible
        if rows is None or lengths is None or len(lengths) != len(self.bounds):
            raise ValueError(f"give rows and one length for each of the {len(self.bounds)} bounds")
        return self._build(self.report.scratch(), rows, tuple(lengths), jit=jit)

    def revealing(self, values: Sequence[Var]) -> Vectorized:
        """The same function whose programs also return these values of `self.program`, behind the outputs.

        For whoever compares values that the outputs are made of: it has programs, `output_dims` and `output_specs`; the
        wrappers that give results in the function's own structure are the original's.
        """
        other = copy.copy(self)
        for made in ("_stages", "_flexible"):
            other.__dict__.pop(made, None)
        other.program = replace(self.program, outputs=[*self.program.outputs, *values])
        other.output_specs = tuple(tf.TensorSpec(var.shape, var.dtype) for var in other.program.outputs)
        other._plan_programs()
        other._flexible = other._build(other.report, None, None, jit=False)
        return other

    @property
    def unbounded_loops(self) -> bool:
        """Whether the function has a loop that an example's own values decide to leave: some may never do so."""
        loops = self._plan.loops.values()
        return any(loop.predicate == Kind.BATCHED and not (loop.bound or loop.at_most) for loop in loops)

    @property
    def compilable(self) -> bool:
        """Whether there is anything that XLA could compile."""
        return bool(self._stages.compiled)

    @functools.cached_property
    def _stages(self) -> regions.Stages:
        stages = regions.split(self._before_sums, frozenset(self.report.looped))
        return replace(stages, whole=stages.whole and not self._sums)

    def emit(
        self, report: Report, inputs: Sequence[Any], sizes: Sequence[Any], batch: Batch, *, jit: bool
    ) -> list[Value]:
        """Emit the program into the current graph: its outputs, and `batch.ok`. Inputs and lengths are as `compile` has
        them. Raises VectorizationError.
        """
        emitter = Emitter(self._plan, report, self._constants)
        env = self._environment(inputs, sizes)
        for k, axis in self.input_dims:
            size = env[self._explicit[k]].sizes[axis]
            emitter.size_names[id(size)] = f"{self.input_names[k]!r}" + (f" along axis {axis}" if axis else "")
        stages = self._stages if jit and self.compilable else None
        try:
            if stages is None or stages.whole:
                emitter.run_ops(self._before_sums.ops, env, batch)
            else:
                emitter.run_ops(stages.before, env, batch)
                self._run_compiled(stages, emitter, env, batch)
                emitter.run_ops(stages.after, env, batch)
            emitter.run_ops(self._sums, env, batch)
        except Exception:
            self._refuse(emitter)
            raise
        self._refuse(emitter)
        return [emitter.value(var, env) for var in self.program.outputs]

    def run_eagerly(
        self,
        inputs: Sequence[Any],
        sizes: Sequence[Any],
        rows: int,
        lengths: Sequence[int] | None,
        make_emitter: Callable[..., Emitter],
    ) -> None:
        """Run one padded batch op by op, for an emitter that watches; `rows` are real, `lengths` as in `compile`."""
        emitter = make_emitter(self._plan, self.report.scratch(), self._constants)
        env = self._environment([tf.convert_to_tensor(array) for array in inputs], [tf.constant(s) for s in sizes])
        longest = self._longest(None if lengths is None else tuple(lengths))
        batch = Batch(len(inputs[0]), longest=longest, real=rows, randomness=self._options.randomness)
        emitter.run_ops(self._before_sums.ops, env, batch)

    def _build(self, report: Report, rows: int | None, lengths: tuple[int, ...] | None, *, jit: bool) -> BatchedProgram:
        specs = self._batched_specs(rows, lengths)
        size_spec = [tf.TensorSpec([rows], tf.int32) for _ in self.input_dims]
        longest = self._longest(lengths)
        dims: list[tuple[int, int]] = []

        def program(inputs: Sequence[Any], sizes: Sequence[Any], real: Any) -> Any:
            watch_variables(self.concrete.graph.variables)
            count = rows if rows is not None else tf.size(tf.range(real)) if not inputs else tf.shape(inputs[0])[0]
            batch = Batch(count, longest=longest, real=real, randomness=self._options.randomness)
            with under_xla(whole):
                outputs = self.emit(report, inputs, sizes, batch, jit=jit)
            dims[:] = [(k, axis) for k, value in enumerate(outputs) for axis in sorted(value.sizes)]
            reported = self.output_dims if hasattr(self, "_flexible") else dims
            outputs = [_cut(value, k, reported) for k, value in enumerate(outputs)]
            out_lengths = [_lengths(outputs[k], axis, count) for k, axis in reported]
            spare = tf.range(count) >= real
            return [batch.rows(value) for value in outputs], out_lengths, tf.logical_or(batch.ok, spare)

        whole = jit and self._stages.whole
        function = tf.function(program, autograph=False, jit_compile=True if whole else None)
        concrete = function.get_concrete_function(specs, size_spec, tf.TensorSpec([], tf.int32))
        if not hasattr(self, "_flexible"):
            self.output_dims = tuple(dims)
        return BatchedProgram(concrete, len(specs), self.input_dims, len(self.output_specs))

    def _longest(self, lengths: tuple[int, ...] | None) -> int | None:
        if lengths is None or not lengths:
            return None
        texts = [length for bound, length in zip(self.bounds, lengths, strict=True) if bound.axis is None]
        return max(texts or lengths)

    def _batched_specs(self, rows: int | None, lengths: tuple[int, ...] | None) -> list[Any]:
        padded = dict(zip(((b.input, b.axis) for b in self.bounds), lengths or (), strict=False))
        specs = []
        for k, spec in enumerate(self.input_specs):
            shape = [
                size if size is not None else padded.get((k, axis)) for axis, size in enumerate(spec.shape.as_list())
            ]
            shape = [
                max(size, 1) if (k, axis) in padded and size is not None else size for axis, size in enumerate(shape)
            ]
            specs.append(tf.TensorSpec([rows, *shape], spec.dtype))
        return specs

    def _environment(self, inputs: Sequence[Any], sizes: Sequence[Any]) -> dict[Var, Any]:
        env: dict[Var, Any] = {var: shared(tensor) for var, tensor in self.program.captures.items()}
        by_input: dict[int, dict[int, Any]] = {k: {} for k in range(len(inputs))}
        tensors = list(inputs)
        for (k, axis), lengths in zip(self.input_dims, sizes, strict=True):
            room = tensors[k].shape[axis + 1]
            if room is None:
                room = tf.shape(tensors[k])[axis + 1]  # at least 1: `BatchedProgram` sees to it
            by_input[k][axis] = Size(lengths, room)
        for k, var in enumerate(self._explicit):
            env[var] = batched(tensors[k], by_input[k])
        return env

    def _run_compiled(self, stages: regions.Stages, emitter: Emitter, env: dict[Var, Any], batch: Batch) -> None:
        """The compilable stage as a function of its own, under XLA."""
        entering = Boundary([env[var] for var in stages.entering if var in env])
        names = [var for var in stages.entering if var in env]
        leaving: list[Boundary] = []

        def region(tensors: Sequence[Any]) -> Any:
            inner_env = dict(zip(names, entering.rebuild(tensors), strict=True))
            inner = batch.within(None, ok=tf.ones([batch.size], tf.bool))
            with under_xla():
                emitter.run_ops(stages.compiled, inner_env, inner)
            leaving[:] = [Boundary([inner_env[var] for var in stages.leaving])]
            return leaving[0].tensors, inner.ok

        tensors, ok = tf.function(region, autograph=False, jit_compile=True)(entering.tensors)
        batch.check(ok)
        env.update(zip(stages.leaving, leaving[0].rebuild(tensors), strict=True))

    # -- wrappers ---------------------------------------------------------------------------------------------------

    def padded(self, *arrays: Any, lengths: Sequence[Any] = (), rows: int | None = None) -> tuple[Any, list[Any], Any]:
        """The core form: dense `[B, P, ...]` inputs, int32 lengths `[B]` per variable dimension, `rows` real ones.

        Returns (outputs, their lengths, ok); outputs in the function's own structure, lengths per `output_dims`.
        """
        size = self._common_rows(arrays)
        outputs, out_lengths, ok = self._flexible.traced(arrays, lengths, size if rows is None else rows)
        return self._pack(outputs), out_lengths, ok

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """A batch in, a batch out: dense tensors `[B, ...]` or RaggedTensors; ragged out where sizes vary.

        Raises the first failing row's own error; inside a graph, an assertion error if any row is flagged.
        """
        values = [named[name] for name in self.input_names] if named else list(arguments)
        arrays, lengths = self._densify(values)
        outputs, out_lengths, ok = self._flexible.traced(arrays, lengths, self._common_rows(arrays))
        if hasattr(ok, "numpy"):
            if alone := self._run_flagged(arrays, lengths, ok):
                rows = [self._row_of(outputs, out_lengths, row, alone) for row in range(len(ok))]
                return self._pack([self._stacked(k, column) for k, column in enumerate(zip(*rows, strict=True))])
        else:
            message = f"{self.name} rejects an example; called eagerly it says which, and why"
            with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(ok), [message])]):
                outputs = [tf.identity(tensor) for tensor in outputs]
        return self._pack([self._ragged(k, tensor, out_lengths) for k, tensor in enumerate(outputs)])

    def map(self, examples: Sequence[Sequence[Any]]) -> list[Any]:
        """A list of argument tuples to a list of per-example results, as one batch. Raises a failing row's error."""
        if not examples:
            return []
        columns = [[np.asarray(example[k]) for example in examples] for k in range(len(self.input_specs))]
        arrays, lengths = [], []
        for k, column in enumerate(columns):
            array, sizes = self._stack(k, column)
            arrays.append(array)
            lengths += sizes
        outputs, out_lengths, ok = self._flexible.traced(arrays, lengths, len(examples))
        alone = self._run_flagged(arrays, lengths, ok)
        return [self._pack(self._row_of(outputs, out_lengths, row, alone)) for row in range(len(examples))]

    def _common_rows(self, arrays: Sequence[Any]) -> Any:
        """How many examples the inputs hold, one included: a single one isn't stretched to fit the others."""
        counts = [np.shape(array)[0] if isinstance(array, np.ndarray) else dimension(array, 0) for array in arrays]
        known = {count for count in counts if isinstance(count, int)}
        if len(known) > 1:
            each = ", ".join(f"{name} {count}" for name, count in zip(self.input_names, counts, strict=True))
            raise ValueError(f"the inputs of {self.name} differ in their number of examples: {each}")
        if len(known) == 1 and all(isinstance(count, int) for count in counts):
            return counts[0]
        message = f"the inputs of {self.name} differ in their number of examples"
        checks = [tf.debugging.assert_equal(count, counts[0], message) for count in counts[1:]]
        with tf.control_dependencies([check for check in checks if check is not None]):
            return tf.identity(counts[0])

    def _densify(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        arrays, lengths = [], []
        for k, value in enumerate(values):
            axes = [axis for own, axis in self.input_dims if own == k]
            if isinstance(value, tf.RaggedTensor):
                dense = value.to_tensor()
                sizes = [_ragged_lengths(value, axis) for axis in axes]
            else:
                dense = tf.convert_to_tensor(value, self.input_specs[k].dtype)
                sizes = [tf.fill([dimension(dense, 0)], dimension(dense, axis + 1)) for axis in axes]
            arrays.append(dense)
            lengths += sizes
        return arrays, lengths

    def _stack(self, k: int, column: Sequence[Any]) -> tuple[Any, list[Any]]:
        dtype = self.input_specs[k].dtype
        axes = [axis for own, axis in self.input_dims if own == k]
        shape = np.max([item.shape for item in column], axis=0).astype(int) if column[0].ndim else ()
        dense = np.full((len(column), *shape), b"" if dtype == tf.string else 0, dtype.as_numpy_dtype)
        for row, item in enumerate(column):
            place: Any = (row, *(slice(0, size) for size in item.shape))
            dense[place] = item if item.ndim else item.item()
        sizes = [np.array([item.shape[axis] for item in column], np.int32) for axis in axes]
        return tf.constant(dense, dtype), sizes

    def _row(self, k: int, tensor: Any, out_lengths: Sequence[Any], row: int) -> Any:
        cut = [slice(None)] * (tensor.shape.rank - 1)
        for (own, axis), lengths in zip(self.output_dims, out_lengths, strict=True):
            if own == k:
                cut[axis] = slice(0, int(lengths[row]))
        return tensor[(row, *cut)]

    def _row_of(
        self, outputs: Sequence[Any], out_lengths: Sequence[Any], row: int, alone: dict[int, list[Any]]
    ) -> list[Any]:
        return alone.get(row) or [self._row(k, tensor, out_lengths, row) for k, tensor in enumerate(outputs)]

    def _ragged(self, k: int, tensor: Any, out_lengths: Sequence[Any]) -> Any:
        own = {axis: lengths for (out, axis), lengths in zip(self.output_dims, out_lengths, strict=True) if out == k}
        if not own:
            return tensor
        if set(own) == {0}:
            return tf.RaggedTensor.from_tensor(tensor, lengths=own[0])
        return self._stacked(k, [self._row(k, tensor, out_lengths, row) for row in range(tensor.shape[0])])

    def _stacked(self, k: int, rows: Sequence[Any]) -> Any:
        ragged = [axis for own, axis in self.output_dims if own == k]
        if not ragged:
            return tf.stack(rows)
        depth = max(ragged)
        return tf.ragged.stack([tf.RaggedTensor.from_tensor(r, ragged_rank=depth) if depth else r for r in rows])

    def _run_flagged(self, arrays: Sequence[Any], lengths: Sequence[Any], ok: Any) -> dict[int, list[Any]]:
        """What the function itself says of each row that isn't `ok`: its outputs, or it raises."""
        return {int(row): self.run_alone(arrays, lengths, int(row)) for row in np.flatnonzero(~ok.numpy())}

    def run_alone(self, arrays: Sequence[Any], lengths: Sequence[Any], row: int) -> list[Any]:
        """The function's own flat outputs for one row of a batch; raises what the function raises."""
        example = []
        for k, array in enumerate(arrays):
            item = array[row]
            for (own, axis), sizes in zip(self.input_dims, lengths, strict=True):
                if own == k:
                    index = [slice(None)] * axis + [slice(0, int(sizes[row]))]
                    item = item[tuple(index)]
            example.append(item)
        outputs: list[Any] = tf.nest.flatten(self.concrete(*example), expand_composites=True)
        return outputs

    def _pack(self, outputs: Sequence[Any]) -> Any:
        return tf.nest.pack_sequence_as(self._structure, list(outputs), expand_composites=True)


def _all_within(ops: Sequence[Op]) -> frozenset[Op]:
    inner = (_all_within(body.ops) for op in ops for body in op.bodies.values())
    return frozenset(ops).union(*inner)


def _cut(value: Any, k: int, reported: Sequence[tuple[int, int]]) -> Any:
    """Without padding along axes that the flexible program knows to be as long in every row."""
    for axis in [axis for axis in value.sizes if (k, axis) not in reported]:
        longest = tf.reduce_max(value.sizes[axis].lengths)
        sizes = {other: size for other, size in value.sizes.items() if other != axis}
        value = batched(pad_axis(value.tensor, axis + 1, longest), sizes)
    return value


def _lengths(value: Any, axis: int, count: Any) -> Any:
    """A row's size along an axis that differs between rows, or may in another program of the same function."""
    if axis in value.sizes:
        return value.sizes[axis].lengths
    return tf.fill([count], dimension(value.tensor, axis + int(value.batched)))


def _output_names(structure: Any, count: int) -> tuple[str, ...]:
    if isinstance(structure, Mapping) and len(structure) == count:
        return tuple(sorted(map(str, structure)))
    return ("output",) if count == 1 else tuple(f"output_{k}" for k in range(count))


def _ragged_lengths(value: Any, axis: int) -> Any:
    if axis == 0:
        return tf.cast(value.row_lengths(), tf.int32)
    inner = value.values
    return tf.cast(
        tf.reduce_max(tf.RaggedTensor.from_row_splits(inner.row_lengths(axis), value.row_splits), axis=1),
        tf.int32,
    )
