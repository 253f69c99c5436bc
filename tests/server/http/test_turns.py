"""A turn of the event loop: what waits unseen for it counts, and what is too much for it is refused unread."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace

import pytest

from server.http.connections import ConnectionLimits
from server.http.turns import READ_AT, Turns
from tests.support.fake_engine import FakeEngine
from tests.support.http_service import Service, running
from tests.support.raw_http import RawConnection

LIMITS = ConnectionLimits(header_timeout_s=0.3, body_timeout_s=0.3, keep_alive_s=0.5)
BODY = b'{"inputs":{"x":[1]}}'
HEAD = b"POST /predict HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n" % len(BODY)
GOOD = HEAD + b"\r\n" + BODY
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
LOAD = b"POST /v2/repository/models/double/load HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"


class Loop:
    """Turns of the test's own loop, by a clock that is moved by hand."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        self.turns = Turns()
        monkeypatch.setattr("server.http.turns.time", SimpleNamespace(monotonic=lambda: self.now))

    async def work(self, seconds: float) -> None:
        """Ends the reading of this turn; the loop is busy for so long, and then looks again."""
        await asyncio.sleep(0)
        self.now += seconds

    async def rest(self, seconds: float) -> None:
        """The loop looks, finds nothing, and waits."""
        for _ in range(3):
            await asyncio.sleep(0)
        self.now += seconds


@pytest.fixture
def loop(monkeypatch) -> Loop:
    return Loop(monkeypatch)


async def test_what_is_read_after_work_may_have_waited_for_all_of_it(loop):
    began = loop.turns.read()
    await loop.work(0.05)
    scope = {READ_AT: loop.turns.read()}
    assert loop.turns.waits_since(scope, loop.now) == pytest.approx(began)


async def test_what_is_read_after_a_rest_has_not_waited(loop):
    loop.turns.read()
    await loop.work(0.02)
    await loop.rest(0.3)
    read_at = loop.turns.read()
    assert loop.turns.waits_since({READ_AT: read_at}, loop.now) == read_at == loop.now


async def test_what_the_loop_has_not_read_has_not_waited(loop):
    loop.turns.read()
    await loop.work(0.05)
    loop.turns.read()
    assert loop.turns.waits_since({}, loop.now) == loop.now


async def test_a_turn_begins_what_it_can_answer_in_a_tenth_of_the_time_that_callers_allow(loop):
    turns = loop.turns
    turns.allow(1.0)
    begun = 0
    for _ in range(20):
        begun = sum(turns.admits() for _ in range(2000))
        await loop.work((begun + (2000 - begun) / 8) * 250e-6)
    assert 400 <= begun <= 402  # 0.1 s of 250 µs each
    loop.turns.read()
    assert turns.reply_s(loop.now) == 0
    begun = sum(turns.admits() for _ in range(100))
    assert begun == 100
    assert turns.reply_s(loop.now) == pytest.approx(0.025, rel=0.01)


async def test_where_callers_have_time_nobody_is_refused(loop):
    loop.turns.allow(30.0)
    for _ in range(3):
        assert all([loop.turns.admits() for _ in range(2000)])
        await loop.work(0.5)


@pytest.mark.parametrize(("wished_s", "others_s"), [(1e-6, 10.0), (1e-6, 0.5), (1e300, 0.5)])
async def test_what_a_caller_wishes_does_not_decide_for_the_others(loop, wished_s, others_s):
    turns = loop.turns
    for _ in range(3):
        assert all([turns.admits() for _ in range(1000)])
        await loop.work(1000 * 400e-6)
    for _ in range(10_000):
        turns.allow(wished_s)
    begun = sum(turns.admits() for _ in range(5000))
    assert 60 <= begun <= 2600  # a turn of 25 ms to 1 s, of 400 µs each
    for _ in range(1000):
        turns.allow(others_s)
    await loop.rest(1.0)
    assert sum(turns.admits() for _ in range(5000)) == pytest.approx(0.1 * others_s / 400e-6, rel=0.05)


def is_busy(service: Service, busy: bool = True) -> None:
    service.connections.turns.admits = lambda: not busy


def refused(service: Service) -> float:
    labels = {"model": "", "version": "", "signature": "", "engine": "", "code": "503", "reason": "busy"}
    return service.registry.get_sample_value("batchd_request_failures_total", labels) or 0.0


@pytest.mark.parametrize(
    "pieces",
    [[GOOD], [HEAD, b"\r\n", BODY], [GOOD[:-3], GOOD[-3:]], [HEAD + b"x-request-id: mine\r\n\r\n" + BODY]],
)
async def test_the_surplus_is_refused_and_its_connection_goes_on(pieces):
    async with running(limits=LIMITS, double=FakeEngine) as service, await RawConnection.open(service.port) as caller:
        is_busy(service)
        for piece in pieces:
            caller.send(piece)
            await asyncio.sleep(0.05)
        reply = await caller.reply()
        assert (reply.status, reply.closes, reply.headers["retry-after"]) == (503, False, "1")
        assert reply.json == {
            "error": "too many requests arrive at once, and this one would be late; it was not read; try again"
        }
        assert ("mine" in pieces[0].decode()) == (reply.headers["x-request-id"] == "mine")
        assert refused(service) == 1
        caller.send(GOOD + GOOD)  # the first is refused at once, so the second waits for nothing, and is refused too
        assert [(await caller.reply()).status for _ in range(2)] == [503, 503]
        is_busy(service, False)
        caller.send(GOOD)
        assert (await caller.reply()).json["outputs"] == {"output": [2.0]}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEALTH, 200),
        (LOAD, 200),
        (HEAD + b"connection: close\r\n\r\n" + BODY, 200),
        (GOOD.replace(b"HTTP/1.1", b"HTTP/1.0"), 200),
        (GOOD.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"host: h", b"connection: keep-alive"), 200),
    ],
)
async def test_what_is_no_prediction_and_what_ends_its_connection_is_served(request_, status):
    async with running(limits=LIMITS, double=FakeEngine) as service, await RawConnection.open(service.port) as caller:
        is_busy(service)
        caller.send(request_)
        assert (await caller.reply()).status == status
        assert refused(service) == 0


def slow() -> FakeEngine:
    return FakeEngine(seconds=0.05)


async def test_a_request_behind_one_that_is_being_answered_is_not_refused():
    async with running(limits=LIMITS, double=slow) as service, await RawConnection.open(service.port) as caller:
        caller.send(GOOD)
        while not service.connections.turns._begun:
            await asyncio.sleep(0)
        is_busy(service)
        caller.send(GOOD)
        assert [(await caller.reply()).status for _ in range(2)] == [200, 200]


async def test_what_waited_behind_another_of_its_connection_is_not_told_that_the_server_is_busy():
    async with running(limits=LIMITS, double=slow) as service, await RawConnection.open(service.port) as caller:
        hasty = b'{"inputs":{"x":[1]},"timeout_ms":40}'
        caller.send(GOOD + b"POST /predict HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(hasty) + hasty)
        assert (await caller.reply()).status == 200
        assert (await caller.reply()).status == 504


async def test_who_does_not_send_the_rest_of_what_is_refused_is_timed_out():
    async with running(limits=LIMITS, double=FakeEngine) as service, await RawConnection.open(service.port) as caller:
        is_busy(service)
        caller.send(GOOD[:-3])
        reply = await caller.reply()
        assert (reply.status, reply.closes) == (408, True)


async def test_the_end_comes_before_the_rest_of_what_is_refused():
    async with running(limits=LIMITS, double=FakeEngine) as service, await RawConnection.open(service.port) as caller:
        is_busy(service)
        caller.send(GOOD[:-3])
        await asyncio.sleep(0.05)
        service.connections.close_with_replies()
        caller.send(GOOD[-3:])
        reply = await caller.reply()
        assert (reply.status, reply.closes) == (503, True)
        assert "shutting down" in reply.json["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict/double", {"inputs": {"x": [1]}, "timeout_ms": 400}),
        (
            "/v2/models/double/infer",
            {
                "inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}],
                "parameters": {"timeout": 400_000},
            },
        ),
        ("/v1/models/double:predict", {"instances": [[1]]}),
    ],
)
async def test_who_has_waited_too_long_for_a_turn_is_told_so(path, body):
    async with running(request_timeout_s=0.4, double=FakeEngine) as service:
        turns = service.connections.turns
        assert (await service.client.post(path, content=json.dumps(body))).status_code == 200
        turns.waits_since, turns.reply_s = lambda scope, now: now - 0.5, lambda now: 0.0
        reply = await service.client.post(path, content=json.dumps(body))
        assert reply.status_code == 503
        assert "reading the request and replying takes 0.5 s of its 0.4 s" in reply.json()["error"]
        assert reply.headers["retry-after"] == "1"
        told = (await service.client.get("/metrics")).text
        assert re.search(r'batchd_outcomes_total\{.*outcome="unreachable".*\} 1.0', told)
