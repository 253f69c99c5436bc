"""The ways that run in TensorFlow: TensorFlow's own, by hand, and batchd's engines."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from loadtest.bench.ways import Padding, Trial, Unavailable, Way
from loadtest.workloads import workload
from loadtest.workloads.problem import Workload
from server.engines import build_engine
from server.engines.assembly import Assembly
from server.engines.batch_result import BatchStats, Example, Outputs, RowError
from server.engines.buckets import length_levels
from server.engines.per_example import PerExample
from server.engines.settings import EngineSettings
from server.model_description import Bucket
from server.registry import ModelSpec, collect_models, model
from vectorizer import vectorize
from vectorizer.tf_internals import flat_call


def configure(threads: int) -> None:
    """Before anything runs: the size of TensorFlow's thread pools."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def make(name: str, choice: str, trial: Trial) -> Way:
    """The way called `choice` for the workload of that name. Raises Unavailable."""
    which = workload(name)
    kind, _, engine = choice.partition(":")
    return _Engine(which, engine, trial) if kind == "engine" else _WAYS[choice](which, trial)


class _PerExample:
    def __init__(self, which: Workload, trial: Trial) -> None:
        self._call = PerExample(_model_spec(which, trial.rows))

    def answer(self, examples: Sequence[Example]) -> list[Outputs]:
        return [self._call(example) for example in examples]

    def figures(self) -> dict[str, float]:
        return {}


class _Dense:
    """A tf.function over the padded batch: (inputs, lengths) -> outputs."""

    def __init__(self, which: Workload, function: Callable[..., Any], limits: list[int] | None, rows: int, jit: bool):
        problem = which.problem
        self._padding = Padding(problem, limits)
        fixed = dict(zip(problem.variable_dims, limits or [], strict=False))
        specs = [
            tf.TensorSpec(
                [rows, *(fixed.get((k, axis)) if size is None else size for axis, size in enumerate(tensor.shape))],
                tensor.dtype,
            )
            for k, tensor in enumerate(problem.inputs)
        ]
        sizes = [tf.TensorSpec([rows], tf.int32) for _ in problem.variable_dims]
        traced = tf.function(function, jit_compile=jit or None)
        self._call = flat_call(traced.get_concrete_function(specs, sizes))

    def answer(self, examples: Sequence[Example]) -> list[Outputs]:
        batch = self._padding.stack(examples)
        flat = [tf.constant(array) for array in (*batch.inputs, *batch.lengths)]
        return self._padding.split([output.numpy() for output in self._call(flat)], batch)

    def figures(self) -> dict[str, float]:
        return {"padding_ratio": self._padding.ratio}


def _map_fn(which: Workload, trial: Trial) -> Way:
    problem = which.problem
    source = [problem.output_lengths.get((k, 0)) for k in range(len(problem.outputs))]

    def one(row: Any) -> Any:
        inputs, lengths = row
        cut = list(inputs)
        for (k, axis), length in zip(problem.variable_dims, lengths, strict=True):
            assert axis == 0
            cut[k] = cut[k][:length]
        outputs = tf.nest.flatten(which.function(*cut))
        return [
            output if like is None else _filled(output, tf.shape(inputs[like[0]])[0])
            for output, like in zip(outputs, source, strict=True)
        ]

    signature = [
        tf.TensorSpec([None if size is None else size for size in tensor.shape], tensor.dtype)
        for tensor in problem.outputs
    ]

    def function(inputs: Sequence[Any], lengths: Sequence[Any]) -> Any:
        return tf.map_fn(one, (list(inputs), list(lengths)), fn_output_signature=signature)

    return _Dense(which, function, None, trial.rows, jit=False)


def _filled(output: Any, room: Any) -> Any:
    missing = [[0, room - tf.shape(output)[0]], *([[0, 0]] * (output.shape.rank - 1))]
    return tf.pad(output, missing)


def _vectorized_map(which: Workload, trial: Trial) -> Way:
    if which.padded is None and which.problem.variable_dims:
        raise Unavailable("needs examples of one shape")
    one = which.padded or (lambda inputs, lengths: tf.nest.flatten(which.function(*inputs)))

    def function(inputs: Sequence[Any], lengths: Sequence[Any]) -> Any:
        rows = (list(inputs), list(lengths))
        return tf.vectorized_map(lambda row: one(row[0], row[1]), rows, fallback_to_while_loop=False)

    return _Dense(which, function, trial.longest(which.problem), trial.rows, jit=False)


def _by_hand(which: Workload, trial: Trial, jit: bool = False) -> Way:
    if which.hand_batched is None:
        raise Unavailable("nobody wrote one")
    limits = trial.longest(which.problem) if jit else None
    return _Dense(which, which.hand_batched, limits, trial.rows, jit)


class _Static:
    """The vectorized program as `StaticEngine` runs it: the plain one unpadded, the compiled one at its bucket."""

    def __init__(self, which: Workload, trial: Trial, jit: bool = False) -> None:
        problem = which.problem
        vectorized = vectorize(which.function, which.specs, **which.options)
        self._assembly = Assembly(problem.inputs, problem.outputs, vectorized.output_dims)
        self._limits: list[int] | None = None
        self._figures: dict[str, float] = {}
        if not jit:
            self._call = vectorized.compile()
            return
        bounds = [(bound.input, bound.axis) for bound in vectorized.bounds]
        rows = [row for batch in trial.batches for row in batch]
        level = length_levels([tuple(_size(row, k, axis) for k, axis in bounds) for row in rows])[-1]
        self._limits = [level[bounds.index(dim)] for dim in problem.variable_dims]
        self._call = vectorized.compile(rows=trial.rows, lengths=level, jit=True)

    def answer(self, examples: Sequence[Example]) -> list[Outputs]:
        started_at = time.perf_counter()
        batch = self._assembly.stack(examples, len(examples), self._limits)
        assembled_at = time.perf_counter()
        results = self._call(batch.inputs, batch.lengths, batch.rows)
        outputs, lengths = (list(map(np.asarray, tensors)) for tensors in results[:2])
        if not np.asarray(results[2]).all():
            raise RuntimeError("the vectorized program refuses a row")
        computed_at = time.perf_counter()
        answers = self._assembly.split(outputs, lengths, batch.rows)
        self._figures = {
            "launches": 1,
            "padding_ratio": batch.padding_ratio,
            "assembly_s": assembled_at - started_at,
            "compute_s": computed_at - assembled_at,
            "split_s": time.perf_counter() - computed_at,
        }
        return answers

    def figures(self) -> dict[str, float]:
        return self._figures


class _Engine:
    """An engine of the server, as it is."""

    def __init__(self, which: Workload, name: str, trial: Trial) -> None:
        self._engine = build_engine(name, _model_spec(which, trial.rows), EngineSettings(engine=name))
        self._bucket = Bucket(trial.rows, ())
        self._stats = BatchStats()
        self._engine.prepare(trial.batches[0], lambda phase, done, total: None)

    def answer(self, examples: Sequence[Example]) -> list[Outputs]:
        result = self._engine.run(examples, self._bucket)
        self._stats = result.stats
        if result.stats.failure or result.stats.isolated:
            raise RuntimeError(f"{result.stats.isolated} rows ran alone: {result.stats.failure or 'refused'}")
        answers = [row for row in result.rows if not isinstance(row, RowError)]
        if len(answers) < len(result.rows):
            raise RuntimeError(f"{len(result.rows) - len(answers)} rows were refused")
        return answers

    def figures(self) -> dict[str, float]:
        values = dataclasses.asdict(self._stats).items()
        return {key: float(value) for key, value in values if isinstance(value, int | float) and key not in _OF_SERVING}


def _size(example: Example, k: int, axis: int | None) -> int:
    assert axis is not None, "no workload has text for input"
    return int(example[k].shape[axis])


_OF_SERVING = ("rows_padded", "isolated", "compiles", "cold")


def _model_spec(which: Workload, rows: int) -> ModelSpec:
    return dataclasses.replace(_registered(which.name), max_batch_size=rows)


@functools.cache
def _registered(name: str) -> ModelSpec:
    which = workload(name)
    with collect_models() as found:
        model(name=name, inputs=which.specs)(which.function)
    return found[0]


_WAYS: dict[str, Callable[[Workload, Trial], Way]] = {
    "per_example": _PerExample,
    "map_fn": _map_fn,
    "vectorized_map": _vectorized_map,
    "by_hand": _by_hand,
    "by_hand_xla": lambda which, trial: _by_hand(which, trial, jit=True),
    "static": _Static,
    "static_xla": lambda which, trial: _Static(which, trial, jit=True),
}
