"""The statistics of the Open Inference Protocol, as Triton's clients read them, against what was sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tests.support.protocol_service import Background, protocol_service

MODEL = "slow"
BATCH_S, ASSEMBLY_S, SPLIT_S = 0.3, 0.02, 0.01


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    """After two requests of three examples, a wrong one, one that is too late and one whose caller left."""
    with protocol_service() as served, triton.InferenceServerClient(served.http) as client:
        [engine] = [each for each in served.service.engines.started if each.description.name == MODEL]
        engine.assembly_s, engine.split_s = ASSEMBLY_S, SPLIT_S
        for _ in range(2):
            client.infer(MODEL, [rows(3)])
        with pytest.raises(InferenceServerException):
            client.infer(MODEL, [triton.InferInput("y", [1], "FP32").set_data_from_numpy(np.float32([1]))])
        with pytest.raises(InferenceServerException):
            client.infer(MODEL, [rows(1)], timeout=1000)
        leave(served)
        yield served


def rows(count: int) -> triton.InferInput:
    array = np.ones((count, 2), np.float32)
    return triton.InferInput("x", list(array.shape), "FP32").set_data_from_numpy(array)


def leave(served: Background) -> None:
    """A caller that doesn't wait for its answer; returns when all is over. Of it and the late one, one has run."""
    with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=httpx.Timeout(5, read=0.1)) as client:
        client.post(f"http://{served.http}/predict/{MODEL}", json={"inputs": {"x": [1, 2]}})
    give_up_at = time.monotonic() + 10
    tally = served.service.metrics.lane(MODEL, "predict", "fake").tally
    while (tally.executions, tally.failed) != (3, 3):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.fixture(params=["http", "grpc"])
def statistics(request: pytest.FixtureRequest, served: Background) -> dict[str, Any]:
    if request.param == "http":
        with triton.InferenceServerClient(served.http) as client:
            return client.get_inference_statistics(MODEL)["model_stats"][0]
    with triton_grpc.InferenceServerClient(served.grpc) as client:
        return as_numbers(client.get_inference_statistics(MODEL, as_json=True)["model_stats"][0])


def as_numbers(value: Any) -> Any:
    """Protobuf's JSON has 64-bit numbers as strings, and leaves out zeros."""
    if isinstance(value, dict):
        return {name: as_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_numbers(each) for each in value]
    return int(value) if value.isdigit() else value


def test_counts_are_those_of_what_was_sent(statistics):
    assert (statistics["inference_count"], statistics["execution_count"]) == (6, 3)
    counts = {name: spent.get("count", 0) for name, spent in statistics["inference_stats"].items()}
    assert counts["success"] == 2
    assert counts["fail"] == 3
    for name in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert counts[name] == 2
    assert abs(statistics["last_inference"] / 1000 - time.time()) < 60


def test_times_are_those_of_the_engine(statistics):
    seconds = {name: spent.get("ns", 0) / 1e9 for name, spent in statistics["inference_stats"].items()}
    assert seconds["compute_infer"] == pytest.approx(2 * BATCH_S)
    assert seconds["compute_input"] == pytest.approx(2 * ASSEMBLY_S)
    assert 2 * SPLIT_S < seconds["compute_output"] < 2 * SPLIT_S + 0.2
    assert 0 <= seconds["queue"] < 0.5
    assert seconds["success"] > 2 * BATCH_S
    assert seconds["fail"] > 0.1


def test_batches_by_size(statistics):
    one, three = statistics["batch_stats"]
    assert (one["batch_size"], one["compute_infer"]["count"]) == (1, 1)
    assert three["batch_size"] == 3
    for name, expected_s in {"compute_input": ASSEMBLY_S, "compute_infer": BATCH_S, "compute_output": SPLIT_S}.items():
        assert three[name] == {"count": 2, "ns": pytest.approx(2 * expected_s * 1e9)}


def test_the_metrics_with_tritons_names_are_the_same_numbers(served, statistics):
    text = httpx.get(f"http://{served.http}/metrics").text
    found = {
        (sample.name, sample.labels.get("reason")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("nv_") and sample.labels["model"] == MODEL
    }
    told = statistics["inference_stats"]
    assert found["nv_inference_request_success", None] == told["success"]["count"]
    failures = {reason: value for (name, reason), value in found.items() if name.endswith("_failure")}
    assert failures == {"REJECTED": 1, "CANCELED": 1, "BACKEND": 0, "OTHER": 1}
    assert sum(failures.values()) == told["fail"]["count"]
    assert found["nv_inference_count", None] == statistics["inference_count"]
    assert found["nv_inference_exec_count", None] == statistics["execution_count"]
    for name in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert found[f"nv_inference_{name}_duration_us", None] == pytest.approx(told[name].get("ns", 0) / 1000, abs=1)
    assert found["nv_inference_request_duration_us", None] == pytest.approx(told["success"]["ns"] / 1000, abs=1)


def test_every_failure_has_a_code_and_a_reason(served):
    registry = served.service.registry
    lane = {"model": MODEL, "version": "1", "signature": "predict", "engine": "fake"}
    for code, reason in (("400", "invalid"), ("504", "expired"), ("499", "cancelled")):
        labels = lane | {"code": code, "reason": reason}
        assert registry.get_sample_value("batchd_request_failures_total", labels) == 1
    assert registry.get_sample_value("batchd_in_flight_requests") == 0
