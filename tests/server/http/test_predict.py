"""POST /predict over a real socket: answers, provenance, and every way in which a request can be wrong."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from server.model_description import TensorDescription
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import Service, running


def double() -> FakeEngine:
    return FakeEngine()


def tokens_and_text() -> FakeEngine:
    inputs = [TensorDescription("tokens", "int32", [None]), TensorDescription("text", "string", [])]
    outputs = [TensorDescription("count", "int64", []), TensorDescription("text", "string", [])]
    description = describe("mixed", inputs, outputs)
    return FakeEngine(lambda tokens, text: (np.int64(tokens.sum()), np.array(text.item() * 2, object)), description)


@pytest.fixture
async def service():
    async with running(double=double, mixed=tokens_and_text) as service:
        yield service


async def raw(service: Service, request: bytes, replies: int = 1) -> list[tuple[int, bytes]]:
    """Sends bytes and reads that many replies on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(request)
    answers = []
    for _ in range(replies):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        answers.append((int(head.split()[1]), await reader.readexactly(length)))
    writer.close()
    return answers


async def test_an_answer(service):
    reply = await service.predict(model="double", inputs={"x": [1, 2.5]})
    assert reply.status_code == 200
    assert reply.json() == {"model": "double", "signature": "predict", "outputs": {"output": [2.0, 5.0]}}
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-batchd-batch-size"] == "1"
    assert reply.headers["x-batchd-bucket"] == "1"
    assert reply.headers["x-batchd-reason"] == "idle"
    assert reply.headers["x-batchd-padding"] == "0.000"
    assert 0 <= float(reply.headers["x-batchd-queue-ms"]) < 1000
    assert 0 <= float(reply.headers["x-batchd-compute-ms"]) < 1000


async def test_the_model_in_the_path_and_both(service):
    body = {"inputs": {"tokens": [1, 2, 3], "text": "ab"}, "signature": "predict"}
    for path, extra in (
        ("/predict/mixed", {}),
        ("/predict/mixed", {"model": "mixed"}),
        ("/predict", {"model": "mixed"}),
    ):
        reply = await service.client.post(path, json=body | extra)
        assert reply.status_code == 200, reply.text
        assert reply.json()["outputs"] == {"count": 6, "text": "abab"}


async def test_the_only_model_needs_no_name():
    async with running(double=double) as service:
        assert (await service.predict(inputs={"x": [1]})).json()["model"] == "double"


@pytest.mark.parametrize(
    "request_line",
    [
        b"FOO /predict HTTP/1.1",
        b"POST /predict/\xff HTTP/1.1",
        b"\x16\x03\x01",
        b"POST /predict HTTP/1.1\r\ncontent-length: -1",
    ],
)
async def test_what_is_not_http_gets_a_sentence_too(service, request_line):
    [(status, body)] = await raw(service, request_line + b"\r\n\r\n")
    assert (status, json.loads(body)) == (400, {"error": "this is not a valid HTTP request"})
    assert (await service.predict(model="double", inputs={"x": [1]})).status_code == 200


async def test_an_error_does_not_repeat_a_large_request(service):
    reply = await service.predict(model="double", inputs={f"{'k' * 1000}{number}": 1 for number in range(1000)})
    assert reply.status_code == 400
    assert reply.json()["error"].startswith("missing input 'x'; unknown input 'kkk")
    assert len(reply.content) < 3000


async def test_the_content_type_does_not_matter(service):
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        reply = await service.client.post(
            "/predict/double", content=b'{"inputs": {"x": [1]}}', headers={"content-type": content_type}
        )
        assert reply.status_code == 200


WRONG = [
    (b"", 400, "the body is empty"),
    (b"   ", 400, "the body is empty"),
    (b"{", 400, "the body is not valid JSON: "),
    (b'{"inputs": {"x": [1,]}}', 400, "trailing comma is not allowed: line 1 column 20"),
    (b'{"inputs": {"x": [NaN]}}', 400, 'write "NaN", "Infinity" and "-Infinity" as strings'),
    (b'{"inputs": {"x": [1]}} trailing', 400, "the body is not valid JSON"),
    (b"\xff\xfe", 400, "the body is not valid JSON"),
    (b"[" * 100_000, 400, "the body doesn't fit: Expected `object`"),
    (b'{"inputs": {"x": ' + b"[" * 5000 + b"]" * 5000 + b"}}", 400, "depth limit exceeded"),
    (b"[1]", 400, "the body doesn't fit: Expected `object`, got `array`"),
    (b"3", 400, "the body doesn't fit: Expected `object`, got `int`"),
    (b"{}", 400, "missing required field `inputs`"),
    (b'{"inputs": [1]}', 400, "Expected `object`, got `array` at `inputs`"),
    (b'{"inputs": {"x": [1]}, "input": 1}', 400, "unknown field `input`"),
    (b'{"inputs": {"x": [1]}, "timeout_ms": "5"}', 400, "at `timeout_ms`"),
    (b'{"inputs": {"x": [1]}, "timeout_ms": true}', 400, "at `timeout_ms`"),
    (b'{"inputs": {"x": [1]}, "timeout_ms": 0}', 400, '"timeout_ms" must be above 0 milliseconds, got 0'),
    (b'{"inputs": {"x": [1]}, "model": "mixed"}', 400, "\"model\" is 'mixed', but the path says 'double'"),
    (b'{"inputs": {"x": [1]}, "signature": "no"}', 404, "no signature 'no'; it has: predict"),
    (b'{"inputs": {}}', 400, "missing input 'x'; signature 'predict' takes 'x': float32 of shape [length]"),
    (b'{"inputs": {"x": [1], "y": 2}}', 400, "unknown input 'y'"),
    (b'{"inputs": {"X": [1]}}', 400, "missing input 'x'; unknown input 'X'"),
    (
        b'{"inputs": {"x": [[1]]}}',
        400,
        "input 'x': expected float32 of shape [length], got int of shape [1, 1]",
    ),
    (b'{"inputs": {"x": [1, true]}}', 400, "expected float32 of shape [length], got bool at [1]"),
]


async def test_wrong_requests(service):
    for body, status, sentence in WRONG:
        reply = await service.client.post("/predict/double", content=body)
        assert (reply.status_code, list(reply.json())) == (status, ["error"])
        assert sentence in reply.json()["error"]
        assert (await service.predict("double", inputs={"x": [1]})).status_code == 200


async def test_unknown_models_and_a_missing_name(service):
    reply = await service.predict("nobody", inputs={})
    assert (reply.status_code, reply.json()) == (
        404,
        {"error": "no model 'nobody'; served here: double, mixed"},
    )
    reply = await service.predict(inputs={"x": [1]})
    assert reply.status_code == 404
    assert '"model" is needed when several models are served' in reply.json()["error"]


async def test_the_function_rejects_an_example_and_only_that_caller_hears():
    def positive(x):
        if (x < 0).any():
            raise ValueError("x must not be negative")
        return x

    async with running(m=lambda: FakeEngine(positive, describe("m"), seconds=0.02)) as service:
        replies = await asyncio.gather(*(service.predict(inputs={"x": [i - 1]}) for i in range(8)))
        assert [reply.status_code for reply in replies] == [400] + [200] * 7
        assert replies[0].json() == {"error": "x must not be negative"}


async def test_a_body_that_is_too_large_gets_413_and_the_connection_goes_on(service):
    head = b"POST /predict/double HTTP/1.1\r\nHost: h\r\n"
    good = b'{"inputs": {"x": [1]}}'
    next_request = head + b"Content-Length: %d\r\n\r\n" % len(good) + good
    big = b"x" * 20_000_000
    announced = head + b"Content-Length: %d\r\n\r\n" % len(big) + big
    chunk = b"%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk
    for request in (announced, chunked):
        first, second = await asyncio.wait_for(raw(service, request + next_request, replies=2), 20)
        assert first[0] == 413
        assert json.loads(first[1])["error"] == "the request body is larger than the limit of 16777216 bytes"
        assert second[0] == 200
    reply = await service.client.post("/predict/double", content=big)
    assert reply.status_code == 413


async def test_other_methods_and_paths(service):
    reply = await service.client.get("/predict/double")
    assert (reply.status_code, reply.headers["allow"], list(reply.json())) == (405, "POST", ["error"])
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("POST", "/predict/", 404),
        ("POST", "/predict/a/b", 404),
        ("POST", "/predictx", 404),
        ("POST", "/models", 405),
        ("GET", "/models/nobody", 404),
        ("GET", "/static-offline-docs/nothing.js", 404),
    ):
        reply = await service.client.request(method, path)
        assert (reply.status_code, list(reply.json())) == (status, ["error"]), path


async def test_the_deadline_is_kept_while_the_batch_runs():
    async with running(m=lambda: FakeEngine(description=describe("m"), seconds=0.5)) as service:
        loop = asyncio.get_running_loop()
        started = loop.time()
        reply = await service.predict(inputs={"x": [1]}, timeout_ms=50)
        assert loop.time() - started < 0.4
        assert reply.status_code == 504
        assert "no answer before the deadline" in reply.json()["error"]


async def test_the_default_deadline():
    slow = FakeEngine(description=describe("m"), seconds=0.5)
    async with running(m=lambda: slow, request_timeout_s=0.05) as service:
        assert (await service.predict(inputs={"x": [1]})).status_code == 504


async def test_a_full_queue_says_when_to_come_back():
    slow = FakeEngine(description=describe("m"), seconds=0.1)
    async with running(m=lambda: slow) as service:
        replies = await asyncio.gather(*(service.predict(inputs={"x": [i]}) for i in range(95)))
        assert {reply.status_code for reply in replies} == {200}
        service.dispatcher._core.queue_limit_examples = 3
        replies = await asyncio.gather(*(service.predict(inputs={"x": [i]}) for i in range(20)))
        refused = [reply for reply in replies if reply.status_code == 503]
        assert refused
        assert int(refused[0].headers["retry-after"]) >= 1
        assert "the queue is full: 3 of at most 3 examples wait" in refused[0].json()["error"]
        assert {reply.status_code for reply in replies} == {200, 503}


async def test_a_caller_that_leaves_is_taken_out_of_the_queue():
    engine = FakeEngine(description=describe("m"))
    async with running(m=lambda: engine) as service:
        engine.gate = asyncio.Event()
        first = asyncio.create_task(service.predict(inputs={"x": [1]}))
        await asyncio.sleep(0.05)
        body = b'{"inputs": {"x": [7]}}'
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(b"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(0.1)
        labels = {"model": "m", "version": "1", "signature": "predict", "engine": "fake"}
        assert service.registry.get_sample_value("batchd_queue_depth", labels) == 1
        writer.close()
        await asyncio.sleep(0.4)  # its end looks like that of a half until something was written
        assert service.registry.get_sample_value("batchd_queue_depth", labels) == 0
        assert service.registry.get_sample_value("batchd_requests_total", labels | {"code": "499"}) == 1
        engine.gate.set()
        assert (await first).status_code == 200
        assert engine.sizes == [1]


async def test_many_at_once_each_get_their_own(service):
    async def ask(i: int) -> None:
        reply = await service.predict("double", inputs={"x": [i, -i]})
        assert reply.json()["outputs"]["output"] == [2 * i, -2 * i]

    for wave in range(3):
        await asyncio.gather(*(ask(100 * wave + i) for i in range(60)))
