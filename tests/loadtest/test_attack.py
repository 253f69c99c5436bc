"""Attacks on a real server of this process: every request accounted for, latencies from the due time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from loadtest.attack import AttackLog, Leavers, attack, attack_async
from loadtest.checking import judge
from loadtest.connection import ConnectionPool
from loadtest.pacer import ClosedLoop, Pacer, open_loop
from loadtest.results import summarise
from loadtest.targets import Example, ExampleSet, target
from tests.support.stub_server import StubApplication, stub_server

DOUBLES = ExampleSet(
    "double",
    [Example({"x": [float(k)]}, outputs={"output": [2.0 * k]}) for k in range(7)],
    {"output": "float32"},
)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[StubApplication, str]]:
    application = StubApplication()
    with stub_server(application) as url:
        yield application, url


@pytest.fixture
def application(served: tuple[StubApplication, str]) -> StubApplication:
    served[0].reset()
    return served[0]


@pytest.fixture
def url(served: tuple[StubApplication, str], application: StubApplication) -> str:
    return served[1]


def attacked(url: str, pacer: Pacer, **options: float) -> AttackLog:
    return attack(target(url, "double", DOUBLES.examples), pacer, **options)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    "pacer",
    [ClosedLoop(200, 8), open_loop("poisson", 800, 200, seed=1), open_loop("burst", 800, 200, seed=1)],
)
def test_every_request_gets_its_own_answer(url: str, application: StubApplication, pacer: Pacer) -> None:
    log = attacked(url, pacer)
    summary = summarise([judge(log.exchanges, DOUBLES)])
    assert (summary.offered, summary.ok) == (200, 200)
    assert summary.mean_batch_size == 4
    assert [exchange.index for exchange in log.exchanges] == list(range(200))
    assert sorted(request["inputs"]["x"][0] for request in application.requests) == sorted(
        float(k % 7) for k in range(200)
    )
    assert log.elapsed_s > 0
    assert log.generator_cpu_share > 0


def test_an_open_loop_keeps_to_its_table(url: str) -> None:
    pacer = open_loop("constant", 50, 20, seed=0)
    log = attacked(url, pacer)
    assert [exchange.due_s for exchange in log.exchanges] == [pacer.due_s(k) for k in range(20)]
    assert all(exchange.sent_s >= exchange.due_s for exchange in log.exchanges)
    assert log.elapsed_s >= 19 / 50


def test_latency_of_a_request_that_waited_for_a_connection_counts_the_wait(url: str) -> None:
    exchanges = attack(
        target(url, "slow", [Example({})]),
        open_loop("constant", 100, 4, seed=0),
        timeout_s=0.2,
        connections=1,
    ).exchanges
    assert [exchange.timed_out for exchange in exchanges] == [True] * 4
    assert exchanges[3].done_s - exchanges[3].due_s > 0.7


def test_no_reply_in_time_is_a_timeout(url: str) -> None:
    log = attack(target(url, "slow", [Example({})]), ClosedLoop(3, 3), timeout_s=0.2)
    summary = summarise([judge(log.exchanges, ExampleSet("slow", [Example({})]))])
    assert (summary.timeout, summary.lost) == (3, 3)
    assert log.exchanges[0].failure == "no reply within 0.2 s"


def test_leavers_close_their_connections_and_are_not_lost(url: str) -> None:
    """The others wait; who leaves is said by the seed alone."""
    leavers = Leavers(share=0.5, after_s=0.05, seed=3)
    log = attack(target(url, "slow", [Example({})]), ClosedLoop(8, 8), timeout_s=0.3, leavers=leavers)
    assert {exchange.index for exchange in log.exchanges if exchange.left} == leavers.chosen(8)
    assert all(exchange.done_s - exchange.sent_s < 0.2 for exchange in log.exchanges if exchange.left)
    summary = summarise([judge(log.exchanges, ExampleSet("slow", [Example({})]))])
    assert summary.left == len(leavers.chosen(8)) > 0
    assert (summary.timeout, summary.lost) == (8 - summary.left, 8 - summary.left)


@pytest.mark.parametrize(("vice", "outcome"), [("wrong", "wrong"), ("lossy", "error"), ("refusing", "shed")])
def test_vices_are_found(url: str, application: StubApplication, vice: str, outcome: str) -> None:
    application.engine = vice
    records = judge(attacked(url, ClosedLoop(100, 4)).exchanges, DOUBLES)
    counts = {kind: sum(record.outcome == kind for record in records) for kind in ("ok", outcome)}
    # double 0 is 0 however much it's scaled, so a wrong answer may look right
    assert counts["ok"] + counts[outcome] == 100
    assert 8 <= counts[outcome] <= 10


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = attacked(f"http://127.0.0.1:{port}", ClosedLoop(5, 2))
    summary = summarise([judge(log.exchanges, DOUBLES)])
    assert (summary.error, summary.lost) == (5, 5)
    assert "onnect" in str(log.exchanges[0].failure)


async def test_a_pool_serves_waiters_in_turn(url: str) -> None:
    port = int(url.rpartition(":")[2])
    pool = ConnectionPool("127.0.0.1", port, size=1)
    first = await pool.take()
    turns: list[int] = []

    async def wait(turn: int) -> None:
        connection = await pool.take()
        turns.append(turn)
        pool.give_back(connection)

    tasks = [asyncio.create_task(wait(turn)) for turn in range(3)]
    await asyncio.sleep(0)
    pool.give_back(first)
    await asyncio.gather(*tasks)
    assert turns == [0, 1, 2]
    pool.close()


async def test_attacks_run_in_a_running_loop_too(url: str) -> None:
    log = await attack_async(target(url, "double", DOUBLES.examples), ClosedLoop(5, 2))
    assert [exchange.status for exchange in log.exchanges] == [200] * 5


@pytest.mark.parametrize(
    ("url", "examples", "sentence"),
    [
        ("https://127.0.0.1", [Example({})], "expected http://HOST:PORT"),
        ("127.0.0.1:8000", [Example({})], "expected http://HOST:PORT"),
        ("http://127.0.0.1", [], "no examples for model 'm'"),
    ],
)
def test_targets_that_cannot_be(url: str, examples: list[Example], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        target(url, "m", examples)
