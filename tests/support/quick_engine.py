"""`batchd serve` with engine processes that import no TensorFlow: for tests of processes, which start many.

    python -m tests.support.quick_engine serve NAME... [flags]

Everything is real but the model: it sleeps for `seconds`, its only input, and returns them. A model whose name begins
with "hung" never gets to the end of loading.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np

from server.engines.batch_result import BatchResult, BatchStats
from server.model_description import TensorDescription
from server.process import child, host
from server.process.messages import Loaded, Progress
from tests.support.fake_engine import describe

MODULE = "tests.support.quick_engine"
COMMAND = (sys.executable, "-m", MODULE)


class _Worker:
    """Stands in for `server.process.worker.ModelWorker`."""

    def __init__(self, source: Any, settings: Any, send: Any, cache: Any, importing: Any = None) -> None:
        name = source.location
        send(Progress("import"))
        send(Loaded((name,)))
        if name.startswith("hung"):
            threading.Event().wait()
        tensor = TensorDescription("seconds", "float32", [])
        self.description = describe(name, [tensor], [TensorDescription("output", "float32", [])])

    def run(self, signature: str, rows: Any, bucket: Any) -> BatchResult:
        """Sleeps as long as the longest row asks for."""
        seconds = max(float(row[0]) for row in rows)
        time.sleep(seconds)
        return BatchResult([(np.asarray(row[0], np.float32),) for row in rows], BatchStats(compute_s=seconds))


def main() -> None:
    """An engine process where it is called as one; else the command line."""
    if sys.argv[1:2] and sys.argv[1].isdigit():
        child.ModelWorker = _Worker  # type: ignore[assignment, misc]
        child.main(sys.argv[1:])
    else:
        from server.command_line import main as batchd

        host.CHILD_MODULE = MODULE
        batchd()


if __name__ == "__main__":
    main()
