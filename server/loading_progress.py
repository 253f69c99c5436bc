"""How loading is shown: a bar for each model on a terminal, plain lines anywhere else."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from server.model_description import ModelDescription
from server.process.messages import Progress

if TYPE_CHECKING:
    from rich.progress import TaskID

_log = logging.getLogger("batchd.loading")


class LoadingProgress(Protocol):
    """Shown while a `with` block lasts; later reports (of restarts) go to the log."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, model: str, progress: Progress) -> None:
        """One step of a model is done."""
        ...

    def ready(self, model: str, description: ModelDescription) -> None:
        """A model is warm."""
        ...


def loading_progress() -> LoadingProgress:
    """Returns what suits stderr."""
    return ProgressBars() if sys.stderr.isatty() else ProgressLines()


class ProgressLines:
    """One log line for each phase of each model."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._phases.clear()

    def show(self, model: str, progress: Progress) -> None:
        """Logs the start of a phase, not its steps."""
        if self._phases.get(model) != progress.phase:
            self._phases[model] = progress.phase
            _log.info("%s: %s%s", model, progress.phase, f" ({progress.total} steps)" if progress.total else "")

    def ready(self, model: str, description: ModelDescription) -> None:
        """Logs what is warm."""
        self._phases.pop(model, None)
        _log.info("%s", ready_line(description))


class ProgressBars(ProgressLines):
    """A bar for each model, on a terminal, while the block lasts."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        columns = ("{task.description:24}", "{task.fields[phase]:10}")
        self._bars: Bars | None = Bars(
            *map(TextColumn, columns),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars:
            self._bars.stop()
        self._bars = None
        super().__exit__(kind, error, trace)

    def show(self, model: str, progress: Progress) -> None:
        """Moves the model's bar."""
        if self._bars is None:
            super().show(model, progress)
            return
        task = self._task(model)
        self._bars.update(task, phase=progress.phase, completed=progress.done, total=progress.total or None)

    def ready(self, model: str, description: ModelDescription) -> None:
        """Fills the model's bar."""
        if self._bars is None:
            super().ready(model, description)
            return
        self._bars.update(self._task(model), description=description.name, phase="ready", completed=1, total=1)
        self._bars.console.print(ready_line(description), highlight=False)

    def _task(self, model: str) -> TaskID:
        assert self._bars is not None
        if model not in self._tasks:
            self._tasks[model] = self._bars.add_task(model, total=None, phase="")
        return self._tasks[model]


def ready_line(description: ModelDescription) -> str:
    """Returns one line that says what is warm and where."""
    buckets = sum(len(signature.buckets) for signature in description.signatures)
    seconds = sum(description.load_seconds.values())
    took = f", loaded in {seconds:.1f} s" if seconds else ""
    name, engine, device = description.name, description.engine, description.device
    return f"{name}: ready ({engine} on {device}, {buckets} warm buckets{took})"
