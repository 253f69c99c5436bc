"""The comparison: one server for each engine, the same arrivals for each, every reply checked.

All servers are started, one after the other, before anything is measured; then each phase visits the engines
in the order A B C, C B A, A B C, ... so that what drifts on the machine drifts for all of them.

    saturated   a closed loop: throughput, and the batch sizes that load brings about
    within      open loops at falling rates, until 99 % of the replies come within the latency objective: the rate
                that each engine carries at the same quality
    steady      an open loop of seeded arrivals at a rate that all engines can carry: the latencies
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from loadtest.attack import AttackLog, attack
from loadtest.checking import judge
from loadtest.pacer import ClosedLoop, Pacer, open_loop
from loadtest.results import Record, Summary, samples_needed, summarise, write_jsonl
from loadtest.servers import BATCHD, BatchCount, ServerUnderTest
from loadtest.slo import RateSearch
from loadtest.targets import ExampleSet, Target, target

Item = TypeVar("Item")

WARM_UP_REQUESTS = 64
STEADY_SHARE_OF_SLOWEST = 0.5
STEADY_LONGEST_S = 5.0
BUSY_GENERATOR_SHARE = 0.8
LATE_SEND_MS = 20.0


@dataclass(frozen=True)
class Settings:
    """One comparison.

    requests: in each attack. rounds: attacks of each phase on each engine. concurrency: connections of the
    closed loop, None to leave that phase out. steady: whether there is an open loop. rate_per_s: its rate;
    None for half the throughput of the slowest engine (an attack is then cut to about 5 s, if that still
    makes enough samples for a p99). slo_ms: the latency objective; None to leave that phase out. It needs the
    closed loop.
    """

    source: str
    engines: Sequence[str]
    name: str | None = None
    requests: int = 1000
    rounds: int = 2
    concurrency: int | None = 32
    steady: bool = True
    rate_per_s: float | None = None
    slo_ms: float | None = None
    arrivals: str = "poisson"
    examples: int = 500
    seed: int = 0
    timeout_s: float = 30.0
    command: Sequence[str] = BATCHD
    raw_folder: Path | None = None


@dataclass
class Phase:
    """What one kind of attack did to one engine, over all rounds."""

    title: str
    engine: str
    attacks: list[list[Record]] = field(default_factory=list)
    batch_means: list[float] = field(default_factory=list)
    generator_cpu_share: float = 0.0

    @property
    def summary(self) -> Summary:
        return summarise(self.attacks)

    @property
    def throughputs_per_s(self) -> list[float]:
        return [summarise([attack]).throughput_per_s for attack in self.attacks]

    @property
    def mean_batch_size(self) -> float | None:
        """From the server's own metrics; from the reply headers where it has none."""
        if self.batch_means:
            return sum(self.batch_means) / len(self.batch_means)
        return self.summary.mean_batch_size


@dataclass(frozen=True)
class Comparison:
    """All phases. `faults` make the run INVALID; `remarks` say how far to trust it."""

    model: str
    settings: Settings
    phases: Sequence[Phase]
    started_in_s: dict[str, float]
    rate_per_s: float | None
    faults: Sequence[str]
    remarks: Sequence[str]

    @property
    def is_valid(self) -> bool:
        return not self.faults


def compare(settings: Settings, expected: ExampleSet, say: Callable[[str], None] = lambda line: None) -> Comparison:
    """Run the comparison. Raises ServerFailed when a server doesn't start or doesn't survive."""
    with ExitStack() as stack:
        targets = []
        for engine in settings.engines:
            say(f"starting {engine}")
            server = stack.enter_context(ServerUnderTest(settings.source, engine, settings.command))
            targets.append(_EngineTarget(server, target(server.url, expected.model, expected.examples)))
            say(f"  ready after {server.started_in_s:.1f} s")
        bench = _Bench(settings, expected, targets, say)
        rate_per_s = bench.run()
    phases = bench.phases
    return Comparison(
        model=expected.model,
        settings=settings,
        phases=phases,
        started_in_s={each.server.engine: each.server.started_in_s for each in targets},
        rate_per_s=rate_per_s,
        faults=[fault for phase in phases for fault in _faults(phase)] + bench.attempt_faults,
        remarks=bench.not_carried + [remark for phase in phases for remark in _remarks(phase)],
    )


def expected_replies(settings: Settings) -> ExampleSet:
    """Examples and their expected replies, from a child process that runs the per-example function."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "expected.json"
        command = [sys.executable, "-m", "loadtest.oracle", settings.source, "--out", str(out)]
        command += ["--count", str(min(settings.examples, settings.requests)), "--seed", str(settings.seed)]
        command += ["--name", settings.name] if settings.name else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tail = "\n".join(done.stderr.splitlines()[-15:])
            raise RuntimeError(f"no expected replies for {settings.source}; the oracle ended with:\n{tail}")
        return ExampleSet.read(out)


@dataclass(frozen=True)
class _EngineTarget:
    server: ServerUnderTest
    target: Target


@dataclass
class _Bench:
    settings: Settings
    expected: ExampleSet
    targets: Sequence[_EngineTarget]
    say: Callable[[str], None]
    phases: list[Phase] = field(default_factory=list)
    attempt_faults: list[str] = field(default_factory=list)
    not_carried: list[str] = field(default_factory=list)

    def run(self) -> float | None:
        settings = self.settings
        for each in self.targets:
            self._warm_up(each)
        saturated: list[Phase] = []
        if settings.concurrency is not None:
            loop = ClosedLoop(settings.requests, settings.concurrency)
            saturated = self._phase(f"saturated, {settings.concurrency} connections", lambda turn: loop)
        if settings.slo_ms is not None and saturated:
            self._within(settings.slo_ms, saturated)
        if not settings.steady:
            return None
        rate_per_s, count = settings.rate_per_s, settings.requests
        if rate_per_s is None:
            rate_per_s = STEADY_SHARE_OF_SLOWEST * min(phase.summary.throughput_per_s for phase in saturated)
            enough_for_p99 = math.ceil(samples_needed(0.99) / settings.rounds)
            count = min(count, max(enough_for_p99, round(rate_per_s * STEADY_LONGEST_S)))
        if rate_per_s > 0:
            self._phase(
                f"steady, {settings.arrivals} {_rounded(rate_per_s)}/s",
                lambda turn: open_loop(settings.arrivals, rate_per_s, count, settings.seed + turn),
            )
        return rate_per_s

    def _phase(self, title: str, pacer_of: Callable[[int], Pacer]) -> list[Phase]:
        phases = [Phase(title, each.server.engine) for each in self.targets]
        self.phases += phases
        for turn in range(self.settings.rounds):
            for each, phase in _there_and_back(list(zip(self.targets, phases, strict=True)), turn):
                self.say(f"{title}: {phase.engine}, round {turn + 1} of {self.settings.rounds}")
                before = each.server.batches(self.expected.model)
                log = attack(each.target, pacer_of(turn), timeout_s=self.settings.timeout_s)
                self._keep(phase, log, before, each.server.batches(self.expected.model))
        return phases

    def _within(self, slo_ms: float, saturated: Sequence[Phase]) -> None:
        """Engines take turns, each trying its next rate, until each has found one that it carries."""
        title = f"within {slo_ms:g} ms, {self.settings.arrivals}"
        searches = [RateSearch(phase.summary.throughput_per_s) for phase in saturated]
        phases = [Phase(title, each.server.engine) for each in self.targets]
        turns = list(zip(self.targets, phases, searches, strict=True))
        while not all(search.done for search in searches):
            for each, phase, search in turns:
                if search.done:
                    continue
                self.say(f"{title}: {phase.engine}, {_rounded(search.rate_per_s)}/s")
                # A rate that didn't hold is no part of the figures; a wrong reply at it is one all the same.
                self.attempt_faults += _faults_of_replies(phase)
                phase.attacks.clear()
                phase.batch_means.clear()
                pacer = open_loop(self.settings.arrivals, search.rate_per_s, search.requests, self._seed(search))
                before = each.server.batches(self.expected.model)
                log = attack(each.target, pacer, timeout_s=self.settings.timeout_s)
                self._keep(phase, log, before, each.server.batches(self.expected.model))
                search.tried(phase.attacks[-1], slo_ms)
        self.phases += [phase for phase, search in zip(phases, searches, strict=True) if search.carried_per_s]
        self.not_carried += [
            f"{phase.engine}: no rate was carried within {slo_ms:g} ms"
            for phase, search in zip(phases, searches, strict=True)
            if not search.carried_per_s
        ]

    def _seed(self, search: RateSearch) -> int:
        """The same arrivals for every engine at its n-th attempt, others at its next."""
        return self.settings.seed + search.attempts

    def _keep(self, phase: Phase, log: AttackLog, before: BatchCount, after: BatchCount) -> None:
        records = judge(log.exchanges, self.expected)
        phase.attacks.append(records)
        phase.generator_cpu_share = max(phase.generator_cpu_share, log.generator_cpu_share)
        mean = after.mean_since(before)
        if mean is not None:
            phase.batch_means.append(mean)
        if self.settings.raw_folder is not None:
            kind = phase.title.partition(",")[0]
            name = f"{self.expected.model}-{phase.engine}-{kind}-{len(phase.attacks)}.jsonl"
            self.settings.raw_folder.mkdir(parents=True, exist_ok=True)
            write_jsonl(records, self.settings.raw_folder / name)

    def _warm_up(self, each: _EngineTarget) -> None:
        """Not counted in any figure, but a wrong answer is one here too."""
        loop = ClosedLoop(WARM_UP_REQUESTS, self.settings.concurrency or 8)
        log = attack(each.target, loop, timeout_s=self.settings.timeout_s)
        phase = Phase("warm-up", each.server.engine, [judge(log.exchanges, self.expected)])
        self.attempt_faults += _faults(phase)


def _rounded(rate_per_s: float) -> str:
    return f"{rate_per_s:,.0f}" if rate_per_s >= 100 else f"{rate_per_s:.3g}"


def _there_and_back(items: Sequence[Item], turn: int) -> Iterator[Item]:
    return iter(items) if turn % 2 == 0 else reversed(items)


def _faults(phase: Phase) -> list[str]:
    faults = _faults_of_replies(phase)
    summary = phase.summary
    if not summary.ok and not faults:
        faults.append(f"{phase.engine} ({phase.title}): not one of {summary.offered} requests was answered")
    return faults


def _faults_of_replies(phase: Phase) -> list[str]:
    summary = phase.summary
    where = f"{phase.engine} ({phase.title})"
    counts = {"wrong": summary.wrong, "lost": summary.lost, "in error": summary.error}
    faults = [f"{where}: {count} of {summary.offered} replies {what}" for what, count in counts.items() if count]
    if faults:
        faults += [f"  {line}" for line in summary.examples_of_failure]
    return faults


def _remarks(phase: Phase) -> list[str]:
    summary = phase.summary
    where = f"{phase.engine} ({phase.title})"
    remarks = []
    if phase.generator_cpu_share > BUSY_GENERATOR_SHARE:
        share = f"{phase.generator_cpu_share:.0%}"
        remarks.append(f"{where}: the generator used {share} of a core; the server may be faster than this shows")
    if phase.title.startswith("steady") and (summary.send_lag_p99_ms or 0) > LATE_SEND_MS:
        lag = f"{summary.send_lag_p99_ms:.0f} ms"
        remarks.append(f"{where}: requests were sent up to {lag} late (p99); latencies include that")
    return remarks
