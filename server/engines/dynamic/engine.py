"""The `dynamic` engine: a new graph for every batch, scheduled by agenda or by depth."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from threadpoolctl import ThreadpoolController

from server.engines import OnStep
from server.engines.batch_result import BatchResult, BatchStats, Example, Outputs, RowError, as_array
from server.engines.dynamic.expansion import Expander, Expansion, Unbatchable
from server.engines.dynamic.schedule import Graph, Launches, by_agenda, by_depth
from server.engines.dynamic.tape import Tape
from server.engines.dynamic.values import Column, ExamplesFailed, entries
from server.engines.error_text import row_message
from server.engines.isolation import answer_alone
from server.engines.one_program import OneProgramEngine
from server.engines.settings import EngineSettings
from server.errors import ModelLoadError
from server.model_description import Bucket
from server.registry import ModelSpec
from vectorizer.analysis import analyse
from vectorizer.kinds import Abstract, Kind
from vectorizer.plan import make_plan
from vectorizer.tracing import normalise

_BLAS = ThreadpoolController()  # launches are small: handing them to threads costs more than they take


class DynamicEngine(OneProgramEngine):
    """Batches at run time, by DyNet's agenda. Exact: no row is padded, and no row rides a loop it has left."""

    name = "dynamic"
    report_text = "each example's graph is built anew; nodes of one signature run together, by the agenda"
    scheduler: Callable[[Graph], Launches] = staticmethod(by_agenda)
    fuse = False  # whether a straight-line region is one node

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        super().__init__(spec, settings)
        program = normalise(self._per_example.concrete)
        kinds = {var: Abstract(Kind.BATCHED) for var in program.inputs}
        refused = make_plan(program, analyse(program, kinds)).refused
        if refused:
            raise ModelLoadError(f"model '{spec.name}' can't be batched: {'; '.join(str(item) for item in refused)}")
        self._expander = Expander(program, fuse=self.fuse)
        self._one_at_a_time = threading.Lock()

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Runs the samples once, so that kernels are loaded and signatures known."""
        self.run(samples[:64], self._times[0].bucket)
        on_step("compile", 1, 1)

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        started_at = time.perf_counter()
        batch = _Batch(self._expander, self.scheduler, rows, [tensor.dtype for tensor in self.outputs])
        failure = ""
        answers: list[Outputs | None] | None
        try:
            with self._one_at_a_time, np.errstate(all="ignore"), _BLAS.limit(limits=1, user_api="blas"):
                answers = batch.answer()
                batch.close()
        except (tf.errors.OpError, ValueError, Unbatchable) as error:
            answers, failure = None, row_message(error)
        done_at = time.perf_counter()
        ok = [answer is not None for answer in answers] if answers is not None else []
        merged, alone = answer_alone(self._per_example, rows, answers, ok)  # type: ignore[arg-type]  # where ok only
        for number, reason in batch.failed.items():
            if not isinstance(merged[number], RowError):
                failure = failure or f"an example was answered alone: {reason}"
        spent = batch.spent
        split_s = time.perf_counter() - done_at + batch.split_s
        assembly_s = done_at - started_at - spent.compute_s - batch.split_s
        return BatchResult(
            merged,
            BatchStats(
                assembly_s=assembly_s,
                compute_s=spent.compute_s,
                split_s=split_s,
                isolated=alone,
                program="alone" if answers is None else "nodes",
                failure=failure,
                nodes=spent.nodes,
                launches=spent.launches,
                build_s=assembly_s - spent.schedule_s - spent.gather_s,
                schedule_s=spent.schedule_s,
                gather_s=spent.gather_s,
            ),
        )


class DynamicDepthEngine(DynamicEngine):
    """The same, scheduled by depth, as in TensorFlow Fold."""

    name = "dynamic_depth"
    report_text = "each example's graph is built anew; nodes of one depth and signature run together"
    scheduler = staticmethod(by_depth)


class DynamicHybridEngine(DynamicEngine):
    """The same, but regions without choices are vectorized beforehand and launched as one node, as in ACRoBat."""

    name = "dynamic_hybrid"
    report_text = "each example's graph is built anew, of straight-line regions; alike ones run together, by the agenda"
    fuse = True


class DynamicAutoEngine(DynamicEngine):
    """Whichever of the ways answers the samples fastest: agenda, depth, or regions by agenda."""

    name = "dynamic_auto"
    report_text = "each example's graph is built anew; the fastest on the samples of agenda, depth and regions"

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Runs the samples in each way, once to load, once to measure; keeps the fastest."""
        rows, bucket = samples[:64], self._times[0].bucket
        fastest, kept = float("inf"), (self._expander, self.scheduler)
        fused = Expander(self._expander.program, fuse=True)
        for way in ((self._expander, by_agenda), (self._expander, by_depth), (fused, by_agenda)):
            self._expander, self.scheduler = way
            self.run(rows, bucket)
            started_at = time.perf_counter()
            self.run(rows, bucket)
            seconds = time.perf_counter() - started_at
            if seconds < fastest:
                fastest, kept = seconds, way
        self._expander, self.scheduler = kept
        on_step("compile", 1, 1)


class _Batch:
    """One batch, grown and run; anew without them where examples fail."""

    def __init__(self, expander: Expander, scheduler: Any, rows: Sequence[Example], dtypes: Sequence[str]) -> None:
        self._expander, self._scheduler, self._dtypes = expander, scheduler, dtypes
        self._rows = [[np.asarray(array) for array in row] for row in rows]
        self._tables = expander.tables()
        self.split_s = 0.0
        self.failed: dict[int, str] = {}
        self._tape = self._new_tape()

    @property
    def spent(self) -> Any:
        """Of the last attempt."""
        return self._tape.spent

    def close(self) -> None:
        """What the batch computed isn't read any more."""
        self._tables.signatures.trim()

    def _new_tape(self) -> Tape:
        return Tape(self._tables.signatures, self._scheduler)

    def answer(self) -> list[Outputs | None]:
        """Each example's answer; None for one that must be answered alone."""
        going = list(range(len(self._rows)))
        answers: list[Outputs | None] = [None] * len(going)
        while going:
            try:
                for number, answer in zip(going, self._attempt(going), strict=True):
                    answers[number] = answer
                break
            except ExamplesFailed as failed:
                self.failed.update(dict.fromkeys(failed.examples, failed.reason))
                going = [number for number in going if number not in failed.examples]
                self._tape = self._new_tape()
        return answers

    def _attempt(self, going: Sequence[int]) -> list[Outputs]:
        expansion = Expansion(self._expander, self._tape, self._tables)
        outputs = self._finished(expansion.grow([self._rows[number] for number in going], going))
        self._tape.run()
        split_at = time.perf_counter()
        columns = [self._arrays(column, dtype, len(going)) for column, dtype in zip(outputs, self._dtypes, strict=True)]
        answers = list(zip(*columns, strict=True))
        self.split_s = time.perf_counter() - split_at
        return answers

    def _finished(self, growing: Generator[None, None, Any]) -> Any:
        while True:
            try:
                next(growing)
            except StopIteration as done:
                return done.value
            self._tape.run()

    def _arrays(self, column: Column, dtype: str, count: int) -> list[Any]:
        kind, data = column
        if kind.what == "value":
            return [as_array(row, dtype) for row in self._tape.read(data, kind.shape, kind.dtype)]
        if kind.what == "seq":
            sizes = data.sizes()
            own = np.arange(data.ids.shape[1]) < sizes[:, None]
            elements = self._tape.read(data.ids[own], kind.shape, kind.dtype)
            return [as_array(rows, dtype) for rows in np.split(elements, np.cumsum(sizes)[:-1])]
        return [
            as_array(
                entry.array
                if entry.number is None
                else self._tape.read(np.array([entry.number]), entry.shape, kind.dtype)[0],
                dtype,
            )
            for entry in entries(column, count)
        ]
