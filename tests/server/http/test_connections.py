"""What one connection may take from the others, and how connections end; with a neighbour that is served throughout."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from server.http.connections import ConnectionLimits
from tests.support.fake_engine import FakeEngine
from tests.support.http_service import Service, running
from tests.support.raw_http import RawConnection, RawReply

HEAD = b"POST /predict HTTP/1.1\r\nhost: h\r\n"
BODY = b'{"inputs":{"x":[1]}}'
GOOD = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
LIMITS = ConnectionLimits(header_timeout_s=0.3, body_timeout_s=0.3, write_timeout_s=0.3, keep_alive_s=0.3)


@asynccontextmanager
async def serving(limits: ConnectionLimits = LIMITS, **settings) -> AsyncIterator[Service]:
    """A server, and a neighbour who has to get right answers all the while."""
    settings.setdefault("double", FakeEngine)
    async with running(limits=limits, **settings) as service:
        neighbour = asyncio.create_task(_neighbour(service))
        yield service
        neighbour.cancel()
        (served,) = await asyncio.gather(neighbour, return_exceptions=True)
        assert isinstance(served, asyncio.CancelledError), served
        assert (await service.predict("double", inputs={"x": [2]})).json()["outputs"] == {"output": [4.0]}


async def _neighbour(service: Service) -> None:
    while True:
        reply = await service.predict("double", inputs={"x": [1]})
        assert (reply.status_code, reply.json()["outputs"]) == (200, {"output": [2.0]})
        await asyncio.sleep(0.01)


def ended_early(service: Service, reason: str) -> float:
    return service.registry.get_sample_value("batchd_connections_ended_total", {"reason": reason}) or 0.0


def assert_refused(reply: RawReply, status: int, sentence: str) -> None:
    assert (reply.status, list(reply.json)) == (status, ["error"]), reply
    assert sentence in reply.json["error"]
    assert reply.closes
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("request_", "status", "sentence", "reason"),
    [
        (b"GET /" + b"u" * 9000 + b" HTTP/1.1\r\n", 414, "longer than 8192 bytes", "url"),
        (b"GET /" + b"u" * 9000, 414, "longer than 8192 bytes", "url"),
        (HEAD + b"a: b\r\n" * 101, 431, "more than 100 headers", "headers"),
        (HEAD + b"a: " + b"v" * 33_000 + b"\r\n\r\n", 431, "larger than 32768 bytes", "headers"),
        (HEAD + (b"a: " + b"v" * 999 + b"\r\n") * 34 + b"\r\n", 431, "larger than 32768 bytes", "headers"),
        (b"NONSENSE\r\n\r\n", 400, "not a valid HTTP request", "malformed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, 400, "not a valid HTTP", "malformed"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nZZ\r\n", 400, "not a valid HTTP", "malformed"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nabcdeXX", 400, "not a valid HTTP", "malformed"),
        (HEAD + b"content-length: 4, 5\r\n\r\nabcd", 400, "not a valid HTTP", "malformed"),
        (HEAD, 408, "head was not complete after 0.3 s", "header_timeout"),
        (b"P", 408, "head was not complete after 0.3 s", "header_timeout"),
        (HEAD + b"content-length: 9\r\n\r\n{", 408, "stopped arriving for 0.3 s", "body_timeout"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", 408, "stopped arriving for 0.3 s", "body_timeout"),
        (HEAD + b"content-length: 9\r\nexpect: 100-continue\r\n\r\n", 408, "stopped arriving", "body_timeout"),
    ],
)
async def test_what_takes_too_much_is_refused_in_our_form(request_, status, sentence, reason):
    async with serving() as service, await RawConnection.open(service.port) as connection:
        connection.send(request_)
        if b"expect" in request_:
            assert (await connection.reply()).status == 100
        assert_refused(await connection.reply(), status, sentence)
        assert await connection.ended()
        assert ended_early(service, reason) == 1


async def test_a_header_that_never_ends_has_a_limit():
    """The parser keeps it to itself."""
    limits = replace(LIMITS, header_timeout_s=5.0)
    async with serving(limits) as service, await RawConnection.open(service.port) as connection:
        connection.send(HEAD + b"a: ")
        for _ in range(50):
            connection.send(b"v" * 1000)
            await connection.writer.drain()
            await asyncio.sleep(0.001)
        assert_refused(await connection.reply(), 431, "larger than 32768 bytes")


async def test_a_head_that_dribbles_is_given_up():
    async with serving() as service, await RawConnection.open(service.port) as connection:
        began = time.monotonic()
        for byte in HEAD:
            if connection.reader.at_eof() or time.monotonic() - began > 0.6:
                break
            connection.send(bytes([byte]))
            await asyncio.sleep(0.05)
        assert_refused(await connection.reply(), 408, "head was not complete")


async def test_a_body_that_dribbles_is_given_up_and_one_that_flows_is_not():
    async with serving() as service:
        async with await RawConnection.open(service.port) as connection:
            connection.send(HEAD + b"content-length: 1000\r\n\r\n")
            for _ in range(20):
                connection.send(b" ")
                await asyncio.sleep(0.03)
            assert_refused(await connection.reply(), 408, "stopped arriving")
        async with await RawConnection.open(service.port) as connection:
            spaces = b" " * 1100
            connection.send(HEAD + b"content-length: %d\r\n\r\n" % (12 * len(spaces) + len(BODY)))
            for _ in range(12):
                connection.send(spaces)
                await asyncio.sleep(0.05)
            connection.send(BODY)
            assert (await connection.reply()).status == 200


async def test_a_refused_body_is_dropped_for_a_while_and_not_for_ever():
    async with serving(body_limit_bytes=1000) as service, await RawConnection.open(service.port) as connection:
        connection.send(HEAD + b"content-length: 2000\r\n\r\n" + b" " * 1990)
        assert (await connection.reply()).status == 413
        connection.send(b" " * 10 + GOOD)
        assert (await connection.reply()).status == 200
        connection.send(HEAD + b"content-length: 1000000000\r\n\r\n")
        assert (await connection.reply()).status == 413
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(_send_on(connection), 5)


async def _send_on(connection: RawConnection) -> None:
    while True:
        connection.send(b" " * 5000)
        await connection.writer.drain()
        await asyncio.sleep(0.01)


async def test_an_idle_connection_is_closed_quietly():
    async with serving() as service:
        for request_ in (b"", HEALTH):
            async with await RawConnection.open(service.port) as connection:
                began = time.monotonic()
                connection.send(request_)
                if request_:
                    assert not (await connection.reply()).closes
                assert await connection.ended()
                assert 0.2 < time.monotonic() - began < 2


async def test_too_many_connections_get_503():
    async with running(
        limits=replace(LIMITS, connections=3, keep_alive_s=9, header_timeout_s=9), a=FakeEngine
    ) as service:
        kept = [await RawConnection.open(service.port) for _ in range(3)]
        for connection in kept:
            connection.send(HEALTH)
            assert (await connection.reply()).status == 200
        for request_ in (b"", GOOD):
            async with await RawConnection.open(service.port) as connection:
                connection.send(request_)
                reply = await connection.reply()
                assert_refused(reply, 503, "3 connections are open already")
                assert int(reply.headers["retry-after"]) >= 1
                assert await connection.ended()
        assert ended_early(service, "limit") == 2
        kept[0].writer.close()
        while len(service.connections) > 2:
            await asyncio.sleep(0.01)
        kept[1].send(HEALTH)
        assert (await kept[1].reply()).status == 200
        async with await RawConnection.open(service.port) as connection:
            connection.send(HEALTH)
            assert (await connection.reply()).status == 200
        for connection in kept:
            connection.writer.close()


async def test_who_does_not_read_a_reply_is_dropped_and_its_memory_freed():
    def large(x):
        return x.repeat(1_000_000)

    async with serving(big=lambda: FakeEngine(large, _named("big"))) as service:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", service.port))
        raw.sendall(GOOD.replace(b"/predict", b"/predict/big"))
        began = time.monotonic()
        while not ended_early(service, "write_timeout"):
            assert time.monotonic() - began < 5
            await asyncio.sleep(0.02)
        raw.close()


async def test_a_slow_reader_that_reads_on_gets_all():
    def large(x):
        return x.repeat(200_000)

    async with serving(big=lambda: FakeEngine(large, _named("big"))) as service:
        async with await RawConnection.open(service.port) as connection:
            connection.send(GOOD.replace(b"/predict", b"/predict/big"))
            head = await connection.reader.readuntil(b"\r\n\r\n")
            left = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            while left:
                left -= len(await connection.reader.read(40_000))
                await asyncio.sleep(0.02)
        assert not ended_early(service, "write_timeout")


async def test_pipelined_requests_are_answered_in_order_and_errors_in_their_turn():
    slow = FakeEngine
    async with (
        serving(double=lambda: slow(seconds=0.05)) as service,
        await RawConnection.open(service.port) as connection,
    ):
        bodies = [json.dumps({"inputs": {"x": [i]}}).encode() for i in range(5)]
        connection.send(
            b"".join(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body for body in bodies) + b"NONSENSE\r\n"
        )
        for i in range(5):
            assert (await connection.reply()).json["outputs"] == {"output": [2.0 * i]}
        assert_refused(await connection.reply(), 400, "not a valid HTTP request")
        assert await connection.ended()


async def test_a_flood_of_pipelined_requests_is_cut():
    async with serving() as service, await RawConnection.open(service.port) as connection:
        connection.send(HEALTH * 10_000)
        replies = []
        while not replies or not replies[-1].closes:
            replies.append(await connection.reply())
        assert 1 <= len(replies) <= 200
        assert all(reply.status == 200 for reply in replies)
        assert await connection.ended()


@pytest.mark.parametrize("asks", [True, False])
async def test_expect_100_continue(asks):
    async with serving(body_limit_bytes=1000) as service, await RawConnection.open(service.port) as connection:
        if asks:
            connection.send(HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY))
            assert (await connection.reply()).status == 100
            connection.send(BODY)
            reply = await connection.reply()
            assert (reply.status, reply.closes) == (200, False)
            connection.send(HEALTH)
            assert (await connection.reply()).status == 200
        else:  # refused without being asked for: whether the body comes can't be known, so the connection ends
            connection.send(HEAD + b"expect: 100-continue\r\ncontent-length: 5000\r\n\r\n")
            reply = await connection.reply()
            assert (reply.status, reply.closes) == (413, True)
            assert await connection.ended()


async def test_a_chunked_body():
    async with serving() as service, await RawConnection.open(service.port) as connection:
        connection.send(HEAD + b"transfer-encoding: chunked\r\n\r\n5;ext=1\r\n" + BODY[:5] + b"\r\n")
        await asyncio.sleep(0.05)
        connection.send(b"%x\r\n" % len(BODY[5:]) + BODY[5:] + b"\r\n0\r\ntrailer: t\r\n\r\n" + HEALTH)
        assert (await connection.reply()).status == 200
        assert (await connection.reply()).status == 200


async def test_a_fuzz_of_heads_never_gets_plain_text():
    pieces = [
        b"GET ",
        b"POST ",
        b"/predict",
        b" HTTP/1.1",
        b"\r\n",
        b"\n",
        b":",
        b"content-length: 5",
        b"\0",
        b"\xff",
        b" ",
    ]
    pieces += [b"transfer-encoding: chunked", b"a: b", b"\r\n\r\n", b"connection: upgrade", b"upgrade: h2c", BODY]
    async with serving() as service:
        for seed in range(150):
            chosen = [pieces[(seed * 7919 + i * i * 104729 + i * 31) % len(pieces)] for i in range(3 + seed % 12)]
            async with await RawConnection.open(service.port) as connection:
                connection.send(b"".join(chosen))
                connection.writer.write_eof()
                received = await asyncio.wait_for(connection.reader.read(), 5)
                assert received == b"" or (received.startswith(b"HTTP/1.1 ") and b"text/plain" not in received)


async def test_the_last_replies_say_so_and_idle_connections_end_last():
    async with running(double=lambda: FakeEngine(seconds=0.1)) as service:
        idle, busy, half, half_head = [await RawConnection.open(service.port) for _ in range(4)]
        for connection in (idle, busy):
            connection.send(HEALTH)
            assert not (await connection.reply()).closes
        busy.send(GOOD)
        half.send(GOOD[:-1])
        half_head.send(HEAD)
        await asyncio.sleep(0.03)
        service.connections.close_with_replies()
        reply = await busy.reply()
        assert (reply.status, reply.closes) == (200, True)
        assert await busy.ended()
        half.send(GOOD[-1:])
        assert ((await half.reply()).status, await half.ended()) == (200, True)
        idle.send(HEALTH[:-2])
        await asyncio.sleep(0.02)
        idle.send(HEALTH[-2:])
        assert ((await idle.reply()).closes, await idle.ended()) == (True, True)
        late = await RawConnection.open(service.port)
        waiting = await RawConnection.open(service.port)
        late.send(HEALTH)
        assert (await late.reply()).closes
        closing = asyncio.create_task(service.listener.stop(service.listening, 1.0))
        assert_refused(await waiting.reply(), 503, "was not run")
        assert_refused(await half_head.reply(), 503, "shutting down")
        for connection in (idle, busy, half, half_head, late, waiting):
            connection.writer.close()
        assert await asyncio.wait_for(closing, 2)
        with pytest.raises(ConnectionError):
            await RawConnection.open(service.port)


async def test_a_request_that_crosses_the_end_gets_an_answer_not_a_reset():
    """It is sent before the client can know, and after the server has stopped reading requests."""
    for _ in range(6):
        async with running(double=FakeEngine) as service:
            connections = [await RawConnection.open(service.port) for _ in range(10)]
            for connection in connections:
                connection.send(HEALTH)
                await connection.reply()
            closing = asyncio.create_task(service.listener.stop(service.listening, 1.0))
            for turn, connection in enumerate(connections):
                connection.send(GOOD)
                if turn % 3 == 2:
                    await asyncio.sleep(0)
            for connection in connections:
                reply = await connection.reply()
                assert reply.closes
                assert reply.status in (200, 503)
                assert reply.status == 200 or "retry-after" in reply.headers
                assert await connection.ended()
                connection.writer.close()
            assert await closing


async def test_connections_that_the_kernel_had_accepted_are_served_too():
    async with running(double=FakeEngine) as service:
        raw = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(10)]
        for each in raw:
            each.sendall(GOOD)
            each.setblocking(False)
        assert await service.listener.stop(service.listening, 2.0) in (True, False)
        for each in raw:
            received = each.recv(65536)
            assert received.split()[1] in (b"200", b"503"), received
            each.close()


async def test_clients_that_hang_are_dropped_when_the_time_is_over():
    async with running(double=lambda: FakeEngine(seconds=30), request_timeout_s=60) as service:
        hung = await RawConnection.open(service.port)
        hung.send(GOOD)
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert not await service.listener.stop(service.listening, 0.4)
        assert time.monotonic() - began < 1.0
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await hung.reply()
        hung.writer.close()


@pytest.mark.parametrize("seconds", [0.0, 0.2])
async def test_who_ends_its_half_gets_its_replies(seconds):
    """As `nc -N` does. Only who waits long is asked, with a 102, whether it is there."""
    async with (
        serving(double=lambda: FakeEngine(seconds=seconds)) as service,
        await RawConnection.open(service.port) as connection,
    ):
        connection.send(GOOD)
        connection.writer.write_eof()
        reply = await connection.reply()
        assert reply.status == 102 or not seconds
        if reply.status == 102:
            reply = await connection.reply()
        assert (reply.status, reply.closes) == (200, True)
        assert reply.json["outputs"] == {"output": [2.0]}
        assert await connection.ended(0.5)


@pytest.mark.parametrize(
    ("rest", "statuses"), [(b"", [200] * 3), (GOOD[:-1], [200, 200, 200, 400]), (b"PO", [200] * 3 + [400])]
)
async def test_who_ends_its_half_behind_many_requests_gets_each_reply(rest, statuses):
    async with (
        serving(double=lambda: FakeEngine(seconds=0.03)) as service,
        await RawConnection.open(service.port) as connection,
    ):
        connection.send(GOOD * 3 + rest)
        connection.writer.write_eof()
        replies = []
        while len(replies) < len(statuses):
            reply = await connection.reply()
            replies += [reply] if reply.status != 102 else []
        assert [reply.status for reply in replies] == statuses
        assert [reply.closes for reply in replies] == [False] * (len(statuses) - 1) + [True]
        assert await connection.ended()


@pytest.mark.parametrize("request_", [b"", HEAD, GOOD[:-1]])
async def test_who_ends_its_half_and_waits_for_nothing_is_let_go(request_):
    limits = replace(LIMITS, header_timeout_s=9, body_timeout_s=9)
    async with serving(limits) as service, await RawConnection.open(service.port) as connection:
        connection.send(request_)
        connection.writer.write_eof()
        assert await connection.ended(0.5)


async def test_a_caller_who_leaves_is_noticed():
    """Its end looks like that of a half only."""
    async with running(double=lambda: FakeEngine(seconds=2), request_timeout_s=60) as service:
        began = time.monotonic()
        async with await RawConnection.open(service.port) as connection:
            connection.send(GOOD)
            await asyncio.sleep(0.05)
            assert len(service.connections) == 1
        while len(service.connections):
            assert time.monotonic() - began < 1
            await asyncio.sleep(0.01)


def _named(name: str):
    from tests.support.fake_engine import describe

    return describe(name)
