"""What no route answers is answered in the same form: errors of the framework and of the HTTP parser."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.http_service import running

UPGRADE = b"connection: upgrade\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n", 404),
        (b"DELETE /models HTTP/1.1\r\n", 405),
        (b"OPTIONS /predict HTTP/1.1\r\n", 405),
        (b"GET /v2/models/a/b/c HTTP/1.1\r\n", 404),
        (b"GET /v2/ HTTP/1.1\r\n", 404),
        (b"GET /v1/models/a/b HTTP/1.1\r\n", 400),
        (b"GET /predict HTTP/1.1\r\nupgrade: websocket\r\n" + UPGRADE, 405),
        (b"GET /nothing HTTP/1.1\r\nupgrade: websocket\r\n" + UPGRADE, 404),
        (b"GET /nothing HTTP/1.1\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\nconnection: upgrade\r\n", 404),
        (b"PRI * HTTP/2.0\r\n", 400),
        (b"POST /v2/models/double/infer HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n", 400),
        (b"POST /v2/models/double/infer HTTP/1.1\r\ncontent-encoding: br\r\ncontent-length: 0\r\n", 415),
        (b"POST /v2/models/%C3%28/infer HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", 400),
        (b"POST /v1/models/%0a:predict HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", 400),
        (b"CONNECT h:1 HTTP/1.1\r\n", 400),
    ],
)
async def test_every_error_is_a_sentence(request_, status):
    async with running(double=FakeEngine) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(request_ if request_.endswith(b"}") else request_ + b"host: h\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        body = json.loads(await asyncio.wait_for(reader.readexactly(length), 5))
        writer.close()
        assert (int(head.split()[1]), list(body)) == (status, ["error"]), body
        assert isinstance(body["error"], str)
        assert b"content-type: application/json" in lines
        assert (await service.predict(inputs={"x": [1]})).status_code == 200
