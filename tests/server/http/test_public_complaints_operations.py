"""What users of other servers have complained about, where it concerns running a server: none of it happens here.

Each test has the complaint for a name, and says where it was made.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.settings import Settings
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import running

STAGES = ("request", "queue", "assembly", "execute", "split", "serialise")


def named(name: str, seconds: float):
    def make() -> FakeEngine:
        engine = FakeEngine(description=describe(name), seconds=seconds)
        engine.assembly_s, engine.split_s = seconds / 4, seconds / 8
        return engine

    return make


def buckets(text: str) -> dict[tuple[str, str], dict[float, float]]:
    """Cumulative counts of each histogram, by metric and model, as Prometheus itself reads them."""
    found: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                found[family.name, sample.labels["model"]][float(sample.labels["le"])] = sample.value
    return found


def quantile(cumulative: dict[float, float], share: float) -> float:
    """The upper bound of the bucket in which the quantile lies."""
    return next(bound for bound, count in sorted(cumulative.items()) if count >= share * cumulative[math.inf])


@pytest.mark.complaint(22)
async def test_there_are_no_latency_histograms_that_can_be_added_up():
    """triton-inference-server/server#3060, #2685, #7672; tensorflow/serving#1624, tensorflow/serving#462"""
    async with running(quick=named("quick", 0.002), slow=named("slow", 0.15)) as service:
        for model, count in (("quick", 20), ("slow", 4)):
            asked = [service.predict(model, inputs={"x": [1]}) for _ in range(count)]
            assert {reply.status_code for reply in await asyncio.gather(*asked)} == {200}
        found = buckets((await service.client.get("/metrics")).text)
    for stage in STAGES:
        name = f"batchd_{stage}_duration_seconds"
        quick, slow = found[name, "quick"], found[name, "slow"]
        assert quick.keys() == slow.keys()
        assert list(quick.values()) == sorted(quick.values())
        assert quick[math.inf] > 0 < slow[math.inf]
        both = {bound: quick[bound] + slow[bound] for bound in quick}
        assert quantile(quick, 0.5) <= quantile(both, 0.99) <= quantile(slow, 1)
    request = "batchd_request_duration_seconds"
    assert (found[request, "quick"][math.inf], found[request, "slow"][math.inf]) == (20, 4)
    assert quantile(found[request, "slow"], 0.99) >= 0.15
    assert quantile(found["batchd_execute_duration_seconds", "slow"], 0.99) == 0.15
    assert quantile(found["batchd_execute_duration_seconds", "quick"], 0.99) == 0.002


@pytest.mark.complaint(24)
async def test_each_scrape_reaches_another_process(monkeypatch: pytest.MonkeyPatch):
    """kserve/kserve#2979; BerriAI/litellm#10595: one process accepts, whatever uvicorn's own variables say."""
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    assert not {"workers", "web_concurrency"} & set(Settings.model_fields)
    async with running(m=named("m", 0.0)) as service:
        for expected in range(1, 9):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.port}") as another:
                assert (await another.post("/predict", json={"inputs": {"x": [1]}})).status_code == 200
                text = (await another.get("/metrics")).text
            answered = sum(
                sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == "batchd_outcomes_total"
            )
            assert answered == expected
