"""The statically vectorized program at fixed shapes only: an example gets the same bits in whatever traffic it comes.

* An example always runs in the smallest lengths that hold it, never in a neighbour's: what is asked for together but
  belongs to different lengths is run apart here. (The scheduler knows, and doesn't put it together.)
* A batch is padded to one of the row sizes that were certified to give equal bits. There is no other program: an
  example that no lengths hold is refused.
* A row that the program refuses is answered by the function itself, alone. Where a batch raises as a whole its rows run
  by themselves, each through the same program; what raises even then is answered by the function itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines import OnStep
from server.engines.batch_result import BatchResult, BatchStats, Example, Outputs, RowError
from server.engines.buckets import length_levels, row_ladder
from server.engines.error_text import row_message
from server.engines.measure import Lengths
from server.engines.reproducible.choosing import Chooser, Chosen
from server.engines.reproducible.company import Company
from server.engines.reproducible.identity import function_digest, machine_digest, threads_within_an_op
from server.engines.reproducible.programs import FixedProgram, Kind, Programs
from server.engines.reproducible.refusal import refusal, unsteady
from server.engines.reproducible.trials import bits_equal
from server.engines.reproducible.witnesses import find_witnesses
from server.engines.settings import EngineSettings
from server.engines.static import StaticEngine
from server.engines.stretching import stretch
from server.errors import ModelLoadError
from server.model_description import Bucket, BucketTime, Reproducibility, TensorDescription
from server.registry import ModelSpec

_PROBES = 24
_STRETCHED = 2
_STRANGERS = 4
_REPEATS = 3


class ReproducibleEngine(StaticEngine):
    """Runs batches at the shapes that were certified, and at no others."""

    lengths_apart = True

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        require_cpu(spec, settings)
        super().__init__(spec, settings)
        self._max_length = spec.max_length
        found = find_witnesses(self._vectorized.program)
        witnesses = [TensorDescription(v.name, v.dtype.name, v.shape.as_list()) for v in found]
        self._vectorized = self._vectorized.revealing(found) if found else self._vectorized
        self._programs = Programs(self._vectorized, self.inputs, self.outputs, witnesses, self.bounds)
        self._levels: list[Lengths] = []
        self._chosen: Chosen | None = None

    @property
    def report(self) -> dict[str, Any]:
        programs = [
            {"rows": rows, "lengths": list(lengths), "program": program.kind}
            for (rows, lengths), program in sorted(self._certified.programs.items(), key=lambda item: item[0])
        ]
        return {**self._vectorized.report.as_dict(), "programs": programs}

    @property
    def _certified(self) -> Chosen:
        if self._chosen is None:
            raise RuntimeError("the engine isn't prepared")
        return self._chosen

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Finds lengths for the samples, then programs and row sizes whose answers have the same bits everywhere.

        Raises CertificationError, naming the op that differs, where there are none.
        """
        started_at = time.perf_counter()
        self._levels = self._make_levels(samples)
        company = Company(
            self.inputs,
            self.bounds,
            samples,
            self._programs.input_dims,
            may_be_junk=not self._vectorized.unbounded_loops,
        )
        chooser = Chooser(
            programs=self._programs,
            probes=self._make_probes(samples, company),
            company=company,
            ladder=row_ladder(self._max_batch_size),
            compile_budget_s=self._settings.compile_budget_s,
            seed=self._settings.seed,
            on_step=lambda done, total: on_step("compile", done, total),
        )
        if not self._vectorized.compilable and self._settings.xla != "off":
            chooser.notes["xla"] = "nothing in it can be compiled"
        self._chosen = chooser.choose(self._kinds())
        if self._chosen is None:
            raise refusal(self._name, self._vectorized, self.outputs, chooser)
        self._check_the_function()
        self.reproducible = self._describe(self._chosen, time.perf_counter() - started_at)
        self._times = [BucketTime(Bucket(rows, lengths), 0.0) for rows, lengths in sorted(self._chosen.programs)]

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        """Computes a batch; rows are cut and put together by their own lengths, whatever the bucket says."""
        merged: list[Outputs | RowError] = [RowError("")] * len(rows)
        tally = _Tally()
        for lengths, members in self._by_level(rows).items():
            if lengths is None:
                for member in members:
                    merged[member] = RowError(self._too_long(rows[member]))
                continue
            size = self._row_size(len(members), bucket.rows)
            for start in range(0, len(members), size):
                piece = members[start : start + size]
                answers = self._run_piece([rows[member] for member in piece], lengths, bucket.rows, tally)
                for member, answer in zip(piece, answers, strict=True):
                    merged[member] = answer
        return BatchResult(merged, tally.stats(self._certified.kind))

    def _run_piece(
        self, rows: Sequence[Example], lengths: Lengths, wanted_rows: int, tally: _Tally
    ) -> list[Outputs | RowError]:
        started_at = time.perf_counter()
        program = self._certified.programs[self._row_size(len(rows), wanted_rows), lengths]
        batch = self._programs.pad(rows, program)
        assembled_at = time.perf_counter()
        answers: list[Outputs | RowError]
        try:
            answered, ok = self._programs.answer(program, batch)
        except Exception as error:
            tally.failure = tally.failure or row_message(error)
            tally.compute_s += time.perf_counter() - started_at
            if len(rows) > 1:
                return [self._run_piece([row], lengths, 1, tally)[0] for row in rows]
            tally.isolated += 1
            return [self._per_example.answer(rows[0])]
        computed_at = time.perf_counter()
        answers = list(answered)
        for index in [index for index, fine in enumerate(ok) if not fine]:
            answers[index] = self._per_example.answer(rows[index])
            tally.isolated += 1
        tally.assembly_s += assembled_at - started_at
        tally.compute_s += computed_at - assembled_at
        tally.split_s += time.perf_counter() - computed_at
        tally.add_padding(batch.rows_padded, batch.padding_ratio, program)
        return answers

    def close(self) -> None:
        if self._chosen is not None:
            self._chosen.programs.clear()

    # -- lengths and rows -------------------------------------------------------------------------------------------

    def _make_levels(self, samples: Sequence[Example]) -> list[Lengths]:
        """The samples' levels, and one for the longest that the model allows."""
        levels = length_levels([self._measure(sample) for sample in samples])
        if self._max_length is None or not self.bounds:
            return levels
        limit = self._max_length
        limited = [tuple(min(size, limit) for size in level) for level in levels]
        return list(dict.fromkeys([*limited, (limit,) * len(self.bounds)]))

    def _level_of(self, lengths: Lengths) -> Lengths | None:
        pairs = ((level, zip(lengths, level, strict=True)) for level in self._levels)
        return next((level for level, sizes in pairs if all(size <= limit for size, limit in sizes)), None)

    def _by_level(self, rows: Sequence[Example]) -> dict[Lengths | None, list[int]]:
        if not self.bounds:
            return {(): list(range(len(rows)))}
        groups: dict[Lengths | None, list[int]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(self._level_of(self._measure(row)), []).append(index)
        return groups

    def _row_size(self, count: int, wanted: int) -> int:
        """The size asked for, if it is certified and holds so many; else the smallest that does, or the largest."""
        sizes = self._certified.rows
        if wanted in sizes and wanted >= count:
            return wanted
        return next((size for size in sizes if size >= count), sizes[-1])

    def _too_long(self, example: Example) -> str:
        longest = self._levels[-1]
        for bound, size, limit in zip(self.bounds, self._measure(example), longest, strict=True):
            if size > limit:
                what = f"has {size} bytes" if bound.axis is None else f"has size {size} along axis {bound.axis}"
                return (
                    f"input '{bound.input}' {what}; this model is reproducible, and {limit} is the most that was "
                    "certified; a max_length= of the model raises that"
                )
        return "this model is reproducible, and nothing of these sizes was certified"

    # -- certification ----------------------------------------------------------------------------------------------

    def _make_probes(self, samples: Sequence[Example], company: Company) -> dict[Lengths, list[Example]]:
        """For each level: samples that belong there, some made as long as it, and junk."""
        rng = np.random.default_rng(self._settings.seed)
        by_level = {level: members for level, members in self._by_level(samples).items() if level is not None}
        probes: dict[Lengths, list[Example]] = {}
        for level in self._levels:
            own = [samples[index] for index in by_level.get(level, ())][:_PROBES]
            if self.bounds:
                longest = sorted(samples, key=lambda sample: sum(self._measure(sample)))[-_STRETCHED:]
                own += [stretch(sample, self.inputs, self.bounds, level) for sample in longest]
            if company.may_be_junk:
                own += [company.stranger(rng, level) for _ in range(_STRANGERS)]
            probes[level] = own
        return probes

    def _kinds(self) -> list[Kind]:
        kinds: list[Kind] = []
        if self._settings.xla != "off" and self._vectorized.compilable:
            kinds.append("xla")
        if self._settings.xla != "only":
            kinds.append("plain")
        return kinds

    def _check_the_function(self) -> None:
        """What the program refuses, the function answers alone: it has to answer the same each time."""
        for trials in self._certified.trials:
            for example in trials.refused():
                first, *others = (self._per_example.answer(example) for _ in range(_REPEATS))
                if not all(answers_equal(first, other) for other in others):
                    raise unsteady(self._name)

    def _describe(self, chosen: Chosen, seconds: float) -> Reproducibility:
        return Reproducibility(
            program=chosen.kind,
            rows=chosen.rows,
            lengths=tuple(self._levels),
            function=function_digest(self._vectorized.program, self._vectorized.concrete.variables),
            machine=machine_digest(),
            threads=threads_within_an_op(),
            trials=sum(trials.batches for trials in chosen.trials),
            comparisons=sum(trials.comparisons for trials in chosen.trials),
            positions=min(trials.positions for trials in chosen.trials),
            seconds=seconds,
            note=chosen.note,
        )


def answers_equal(one: Outputs | RowError, other: Outputs | RowError) -> bool:
    """Whether two answers have the same bits; errors are equal."""
    if isinstance(one, RowError) or isinstance(other, RowError):
        return type(one) is type(other)
    return all(bits_equal(a, b) for a, b in zip(one, other, strict=True))


def require_cpu(spec: ModelSpec, settings: EngineSettings) -> None:
    """Raises ModelLoadError on a GPU, where which kernel runs is chosen by timing."""
    if settings.device != "cpu" and tf.config.get_visible_devices("GPU"):
        raise ModelLoadError(
            f"model '{spec.name}' is to be reproducible, which is certified on CPUs only: on a GPU kernels are chosen "
            "anew in each process; start with --device cpu"
        )


@dataclass(slots=True)
class _Tally:
    """What the pieces of one batch took together."""

    assembly_s: float = 0.0
    compute_s: float = 0.0
    split_s: float = 0.0
    isolated: int = 0
    rows_padded: int = 0
    failure: str = ""
    _padding: float = 0.0
    _sent: int = 0

    def add_padding(self, rows_padded: int, ratio: float, program: FixedProgram) -> None:
        cells = program.rows * int(np.prod(program.lengths))
        self.rows_padded += rows_padded
        self._padding += ratio * cells
        self._sent += cells

    def stats(self, kind: Kind) -> BatchStats:
        return BatchStats(
            assembly_s=self.assembly_s,
            compute_s=self.compute_s,
            split_s=self.split_s,
            rows_padded=self.rows_padded,
            padding_ratio=self._padding / self._sent if self._sent else 0.0,
            isolated=self.isolated,
            program=kind if self._sent else "alone",
            failure=self.failure,
        )
