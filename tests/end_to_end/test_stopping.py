"""SIGTERM: no request that was accepted is lost, the exit is 0, and it comes within the bound; whatever clients do.

The engine processes are real and compute nothing (`tests/support/quick_engine.py`), so that many can be started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.quick_engine import COMMAND
from tests.support.serving import Serving, serving
from tests.support.stopping import REQUEST, load_and_stop

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"


def quick(*arguments: str, wait: bool = True):
    return serving(*arguments, command=COMMAND, wait=wait)


def engine_pids(server: Serving) -> list[int]:
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def are_gone(pids: list[int], timeout_s: float = 3.0) -> bool:
    """Whether the processes end, or are at most zombies of a parent that is gone, within the time."""
    give_up_at = time.monotonic() + timeout_s
    while any(_is_alive(pid) for pid in pids):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def stop_under_load(times: int) -> None:
    for _ in range(times):
        with quick("nap", "--drain-delay-s", "0.2") as server:
            pids = engine_pids(server)
            books = asyncio.run(load_and_stop(server))
            assert server.process.wait(0.2 + 30 + 5) == 0
            assert not books.lost
            assert books.statuses[200] >= 60
            assert set(books.statuses) <= {200, 503}
            assert (books.without_retry_after, books.kept_alive_late) == (0, 0)
            assert are_gone(pids)
            assert "every queued request was answered" in server.log.read_text()
            assert "Traceback" not in server.log.read_text()


@pytest.mark.timeout(120)
def test_sigterm_under_load_loses_no_request() -> None:
    stop_under_load(2)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_sigterm_under_load_twenty_times() -> None:
    stop_under_load(20)


def test_not_ready_at_once_and_serving_on_for_the_delay() -> None:
    with quick("nap", "--drain-delay-s", "1.5") as server, socket.create_connection(("127.0.0.1", server.port)) as idle:
        assert "connection" not in server.client.get("/readyz").headers
        idle.sendall(HEALTH)
        reply = b""
        while not reply.endswith(b"}"):  # head and body may come apart
            reply += idle.recv(4096)
        assert b"200 OK" in reply
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        while server.client.get("/readyz").status_code == 200:
            assert time.monotonic() - began < 1
        for path, status in [
            ("/readyz", 503),
            ("/v2/health/ready", 503),
            ("/v2/models/nap/ready", 503),
            ("/healthz", 200),
            ("/nothing", 404),
        ]:
            reply = server.client.get(path)
            assert (reply.status_code, reply.headers["connection"]) == (status, "close"), path
        reply = server.predict("nap", {"seconds": 0.01})
        assert (reply.status_code, reply.headers["connection"]) == (200, "close")
        assert time.monotonic() - began < 1.5
        assert server.process.wait(10) == 0
        assert time.monotonic() - began > 1.5
        last_word = idle.recv(4096)
        assert last_word.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in last_word
        assert idle.recv(4096) == b""


def test_clients_that_hang_do_not_hold_up_the_end() -> None:
    with quick("nap", "--drain-timeout-s", "1", "--close-timeout-s", "1.5") as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(6)]
        half_head, half_body, unread, waiting, idle, _ = clients
        half_head.sendall(REQUEST[:30])
        half_body.sendall(REQUEST[:-1])
        unread.sendall(HEALTH * 50)
        waiting.sendall(REQUEST.replace(b"0.003", b"99999"))
        idle.sendall(HEALTH)
        time.sleep(0.2)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        assert time.monotonic() - began < 1 + 5 + 1
        for client in (half_head, half_body, waiting):
            reply = client.recv(4096)
            assert reply.startswith(b"HTTP/1.1 503 "), reply
            assert b"retry-after" in reply
        for client in clients:
            client.close()


def test_a_stopped_engine_does_not_hold_up_the_end() -> None:
    with quick("nap", "--drain-timeout-s", "0.5") as server:
        pids = engine_pids(server)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(0.5 + 5 + 2) == 0
        assert are_gone(pids)


def test_sigterm_while_a_model_loads() -> None:
    with quick("hung", "--drain-delay-s", "60", wait=False) as server:
        time.sleep(0.5)
        pids = engine_pids(server)
        assert server.client.get("/readyz").status_code == 503
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(8) == 0
        assert are_gone(pids)
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(("first", "second", "status"), [("TERM", "TERM", 143), ("TERM", "INT", 130)])
def test_a_second_signal_ends_everything_at_once(first: str, second: str, status: int) -> None:
    with quick("nap") as server, ThreadPoolExecutor() as pool:
        pids = engine_pids(server)
        slow = pool.submit(httpx.post, f"{server.url}/predict/nap", json={"inputs": {"seconds": 20}}, timeout=30)
        time.sleep(0.3)
        os.kill(pids[0], signal.SIGSTOP)
        server.process.send_signal(signal.Signals[f"SIG{first}"])
        time.sleep(0.3)
        assert server.process.poll() is None
        server.process.send_signal(signal.Signals[f"SIG{second}"])
        assert server.process.wait(2) == status
        assert are_gone(pids)
        with pytest.raises(httpx.TransportError):
            slow.result(5)
