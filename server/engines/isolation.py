"""One caller's bad example never costs its neighbours their answers.

A batched program says which rows it could not answer (`ok`); where the call as a whole raised, none of them
is. Those rows are run one by one through the per-example function, whose value or error is the answer.
Rows whose sizes differ so much that they can't be stacked never meet in a program at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from server.engines.batch_result import BatchResult, BatchStats, Example, Outputs, RowError
from server.engines.per_example import PerExample


def answer_alone(
    per_example: PerExample,
    rows: Sequence[Example],
    answers: Sequence[Outputs] | None,
    ok: Sequence[bool],
) -> tuple[list[Outputs | RowError], int]:
    """Returns an answer or error for each row, and how many rows were run alone.

    `answers[i]` holds where `ok[i]`; without `answers` every row runs alone.
    """
    if answers is None:
        return [per_example.answer(row) for row in rows], len(rows)
    merged: list[Outputs | RowError] = list(answers)
    alone = [index for index, fine in enumerate(ok) if not fine]
    for index in alone:
        merged[index] = per_example.answer(rows[index])
    return merged, len(alone)


def run_alone(per_example: PerExample, rows: Sequence[Example]) -> BatchResult:
    """Answers a batch row by row, where its padding would take too much memory."""
    started_at = time.perf_counter()
    merged, alone = answer_alone(per_example, rows, None, [])
    stats = BatchStats(
        compute_s=time.perf_counter() - started_at,
        isolated=alone,
        program="alone",
        cold=True,
        failure="the rows' sizes differ too much to be padded to one",
    )
    return BatchResult(merged, stats)
