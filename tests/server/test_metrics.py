"""The metrics by themselves: their own registry, cached children, and a text that Prometheus can read."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from server.engines.batch_result import BatchStats
from server.metrics import Metrics, markdown, new_registry
from server.model_description import Bucket
from server.prediction import Provenance

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_children_are_looked_up_once():
    metrics = Metrics(CollectorRegistry())
    lane = metrics.lane("m", "predict", "static")
    assert metrics.lane("m", "predict", "static") is lane
    assert lane.requests(200) is lane.requests(200)
    assert lane.dispatches("idle") is lane.dispatches("idle")


def test_two_servers_in_one_process_do_not_meet():
    first, second = Metrics(CollectorRegistry()), Metrics(CollectorRegistry())
    first.lane("m", "predict", "static").requests(200).inc()
    labels = {"model": "m", "version": "1", "signature": "predict", "engine": "static", "code": "200"}
    assert first.registry.get_sample_value("batchd_requests_total", labels) == 1
    assert second.registry.get_sample_value("batchd_requests_total", labels) is None


def test_the_exposition_parses_and_carries_its_units():
    metrics = Metrics(new_registry())
    lane = metrics.lane('a "quoted"\nname', "predict", "static")
    lane.requests(200).inc()
    lane.request_duration.observe(0.004)
    metrics.count_unplaced(404)
    families = {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}
    assert "process_resident_memory_bytes" in families
    own = {name: family for name, family in families.items() if name.startswith("batchd_")}
    assert {
        "batchd_requests",
        "batchd_request_duration_seconds",
        "batchd_queue_duration_seconds",
        "batchd_compute_duration_seconds",
        "batchd_batch_size",
        "batchd_padding_ratio",
        "batchd_dispatches",
        "batchd_compiles",
        "batchd_queue_depth",
    } <= set(own)
    assert all(family.documentation for family in own.values())
    assert {sample.labels["code"] for sample in own["batchd_requests"].samples} == {"200", "404"}
    assert not any(sample.name.endswith("_created") for family in own.values() for sample in family.samples)


def test_the_page_of_metrics_is_current():
    assert PAGE.read_text() == markdown(), "run: python -m server.metrics > docs/metrics.md"


def test_tritons_names_on_request():
    metrics = Metrics(new_registry(), triton_names=True)
    lane = metrics.lane("m", "predict", "static", "3")
    times = Provenance(4, Bucket(4), 0.0, "idle", queue_s=0.5, compute_s=1.0, execute_s=0.25)
    lane.tally.add_batch(6, BatchStats(compute_s=0.25))
    lane.tally.add_batch(2, BatchStats())
    for examples in (3, 5):
        lane.count_answer(2.0, examples, times, serialise_s=0.0)
    for code, reason in ((504, "expired"), (503, "queue_full"), (499, "cancelled"), (400, "invalid")):
        lane.count(code, 0.1, reason)
    model = {"model": "m", "version": "3"}
    value = metrics.registry.get_sample_value
    assert value("nv_inference_count", model) == 8
    assert value("nv_inference_exec_count", model) == 2
    assert value("nv_inference_compute_infer_duration_us", model) == 500_000
    assert value("nv_inference_queue_duration_us", model) == 1_000_000
    assert value("nv_inference_request_duration_us", model) == 4_000_000
    assert value("nv_inference_request_success", model) == 2
    for reason, count in {"REJECTED": 2, "CANCELED": 1, "BACKEND": 0, "OTHER": 1}.items():
        assert value("nv_inference_request_failure", model | {"reason": reason}) == count
    assert value("nv_inference_pending_request_count", model) == 0
    assert "nv_inference_count{" in metrics.exposition().decode()
    assert "nv_inference" not in Metrics(new_registry()).exposition().decode()
