"""Counts what must not happen while serving: traces and XLA compiles.

Every trace builds a `tf.Graph`, so the class's constructor counts them. XLA has no such place to look: with
the persistent cache on, a compile leaves a new file, which changes the time stamp of the model's directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

_graphs_built = 0


def _count_graphs() -> None:
    build = tf.Graph.__init__

    def counted(graph: Any, *arguments: Any, **options: Any) -> None:
        global _graphs_built
        _graphs_built += 1
        build(graph, *arguments, **options)

    tf.Graph.__init__ = counted


_count_graphs()


class CompileWatch:
    """Counts traces and compiles since it was made, or since the last `reset`.

    `cache`: the model's own directory of XLA's persistent cache; None: only traces are seen.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self.reset()

    def reset(self) -> None:
        """Starts counting from zero."""
        self._graphs, self._stamp, self._files = _graphs_built, self._cache_stamp(), self._cache_files()
        self._compiled = 0

    def count(self) -> int:
        """Returns the traces and compiles so far."""
        stamp = self._cache_stamp()
        if stamp != self._stamp:
            self._stamp, self._compiled = stamp, max(0, self._cache_files() - self._files)
        return _graphs_built - self._graphs + self._compiled

    def _cache_stamp(self) -> int:
        return self._cache.stat().st_mtime_ns if self._cache and self._cache.exists() else 0

    def _cache_files(self) -> int:
        return sum(1 for _ in self._cache.iterdir()) if self._cache and self._cache.exists() else 0
