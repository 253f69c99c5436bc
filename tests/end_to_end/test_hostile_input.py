"""Whatever is sent, the caller gets a status and a sentence, and the server serves on."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.support.serving import SERVICES, Serving, serving

GOOD = {"ids": [1, 4], "scale": 2, "tag": "a"}
GOOD_OUTPUTS = {"tag": "a", "total": [10.0, 12.0]}


def with_input(name: str, text: str) -> bytes:
    """The good example's body with one input replaced by this JSON text."""
    body = json.dumps({"inputs": GOOD | {name: "?"}})
    return body.replace('"?"', text).encode()


# name: (body, status, what the sentence says)
HOSTILE = {
    "empty": (b"", 400, "the body is empty"),
    "blank": (b"   \r\n", 400, "the body is empty"),
    "not JSON": (b"ids=1&scale=2", 400, "not valid JSON"),
    "cut off": (with_input("tag", '"a"')[:-1], 400, "not valid JSON: unexpected end of data"),
    "not UTF-8": (with_input("tag", '"?"').replace(b"?", b"\xff\xfe"), 400, "not valid JSON"),
    "a lone surrogate": (with_input("tag", r'"\ud800"'), 400, "surrogate"),
    "bytes of zero": (b"\0" * 1000, 400, "not valid JSON"),
    "a list": (b"[1, 2, 3]", 400, "Expected `object`, got `array`"),
    "deep": (b"[" * 100_000, 400, "the body doesn't fit"),
    "deep inside": (with_input("ids", "[" * 100_000 + "]" * 100_000), 400, "depth"),
    "deep objects": (b'{"inputs": ' + b'{"a":' * 100_000, 400, "not valid JSON"),
    "no inputs": (b"{}", 400, "missing required field `inputs`"),
    "inputs is null": (b'{"inputs": null}', 400, "at `inputs`"),
    "missing input": (b'{"inputs": {"ids": [1], "scale": 1}}', 400, "missing input 'tag'"),
    "unknown input": (b'{"inputs": {"ids": [1], "scale": 1, "tag": "", "b": 1}}', 400, "unknown input 'b'"),
    "unknown field": (b'{"inputs": {}, "flavour": 3}', 400, "unknown field `flavour`"),
    "wrong dtype": (
        with_input("ids", "[1, 2.5]"),
        400,
        "input 'ids': expected int32 of shape [length], got float at [1]",
    ),
    "text for a number": (with_input("scale", '"2"'), 400, "input 'scale': expected a single float32, got string"),
    "a boolean for a number": (with_input("scale", "true"), 400, "input 'scale': expected a single float32, got bool"),
    "null for a number": (with_input("scale", "null"), 400, "input 'scale'"),
    "a number for text": (with_input("tag", "3"), 400, "input 'tag': expected a single string, got int"),
    "an object for text": (with_input("tag", '{"b65": "AA=="}'), 400, "input 'tag'"),
    "no base64": (with_input("tag", '{"b64": "!"}'), 400, "input 'tag'"),
    "wrong rank": (with_input("ids", "[[1], [2]]"), 400, "got int of shape [2, 1]"),
    "ragged": (with_input("ids", "[1, [2]]"), 400, "input 'ids'"),
    "NaN": (with_input("scale", "NaN"), 400, 'write "NaN"'),
    "NaN for an integer": (with_input("ids", '["NaN"]'), 400, "input 'ids': expected int32"),
    "beyond int32": (with_input("ids", f"[{2**31}]"), 400, "input 'ids'"),
    "a huge integer": (with_input("ids", f"[{10**400}]"), 400, "input 'ids'"),
    "a huge integer for a float": (with_input("scale", f"{10**400}"), 400, "input 'scale'"),
    "beyond float32": (with_input("scale", "1e39"), 400, "input 'scale'"),
    "no deadline": (b'{"inputs": {}, "timeout_ms": -1}', 400, '"timeout_ms" must be above 0'),
    "20 MB": (with_input("ids", "[" + "1, " * 7_000_000 + "1]"), 413, "larger than the limit of 16777216 bytes"),
    "rejected by the function": (with_input("ids", "[7]"), 400, "indices[0] = 7 is not in [0, 5)"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving(SERVICES / "guarded.py", "--xla", "off") as server:
        yield server


def assert_serves_on(server: Serving) -> None:
    reply = server.predict("guarded", GOOD)
    assert (reply.status_code, reply.json()["outputs"]) == (200, GOOD_OUTPUTS)


def assert_refused(reply: httpx.Response, status: int, sentence: str) -> None:
    assert reply.status_code == status, reply.text
    assert list(reply.json()) == ["error"]
    assert sentence in reply.json()["error"]
    assert len(reply.json()["error"]) < 600


@pytest.mark.parametrize(("body", "status", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_bodies(server: Serving, body: bytes, status: int, sentence: str) -> None:
    assert_refused(server.client.post("/predict/guarded", content=body), status, sentence)
    assert_serves_on(server)


@pytest.mark.parametrize(
    ("scale", "total"),
    [('"NaN"', ["NaN", "NaN"]), ('"Infinity"', ["Infinity"] * 2), ('"-Infinity"', ["-Infinity"] * 2)],
)
def test_what_looks_hostile_and_is_not(server: Serving, scale: str, total: list[str]) -> None:
    reply = server.client.post("/predict/guarded", content=with_input("scale", scale))
    assert (reply.status_code, reply.json()["outputs"]["total"]) == (200, total)


@pytest.mark.parametrize("text", ["\0", "a" * 1_000_000, "\U0010ffff", "</script>", '"\\', "\u2028"])
def test_any_text_comes_back_as_it_was(server: Serving, text: str) -> None:
    assert server.predict("guarded", GOOD | {"tag": text}).json()["outputs"]["tag"] == text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/predict/nobody", 404),
        ("POST", "/predict/" + "x" * 5000, 404),
        ("POST", "/predict/guarded/7", 404),
        ("POST", "/predict/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/predict/guarded", 405),
        ("DELETE", "/models/guarded", 405),
        ("GET", "/models/nobody", 404),
        ("GET", "/predictions", 404),
        ("PUT", "/", 405),
    ],
)
def test_routes(server: Serving, method: str, path: str, status: int) -> None:
    reply = server.client.request(method, path, content=json.dumps({"inputs": GOOD}))
    assert (reply.status_code, list(reply.json())) == (status, ["error"])
    assert_serves_on(server)


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"NONSENSE\r\n\r\n", id="no request line"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, id="TLS"),
        pytest.param(b"POST /predict HTTP/9.9\r\n\r\n", id="unknown version"),
        pytest.param(b"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n", id="negative length"),
        pytest.param(b"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Length: 4, 5\r\n\r\nabcd", id="two lengths"),
        pytest.param(b"POST /predict HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", id="no chunk"),
    ],
)
def test_malformed_http_gets_400_or_a_closed_connection(server: Serving, request_bytes: bytes) -> None:
    reply = _send(server, request_bytes)
    assert reply == b"" or re.match(rb"HTTP/1\.1 (400|431) ", reply), reply[:200]
    assert_serves_on(server)


def test_callers_that_send_half_a_request_and_leave(server: Serving) -> None:
    for body in (b"", b'{"inputs": {"ids": [1'):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n" + body)
    assert_serves_on(server)


def test_it_was_the_same_engine_all_along(server: Serving) -> None:
    assert server.client.get("/models/guarded").json()["restarts"] == 0
    assert server.metric("batchd_requests_total", code="500") == 0
    assert "Traceback" not in server.log.read_text()


def _send(server: Serving, request_bytes: bytes) -> bytes:
    """What comes back before the connection is closed, or before two quiet seconds."""
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=2) as connection:
        try:
            connection.sendall(request_bytes)
            while data := connection.recv(65536):
                received += data
        except (TimeoutError, ConnectionError):
            pass
    return received
