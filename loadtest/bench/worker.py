"""A process that runs columns of one framework: `python -m loadtest.bench.worker THREADS`.

A line of JSON in, a line of JSON out, until the end of file:

    {"prepare": column, "module": ..., "choice": ..., "workload": ..., "trial": file}
        -> {"seconds": of the check's run, "difference": sentence or null} | {"unavailable": why} | {"failed": why}
    {"time": column, "number": k}
        -> {"seconds": of batch k, "figures": {...}, "difference": sentence or null} | {"failed": why}

Standard output is the parent's ear; what frameworks print goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from loadtest.bench.ways import Trial, Unavailable, Way
from loadtest.workloads import problem

_WARM_IF_BELOW_S = 0.3
_SLOW_S = 2.0


class Worker:
    """Prepared columns of one trial; a new trial lets go of them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._file = ""
        self._workload = ""
        self._trial = Trial(0, [], [])
        self._ways: dict[str, Way] = {}
        self._seconds: dict[str, float] = {}
        self._configured: set[str] = set()

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._time(**message) if "time" in message else self._prepare(**message)
        except Unavailable as reason:
            return {"unavailable": str(reason)}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"[:2000]}

    def _prepare(self, prepare: str, module: str, choice: str, workload: str, trial: str) -> dict[str, Any]:
        """Builds, answers the first batch twice, or once if that was slow, and checks; keeps the last run's seconds."""
        if trial != self._file:
            self._ways.clear()
            self._trial = Trial.read(Path(trial))
            self._file, self._workload = trial, workload
        ways = importlib.import_module(module)
        if module not in self._configured:
            ways.configure(self._threads)
            self._configured.add(module)
        way: Way = ways.make(workload, choice, self._trial)
        difference = None
        for _ in range(2):
            started_at = time.perf_counter()
            answers = way.answer(self._trial.batches[0])
            self._seconds[prepare] = time.perf_counter() - started_at
            difference = difference or self._difference(answers, 0)
            if self._seconds[prepare] > _SLOW_S:
                break
        self._ways[prepare] = way
        return {"seconds": self._seconds[prepare], "difference": difference}

    def _time(self, time: str, number: int) -> dict[str, Any]:
        """Times a batch that this column hasn't seen; quick ones run another first, since the others cooled caches."""
        way = self._ways[time]
        if self._seconds[time] < _WARM_IF_BELOW_S:
            way.answer(self._trial.batches[number - 1])
        started_at = _now()
        answers = way.answer(self._trial.batches[number])
        seconds = _now() - started_at
        return {"seconds": seconds, "figures": way.figures(), "difference": self._difference(answers, number)}

    def _difference(self, answers: Any, number: int) -> str | None:
        return problem(self._workload).difference(answers, self._trial.answers[number])


_now = time.perf_counter


def main() -> None:
    threads = int(sys.argv[1])
    # Before any framework counts the cores: then all of them have the same number.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        worker = Worker(threads)
        for line in sys.stdin:
            replies.write(json.dumps(worker.reply(json.loads(line))) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
