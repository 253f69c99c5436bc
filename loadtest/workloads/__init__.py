"""Programs to compare ways of batching on, each written for one example. Importing this package imports no framework.

A folder each: `data.py` has sizes, weights, random examples and the answers in plain numpy; `in_tensorflow.py` the
per-example function; `in_dynet.py` and `in_jax.py` the same as their users would write it.

    problem("lstm")     what is computed, and on which examples
    workload("lstm")    that, with the TensorFlow function (imports TensorFlow)
"""

from __future__ import annotations

import importlib
from typing import Any

from loadtest.workloads.problem import Problem, Workload

NAMES = ("mlp", "lstm", "tagger", "tree_lstm", "graph_network", "newton", "branchy")


def problem(name: str) -> Problem:
    """The workload's data, without any framework. Raises KeyError for a name that isn't in NAMES."""
    found: Problem = _part(name, "data").PROBLEM
    return found


def workload(name: str) -> Workload:
    """The workload with its TensorFlow function. Raises KeyError for a name that isn't in NAMES."""
    found: Workload = _part(name, "in_tensorflow").WORKLOAD
    return found


def _part(name: str, part: str) -> Any:
    if name not in NAMES:
        raise KeyError(f"there is no workload {name!r}; choose one of {', '.join(NAMES)}")
    return importlib.import_module(f"loadtest.workloads.{name}.{part}")
