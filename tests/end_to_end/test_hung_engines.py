"""An engine process that hangs is noticed, told by /readyz, killed and replaced within the stated bound."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.quick_engine import COMMAND
from tests.support.serving import Serving, serving

BOUNDS = ("--batch-timeout-s", "2.5", "--ping-interval-s", "0.5", "--ping-timeout-s", "2", "--restart-backoff-s", "0.1")
SLACK_S = 4.0
"""For a new process to start, on a busy machine."""


def hung(*models: str):
    return serving(*models, *BOUNDS, "--models-loading-at-once", "2", command=COMMAND)


def pid_of(server: Serving, model: str) -> int:
    """The engine process whose killing ends that model: its arguments don't tell, so the log of starts does."""
    pid = server.process.pid
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children[[each["name"] for each in server.client.get("/models").json()["models"]].index(model)]


def wait_for(condition, timeout_s: float) -> float:
    """Returns the seconds until the condition holds; fails when that takes longer."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s
        time.sleep(0.02)
    return time.monotonic() - began


def restarts(server: Serving) -> float:
    return server.metric("batchd_engine_restarts_total")


def readiness(server: Serving) -> str:
    return server.client.get("/readyz").text


def test_an_engine_stopped_in_a_batch() -> None:
    with hung("nap", "other") as server, ThreadPoolExecutor() as pool:

        def post(model: str, seconds: float) -> httpx.Response:
            return httpx.post(f"{server.url}/predict/{model}", json={"inputs": {"seconds": seconds}}, timeout=30)

        pid = pid_of(server, "nap")
        victim = pool.submit(post, "nap", 0.5)
        time.sleep(0.2)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        neighbour = pool.submit(post, "other", 0.0)
        wait_for(lambda: "takes much longer than measured" in readiness(server), 2)
        assert not victim.done()
        reply = victim.result(10)
        assert time.monotonic() - began < 2.5 + 1
        assert (reply.status_code, "retry-after" in reply.headers) == (503, True)
        assert neighbour.result(2).status_code == 200  # the device is free again, and it goes on
        wait_for(lambda: readiness(server) == '{"status":"ready"}', SLACK_S)
        assert server.predict("nap", {"seconds": 0.0}).status_code == 200
        assert restarts(server) == 1
        assert server.metric("batchd_hung_engines_total", model="nap", where="batch") == 1
        assert not Path(f"/proc/{pid}").exists()


def test_an_engine_stopped_while_idle() -> None:
    with hung("nap", "other") as server:
        pid = pid_of(server, "nap")
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        wait_for(lambda: "the engine of model 'nap' does not answer" in readiness(server), 0.5 + 1 + 1)
        while restarts(server) == 0:
            assert time.monotonic() - began < 0.5 + 2 + 1.5
            reply = server.predict("other", {"seconds": 0.0})
            assert reply.status_code == 200
            time.sleep(0.05)
        wait_for(lambda: readiness(server) == '{"status":"ready"}', SLACK_S)
        assert server.predict("nap", {"seconds": 0.0}).status_code == 200
        assert server.metric("batchd_hung_engines_total", model="nap", where="ping") == 1


@pytest.mark.full
def test_an_engine_that_is_only_slow_is_left_alone() -> None:
    with hung("nap") as server:
        assert server.predict("nap", {"seconds": 2.0}).status_code == 200
        pid = pid_of(server, "nap")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(pid, signal.SIGCONT)
        time.sleep(2.5)
        assert readiness(server) == '{"status":"ready"}'
        assert restarts(server) == 0


@pytest.mark.full
def test_a_paused_server_does_not_take_its_own_pause_for_the_engines() -> None:
    with hung("nap") as server:
        time.sleep(0.4)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        server.process.send_signal(signal.SIGCONT)
        time.sleep(1)
        assert server.predict("nap", {"seconds": 0.0}).status_code == 200
        assert restarts(server) == 0


def test_loading_that_hangs_ends_the_start_and_says_so() -> None:
    with serving("hung", "--load-timeout-s", "1", command=COMMAND, wait=False) as server:
        assert server.process.wait(8) == 1
        assert "loading hung has hung: no progress for 1 s (phase: " in server.log.read_text()
