"""Triton's names for what batchd counts, for boards that were made for Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

from server.tally import Tally

if TYPE_CHECKING:
    from server.metrics import Metrics

_TRITON_FAILURES = {
    "cancelled": "CANCELED",
    **dict.fromkeys(("rejected", "engine_died", "failed", "internal", "disowned"), "BACKEND"),
    **dict.fromkeys(("queue_full", "unreachable", "expired", "draining", "unavailable"), "REJECTED"),
}
_TRITON_TIMES: dict[str, Callable[[Tally], float]] = {
    "nv_inference_request_duration_us": lambda tally: tally.succeeded_s,
    "nv_inference_queue_duration_us": lambda tally: tally.queue_s,
    "nv_inference_compute_input_duration_us": lambda tally: tally.input_s,
    "nv_inference_compute_infer_duration_us": lambda tally: tally.infer_s,
    "nv_inference_compute_output_duration_us": lambda tally: tally.output_s,
}
TRITON_NAMES = (
    *("nv_inference_count", "nv_inference_exec_count", "nv_inference_pending_request_count"),
    *_TRITON_TIMES,
)


class TritonNames(Collector):
    """What the protocol's statistics count, under Triton's names and labels.

    Triton's counters have no `_total`, so they are exposed without a type. Times add up requests, as Triton's do:
    every request of a batch counts the batch's.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Nothing: the names are known only when there are values."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields what is counted so far."""
        families: dict[str, GaugeMetricFamily | UnknownMetricFamily] = {}

        def add(name: str, value: float, *labels: str) -> None:
            if name not in families:
                kind = GaugeMetricFamily if name.endswith("pending_request_count") else UnknownMetricFamily
                names = ("model", "version", "reason")[: len(labels)]
                families[name] = kind(name, "See Triton's documentation.", labels=names)
            families[name].add_metric(labels, value)

        for model, version in self._metrics.versions():
            tally = self._metrics.tally(model, version)
            add("nv_inference_request_success", tally.succeeded, model, version)
            for reason, failures in _by_triton_reason(tally).items():
                add("nv_inference_request_failure", failures, model, version, reason)
            add("nv_inference_count", tally.examples, model, version)
            add("nv_inference_exec_count", tally.executions, model, version)
            waiting = sum(lane.waiting() for lane in self._metrics.lanes_of(model, version))
            add("nv_inference_pending_request_count", waiting, model, version)
            for name, seconds in _TRITON_TIMES.items():
                add(name, seconds(tally) * 1e6, model, version)
        yield from families.values()


def _by_triton_reason(tally: Tally) -> dict[str, int]:
    found = dict.fromkeys(("REJECTED", "CANCELED", "BACKEND", "OTHER"), 0)
    for reason, count in tally.failures.items():
        found[_TRITON_FAILURES.get(reason, "OTHER")] += count
    return found
