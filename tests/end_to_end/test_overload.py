"""Twice what the server can do, with everything that goes wrong in such a minute.

Two models of examples of every length; one request in a hundred is poisoned, so that the model's own function refuses
it; one caller in twenty closes its connection before it can have its answer. Every request is accounted for, by its
caller and by the server's own count.

Once the engines are what is too slow: long examples. Once it is the front end: short ones, thousands a second. There
the generator takes from the server what it needs to send twice as much, since they share the machine.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop

from loadtest.attack import AttackLog, Leavers, attack_async
from loadtest.checking import judge
from loadtest.compare import Settings, expected_replies
from loadtest.pacer import ClosedLoop, Pacer, open_loop
from loadtest.results import Record
from loadtest.targets import Example, ExampleSet, Target, target
from tests.support.processes import children, resident_bytes
from tests.support.serving import ROOT, SERVICES, Serving, serving

LANGUAGE, LISTOPS = (ROOT / "examples" / name / "model.py" for name in ("language", "listops"))
LONG = SERVICES / "long.py"
DEADLINE_S = 0.5
ONCE_S = 20.0
CONNECTIONS = 1024
"""Of each model: with too few of them an open loop is a closed one, and nothing is refused."""
POISONED_EVERY = 100
LEAVERS = Leavers(share=0.05, after_s=0.005, seed=7)
GROWTH = 1.05
MOST_LATE_S = 0.5
"""Where more than one in a hundred requests is sent so late, the generator was the limit, and nothing is shown."""
ON_THE_WAY_S = 0.05
"""What a reply within the deadline may take besides, on its way through two busy processes."""

pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Limit:
    """What is too slow: the models that make it so, how long they get twice the rate, what must be left of goodput.

    `saturating`: requests that find out what both carry.
    """

    files: Sequence[Path]
    models: Sequence[tuple[Path, str]]
    overload_s: float
    least_goodput: float
    saturating: int


ENGINES = Limit([LONG], [(LONG, "documents"), (LONG, "expressions")], 60.0, 0.9, saturating=2000)
FRONT_END = Limit([LANGUAGE, LISTOPS], [(LANGUAGE, "language"), (LISTOPS, "listops")], 30.0, 0.5, saturating=6000)


@dataclass(frozen=True)
class Models:
    """A server of both models, what is sent to each, and what comes back for it."""

    limit: Limit
    server: Serving
    expected: tuple[ExampleSet, ...]

    @property
    def targets(self) -> list[Target]:
        return [target(self.server.url, each.model, each.examples, DEADLINE_S * 1000) for each in self.expected]

    def attack(self, pacers: Sequence[Pacer], leavers: Leavers | None = None) -> tuple[list[Record], list[int]]:
        """Attacks both models at once. Returns the records, and the bytes of all processes twice a second."""
        logs, sizes = uvloop.run(self._attack(pacers, leavers))
        records = [judge(log.exchanges, each) for log, each in zip(logs, self.expected, strict=True)]
        return [record for each in records for record in each], sizes

    async def _attack(self, pacers: Sequence[Pacer], leavers: Leavers | None) -> tuple[list[AttackLog], list[int]]:
        sizes: list[int] = []
        watching = asyncio.create_task(self._watch_memory(sizes))
        attacks = (
            attack_async(each, pacer, connections=CONNECTIONS, leavers=leavers)
            for each, pacer in zip(self.targets, pacers, strict=True)
        )
        logs = await asyncio.gather(*attacks)
        watching.cancel()
        return logs, sizes

    async def _watch_memory(self, sizes: list[int]) -> None:
        pid = self.server.process.pid
        while True:
            sizes.append(sum(map(resident_bytes, [pid, *children(pid)])))
            await asyncio.sleep(0.5)


@pytest.fixture(scope="module", params=[ENGINES, FRONT_END], ids=["engines", "front end"])
def models(request) -> Iterator[Models]:
    limit: Limit = request.param
    expected = tuple(
        poisoned(expected_replies(Settings(str(file), engines=[], name=name))) for file, name in limit.models
    )
    with serving(*limit.files, "--compile-budget-s", "300") as server:
        yield Models(limit, server, expected)


def poisoned(examples: ExampleSet) -> ExampleSet:
    """Every hundredth example is one that the model refuses."""
    too_long = Example({"text": "too long " * 1000}, error="longer than the model allows")
    upside_down = Example({"symbols": [3, 1], "children": [[-1] * 4, [1] * 4]}, error="a child after its parent")
    poison = too_long if "text" in examples.examples[0].inputs else upside_down
    mixed = [poison if index % POISONED_EVERY == 0 else example for index, example in enumerate(examples.examples)]
    return ExampleSet(examples.model, mixed, examples.dtypes, examples.rtol)


@dataclass(frozen=True)
class Minute:
    """What came of it: the records at once the rate and at twice that, the server's own count, the bytes in use."""

    limit: Limit
    once: Sequence[Record]
    twice: Sequence[Record]
    counted: Outcomes
    sizes: Sequence[int]


@pytest.fixture(scope="module")
def minute(models: Models) -> Minute:
    rates = _rates_of_both(models)
    once, _ = models.attack(_open_loops(rates, ONCE_S), LEAVERS)
    before = Outcomes.of(models.server)
    twice, sizes = models.attack(_open_loops([2 * rate for rate in rates], models.limit.overload_s), LEAVERS)
    after = Outcomes.of(models.server)
    print(f"capacity {'+'.join(f'{rate:,.0f}' for rate in rates)}/s")
    return Minute(models.limit, once, twice, after - before, sizes)


def test_every_request_is_accounted_for_and_nothing_grows(minute: Minute) -> None:
    records, sizes = minute.twice, minute.sizes
    seen = Counter(record.outcome for record in records)
    print(f"offered {len(records)}: {json.dumps(seen)}; memory {max(sizes) >> 20} MiB")
    assert len(records) == sum(seen.values())
    assert seen["wrong"] == seen["error"] == 0, _failures(records)
    assert seen["shed"] > 0
    assert seen["left"] > 0
    _assert_the_server_counted_the_same(records, minute.counted)
    assert max(sizes) <= GROWTH * max(sizes[: len(sizes) // 3])


def test_those_let_in_are_on_time_and_nearly_as_many_as_at_once(minute: Minute) -> None:
    limit = minute.limit
    goodput, at_once = _goodput(minute.twice, limit.overload_s), _goodput(minute.once, ONCE_S)
    late_s, sent_late_s = _p99_s(minute.twice), _sent_late_s(minute.twice)
    print(
        f"goodput {at_once:,.0f}/s at once, {goodput:,.0f}/s at twice the rate; p99 {late_s * 1000:.0f} ms, "
        f"of which the generator may have had {sent_late_s * 1000:.0f}"
    )
    assert sent_late_s <= MOST_LATE_S
    assert late_s <= DEADLINE_S + ON_THE_WAY_S + sent_late_s
    assert goodput >= limit.least_goodput * at_once


@dataclass(frozen=True)
class Outcomes:
    """What the server says became of the requests that it got."""

    counts: Counter[str]

    @classmethod
    def of(cls, server: Serving) -> Outcomes:
        names = ("answered", "rejected", "queue_full", "unreachable", "expired", "cancelled", "failed", "disowned")
        names += ("engine_died", "unavailable", "draining", "too_large")
        counts = {name: int(server.metric("batchd_outcomes_total", outcome=name)) for name in names}
        counts["invalid"] = int(server.metric("batchd_requests_total", code="400")) - counts["rejected"]
        counts["busy"] = int(server.metric("batchd_request_failures_total", code="503", reason="busy"))
        return cls(Counter(counts))

    def __sub__(self, other: Outcomes) -> Outcomes:
        return Outcomes(Counter({name: self.counts[name] - other.counts[name] for name in self.counts}))


def _assert_the_server_counted_the_same(records: Sequence[Record], server: Outcomes) -> None:
    """Request for request, but for callers who left: the server may have answered those, or never have read them."""
    got = Counter(record.status for record in records if record.outcome != "left")
    left = sum(record.outcome == "left" for record in records)
    counted = server.counts
    assert counted["failed"] == counted["disowned"] == counted["engine_died"] == counted["unavailable"] == 0
    pairs = {
        200: counted["answered"],
        400: counted["rejected"] + counted["invalid"],
        503: counted["queue_full"] + counted["unreachable"] + counted["busy"],
        504: counted["expired"],
    }
    assert set(got) <= set(pairs)
    surplus = {status: number - got[status] for status, number in pairs.items()}
    assert min(surplus.values()) >= 0, surplus
    assert sum(surplus.values()) + counted["cancelled"] <= left
    assert counted["cancelled"] > 0


def _rates_of_both(models: Models) -> list[float]:
    """What both carry at the same time, saturated, in requests a second."""
    started = [ClosedLoop(models.limit.saturating, 48)] * 2
    models.attack(started)
    records, _ = models.attack(started)
    per_model = [records[: len(records) // 2], records[len(records) // 2 :]]
    ends_s = min(max(record.done_s for record in each) for each in per_model)
    return [sum(record.done_s <= ends_s for record in each) / ends_s for each in per_model]


def _open_loops(rates: Sequence[float], seconds: float) -> list[Pacer]:
    return [open_loop("poisson", rate, round(rate * seconds), seed) for seed, rate in enumerate(rates)]


def _goodput(records: Sequence[Record], seconds: float) -> float:
    """Right answers in time, a second of what it took; a refusal of a poisoned example is none."""
    seconds = max(seconds, *(record.done_s for record in records))
    return (
        sum(record.status == 200 and record.outcome == "ok" and _took_s(record) <= DEADLINE_S for record in records)
        / seconds
    )


def _sent_late_s(records: Sequence[Record]) -> float:
    """By how much the generator lagged at most, but for one in a hundred; and so with what it received, too."""
    return sorted(record.sent_s - record.due_s for record in records)[int(0.99 * len(records))]


def _p99_s(records: Sequence[Record]) -> float:
    """Of all that were admitted: a 504 is a request that was let in and never got its answer."""
    took = sorted(
        float("inf") if record.status == 504 else _took_s(record) for record in records if record.status in (200, 504)
    )
    return took[int(0.99 * len(took))]


def _took_s(record: Record) -> float:
    """From being sent: what waits in the generator for one of its connections, the server can't know of."""
    return record.done_s - record.sent_s


def _failures(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.outcome in ("wrong", "error")][:5]
