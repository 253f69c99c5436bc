"""Every path has its right; what a caller may not do is refused before its body is read; a web page changes nothing."""

from __future__ import annotations

import asyncio
import re
import socket
from itertools import product
from pathlib import Path

import httpx
import pytest
from starlette.routing import Match

from server.access import Access
from server.http.guard import RIGHTS, right_of_request
from server.tokens import TokenFile
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import running

TOKENS = {right: f"the-token-with-{right}" for right in ("predict", "metrics", "admin")}
MODELS = {"a": lambda: FakeEngine(description=describe("a"))}
NAMES = {"model": "a", "name": "a", "version": "1", "label": "x"}
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE")
OPEN = {path for path, right in RIGHTS.items() if right is None}


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    path = tmp_path / "tokens"
    path.write_text("".join(f"{right} {token}\n" for right, token in TOKENS.items()))
    path.chmod(0o600)
    return TokenFile(path)


def bearer(right: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[right]}"}


async def test_every_route_has_its_right_in_the_table():
    async with running(**MODELS) as service:
        routes = {route.path for route in service.application.routes}
        schema = (await service.client.get("/openapi.json")).json()
    assert routes <= set(RIGHTS), "a route without a right"
    assert set(schema["paths"]) <= set(RIGHTS), "a path of the schema without a right"
    assert set(RIGHTS) <= routes | set(schema["paths"]), "a right for no route"
    assert {"/metrics", "/models", "/v2/repository/models/{model}/load"} <= routes
    assert len(OPEN) == 11
    assert all(re.search(r"ready|live|healthz|docs|openapi|^/$", path) for path in OPEN)
    changes = {path for path in RIGHTS if re.search(r"load$", path)}
    assert {path for path, right in RIGHTS.items() if right == "admin"} == changes


async def test_without_a_token_only_what_is_open_answers(tokens):
    async with running(access=Access(tokens=tokens), **MODELS) as service:
        for pattern, right in RIGHTS.items():
            path = pattern.format(**NAMES)
            for method in METHODS:
                reply = await service.client.request(method, path)
                if right is None:
                    assert reply.status_code not in (401, 403), (method, path)
                    continue
                assert reply.status_code == 401, (method, path)
                assert reply.headers["www-authenticate"] == "Bearer"
                if method != "HEAD":
                    assert list(reply.json()) == ["error"]
                wrong = await service.client.request(method, path, headers={"authorization": "Bearer " + "x" * 20})
                assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')


async def test_each_token_opens_what_it_has_the_right_for(tokens):
    async with running(access=Access(tokens=tokens), **MODELS) as service:
        for pattern, needed in RIGHTS.items():
            for right in TOKENS:
                reply = await service.client.get(pattern.format(**NAMES), headers=bearer(right))
                if needed in (None, right):
                    assert reply.status_code not in (401, 403), (pattern, right)
                else:
                    assert reply.status_code == 403, (pattern, right)
                    assert reply.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{needed}"'
        reply = await service.client.post("/predict/a", json={"inputs": {"x": [1]}}, headers=bearer("predict"))
        assert reply.json()["outputs"] == {"output": [2.0]}


ODD_PATHS = [
    *("/metrics%0A", "/metrics/", "//metrics", "/Metrics", "/metrics;x", "/metrics?x=1", "/./metrics", "/%6Detrics"),
    *("/V1/MODELS/a:PREDICT", "/v1/modelsx", "/v1/models/a%3Apredict", "/v1/models/", "/v1/models/a:classify"),
    *("/v2/models/a/infer%0A", "/v2/models/a/infer/", "/v2//models/a/infer", "/v2/models/%2e%2e/infer", "/models%0A"),
    *("/v2/repository/models/a/load%0A", "/v2/repository/models/a/load/", "/v2/repository//models/a/load"),
    *(
        "/predict%2Fa",
        "/predict/",
        "/predict%0A",
        "/predict/a%0A",
        "/docs/../metrics",
        "/static-offline-docs/../metrics",
    ),
    *("/static-offline-docs/../metrics", "/static-offline-docs/%2e%2e/metrics"),
    *("/%2fmetrics", "/metrics%00", "/metrics%20", "/v2/models/a/stats%0A"),
]


async def test_no_way_of_writing_a_path_gets_around(tokens):
    """Nothing is answered without a token that isn't open."""
    async with running(access=Access(tokens=tokens), **MODELS) as service:
        for method, path in product(("GET", "POST"), ODD_PATHS):
            reply = await asyncio.to_thread(send_as_it_is, service.port, method, path)
            assert int(reply.split()[1]) in (400, 401, 404, 405), (path, reply)
            assert b"batchd_requests" not in reply


def send_as_it_is(port: int, method: str, path: str) -> bytes:
    """A client that doesn't tidy paths up. Returns the head of the reply and what came with it."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        received = b""
        while data := connection.recv(65536):
            received += data
    return received


async def test_unknown_paths_need_no_token(tokens):
    async with running(access=Access(tokens=tokens), **MODELS) as service:
        for path in ("/nothing", "/metrics/x", "/v2/nothing", "/static"):
            assert (await service.client.get(path)).status_code == 404


async def test_a_route_that_nobody_thought_of_needs_admin():
    class Forgotten:
        path = "/debug/everything"

        def matches(self, scope):
            return Match.FULL, {}

    assert right_of_request([Forgotten()], {"type": "http", "path": "/debug/everything"}) == "admin"


async def test_a_refused_body_is_not_read(tokens):
    async with running(access=Access(tokens=tokens), body_limit_bytes=10, **MODELS) as service:
        reply = await service.client.post("/predict/a", content=b"x" * 100_000)
        assert reply.status_code == 401
        reply = await service.client.post("/predict/a", content=b"x" * 100_000, headers=bearer("predict"))
        assert reply.status_code == 413


async def test_refusals_are_counted_and_tokens_stand_nowhere(tokens, caplog):
    caplog.set_level("DEBUG")
    async with running(access=Access(tokens=tokens), **MODELS) as service:
        await service.client.get("/metrics", headers=bearer("predict"))
        await service.client.get("/metrics", headers={"authorization": "Bearer wrong-but-secret-too"})
        pages = [
            (await service.client.get(path, headers=bearer(right))).text
            for path, right in (("/metrics", "metrics"), ("/openapi.json", "predict"), ("/docs", "predict"))
        ]
        pages.append((await service.client.get("/nothing", headers=bearer("predict"))).text)
    assert re.search(r'batchd_requests_total\{code="401".*\} 1\.0', pages[0])
    assert re.search(r'batchd_requests_total\{code="403".*\} 1\.0', pages[0])
    for secret in (*TOKENS.values(), "wrong-but-secret-too"):
        assert secret not in "".join(pages) + caplog.text


async def test_the_schema_says_which_token_is_needed(tokens):
    async with running(access=Access(tokens=tokens), **MODELS) as service:
        schema = (await service.client.get("/openapi.json")).json()
    assert schema["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (RIGHTS[path] is not None), path
            assert ({"401", "403"} <= set(operation["responses"])) == (RIGHTS[path] is not None), path
    async with running(**MODELS) as service:
        assert "security" not in (await service.client.get("/openapi.json")).text


LOAD = "/v2/repository/models/a/load"


async def test_admin_is_for_this_machine_only():
    async with running(access=Access(address="0.0.0.0"), **MODELS) as service:
        reply = await service.client.post(LOAD)
        assert reply.status_code == 403
        assert "set `token_file`" in reply.json()["error"]
        assert "www-authenticate" not in reply.headers
        assert (await service.client.get("/metrics")).status_code == 200
    async with running(**MODELS) as service:
        assert (await service.client.post(LOAD)).status_code != 403


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"origin": "https://evil.example"}, id="a page elsewhere"),
        pytest.param({"origin": "null"}, id="a page in a sandbox"),
        pytest.param({"sec-fetch-site": "cross-site"}, id="a page that hides where it is from"),
        pytest.param({"host": "evil.example:8000", "origin": "http://evil.example:8000"}, id="a name that points here"),
        pytest.param({"host": "evil.example:8000"}, id="likewise, by an old browser"),
        pytest.param({"x-forwarded-for": "203.0.113.9"}, id="a proxy"),
        pytest.param({"content-type": "text/plain", "origin": "https://evil.example"}, id="a form"),
    ],
)
async def test_a_web_page_cannot_change_what_is_served(headers):
    async with running(**MODELS) as service:
        for change in ("load", "unload"):
            reply = await service.client.post(f"/v2/repository/models/a/{change}", headers=headers)
            assert reply.status_code == 403, reply.text
        # What it may do is ask for a prediction; no header lets it read the answer.
        body = {"inputs": {"x": [1]}}
        reply = await service.client.post("/predict/a", json=body, headers={"origin": "https://evil.example"})
        assert reply.status_code == 200
        assert not any(name.startswith("access-control") for name in reply.headers)
        preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        for path in ("/predict/a", LOAD, "/metrics"):
            reply = await service.client.options(path, headers=preflight)
            assert reply.status_code in (403, 405)
            assert not any(name.startswith("access-control") for name in reply.headers)


async def test_several_authorization_headers_are_none(tokens):
    async with running(access=Access(tokens=tokens), **MODELS) as service:
        headers = httpx.Headers([("authorization", f"Bearer {TOKENS['predict']}")] * 2)
        assert (await service.client.get("/models", headers=headers)).status_code == 401
