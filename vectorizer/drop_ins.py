"""`vectorized_map` and `pfor`, which take the place of TensorFlow's functions of these names.

They differ in what they promise: every element is answered as `fn` alone would answer it, errors included; what can't
be vectorized so is refused, not answered wrongly. Nothing falls back to a loop over all elements: an op without a rule
is looped on its own, and `warn` says so.

Called eagerly, the program is kept, and used again for the same function (also for another lambda of the same line of
code) and elements of the same kind, as long as nothing that the function reads has changed (`guards.py`); a batch of
another size needs no other program. Within a graph the batched ops are added to that graph, with static sizes where
these are known, and harmless to XLA if it is compiled.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer import tf_internals
from vectorizer.batch import Batch
from vectorizer.composites import Element, Padded, Result, take_element, take_result
from vectorizer.effects import Options
from vectorizer.guards import Dependencies
from vectorizer.reductions import PforConfig
from vectorizer.vectorized import Vectorized
from vectorizer.xla_kernels import under_xla

_PROGRAMS_KEPT = 256
_OPTIONS = Options(randomness="different")  # as TensorFlow's: every element draws its own


@tf_internals.without_autograph
def vectorized_map(fn: Callable[..., Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """`fn` on each element of `elems`, a tensor or nest of tensors that agree in their first dimension (or have 1).

    RaggedTensors and SparseTensors have their rows as elements. Returns the results stacked, in the structure that `fn`
    returns; RaggedTensors where their sizes differ; sparse results as one SparseTensor, None for None.

    Raises VectorizationError (a ValueError) for what can't be vectorized, and with `fallback_to_while_loop=False` for
    any op that would be looped over the elements; in eager mode, the error that `fn` raises for the first element that
    it rejects; in a graph, InvalidArgumentError when it runs (nothing under XLA, which drops assertions).
    """
    leaves = tf.nest.flatten(elems)
    elements = [take_element(item) for item in leaves]
    if not elements:
        raise ValueError("vectorized_map needs at least one tensor to map over")
    rows = _common_rows([element.rows for element in elements])
    parts = [_repeated(part, element.rows, rows) for element in elements for part in element.parts]

    def on_one(*arguments: Any) -> Any:
        return fn(tf.nest.pack_sequence_as(elems, _leaves(elements, arguments)))

    call = _Call(fn, on_one, parts, rows, fallback_to_while_loop, warn)
    kinds = tuple((type(item).__name__, len(element.parts)) for item, element in zip(leaves, elements, strict=True))
    return call.run((_shape_of(elems), kinds))


@tf_internals.without_autograph
def pfor(
    loop_fn: Callable[..., Any],
    iters: Any,
    fallback_to_while_loop: bool = True,
    parallel_iterations: int | None = None,
    warn: bool = False,
) -> Any:
    """`loop_fn(i)` for i (an int32 scalar) in 0 .. `iters` - 1, results stacked as `vectorized_map` does.

    A loop function with an argument `pfor_config` gets one that reduces over all iterations (`reductions.py`).
    `parallel_iterations`, by which TensorFlow bounds the memory taken, is checked and not needed: all run together.
    """
    if parallel_iterations is not None and parallel_iterations < 2:
        raise ValueError(f"parallel_iterations must be None or an integer above 1, got {parallel_iterations}")
    known = tf.get_static_value(iters) if tf.is_tensor(iters) else iters
    rows = int(known) if known is not None else tf.cast(iters, tf.int32)
    config = PforConfig(rows if isinstance(rows, int) else None) if _takes_config(loop_fn) else None
    if config is not None and parallel_iterations is not None:
        raise ValueError("parallel_iterations can't be combined with an argument pfor_config")
    on_one = loop_fn if config is None else lambda i: loop_fn(i, pfor_config=config)
    call = _Call(loop_fn, on_one, [Padded(tf.range(rows), {})], rows, fallback_to_while_loop, warn, config)
    return call.run(("pfor", None if config is None else rows))


@dataclass
class _Kept:
    """A program, how its results are put together, and what keeps its key valid."""

    program: Vectorized
    structure: Any
    results: Sequence[Result]
    dependencies: list[Dependencies] = field(default_factory=list)


@dataclass
class _Call:
    """One call of either function: `on_one` takes one row of each of `parts`."""

    fn: Callable[..., Any]
    on_one: Callable[..., Any]
    parts: Sequence[Padded]
    rows: Any
    fallback: bool
    warn: bool
    config: PforConfig | None = None
    built: bool = False

    def run(self, kind: Hashable) -> Any:
        inputs = [part.tensor for part in self.parts]
        lengths = [part.lengths[axis] for part in self.parts for axis in sorted(part.lengths)]
        found, kept = (self._run_kept if tf.executing_eagerly() else self._run_here)(kind, inputs, lengths)
        if self.warn and self.built:
            ops = ", ".join(sorted({entry.op_type for entry in kept.program.report.fallbacks}))
            if ops:
                warnings.warn(f"looped over the elements, for want of a rule: {ops}", stacklevel=4)
        return _put_together(kept, found)

    def _run_here(self, _: Hashable, inputs: Sequence[Any], lengths: Sequence[Any]) -> tuple[list[Padded], _Kept]:
        """Add the batched ops to the current graph."""
        kept = self._vectorized(build=False)
        v, batch = kept.program, Batch(self.rows, even=True, randomness=_OPTIONS.randomness)
        with under_xla(tf_internals.in_xla_context()):
            values = v.emit(v.report, inputs, lengths, batch, jit=False)
            found = [
                Padded(batch.rows(value), {axis: size.lengths for axis, size in value.sizes.items()})
                for value in values
            ]
            ok = batch.ok if batch.checked else None
        if ok is not None:
            message = f"{v.name} rejects an element; called eagerly it says which, and why"
            with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(ok), [message])]):
                found = [Padded(tf.identity(part.tensor), part.lengths) for part in found]
        for part in found:
            part.tensor.set_shape([self.rows if isinstance(self.rows, int) else None, *part.tensor.shape[1:]])
        return found, kept

    def _run_kept(self, kind: Hashable, inputs: Sequence[Any], lengths: Sequence[Any]) -> tuple[list[Padded], _Kept]:
        """Run the program that was made for this function and such elements, or make it."""
        dependencies = Dependencies(self.fn)
        shapes = tuple((spec.dtype, tuple(spec.shape)) for spec in self._specs())
        key = (kind, shapes, self.fallback)
        kept = _programs.get((dependencies.key, key)) if dependencies.complete else None
        if kept is None:
            # Tracing may change what the function reads (a layer is built, a call is counted): both are its program's.
            kept = self._vectorized(build=True)
            for seen in (dependencies, Dependencies(self.fn)):
                if seen.complete:
                    kept.dependencies.append(seen)
                    _programs.add((seen.key, key), kept)
        v = kept.program
        outputs, out_lengths, ok = v.compile().traced(inputs, lengths, self.rows)
        outputs = self._run_flagged(v, inputs, lengths, outputs, ok)
        by_axis: list[dict[int, Any]] = [{} for _ in outputs]
        for (k, axis), own in zip(v.output_dims, out_lengths, strict=True):
            by_axis[k][axis] = own
        return [Padded(tensor, own) for tensor, own in zip(outputs, by_axis, strict=True)], kept

    def _run_flagged(
        self, v: Vectorized, inputs: Sequence[Any], lengths: Sequence[Any], outputs: Sequence[Any], ok: Any
    ) -> list[Any]:
        """The outputs, with rows that aren't `ok` answered, or rejected, by the function itself."""
        answered = list(outputs)
        for row in map(int, np.flatnonzero(~ok.numpy())):
            if self.config is not None and self.config.used:
                raise tf.errors.InvalidArgumentError(None, None, f"{v.name} rejects iteration {row}")
            alone = v.run_alone(inputs, lengths, row)
            if v.output_dims:
                raise tf.errors.InvalidArgumentError(None, None, f"{v.name} has no place for iteration {row}")
            answered = [
                tf.tensor_scatter_nd_update(tensor, [[row]], [own]) for tensor, own in zip(answered, alone, strict=True)
            ]
        return answered

    def _specs(self) -> list[Any]:
        """Specs of one row: sizes that differ between rows are None, and those that aren't known."""
        specs = []
        for part in self.parts:
            shape = [None if axis in part.lengths else size for axis, size in enumerate(part.tensor.shape[1:])]
            specs.append(tf.TensorSpec(shape, part.tensor.dtype))
        return specs

    def _vectorized(self, *, build: bool) -> _Kept:
        self.built = True
        structure: list[Any] = []
        results: list[Result] = []
        convert = tf_internals.with_autograph(self.on_one)

        def recorded(*arguments: Any) -> Any:
            answer = convert(*arguments)
            leaves = [take_result(item) for item in tf.nest.flatten(answer)]
            structure[:] = [tf.nest.map_structure(lambda _: 0, answer)]
            results[:] = [result for _, result in leaves]
            return [tensor for tensors, _ in leaves for tensor in tensors]

        recorded.__name__ = getattr(self.fn, "__name__", type(self.fn).__name__)
        specs = self._specs()
        equal = [
            (k, axis)
            for k, (part, spec) in enumerate(zip(self.parts, specs, strict=True))
            for axis, size in enumerate(spec.shape)
            if size is None and axis not in part.lengths
        ]
        v = Vectorized(
            tf_internals.without_autograph(recorded),
            specs,
            strict=not self.fallback,
            options=_OPTIONS,
            equal_dims=equal,
            build=build,
        )
        return _Kept(v, structure[0], results)


class _Programs:
    """The programs of eager calls, those used last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def get(self, key: Hashable) -> _Kept | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def add(self, key: Hashable, kept: _Kept) -> None:
        with self._lock:
            self._kept[key] = kept
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)


_programs = _Programs(_PROGRAMS_KEPT)


def _common_rows(counts: Sequence[Any]) -> Any:
    """How many elements there are: a first dimension of 1 fits any number."""
    known = [count for count in counts if isinstance(count, int)]
    distinct = set(known) - {1}
    if len(distinct) > 1:
        raise ValueError(f"the tensors mapped over differ in their number of elements: {sorted(distinct)}")
    if len(known) == len(counts):
        return distinct.pop() if distinct else 1
    return tf.reduce_max(tf.stack(list(counts))) if len(counts) > 1 else counts[0]


def _repeated(part: Padded, own: Any, rows: Any) -> Padded:
    if own is rows or (isinstance(own, int) and isinstance(rows, int) and own == rows):
        return part

    def repeat(tensor: Any) -> Any:
        shape = tf.concat([[rows], tf.shape(tensor)[1:]], 0)
        repeated = tf.broadcast_to(tensor, shape)
        repeated.set_shape([rows if isinstance(rows, int) else None, *tensor.shape[1:]])
        return repeated

    return Padded(repeat(part.tensor), {axis: repeat(lengths) for axis, lengths in part.lengths.items()})


def _leaves(elements: Sequence[Element], arguments: Sequence[Any]) -> list[Any]:
    leaves, position = [], 0
    for element in elements:
        count = len(element.parts)
        leaves.append(element.build(arguments[position : position + count]))
        position += count
    return leaves


def _put_together(kept: _Kept, found: Sequence[Padded]) -> Any:
    leaves, position = [], 0
    for result in kept.results:
        leaves.append(result.build(found[position : position + result.count]))
        position += result.count
    return tf.nest.pack_sequence_as(kept.structure, leaves)


def _shape_of(structure: Any) -> Hashable:
    """The nest of a structure, as text: leaves left out."""
    return repr(tf.nest.map_structure(lambda _: 0, structure))


def _takes_config(loop_fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(loop_fn).parameters
    except (TypeError, ValueError):
        return False
    bound = getattr(loop_fn, "keywords", None) or {}
    return "pfor_config" in parameters and "pfor_config" not in bound
