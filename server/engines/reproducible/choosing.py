"""Which programs serve a reproducible model: one kind, and the batch sizes that give equal bits.

The largest batch whose answers don't depend on the row is the reference (XLA's first, then TensorFlow's own kernels).
Smaller batches join it, one after the other until one doesn't give the same bits to every probe in every row: then an
example that comes alone needn't pay for a full batch. Under XLA all sizes of small models do; TensorFlow's kernels
treat what fills a vector register otherwise than what is left over, so small batches differ from large ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from server.engines.batch_result import Example
from server.engines.error_text import row_message
from server.engines.measure import Lengths
from server.engines.reproducible.company import Company
from server.engines.reproducible.programs import FixedProgram, Kind, Programs
from server.engines.reproducible.trials import Difference, Trials

CERTIFY_S = 10.0
"""Seconds of trials for each signature: half for the reference, half for what is to equal it. Each program that is
taken has passed the fewest trials, whatever they took; when the time is up no further one is tried."""
_ATTEMPTS = 3
"""Sizes that are tried as the reference, the largest first."""


@dataclass(slots=True)
class Chosen:
    """The programs by rows and lengths, and what was done to certify them."""

    kind: Kind
    programs: dict[tuple[int, Lengths], FixedProgram]
    trials: list[Trials]
    note: str = ""

    @property
    def rows(self) -> tuple[int, ...]:
        """The batch sizes, ascending."""
        return tuple(sorted({rows for rows, _ in self.programs}))


@dataclass(slots=True)
class Chooser:
    """`choose` for the probes of each level. `notes` and `differences` say why a kind of program wasn't taken."""

    programs: Programs
    probes: dict[Lengths, list[Example]]
    company: Company
    ladder: Sequence[int]
    compile_budget_s: float
    seed: int
    on_step: Callable[[int, int], None]
    notes: dict[Kind, str] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    _steps: int = 0

    def choose(self, kinds: Sequence[Kind]) -> Chosen | None:
        """Returns the programs of the first kind that passes, or None."""
        for kind in kinds:
            chosen = self._reference(kind)
            if chosen is not None:
                self._add_smaller(chosen)
                chosen.note = "; ".join(f"{kind}: {note}" for kind, note in self.notes.items())
                return chosen
        return None

    def _reference(self, kind: Kind) -> Chosen | None:
        """The largest size of which every row gives the same bits; a batch of one row proves nothing."""
        sizes = [rows for rows in reversed(self.ladder) if rows > 1] or [1]
        seconds = CERTIFY_S / 2 / len(self.probes)
        for rows in sizes[:_ATTEMPTS]:
            try:
                made = {lengths: self._compile(kind, rows, lengths) for lengths in self.probes}
                trials = {
                    lengths: Trials(
                        self.programs,
                        program,
                        self.probes[lengths],
                        self.company,
                        seed=self.seed,
                        seconds=seconds / 2,
                    )
                    for lengths, program in made.items()
                }
                difference = self._differing(trials, made, seconds)
            except Exception as error:
                self.notes[kind] = (row_message(error).splitlines() or [type(error).__name__])[0][:300]
                return None
            if difference is None:
                return Chosen(kind, {(rows, lengths): made[lengths] for lengths in made}, list(trials.values()))
            self.differences.append(difference)
            self.notes.setdefault(kind, f"an answer of {rows} rows depends on the row")
        return None

    def _add_smaller(self, chosen: Chosen) -> None:
        trials = dict(zip(self.probes, chosen.trials, strict=True))
        started_at = time.perf_counter()
        (largest,) = chosen.rows
        smaller = [rows for rows in reversed(self.ladder) if rows < largest]
        for rows in smaller:
            tried_s = sum(each.seconds for each in chosen.trials)
            if tried_s > CERTIFY_S or time.perf_counter() - started_at - tried_s > self.compile_budget_s:
                self.notes[chosen.kind] = f"{rows} rows and less weren't tried, for lack of time"
                return
            try:
                made = {lengths: self._compile(chosen.kind, rows, lengths) for lengths in self.probes}
                difference = self._differing(trials, made, CERTIFY_S / 2 / len(made) / len(smaller))
            except Exception as error:
                self.notes[chosen.kind] = f"{rows} rows: {row_message(error)[:300]}"
                return
            if difference is not None:
                self.notes[chosen.kind] = f"{rows} rows don't give the bits of {largest}"
                return
            chosen.programs.update({(rows, lengths): program for lengths, program in made.items()})

    def _compile(self, kind: Kind, rows: int, lengths: Lengths) -> FixedProgram:
        program = self.programs.compile(kind, rows, lengths)
        self._steps += 1
        total = len(self.ladder) * len(self.probes)
        self.on_step(min(self._steps, total), total)
        return program

    def _differing(
        self, trials: dict[Lengths, Trials], made: dict[Lengths, FixedProgram], seconds: float
    ) -> Difference | None:
        for lengths, program in made.items():
            difference = trials[lengths].run(program, seconds)
            if difference is not None:
                return difference
        return None
