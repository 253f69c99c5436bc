"""Every metric that batchd exports; with `triton_metrics.py`, and `shadow.py` for one counter,
the only place that knows prometheus_client.

Most carry the labels `model`, `version`, `signature` and `engine`. Children are looked up once for each lane
and kept in a `LaneMetrics`, because `labels()` costs more than `observe()`.

    python -m server.metrics > docs/metrics.md
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics import MetricWrapperBase

from server.engines.batch_result import BatchStats
from server.model_description import ModelDescription
from server.tally import AnswerTimes, Tally
from server.triton_metrics import TRITON_NAMES, TritonNames

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_LANE = ("model", "version", "signature", "engine")
_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0),
)
_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
_RATIO = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def new_registry() -> CollectorRegistry:
    """Returns a registry that also reports this process's own memory, descriptors and garbage collections."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client leaves it untyped
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class Metrics:
    """The metrics of one server, in `registry`. `triton_names`: also under the names that Triton gives them."""

    def __init__(self, registry: CollectorRegistry, *, triton_names: bool = False) -> None:
        self.registry = registry
        if triton_names:
            registry.register(TritonNames(self))
        self.requests = Counter(
            "batchd_requests_total",
            "Requests answered, by HTTP status code (499: the caller left first).",
            (*_LANE, "code"),
            registry=registry,
        )
        self.request_duration = Histogram(
            "batchd_request_duration_seconds",
            "From the arrival of a request's last byte to the reply.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue_duration = Histogram(
            "batchd_queue_duration_seconds",
            "From being queued to being sent to the engine, of each example.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.compute_duration = Histogram(
            "batchd_compute_duration_seconds",
            "Of each batch, from being sent to the engine to its answers being back.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.assembly_duration = Histogram(
            "batchd_assembly_duration_seconds",
            "Of each batch, in the engine: padding and stacking its rows.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.build_duration = Histogram(
            "batchd_build_duration_seconds",
            "Of each batch that was batched at run time, within its assembly: growing the graphs.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.schedule_duration = Histogram(
            "batchd_schedule_duration_seconds",
            "Of each batch that was batched at run time, within its assembly: grouping their nodes.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.gather_duration = Histogram(
            "batchd_gather_duration_seconds",
            "Of each batch that was batched at run time, within its assembly: bringing operands together.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.execute_duration = Histogram(
            "batchd_execute_duration_seconds",
            "Of each batch, in the engine: the program alone.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.split_duration = Histogram(
            "batchd_split_duration_seconds",
            "Of each batch, in the engine: cutting the outputs into rows, and running rows alone.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.serialise_duration = Histogram(
            "batchd_serialise_duration_seconds",
            "Of each answered request: writing its reply's body.",
            _LANE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_size = Histogram(
            "batchd_batch_size",
            "Examples in each batch, without padding.",
            _LANE,
            buckets=_ROWS,
            registry=registry,
        )
        self.padding_ratio = Histogram(
            "batchd_padding_ratio",
            "Share of each batch's elements that is padding.",
            _LANE,
            buckets=_RATIO,
            registry=registry,
        )
        self.bucket_batches = Counter(
            "batchd_bucket_batches_total",
            "Batches by bucket: rows, and lengths, with x between them; none where no warm bucket held the batch.",
            (*_LANE, "bucket"),
            registry=registry,
        )
        self.outcomes = Counter(
            "batchd_outcomes_total",
            "Requests that reached the queue of a model, by what became of them: answered, rejected (a row's own "
            "error), queue_full, unreachable (the queue was too long for the deadline), too_large, expired, "
            "cancelled, draining, unavailable, engine_died, disowned, failed.",
            (*_LANE, "outcome"),
            registry=registry,
        )
        self.dispatches = Counter(
            "batchd_dispatches_total",
            "Batches sent, by reason: full, idle, deadline, delay or drain.",
            (*_LANE, "reason"),
            registry=registry,
        )
        self.compiles = Counter(
            "batchd_compiles_total",
            "Traces and XLA compiles, while loading and while serving (which stays 0).",
            (*_LANE, "phase"),
            registry=registry,
        )
        self.isolated = Counter(
            "batchd_isolated_rows_total",
            "Examples that were run alone because they failed in a batch.",
            _LANE,
            registry=registry,
        )
        self.cold = Counter(
            "batchd_cold_batches_total",
            "Batches that no warm bucket held; the plain program answered them.",
            _LANE,
            registry=registry,
        )
        self.launches = Counter(
            "batchd_launches_total",
            "Groups of nodes that an engine batching at run time has launched.",
            _LANE,
            registry=registry,
        )
        self.nodes = Counter(
            "batchd_nodes_total",
            "Nodes of the graphs that an engine batching at run time has built.",
            _LANE,
            registry=registry,
        )
        self.restarts = Counter(
            "batchd_engine_restarts_total",
            "Engine processes that ended and were started again.",
            ("model",),
            registry=registry,
        )
        self.failures = Counter(
            "batchd_request_failures_total",
            "Requests that did not get an answer, by HTTP status code and reason: an outcome as above, or invalid, "
            "unknown_model, method, internal; busy, refused unread since a turn of the loop could not answer more; or "
            "that for which its connection ended, as in batchd_connections_ended_total. Without a model where that "
            "was not known yet.",
            (*_LANE, "code", "reason"),
            registry=registry,
        )
        self.in_flight = Gauge(
            "batchd_in_flight_requests",
            "Requests that are queued or computed at the moment, of all models.",
            registry=registry,
        )
        self.ready = Gauge(
            "batchd_model_ready", "1 while the model can answer, else 0.", ("model", "version"), registry=registry
        )
        self.queue_depth = Gauge("batchd_queue_depth", "Examples that wait to be sent.", _LANE, registry=registry)
        self.queue_bytes = Gauge(
            "batchd_queue_bytes", "Bytes of the requests that wait, of all models.", registry=registry
        )
        self.fallback_ops = Gauge(
            "batchd_fallback_ops",
            "Ops of the model that have no batched form and are looped over rows.",
            _LANE,
            registry=registry,
        )
        self.certification_difference = Gauge(
            "batchd_certification_difference_ratio",
            "Largest difference between batched and per-example values that certification found, as a share of what is "
            "allowed; 0 where they are equal.",
            (*_LANE, "output"),
            registry=registry,
        )
        self.load_seconds = Gauge(
            "batchd_model_load_seconds",
            "Of the last time that a model was loaded, by phase: import, load, vectorize, compile, certify, warm.",
            ("model", "version", "phase"),
            registry=registry,
        )
        self.loads = Counter(
            "batchd_model_loads_total",
            "Loads that requests have asked for, by outcome: done or failed.",
            ("model", "outcome"),
            registry=registry,
        )
        self.connections = Gauge("batchd_connections", "HTTP connections that are open.", registry=registry)
        self.connections_ended = Counter(
            "batchd_connections_ended_total",
            "HTTP connections that the server ended early, by reason: limit, header_timeout, body_timeout, "
            "write_timeout, url, headers (too long, too many), malformed, stopping.",
            ("reason",),
            registry=registry,
        )
        self.hung_engines = Counter(
            "batchd_hung_engines_total",
            "Engine processes that were killed because they hung, by what they hung in: batch, ping or load.",
            ("model", "where"),
            registry=registry,
        )
        self.internal_errors = Counter(
            "batchd_internal_errors_total",
            "Unexpected exceptions of the dispatcher that it lived on after, by where: step, batch, scheduler.",
            ("where",),
            registry=registry,
        )
        self._lanes: dict[tuple[str, str, str, str], LaneMetrics] = {}
        self._unplaced: dict[tuple[int, str], tuple[Counter, Counter]] = {}

    def lane(self, model: str, signature: str, engine: str, version: str = "1") -> LaneMetrics:
        """Returns the metrics of one lane; always the same object for the same labels."""
        labels = (model, version, signature, engine)
        found = self._lanes.get(labels)
        if found is None:
            found = self._lanes[labels] = LaneMetrics(self, labels)
        return found

    def count_unplaced(self, code: int, reason: str = "failed") -> None:
        """Counts a request that was answered before its model and signature were known."""
        counters = self._unplaced.get((code, reason))
        if counters is None:
            nobody = ("", "", "", "", str(code))
            counters = self.requests.labels(*nobody), self.failures.labels(*nobody, reason)
            self._unplaced[code, reason] = counters
        for counter in counters:
            counter.inc()

    def tally(self, model: str, version: str) -> Tally:
        """Returns the sums over all lanes of a model's version."""
        return Tally.of(lane.tally for lane in self.lanes_of(model, version))

    def lanes_of(self, model: str, version: str) -> Iterable[LaneMetrics]:
        """All lanes of a model's version: its signatures and engines."""
        return (lane for labels, lane in self._lanes.items() if labels[:2] == (model, version))

    def versions(self) -> Iterable[tuple[str, str]]:
        """Every model and version that something was counted for, once."""
        return dict.fromkeys(labels[:2] for labels in self._lanes)

    def count_ended_connection(self, reason: str) -> None:
        """Counts a connection that the server ends before its client does."""
        self.connections_ended.labels(reason).inc()

    def forget_ready(self, model: str, version: str) -> None:
        """Shows no readiness any more of a version that is gone for good; its counters stay."""
        self.ready.remove(model, version)

    def exposition(self) -> bytes:
        """Returns everything in the Prometheus text format."""
        return generate_latest(self.registry)


class LaneMetrics:
    """The metrics with one set of labels filled in."""

    def __init__(self, metrics: Metrics, labels: tuple[str, str, str, str]) -> None:
        self._metrics = metrics
        self.labels = labels
        self._requests: dict[int, Counter] = {}
        self._failures: dict[tuple[int, str], Counter] = {}
        self._dispatches: dict[str, Counter] = {}
        self.tally = Tally()
        self.request_duration = metrics.request_duration.labels(*labels)
        self.queue_duration = metrics.queue_duration.labels(*labels)
        self.compute_duration = metrics.compute_duration.labels(*labels)
        self.assembly_duration = metrics.assembly_duration.labels(*labels)
        self.build_duration = metrics.build_duration.labels(*labels)
        self.schedule_duration = metrics.schedule_duration.labels(*labels)
        self.gather_duration = metrics.gather_duration.labels(*labels)
        self.execute_duration = metrics.execute_duration.labels(*labels)
        self.split_duration = metrics.split_duration.labels(*labels)
        self.serialise_duration = metrics.serialise_duration.labels(*labels)
        self.fallback_ops = metrics.fallback_ops.labels(*labels)
        self._outcomes: dict[str, Counter] = {}
        self._bucket_batches: dict[str, Counter] = {}
        self.batch_size = metrics.batch_size.labels(*labels)
        self.padding_ratio = metrics.padding_ratio.labels(*labels)
        self.compiles_loading = metrics.compiles.labels(*labels, "load")
        self.compiles_serving = metrics.compiles.labels(*labels, "serving")
        self.isolated = metrics.isolated.labels(*labels)
        self.cold = metrics.cold.labels(*labels)
        self.launches = metrics.launches.labels(*labels)
        self.nodes = metrics.nodes.labels(*labels)
        self.queue_depth = metrics.queue_depth.labels(*labels)

    def count(self, code: int, seconds: float, reason: str = "failed") -> None:
        """Counts a request that got no answer, by its status and why, and how long that took."""
        self.requests(code).inc()
        self.request_duration.observe(seconds)
        self.failures(code, reason).inc()
        self.tally.add_failure(reason, seconds)

    def count_answer(self, seconds: float, examples: int, times: AnswerTimes, serialise_s: float) -> None:
        """Counts a request that got its answer."""
        self.requests(200).inc()
        self.request_duration.observe(seconds)
        self.serialise_duration.observe(serialise_s)
        self.tally.add_answer(seconds, examples, times, serialise_s)

    def count_batch(self, stats: BatchStats, seconds: float) -> None:
        """Counts a batch that ran, `seconds` from sending it to its return."""
        self.compute_duration.observe(seconds)
        self.assembly_duration.observe(stats.assembly_s)
        self.execute_duration.observe(stats.compute_s)
        self.split_duration.observe(stats.split_s)
        self.padding_ratio.observe(stats.padding_ratio)
        if stats.launches:
            self.launches.inc(stats.launches)
            self.nodes.inc(stats.nodes)
            self.build_duration.observe(stats.build_s)
            self.schedule_duration.observe(stats.schedule_s)
            self.gather_duration.observe(stats.gather_s)
        if stats.cold:
            self.cold.inc()
        if stats.isolated:
            self.isolated.inc(stats.isolated)

    def waiting(self) -> int:
        """How many examples wait to be sent."""
        return sum(int(sample.value) for family in self.queue_depth.collect() for sample in family.samples)

    def requests(self, code: int) -> Counter:
        """The counter of requests answered with this status."""
        found = self._requests.get(code)
        if found is None:
            found = self._requests[code] = self._metrics.requests.labels(*self.labels, str(code))
        return found

    def failures(self, code: int, reason: str) -> Counter:
        """The counter of requests that failed so."""
        found = self._failures.get((code, reason))
        if found is None:
            found = self._metrics.failures.labels(*self.labels, str(code), reason)
            self._failures[code, reason] = found
        return found

    def dispatches(self, reason: str) -> Counter:
        """The counter of batches sent for this reason."""
        found = self._dispatches.get(reason)
        if found is None:
            found = self._dispatches[reason] = self._metrics.dispatches.labels(*self.labels, reason)
        return found

    def outcomes(self, outcome: str) -> Counter:
        """The counter of requests that ended so."""
        found = self._outcomes.get(outcome)
        if found is None:
            found = self._outcomes[outcome] = self._metrics.outcomes.labels(*self.labels, outcome)
        return found

    def batches_in(self, bucket: str) -> Counter:
        """The counter of batches that ran in this bucket."""
        found = self._bucket_batches.get(bucket)
        if found is None:
            found = self._bucket_batches[bucket] = self._metrics.bucket_batches.labels(*self.labels, bucket)
        return found


def show_certification(metrics: Metrics, model: ModelDescription) -> None:
    """Sets how far apart batched and per-example values were when the model was certified."""
    for signature, certification in model.certification.items():
        for output in certification.outputs:
            labels = (model.name, model.version, signature, model.engine, output.name)
            allowed = output.allowed_difference
            ratio = output.largest_difference / allowed if allowed else 0.0
            metrics.certification_difference.labels(*labels).set(ratio)


def _declared(metrics: Metrics) -> list[MetricWrapperBase]:
    return [value for value in vars(metrics).values() if isinstance(value, MetricWrapperBase)]


def markdown() -> str:
    """Returns the page that documents every metric."""
    lines = [
        "# Metrics",
        "",
        "What `GET /metrics` exports, in the text format of Prometheus, besides this process's own memory,",
        "descriptors and garbage collections. Generated: `python -m server.metrics > docs/metrics.md`.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in _declared(Metrics(CollectorRegistry())):
        (family,) = metric.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "none"
        lines.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    lines += [
        "",
        "Histograms have `_bucket`, `_sum` and `_count`. `batchd_outcomes_total` accounts for every request: its",
        "values add up to the requests that were sent to a model. `batchd_compiles_total` of phase `serving` stays 0.",
        "",
        "With the setting `triton_metrics` the same values are also exported under Triton's names, with the labels",
        "`model` and `version`: `nv_inference_request_success`, `nv_inference_request_failure` (by `reason`),",
        *(f"`{name}`," for name in TRITON_NAMES[:-1]),
        f"`{TRITON_NAMES[-1]}`. They are the numbers of `GET /v2/models/{{model}}/stats`: of the requests that were",
        "answered, each of which counts the time of its whole batch.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
