"""Goodput: examples answered by their deadline, against every fixed batch size and wait of a grid.

No time passes: arrivals, batches and deadlines are played to the scheduler (`tests.support.queue_simulation`).

A burst begins with a batch of the one request that came first, since an idle device waits for nobody. Where time
grows in steps and bursts fill the device, a wait tuned to them saves that batch; it is worth a few in a thousand.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from tests.support.queue_simulation import Arrival, Machine, Model, fixed, ours

SLO_S = 0.02
SECONDS = 0.5
LENGTHS = (8, 32, 128)
TRAFFIC = (8, 8, 8, 8, 8, 30, 30, 120)
MAX_BATCHES = (1, 4, 8, 16, 32, 64)
MAX_WAITS_S = (0.0, 0.001, 0.002, 0.005, 0.01)


def concave(rows: int) -> float:
    """1 ms, 1.6 for 8 rows, 2.4 for 16, 6 for 64."""
    points = [(1, 0.001), (8, 0.0016), (16, 0.0024), (64, 0.006)]
    for (low, low_s), (high, high_s) in pairwise(points):
        if rows <= high:
            return low_s + (high_s - low_s) * (rows - low) / (high - low)
    raise AssertionError(rows)


def linear(rows: int) -> float:
    """Batching gains hardly anything."""
    return 0.0002 + 0.0003 * rows


def stepped(rows: int) -> float:
    """More than 32 rows don't pay."""
    return 0.002 if rows <= 8 else 0.0045 if rows <= 32 else 0.012


CURVES: dict[str, tuple[Callable[[int], float], float]] = {
    "concave": (concave, 64 / concave(64)),
    "linear": (linear, 64 / linear(64)),
    "stepped": (stepped, 32 / stepped(32)),
}


def of_length(rows_s: Callable[[int], float]) -> Model:
    return Model(lambda rows, length: rows_s(rows) * (0.4 + 0.6 * length / 32), LENGTHS)


def mean_cost() -> float:
    padded = [min(length for length in LENGTHS if length >= each) for each in TRAFFIC]
    return sum(0.4 + 0.6 * length / 32 for length in padded) / len(padded)


def steady(rate: float) -> list[Arrival]:
    return [Arrival(index / rate, SLO_S) for index in range(int(rate * SECONDS))]


def poisson(rate: float, rng: random.Random, lengths: Sequence[int] = (0,), slo_s: float = SLO_S) -> list[Arrival]:
    arrivals, now = [], rng.expovariate(rate)
    while now < SECONDS:
        arrivals.append(Arrival(now, slo_s, rng.choice(lengths)))
        now += rng.expovariate(rate)
    return arrivals


def bursts(rate: float, rng: random.Random, lengths: Sequence[int] = (0,)) -> list[Arrival]:
    """Every 20 ms a burst within one; 30 to 170 % of what the rate asks for."""
    arrivals = []
    for index in range(int(SECONDS / 0.02)):
        size = int(rng.uniform(0.3, 1.7) * rate * 0.02)
        arrivals += [Arrival(0.02 * index + 0.001 * rng.random(), SLO_S, rng.choice(lengths)) for _ in range(size)]
    return sorted(arrivals, key=lambda arrival: arrival.at)


def arrivals_of(kind: str, peak: float, rng: random.Random) -> list[Arrival]:
    match kind:
        case "steady":
            return steady(0.6 * peak)
        case "poisson":
            return poisson(0.7 * peak, rng)
        case "bursts":
            return bursts(0.5 * peak, rng)
        case "overload":
            return poisson(2 * peak, rng)
        case "mixed lengths":
            return poisson(0.7 * peak / mean_cost(), rng, TRAFFIC)
        case "mixed bursts":
            return bursts(0.5 * peak / mean_cost(), rng, TRAFFIC)
    raise AssertionError(kind)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("kind", ["steady", "poisson", "bursts", "overload", "mixed lengths", "mixed bursts"])
def test_goodput_is_at_least_that_of_any_fixed_batch_size_and_wait(curve: str, kind: str):
    rows_s, peak = CURVES[curve]
    model = of_length(rows_s) if "mixed" in kind else Model(lambda rows, length: rows_s(rows))
    arrivals = arrivals_of(kind, peak, random.Random(1))
    outcome = ours({"a": model}, arrivals)
    assert outcome.total == len(arrivals), "an example was lost"
    assert outcome.late == 0, "a late answer was given out"
    grid = {(size, wait_s): fixed(model, arrivals, size, wait_s).good for size in MAX_BATCHES for wait_s in MAX_WAITS_S}
    best = max(grid, key=lambda pair: grid[pair])
    tolerated = 0.995 if "bursts" in kind else 1.0
    assert outcome.good >= tolerated * grid[best], f"batches of {best[0]} after {best[1]} s answer {grid[best]}"


def test_at_twice_the_load_as_much_is_answered_as_at_once():
    peak = CURVES["concave"][1]
    model = Model(lambda rows, length: concave(rows))
    rng = random.Random(2)
    once, twice = (ours({"a": model}, poisson(load * peak, rng, slo_s=0.05)) for load in (1, 2))
    assert twice.good >= 0.9 * once.good


@pytest.mark.parametrize(
    ("machine", "late_share"),
    [
        pytest.param(Machine(), 0.01, id="as measured", marks=pytest.mark.full),
        pytest.param(Machine(slower=1.5), 0.01, id="slower", marks=pytest.mark.full),
        pytest.param(Machine(between_s=0.016), 0.01, id="busy"),
        pytest.param(  # a deadline is nine batches away
            Machine(slower=1.5, between_s=0.016), 0.03, id="both", marks=pytest.mark.full
        ),
    ],
)
def test_of_those_let_in_all_but_a_few_are_on_time(machine: Machine, late_share: float):
    """Two models share the device; what the machine is like, the scheduler must find out from its batches."""
    models = {name: Model(lambda rows, length: 8 * concave(rows)) for name in ("a", "b")}
    peak = 64 / (8 * concave(64) * machine.slower + machine.between_s)
    rng = random.Random(4)
    arrivals = [
        Arrival(each.at + part * SECONDS, 0.8, lane=rng.choice("ab"))
        for part in range(32)
        for each in poisson(2 * peak, rng)
    ]
    start = [arrival for arrival in arrivals if arrival.at < 6.0]
    first, whole = (ours(models, each, machine=machine) for each in (start, arrivals))
    expired, good = whole.expired - first.expired, whole.good - first.good
    assert expired <= late_share * (expired + good)
    assert good >= 0.9 * peak * (32 * SECONDS - 6.0)


def test_a_slow_model_at_full_load_delays_a_fast_one_by_one_of_its_batches_at_most():
    slow_s = 0.03
    slow = Model(lambda rows, length: slow_s, max_rows=16)
    fast = Model(lambda rows, length: 0.0005 + 0.00005 * rows, max_rows=16)
    rng = random.Random(3)
    own = [Arrival(each.at, 1.0, lane="fast") for each in poisson(400, rng)]
    others = [Arrival(each.at, 1.0, lane="slow") for each in poisson(3 * 16 / slow_s, rng)]
    alone = ours({"fast": fast}, own).waits["fast"]
    together = ours({"slow": slow, "fast": fast}, sorted(own + others, key=lambda each: each.at))
    assert len(together.waits["fast"]) == len(own)
    assert _p99(together.waits["fast"]) <= _p99(alone) + 1.1 * slow_s
    assert len(together.waits["slow"]) >= 0.7 * SECONDS / slow_s * 16


def _p99(waits: list[float]) -> float:
    return sorted(waits)[int(0.99 * len(waits))]
