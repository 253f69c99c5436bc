"""Everything but the hot path: probes, descriptions, metrics, the schema and its page."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from server.errors import ModelLoadError
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import running


async def test_probes_while_loading_and_after():
    may_start = asyncio.Event()

    def engine() -> FakeEngine:
        engine = FakeEngine(description=describe("m"))
        engine.may_start = may_start
        return engine

    async with running(wait=False, m=engine) as service:
        await asyncio.sleep(0.02)
        assert (await service.client.get("/healthz")).json() == {"status": "ok"}
        for reply in (
            await service.client.get("/readyz"),
            await service.predict(inputs={"x": [1]}),
            await service.predict("m", inputs={"x": [1]}),
            await service.predict("other", inputs={"x": [1]}),
        ):
            assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
            assert list(reply.json()) == ["error"]
        assert (await service.client.get("/models")).json()["models"][0]["state"] == "loading"
        may_start.set()
        while (reply := await service.client.get("/readyz")).status_code == 503:
            await asyncio.sleep(0.005)
        assert reply.json() == {"status": "ready"}
        assert (await service.predict("other", inputs={})).status_code == 404
        service.supervisor.draining = True
        reply = await service.client.get("/readyz")
        assert (reply.status_code, reply.json()) == (503, {"error": "not ready: the server is shutting down"})


async def test_head_is_get_without_the_body():
    async with running() as service:
        for path in ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v1/models/affine", "/nowhere"):
            got, head = await service.client.get(path), await service.client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers["content-type"] == got.headers["content-type"]
        assert (await service.client.head("/predict")).status_code == 405


async def test_descriptions():
    async with running(a=lambda: FakeEngine(description=describe("a")), b=lambda: FakeEngine()) as service:
        listed = (await service.client.get("/models")).json()["models"]
        assert [(model["name"], model["state"], model["engine"]) for model in listed] == [
            ("a", "ready", "fake"),
            ("double", "ready", "fake"),
        ]
        model = (await service.client.get("/models/a")).json()
        [signature] = model["signatures"]
        assert signature["inputs"] == [{"name": "x", "dtype": "float32", "shape": [None]}]
        assert {"rows": 4, "lengths": []} in signature["buckets"]
        assert (signature["report"], signature["report_text"]) == ({"ops": 1}, "1 op: all vectorized")
        assert model["max_batch_size"] == 8
        assert (await service.client.get("/")).json()["name"] == "batchd"


async def test_the_schema_has_the_hot_path_and_the_page_needs_no_other_host():
    async with running(a=lambda: FakeEngine(description=describe("a"))) as service:
        schema = (await service.client.get("/openapi.json")).json()
        assert {"/predict", "/predict/{model}", "/models", "/readyz", "/metrics"} <= set(schema["paths"])
        assert "413" in schema["paths"]["/predict/{model}"]["post"]["responses"]
        assert "X-Batchd-Batch-Size" in schema["paths"]["/predict"]["post"]["responses"]["200"]["headers"]
        page = await service.client.get("/docs")
        assert page.status_code == 200
        assert "https://" not in page.text
        script = await service.client.get("/static-offline-docs/swagger-ui-bundle.js")
        assert script.status_code == 200


async def test_metrics_have_the_names_that_the_documents_promise():
    async with running(a=lambda: FakeEngine(description=describe("a"))) as service:
        await asyncio.gather(*(service.predict(inputs={"x": [i]}) for i in range(5)))
        await service.predict(inputs={"x": ["no"]})
        reply = await service.client.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {family.name: family for family in text_string_to_metric_families(reply.text)}
        samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families.values()
            for sample in family.samples
        }
        labels = {"model": "a", "version": "1", "signature": "predict", "engine": "fake"}

        def value(name: str, **more: str) -> float:
            return samples[name, tuple(sorted((labels | more).items()))]

        assert value("batchd_requests_total", code="200") == 5
        assert value("batchd_requests_total", code="400") == 1
        assert value("batchd_request_duration_seconds_count") == 6
        assert value("batchd_queue_duration_seconds_count") == 5
        assert value("batchd_batch_size_sum") == 5
        assert value("batchd_compute_duration_seconds_count") == value("batchd_batch_size_count")
        assert value("batchd_padding_ratio_count") == value("batchd_batch_size_count")
        assert value("batchd_dispatches_total", reason="idle") == value("batchd_batch_size_count")
        assert value("batchd_compiles_total", phase="serving") == 0
        assert value("batchd_compiles_total", phase="load") == 0
        assert value("batchd_queue_depth") == 0


async def test_a_dead_engine_answers_503_and_comes_back():
    async with running(a=lambda: FakeEngine(description=describe("a")), b=lambda: FakeEngine()) as service:
        first = service.engines.started[0]
        first.gate = asyncio.Event()
        waiting = asyncio.create_task(service.predict("a", inputs={"x": [1]}))
        await asyncio.sleep(0.05)
        first.kill()
        reply = await asyncio.wait_for(waiting, 1)
        assert (reply.status_code, int(reply.headers["retry-after"])) == (503, 1)
        assert "ended" in reply.json()["error"]
        assert (await service.predict("double", inputs={"x": [1]})).status_code == 200
        while (reply := await service.predict("a", inputs={"x": [3]})).status_code == 503:
            await asyncio.sleep(0.005)
        assert reply.json()["outputs"] == {"output": [6.0]}
        assert service.registry.get_sample_value("batchd_engine_restarts_total", {"model": "a"}) == 1


async def test_a_restart_that_fails_is_tried_again():
    made = []

    def engine() -> FakeEngine:
        broken = ModelLoadError("out of memory") if len(made) in (1, 2) else None
        made.append(FakeEngine(description=describe("a"), load_error=broken))
        return made[-1]

    async with running(a=engine) as service:
        made[0].kill()
        while len(made) < 4:
            await asyncio.sleep(0.005)
        while (await service.client.get("/readyz")).status_code == 503:
            await asyncio.sleep(0.005)
        assert (await service.predict("a", inputs={"x": [1]})).status_code == 200
