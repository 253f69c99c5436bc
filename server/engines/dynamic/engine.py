"""The `dynamic` engine: a new graph for every batch, scheduled by agenda or by depth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines import OnStep
from server.engines.batch_result import BatchResult, BatchStats, Example, Outputs, as_array
from server.engines.dynamic.expansion import Expander, Expansion
from server.engines.dynamic.schedule import Graph, Indices, by_agenda, by_depth
from server.engines.dynamic.signatures import Signatures
from server.engines.dynamic.tape import Tape
from server.engines.dynamic.values import ExampleFailed, Ref, Shared
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


class DynamicEngine(OneProgramEngine):
    """Batches at run time, by DyNet's agenda. Exact: no row is padded, and no row rides a loop it has left."""

    name = "dynamic"
    report_text = "each example's graph is built anew; nodes of one signature run together, by the agenda"
    scheduler: Callable[[Graph], list[Indices]] = staticmethod(by_agenda)

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        super().__init__(spec, settings)
        program = normalise(self._per_example.concrete)
        kinds = {var: Abstract(Kind.BATCHED) for var in program.inputs}
        refused = make_plan(program, analyse(program, kinds)).refused
        if refused:
            raise ModelLoadError(f"model '{spec.name}' can't be batched: {'; '.join(str(item) for item in refused)}")
        self._expander = Expander(program, Signatures())

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Runs the samples once, so that kernels are loaded and signatures known."""
        self.run(samples[:64], self._times[0].bucket)
        on_step("compile", 1, 1)

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        started_at = time.perf_counter()
        tape = Tape(self._expander.signatures, self.scheduler)
        failure = ""
        answers: list[Outputs | None] | None
        try:
            answers = _Batch(self._expander, tape, rows).answer([tensor.dtype for tensor in self.outputs])
        except (tf.errors.OpError, ValueError) as error:
            answers, failure = None, row_message(error)
        computed_at = time.perf_counter()
        ok = [answer is not None for answer in answers] if answers is not None else []
        merged, alone = answer_alone(self._per_example, rows, answers, ok)  # type: ignore[arg-type]  # where ok only
        return BatchResult(
            merged,
            BatchStats(
                assembly_s=tape.spent.schedule_s + tape.spent.gather_s,
                compute_s=computed_at - started_at - tape.spent.schedule_s - tape.spent.gather_s,
                split_s=time.perf_counter() - computed_at,
                isolated=alone,
                program="alone" if answers is None else "nodes",
                failure=failure,
                nodes=tape.spent.nodes,
                launches=tape.spent.launches,
            ),
        )


class DynamicDepthEngine(DynamicEngine):
    """The same, scheduled by depth, as in TensorFlow Fold."""

    name = "dynamic_depth"
    report_text = "each example's graph is built anew; nodes of one depth and signature run together"
    scheduler = staticmethod(by_depth)


class _Batch:
    """The expansions of one batch, taking turns."""

    def __init__(self, expander: Expander, tape: Tape, rows: Sequence[Example]) -> None:
        self._tape = tape
        self._array = expander.array
        self._growing = {
            number: Expansion(expander, tape, number).grow([np.asarray(array) for array in row])
            for number, row in enumerate(rows)
        }
        self._outputs: dict[int, Any] = {}

    def answer(self, dtypes: Sequence[str]) -> list[Outputs | None]:
        """Each example's answer; None for one that must be answered alone."""
        count = len(self._growing)
        needed: dict[int, Ref | None] = dict.fromkeys(self._growing)
        while needed:
            needed = self._advance(needed)
            self._tape.run()
            needed = {number: ref for number, ref in needed.items() if number not in self._tape.failed}
        return [self._answer(number, dtypes) for number in range(count)]

    def _advance(self, needed: dict[int, Ref | None]) -> dict[int, Ref | None]:
        """Each as far as it gets; which value each of those that go on waits for."""
        waiting: dict[int, Ref | None] = {}
        for number, ref in needed.items():
            growing = self._growing[number]
            try:
                waiting[number] = growing.send(None if ref is None else self._tape.value(ref))
            except StopIteration as done:
                self._outputs[number] = done.value
            except ExampleFailed:
                self._tape.failed.add(number)
        return waiting

    def _answer(self, number: int, dtypes: Sequence[str]) -> Outputs | None:
        if number in self._tape.failed or number not in self._outputs:
            return None
        return tuple(
            as_array(self._read(value), dtype) for value, dtype in zip(self._outputs[number], dtypes, strict=True)
        )

    def _read(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self._tape.value(value)
        return self._array(value) if isinstance(value, Shared) else value
