"""JAX: the function of one padded example under `jit(vmap)`, compiled once for the longest example of the trial."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import jax

from loadtest.bench.ways import Padding, Trial, Way
from loadtest.workloads import problem
from server.engines.batch_result import Example, Outputs


def configure(threads: int) -> None:
    """Nothing to set: XLA takes as many threads as the process may use cores."""


class _JitVmap:
    def __init__(self, name: str, trial: Trial) -> None:
        which = problem(name)
        self._padding = Padding(which, trial.longest(which))
        self._call = jax.jit(jax.vmap(importlib.import_module(f"loadtest.workloads.{name}.in_jax").answer))

    def answer(self, examples: Sequence[Example]) -> list[Outputs]:
        batch = self._padding.stack(examples)
        return self._padding.split(self._call(batch.inputs, batch.lengths), batch)

    def figures(self) -> dict[str, float]:
        return {"padding_ratio": self._padding.ratio}


def make(name: str, choice: str, trial: Trial) -> Way:
    """The workload of that name; there is one choice, "jit_vmap"."""
    return _JitVmap(name, trial)
