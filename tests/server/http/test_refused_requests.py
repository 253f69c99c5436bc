"""What a connection refuses by itself: the caller's id, one line and one count each, with the status that was sent."""

from __future__ import annotations

import asyncio
import logging
import socket
import time

import pytest
import uvloop

from server.http.connections import ConnectionLimits
from server.request_context import current_request
from tests.support.fake_engine import FakeEngine
from tests.support.http_service import Service, running
from tests.support.raw_http import RawConnection

LIMITS = ConnectionLimits(header_timeout_s=0.2, body_timeout_s=0.2, write_timeout_s=0.2, keep_alive_s=5.0)
HEAD = b"POST /predict/m?secret HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n"
BODY = b"Content-Length: 50\r\n\r\n{"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

REFUSED = {
    "a body that stops": (HEAD + BODY, 408, "mine", "POST /predict/m", "body_timeout"),
    "of the framework": (HEAD.replace(b"/predict/m", b"/v2/repository/index") + BODY, 408, "mine", None, None),
    "a broken chunk": (HEAD + CHUNKED + b"ZZ\r\n", 400, "mine", "POST /predict/m", "malformed"),
    "a chunk that breaks off": (HEAD + CHUNKED + b"1\r\n{XX", 400, "mine", "POST /predict/m", "malformed"),
    "a head that stops": (HEAD + b"A", 408, "mine", "POST /predict/m", "header_timeout"),
    "a method that stops": (b"PO", 408, None, "- -", "header_timeout"),
    "many headers": (HEAD + b"a: b\r\n" * 101, 431, "mine", "POST /predict/m", "headers"),
    "large headers": (HEAD + b"a: " + b"v" * 33_000 + b"\r\n\r\n", 431, "mine", "POST /predict/m", "headers"),
    "a header without end": (HEAD + b"a: " + b"v" * 50_000, 431, "mine", "POST /predict/m", "headers"),
    "a long URL": (b"GET /" + b"u" * 9000 + b" HTTP/1.1\r\n\r\n", 414, None, "GET /" + "u" * 199, "url"),
    "no HTTP": (b"NONSENSE\r\n\r\n", 400, None, "- -", "malformed"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, None, "- -", "malformed"),
    "behind another": (GET + HEAD + CHUNKED + b"ZZ\r\n", 400, "mine", "POST /predict/m", "malformed"),
    "a head behind another": (GET + HEAD + b"a: b\r\nc d\r\n\r\n", 400, "mine", "POST /predict/m", "malformed"),
}


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.name == "batchd.access"]


def requests_by_code(service: Service) -> dict[str, float]:
    samples = [each for family in service.registry.collect() for each in family.samples]
    found = [each for each in samples if each.name == "batchd_requests_total" and each.value]
    return {each.labels["code"]: each.value for each in found}


@pytest.mark.parametrize("access_log", ["errors", "all"])
@pytest.mark.parametrize(("sent", "status", "id_", "place", "reason"), REFUSED.values(), ids=REFUSED)
async def test_one_line_and_one_count_with_the_callers_id(caplog, access_log, sent, status, id_, place, reason):
    caplog.set_level(logging.INFO)
    async with running(limits=LIMITS, access_log=access_log, m=FakeEngine) as service:
        async with await RawConnection.open(service.port) as connection:
            for piece in (sent[:-1], sent[-1:]):
                connection.send(piece)
                await asyncio.sleep(0.01)
            if sent.startswith(GET):
                assert (await connection.reply()).status == 200
            reply = await connection.reply()
            assert (reply.status, reply.closes) == (status, True)
            assert await connection.ended()
        assert requests_by_code(service) == {str(status): 1}
    [line] = [each for each in lines(caplog) if "/healthz" not in each.getMessage()]
    assert line.status == status
    assert reply.headers["x-request-id"] == (id_ or reply.headers["x-request-id"])
    if place is not None:
        assert (line.getMessage(), line.reason) == (f"{place} {status}", reason)


async def test_the_line_has_the_id_of_the_reply(caplog):
    ids = []
    caplog.set_level(logging.INFO)
    caplog.handler.addFilter(lambda record: ids.append(_current_id()) or True)
    async with running(limits=LIMITS, m=FakeEngine) as service:
        for sent in (HEAD + BODY, b"NONSENSE\r\n\r\n"):
            async with await RawConnection.open(service.port) as connection:
                connection.send(sent)
                reply = await connection.reply()
                await asyncio.sleep(0.02)
                assert ids[-1] == reply.headers["x-request-id"]


def _current_id() -> str | None:
    request = current_request.get()
    return request and request.id.decode()


async def test_without_an_access_log_there_is_no_line_and_a_storm_has_a_limited_number(caplog):
    caplog.set_level(logging.INFO)
    for access_log, expected in (("off", 0), ("errors", 50)):
        async with running(limits=LIMITS, access_log=access_log, m=FakeEngine) as service:
            began = time.monotonic()
            for _ in range(70):
                async with await RawConnection.open(service.port) as connection:
                    connection.send(b"NONSENSE\r\n\r\n")
                    assert (await connection.reply()).status == 400
            seconds = time.monotonic() - began
        assert len(lines(caplog)) <= expected * (1 + int(seconds) * 2)
        assert bool(lines(caplog)) == bool(expected)


async def test_a_caller_that_leaves_while_the_framework_reads_leaves_no_traceback(caplog):
    caplog.set_level(logging.INFO)
    async with running(m=FakeEngine) as service:
        connection = await RawConnection.open(service.port)
        connection.send(HEAD.replace(b"/predict/m", b"/v2/repository/index") + BODY)
        await asyncio.sleep(0.05)
        connection.writer.close()
        await asyncio.sleep(0.05)
    [line] = lines(caplog)
    assert (line.status, line.reason) == (499, "cancelled")
    assert not [each for each in caplog.records if each.exc_info]


def test_clients_that_pipeline_and_never_read_leave_no_traceback(caplog, monkeypatch):
    """As it is served: unlike asyncio's, the transports of uvloop raise when they are written to after the end."""
    ran, ran_at_the_end = uvloop.run(_flood(monkeypatch))
    assert 0 < ran == ran_at_the_end < 20 * 60
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def _flood(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Returns how many requests had run when the last connection was dropped, and a moment later."""
    ran = 0
    async with running(limits=LIMITS, m=FakeEngine) as service:
        exposition = service.metrics.exposition

        def counted() -> bytes:
            nonlocal ran
            ran += 1
            return exposition() + b"# \n" * 100_000

        monkeypatch.setattr(service.metrics, "exposition", counted)
        clients = []
        for _ in range(20):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect(("127.0.0.1", service.port))
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 60)
            clients.append(client)
        while not ran or len(service.connections):
            await asyncio.sleep(0.02)
        before = ran
        await asyncio.sleep(0.1)
        for client in clients:
            client.close()
    return before, ran


async def test_only_bytes_of_the_body_are_progress():
    async with running(limits=LIMITS, m=FakeEngine) as service, await RawConnection.open(service.port) as connection:
        connection.send(HEAD + CHUNKED)
        reply = asyncio.create_task(connection.reply())
        for _ in range(12):
            connection.send(b"1" + b";eee" * 500 + b"\r\n \r\n")
            await asyncio.sleep(0.05)
        assert reply.done()
        assert (await reply).status == 408


async def test_a_client_that_sends_all_of_a_body_that_is_too_large_can_read_why():
    async with (
        running(limits=LIMITS, body_limit_bytes=1000, m=FakeEngine) as service,
        await RawConnection.open(service.port) as connection,
    ):
        connection.send(HEAD + b"Content-Length: 3000000\r\n\r\n")
        for _ in range(30):
            connection.send(b" " * 100_000)
            await connection.writer.drain()
        reply = await connection.reply()
        assert (reply.status, reply.closes, reply.headers["x-request-id"]) == (413, False, "mine")
        connection.send(GET)
        assert (await connection.reply()).status == 200
