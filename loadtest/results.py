"""Raw results, one record for each request, and the figures computed from them.

Records are kept as JSON lines, so that anyone can compute other figures later.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from hdrh.histogram import HdrHistogram

OUTCOMES = ("ok", "wrong", "shed", "timeout", "left", "error")
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
CONFIDENCE = 0.99
LONGEST_LATENCY_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are seconds from the start of its attack; latency counts from `due_s`.

    outcome: ok (the right answer, or the right refusal of a bad example), wrong, shed (503), timeout (504, or
    no reply in time), left (the caller didn't wait, as it had meant to), error (anything else). status None: no
    reply came; unless its caller left, the request is *lost*.
    """

    index: int
    example: int
    due_s: float
    sent_s: float
    done_s: float
    status: int | None
    outcome: str
    detail: str | None = None
    batch_size: int | None = None
    queue_ms: float | None = None
    compute_ms: float | None = None

    @property
    def is_lost(self) -> bool:
        return self.status is None and self.outcome != "left"

    @property
    def latency_s(self) -> float:
        return self.done_s - self.due_s

    @property
    def send_lag_s(self) -> float:
        return self.sent_s - self.due_s


@dataclass(frozen=True)
class Summary:
    """Figures of one attack, or of several put together.

    latency_ms: quantile -> milliseconds of the ok requests, from due to answered; None where there are too
    few samples to state it. uncorrected_ms: the same from actual send. send_lag_p99_ms: how late requests
    were sent. mean_batch_size: examples per batch that ran, from the reply headers.
    """

    offered: int
    ok: int
    wrong: int
    shed: int
    timeout: int
    left: int
    error: int
    lost: int
    elapsed_s: float
    throughput_per_s: float
    latency_ms: dict[str, float | None]
    latency_max_ms: float | None
    uncorrected_ms: dict[str, float | None]
    send_lag_p99_ms: float | None
    mean_batch_size: float | None
    mean_queue_ms: float | None
    mean_compute_ms: float | None
    examples_of_failure: tuple[str, ...]


def summarise(attacks: Sequence[Sequence[Record]]) -> Summary:
    """Put attacks of equal kind together. Raises AssertionError if a request has vanished from the count."""
    records = [record for attack in attacks for record in attack]
    count = Counter(record.outcome for record in records)
    answered = [record for record in records if record.outcome == "ok"]
    elapsed_s = sum(_span_s(attack) for attack in attacks)
    offered = len(records)
    # Not an `assert`: this must hold under `python -O` too.
    if offered != sum(count[outcome] for outcome in OUTCOMES):
        raise AssertionError(f"offered {offered} requests, but the outcomes are {dict(count)}")
    latencies_s = [record.latency_s for record in answered]
    return Summary(
        offered=offered,
        ok=count["ok"],
        wrong=count["wrong"],
        shed=count["shed"],
        timeout=count["timeout"],
        left=count["left"],
        error=count["error"],
        lost=sum(record.is_lost for record in records),
        elapsed_s=elapsed_s,
        throughput_per_s=count["ok"] / elapsed_s if elapsed_s else 0.0,
        latency_ms=quantiles_ms(latencies_s),
        latency_max_ms=max(latencies_s) * 1e3 if latencies_s else None,
        uncorrected_ms=quantiles_ms([record.done_s - record.sent_s for record in answered]),
        send_lag_p99_ms=quantiles_ms([record.send_lag_s for record in records])["p99"],
        mean_batch_size=mean_batch_size(answered),
        mean_queue_ms=_mean(record.queue_ms for record in answered),
        mean_compute_ms=_mean(record.compute_ms for record in answered),
        examples_of_failure=tuple(
            f"request {record.index}: {record.outcome}: {record.detail}"
            for record in records
            if record.outcome in ("wrong", "error") or record.is_lost
        )[:5],
    )


def samples_needed(quantile: float) -> int:
    """Samples without which a quantile says nothing at 99 % confidence: 459 for p99, 4,603 for p99.9."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile))


def quantiles_ms(latencies_s: Iterable[float]) -> dict[str, float | None]:
    """{"p50": ms, ...} from an HDR histogram of three digits; None where the samples don't suffice."""
    histogram = HdrHistogram(1, LONGEST_LATENCY_US, 3)
    count = 0
    for latency_s in latencies_s:
        histogram.record_value(min(max(1, round(latency_s * 1e6)), LONGEST_LATENCY_US))
        count += 1
    return {
        f"p{quantile * 100:g}": (
            histogram.get_value_at_percentile(quantile * 100) / 1e3 if count >= samples_needed(quantile) else None
        )
        for quantile in QUANTILES
    }


def mean_batch_size(records: Iterable[Record]) -> float | None:
    """Examples per batch that ran. A batch of b is reported by its b requests, each counting as 1/b of it."""
    sizes = [record.batch_size for record in records if record.batch_size]
    return len(sizes) / sum(1 / size for size in sizes) if sizes else None


def write_jsonl(records: Iterable[Record], path: Path) -> None:
    """One JSON object a line."""
    with path.open("wb") as file:
        for record in records:
            file.write(orjson.dumps(asdict(record), option=orjson.OPT_APPEND_NEWLINE))


def read_jsonl(path: Path) -> list[Record]:
    """The records that `write_jsonl` wrote."""
    return [Record(**orjson.loads(line)) for line in path.read_bytes().splitlines()]


def _span_s(attack: Sequence[Record]) -> float:
    """From when the first request was due to when the last was done."""
    if not attack:
        return 0.0
    return max(record.done_s for record in attack) - min(record.due_s for record in attack)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
