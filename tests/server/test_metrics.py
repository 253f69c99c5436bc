"""The metrics by themselves: their own registry, cached children, and a text that Prometheus can read."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from server.metrics import Metrics, new_registry


def test_children_are_looked_up_once():
    metrics = Metrics(CollectorRegistry())
    lane = metrics.lane("m", "predict", "static")
    assert metrics.lane("m", "predict", "static") is lane
    assert lane.requests(200) is lane.requests(200)
    assert lane.dispatches("idle") is lane.dispatches("idle")


def test_two_servers_in_one_process_do_not_meet():
    first, second = Metrics(CollectorRegistry()), Metrics(CollectorRegistry())
    first.lane("m", "predict", "static").requests(200).inc()
    labels = {"model": "m", "signature": "predict", "engine": "static", "code": "200"}
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
