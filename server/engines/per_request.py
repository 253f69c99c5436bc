"""One call of the model's function for each row: no batching at all. The reference, and the way out for
functions that can't be vectorized."""

from __future__ import annotations

import time
from collections.abc import Sequence

from server.engines import OnStep
from server.engines.batch_result import BatchResult, BatchStats, Example
from server.engines.one_program import OneProgramEngine
from server.model_description import Bucket


class PerRequestEngine(OneProgramEngine):
    """Runs the rows of a batch one after the other; a batch only saves messages between processes."""

    name = "per_request"
    report_text = "one call of the function for each example; nothing is vectorized"

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Calls the function once, so that its kernels are loaded."""
        self._per_example.answer(samples[0])
        on_step("compile", 1, 1)

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        started_at = time.perf_counter()
        answers = [self._per_example.answer(row) for row in rows]
        return BatchResult(answers, BatchStats(compute_s=time.perf_counter() - started_at, program="alone"))
