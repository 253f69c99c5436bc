"""DyNet itself. It computes on one thread, whatever the machine has."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import dynet_config

from loadtest.bench.ways import Trial, Way
from server.engines.batch_result import Example, Outputs

_MEMORY_MB = "512"


def configure(threads: int) -> None:
    """Nothing to set: DyNet as it is shipped has one thread."""


class _DyNet:
    """The workload's DyNet program; `choice` is what DyNet takes as --dynet-autobatch."""

    def __init__(self, name: str, autobatch: str) -> None:
        dynet_config.set(mem=_MEMORY_MB, random_seed=1, autobatch=int(autobatch))
        dy = importlib.import_module("dynet")  # reads the settings while it is imported
        self._collection = dy.ParameterCollection()
        self._answer = importlib.import_module(f"loadtest.workloads.{name}.in_dynet").build(self._collection)

    def answer(self, examples: Sequence[Example]) -> list[Outputs]:
        answers: list[Outputs] = self._answer(examples)
        return answers

    def figures(self) -> dict[str, float]:
        return {}


def make(name: str, choice: str, trial: Trial) -> Way:
    """The workload of that name with `--dynet-autobatch choice`; one choice in a process."""
    return _DyNet(name, choice)
