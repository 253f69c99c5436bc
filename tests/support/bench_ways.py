"""Ways for the benchmark to meet: one that is right, and one for each thing that can go wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from loadtest.bench.ways import Trial, Unavailable
from loadtest.workloads import problem


def configure(threads: int) -> None:
    """Nothing to set."""


def make(name: str, choice: str, trial: Trial) -> Any:
    if choice == "unavailable":
        raise Unavailable("there is no such thing")
    return FakeWay(name, choice)


class FakeWay:
    """Answers from plain numpy, but for what `choice` says; "wrong_later" is right until it is timed."""

    def __init__(self, name: str, choice: str) -> None:
        self.reference = problem(name).reference
        self.choice = choice
        self.calls = 0

    def answer(self, examples: Sequence[Any]) -> list[Any]:
        self.calls += 1
        if self.choice == "failing":
            raise ValueError("can't")
        if self.choice == "dying":
            os.write(2, b"last words\n")
            os._exit(3)
        if self.choice == "slow":
            time.sleep(60)
        answers = [self.reference(*example) for example in examples]
        if self.choice == "wrong" or (self.choice == "wrong_later" and self.calls > 2):
            answers[-1] = (answers[-1][0] + 1,)
        return answers

    def figures(self) -> dict[str, float]:
        return {"launches": 3.0, "nodes": 5.0}
