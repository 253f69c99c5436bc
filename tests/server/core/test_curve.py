"""The plan for clearing a queue, against the best of all plans."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from server.core.curve import Curve, Timings
from server.core.learned import Between

ROWS = (1, 2, 4, 8, 16, 32, 64)
MOST = 150


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1.0, 1.1, 1.3, 1.6, 2.0, 2.3, 4.0]), min_size=len(ROWS), max_size=len(ROWS)),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_no_choice_of_buckets_is_more_than_a_few_percent_faster(growth: list[float], between_s: float):
    timings, seconds = Timings(), [1.0]
    for factor in growth[1:]:
        seconds.append(seconds[-1] * factor)
    steps = [timings.add(rows, None, each) for rows, each in zip(ROWS, seconds, strict=True)]
    curve = Curve(timings, steps, 64, Between(between_s))
    best = [0.0]
    for rows in range(1, MOST):
        best.append(min(each + between_s + best[max(0, rows - room)] for room, each in zip(ROWS, seconds, strict=True)))
        assert best[rows] <= curve.clear_s(rows) * (1 + 1e-9) <= 1.04 * best[rows]
        plan = curve.plan(rows)
        assert plan.rows <= min(rows, 64)
        assert plan.batch_s == next(each for room, each in zip(ROWS, seconds, strict=True) if room >= plan.rows)
