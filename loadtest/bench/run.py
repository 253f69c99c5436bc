"""The benchmark: batches and right answers first, then every column checked, then rounds that visit all columns.

In a round each column answers batches that none of them has seen, one after the other: A B C, C B A, A B C, ...
so that what drifts on the machine drifts for all, and what remembers a batch gains nothing. Every answer is checked.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.bench.columns import Column
from loadtest.bench.process import WorkerEnded, WorkerProcess, WorkerTooSlow
from loadtest.bench.ways import Trial
from loadtest.workloads import problem
from loadtest.workloads.problem import Problem

ROWS_TIMED_A_VISIT = 64
MOST_BATCHES_A_VISIT = 4


@dataclass(frozen=True)
class Settings:
    """One benchmark.

    rounds: visits of each column. threads: cores that each worker may use. cell_s: seconds of measuring after which
    a column sits out the remaining rounds of a batch size. prepare_s: seconds within which it must be built and have
    answered twice, and within which each further visit must end.
    """

    workload: str
    batch_sizes: Sequence[int]
    columns: Sequence[Column]
    rounds: int = 9
    seed: int = 0
    threads: int = 1
    cell_s: float = 5.0
    prepare_s: float = 60.0


@dataclass
class Cell:
    """One column at one batch size. `note` says why there are no figures; `wrong` what the column answered wrongly."""

    column: str
    rows: int
    seconds: list[float] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)
    note: str = ""
    detail: str = ""
    wrong: str = ""

    @property
    def median_s(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def quartiles_s(self) -> tuple[float, float] | None:
        """The first and the third, or lowest and highest where there are fewer than four runs."""
        if not self.seconds:
            return None
        if len(self.seconds) < 4:
            return min(self.seconds), max(self.seconds)
        first, _, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return first, third

    @property
    def mean_figures(self) -> dict[str, float]:
        names = self.figures[0] if self.figures else {}
        return {name: statistics.fmean(each[name] for each in self.figures) for name in names}


def bench(settings: Settings, say: Callable[[str], None] = lambda line: None) -> list[Cell]:
    """Measure every column at every batch size; a column that failed or was too slow isn't asked for larger ones."""
    cells: list[Cell] = []
    given_up: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = {
            process: stack.enter_context(closing(WorkerProcess(settings.threads)))
            for process in {column.process for column in settings.columns}
        }
        for rows in settings.batch_sizes:
            say(f"{settings.workload}, batch {rows}: drawing batches, computing the right answers")
            visit = max(1, min(MOST_BATCHES_A_VISIT, ROWS_TIMED_A_VISIT // rows))
            trial = _draw(problem(settings.workload), rows, 1 + settings.rounds * visit, settings.seed)
            file = folder / f"{rows}.trial"
            trial.write(file)
            turn = _Turn(settings, rows, visit, str(file), workers, say)
            cells += turn.run(given_up)
            file.unlink()
    return cells


def _draw(which: Problem, rows: int, count: int, seed: int) -> Trial:
    generator = np.random.default_rng(seed)
    batches = [which.examples(generator, rows) for _ in range(count)]
    return Trial(rows, batches, [[which.reference(*example) for example in batch] for batch in batches])


@dataclass
class _Turn:
    """One batch size."""

    settings: Settings
    rows: int
    visit: int
    file: str
    workers: dict[str, WorkerProcess]
    say: Callable[[str], None]
    built_after: dict[str, int] = field(default_factory=dict)

    def run(self, given_up: dict[str, str]) -> list[Cell]:
        cells = [(column, Cell(column.name, self.rows)) for column in self.settings.columns]
        for column, cell in cells:
            cell.note = given_up.get(column.name) or column.missing() or ""
            if not cell.note:
                self.say(f"  {column.name}: build and check")
                self._prepare(column, cell)
        self.say(f"  {self.settings.rounds} rounds")
        for number in range(self.settings.rounds):
            for column, cell in _there_and_back(cells, number):
                if not cell.note and not cell.wrong and sum(cell.seconds) < self.settings.cell_s:
                    self._visit(column, cell, 1 + number * self.visit)
        for column, cell in cells:
            if cell.note and not cell.note.startswith("from batch") and not column.missing():
                given_up[column.name] = f"from batch {self.rows} on: {cell.note}"
        return [cell for _, cell in cells]

    def _prepare(self, column: Column, cell: Cell) -> None:
        worker = self.workers[column.process]
        message = {
            "prepare": column.name,
            "module": column.module,
            "choice": column.choice,
            "workload": self.settings.workload,
            "trial": self.file,
        }
        self._ask(column, cell, message, self.settings.prepare_s)
        self.built_after[column.name] = worker.ends

    def _visit(self, column: Column, cell: Cell, first: int) -> None:
        if self.built_after[column.name] != self.workers[column.process].ends:
            self._prepare(column, cell)  # another column of its process had to be ended
        for number in range(first, first + self.visit):
            if cell.note or cell.wrong:
                return
            reply = self._ask(column, cell, {"time": column.name, "number": number}, self.settings.prepare_s)
            if "figures" in reply and not cell.wrong:
                cell.seconds.append(reply["seconds"])
                cell.figures.append(reply["figures"])

    def _ask(self, column: Column, cell: Cell, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        try:
            reply = self.workers[column.process].ask(message, timeout_s)
        except WorkerTooSlow:
            cell.note = f"over {timeout_s:g} s"
            return {}
        except WorkerEnded as error:
            cell.note, cell.detail = "failed", str(error)
            return {}
        if "unavailable" in reply:
            cell.note, cell.detail = "–", reply["unavailable"]
        elif "failed" in reply:
            cell.note, cell.detail = "failed", reply["failed"]
        elif reply["difference"]:
            cell.wrong, cell.seconds = reply["difference"], []
        return reply


def _there_and_back(items: Sequence[tuple[Column, Cell]], turn: int) -> Iterator[tuple[Column, Cell]]:
    return iter(items) if turn % 2 == 0 else reversed(items)
