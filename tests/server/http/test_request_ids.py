"""Every reply of every route carries its request's id, and every log line about a request names it."""

from __future__ import annotations

import asyncio
import json
import logging

import numpy as np
import pytest

from server.access import Access
from server.logs import JsonFormatter
from server.tokens import TokenFile
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import Service, running
from tests.support.protocol_service import half_plus_three

LIMIT = 10_000
ROUTES = [
    ("GET", "/", 200),
    ("GET", "/healthz", 200),
    ("GET", "/readyz", 200),
    ("GET", "/metrics", 200),
    ("GET", "/models", 200),
    ("GET", "/models/half_plus_three", 200),
    ("GET", "/models/nobody", 404),
    ("GET", "/docs", 200),
    ("GET", "/openapi.json", 200),
    ("GET", "/nowhere", 404),
    ("DELETE", "/models", 405),
    ("HEAD", "/healthz", 200),
    ("GET", "/predict", 405),
    ("POST", "/predict/nobody", 400),
    ("GET", "/v2", 200),
    ("GET", "/v2/health/ready", 200),
    ("GET", "/v2/models/half_plus_three", 200),
    ("GET", "/v2/models/half_plus_three/stats", 200),
    ("GET", "/v2/models/half_plus_three/infer", 405),
    ("POST", "/v2/models/half_plus_three/infer", 400),
    ("POST", "/v2/repository/index", 200),
    ("GET", "/v1/models/half_plus_three", 200),
    ("GET", "/v1/models/half_plus_three/metadata", 200),
    ("GET", "/v1/models/nobody", 404),
    ("GET", "/v1/models/a/b/c", 400),
    ("POST", "/v1/models/half_plus_three:predict", 400),
    ("DELETE", "/v1/models/half_plus_three", 405),
]


def picky() -> FakeEngine:
    """Refuses what is negative."""

    def compute(x):
        if x < 0:
            raise ValueError("the secret is 4711")
        return x

    return FakeEngine(compute, describe("picky", half_plus_three().description.signatures[0].inputs))


@pytest.fixture
async def service():
    async with running(
        half_plus_three=half_plus_three, picky=picky, body_limit_bytes=LIMIT, request_timeout_s=5.0
    ) as service:
        yield service


async def test_every_route_echoes_the_id_and_makes_one_where_there_is_none(service: Service) -> None:
    seen = set()
    for method, path, status in ROUTES:
        reply = await service.client.request(method, path, headers={"X-Request-Id": f"id:{path}"[:60]})
        assert (reply.status_code, reply.headers.get_list("x-request-id")) == (status, [f"id:{path}"[:60]]), path
        made = (await service.client.request(method, path, headers={"X-Request-Id": "not safe"})).headers
        seen.add(made["x-request-id"])
    assert len(seen) == len(ROUTES)


async def test_bodies_that_are_too_large_or_compressed_oddly(service: Service) -> None:
    for headers, status in (({}, 413), ({"content-encoding": "brotli"}, 415)):
        body = b"x" * (LIMIT + 1 if status == 413 else 10)
        reply = await service.client.post("/predict", content=body, headers={"x-request-id": "mine", **headers})
        assert (reply.status_code, reply.headers["x-request-id"]) == (status, "mine")


async def test_what_isnt_http_has_an_id_too(service: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"HELLO\r\n\r\n")
    assert b"\r\nx-request-id: " in await reader.read()
    writer.close()


async def test_what_is_refused_before_it_is_a_request_has_an_id_too(service: Service) -> None:
    assert (await service.client.get("/" + "x" * 10_000)).headers["x-request-id"]
    reply = await service.client.get("/", headers={f"x-{index}": "y" for index in range(200)})
    assert (reply.status_code, len(reply.headers.get_list("x-request-id"))) == (431, 1)


async def test_who_has_no_right_gets_the_id_and_a_line(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    tokens = tmp_path / "tokens"
    tokens.write_text("predict right-token-of-some-length\n")
    tokens.chmod(0o600)
    async with running(half_plus_three=half_plus_three, access=Access(tokens=TokenFile(tokens))) as service:
        headers = {"x-request-id": "r1", "authorization": "Bearer wrong-token-of-some-length"}
        reply = await service.client.post("/predict", json={"inputs": {"x": 1}}, headers=headers)
    assert (reply.status_code, reply.headers["x-request-id"]) == (401, "r1")
    [line] = [each for each in _as_json(caplog) if each["logger"] == "batchd.access"]
    assert (line["request_id"], line["reason"]) == ("r1", "unauthenticated")
    assert "of-some-length" not in json.dumps(_as_json(caplog))


async def test_answers_of_each_protocol(service: Service) -> None:
    infer = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}], "id": "theirs"}
    for path, body in (
        ("/predict/half_plus_three", {"inputs": {"x": 1}}),
        ("/v1/models/half_plus_three:predict", {"instances": [1]}),
        ("/v2/models/half_plus_three/infer", infer),
    ):
        reply = await service.client.post(path, json=body, headers={"x-request-id": "mine"})
        assert (reply.status_code, reply.headers["x-request-id"]) == (200, "mine")
    assert reply.json()["id"] == "theirs"


async def test_requests_that_share_a_connection_or_a_batch_keep_their_own(service: Service) -> None:
    async def ask(index: int) -> None:
        body = {"inputs": {"x": index - 20}}
        reply = await service.client.post("/predict/picky", json=body, headers={"x-request-id": f"r{index}"})
        assert reply.headers["x-request-id"] == f"r{index}"
        assert reply.status_code == (400 if index < 20 else 200)

    await asyncio.gather(*map(ask, range(40)))


async def test_a_failure_is_one_line_that_names_the_request_and_quotes_nothing(service: Service, caplog) -> None:
    caplog.set_level(logging.INFO)
    headers = {"x-request-id": "r1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "authorization": "Bearer s3cret"}
    await service.client.post("/predict/picky?token=s3cret", json={"inputs": {"x": -4711}}, headers=headers)
    await service.client.post("/predict/picky", json={"inputs": {"x": 4711}}, headers={"x-request-id": "r2"})
    [line] = [each for each in _as_json(caplog) if each["logger"] == "batchd.access"]
    assert line.pop("time")
    assert line.pop("total_ms") > 0
    assert line == {
        "level": "info",
        "logger": "batchd.access",
        "message": "POST /predict/picky 400",
        "request_id": "r1",
        "trace_id": "a" * 32,
        "parent_span_id": "b" * 16,
        "protocol": "http",
        "status": 400,
        "model": "picky",
        "version": "1",
        "signature": "predict",
        "engine": "fake",
        "reason": "rejected",
        "error": "ExampleRejected",
    }
    everything = json.dumps(_as_json(caplog))
    assert "4711" not in everything
    assert "s3cret" not in everything


async def test_every_request_has_a_line_that_says_how_it_was_served(caplog) -> None:
    caplog.set_level(logging.INFO)
    async with running(half_plus_three=half_plus_three, access_log="all") as service:
        await service.client.post("/predict", json={"inputs": {"x": 1}}, headers={"x-request-id": "r1"})
        await service.client.get("/models?x=y", headers={"x-request-id": "r2"})
    predict, models = [each for each in _as_json(caplog) if each["logger"] == "batchd.access"]
    assert predict | {"status": 200, "model": "half_plus_three", "batch_size": 1, "batches": 1} == predict
    assert min(predict["batch"], predict["queue_ms"], predict["compute_ms"]) >= 0
    assert (models["message"], models["request_id"]) == ("GET /models 200", "r2")


async def test_nothing_is_logged_of_requests_when_it_is_off(caplog) -> None:
    caplog.set_level(logging.INFO)
    async with running(half_plus_three=half_plus_three, access_log="off") as service:
        assert (await service.predict(inputs={})).status_code == 400
    assert not [each for each in caplog.records if each.name == "batchd.access"]


async def test_a_line_about_a_batch_names_all_its_requests_and_belongs_to_none(caplog) -> None:
    caplog.set_level(logging.INFO)

    def broken() -> FakeEngine:
        engine = FakeEngine(lambda x: [][0], describe("broken", half_plus_three().description.signatures[0].inputs))
        engine.seconds = 0.02
        return engine

    async with running(broken=broken) as service:
        ids = [f"r{index}" for index in range(4)]
        asked = [
            service.client.post("/predict", json={"inputs": {"x": 1}}, headers={"x-request-id": each}) for each in ids
        ]
        replies = await asyncio.gather(*asked)
    assert {reply.status_code for reply in replies} == {500}
    lines = [each for each in _as_json(caplog) if each["logger"] == "batchd.dispatcher"]
    assert sorted(id for line in lines for id in line["requests"]) == ids
    assert all("request_id" not in line and line["model"] == "broken" for line in lines)
    assert all("IndexError" in line["exception"] for line in lines)


async def test_what_goes_wrong_unforeseen_is_logged_with_the_id(caplog, monkeypatch) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.INFO, "uvicorn.error")  # a stub server may have set it otherwise
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    async with running(half_plus_three=half_plus_three) as service:
        monkeypatch.setattr(service.supervisor, "not_ready", lambda: 1 / 0)
        monkeypatch.setattr(service.dispatcher, "predict", lambda request: 1 / 0)
        for path in ("/readyz", "/predict"):
            body = {"json": {"inputs": {"x": 1}}} if path == "/predict" else {}
            method = "POST" if body else "GET"
            reply = await service.client.request(method, path, headers={"x-request-id": path}, **body)
            assert (reply.status_code, reply.headers["x-request-id"]) == (500, path)
    lines = [each for each in _as_json(caplog) if "ZeroDivisionError" in each.get("exception", "")]
    assert {(each["logger"], each["request_id"]) for each in lines} == {
        ("batchd.http", "/predict"),
        ("uvicorn.error", "/readyz"),
    }
    assert {each["request_id"] for each in _as_json(caplog) if each["logger"] == "batchd.access"} == {
        "/readyz",
        "/predict",
    }


async def test_hostile_names_make_no_new_labels(service: Service) -> None:
    """Whatever callers send, the series that exist are those of the models."""

    async def series() -> set[str]:
        text = (await service.client.get("/metrics")).text
        return {line.rpartition(" ")[0] for line in text.splitlines() if line.startswith("batchd_")}

    async def ask(name: str) -> None:
        rows = [[1.0]] * 3
        tensor = {"name": name, "shape": [3], "datatype": "FP32", "data": rows}
        for path in (f"/predict/{name}", f"/v2/models/{name}/infer", f"/v1/models/{name}:predict", f"/models/{name}"):
            await service.client.post(path, json={"inputs": [tensor], "instances": rows})
        for body in ({"model": name, "inputs": {}}, {"model": "picky", "signature": name, "inputs": {name: 1}}):
            await service.client.post("/predict", json=body)
        infer = {"inputs": [tensor], "parameters": {"signature": name}}
        await service.client.post(f"/v2/models/picky/versions/{name}/infer", json=infer)
        await service.client.post("/v2/models/picky/infer", json=infer)
        await service.client.post("/v1/models/picky:predict", json={"instances": [1], "signature_name": name})
        await service.client.request(name.upper()[:5], f"/{name}")

    await ask("warm")
    before = await series()
    for index in range(40):
        await ask(f"evil{index}")
    assert await series() == before
    assert not any("evil" in each for each in before)


async def test_batches_of_any_size_and_shape_make_a_bounded_number_of_labels() -> None:
    async with running(m=lambda: FakeEngine(description=describe("m"))) as service:
        rng = np.random.default_rng(0)
        for size in rng.integers(1, 60, 30):
            rows = [[1.0] * int(length) for length in rng.integers(0, 90, size)]
            assert (await service.client.post("/v1/models/m:predict", json={"instances": rows})).status_code == 200
        text = (await service.client.get("/metrics")).text
        buckets = [line for line in text.splitlines() if line.startswith("batchd_bucket_batches_total{")]
        assert 0 < len(buckets) <= 5
        [stats] = (await service.client.get("/v2/models/m/stats")).json()["model_stats"]
        assert len(stats["batch_stats"]) <= 8


def _as_json(caplog: pytest.LogCaptureFixture) -> list[dict]:
    return caplog.handler.entries


@pytest.fixture(autouse=True)
def _json_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats each record while its request is the current one, as a real handler does."""
    entries: list[dict] = []
    emit = caplog.handler.emit

    def emit_both(record: logging.LogRecord) -> None:
        emit(record)
        if record.name not in ("httpx", "uvicorn.access"):  # the test's own client; pytest listens to muted loggers
            entries.append(json.loads(JsonFormatter().format(record)))

    monkeypatch.setattr(caplog.handler, "emit", emit_both)
    monkeypatch.setattr(caplog.handler, "entries", entries, raising=False)
