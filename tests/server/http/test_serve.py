"""`batchd serve` as a process with real engines: ready, dead and back, drained; and what stops a start."""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from loadtest.servers import metric_total

SERVICES = Path(__file__).parents[2] / "services"


@contextmanager
def serving(tmp_path: Path, *arguments: str) -> Iterator[SimpleNamespace]:
    """Starts the command; gives its process, its log, and a client once it listens."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "server.command_line", "serve", *arguments, "--port", "0"]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env=environment)
    try:
        while not (found := re.search(r"listens on (http://\S+);", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        with httpx.Client(base_url=found[1], timeout=30) as client:
            yield SimpleNamespace(process=process, client=client, log=log, pid=process.pid)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_until_ready(server: SimpleNamespace) -> None:
    while server.client.get("/readyz").status_code != 200:
        assert server.process.poll() is None, server.log.read_text()
        time.sleep(0.05)


def wait_until_running(server: SimpleNamespace, model: str, batches: int) -> None:
    """Waits until so many batches of a model have been sent, since the start."""
    while metric_total(server.client.get("/metrics").text, "batchd_dispatches_total", model=model) < batches:
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_life_of_a_server(tmp_path):
    files = [str(SERVICES / name) for name in ("one.py", "slow.py")]
    with serving(tmp_path, *files, "--engine", "per_request", "--models-loading-at-once", "2") as server:
        client = server.client
        reply = client.post("/predict/affine", json={"inputs": {"x": 1}})
        assert (reply.status_code, "retry-after" in reply.headers) == (503, True)
        wait_until_ready(server)
        assert "setting engine = per_request (flag)" in server.log.read_text()

        reply = client.post("/predict/affine", json={"inputs": {"x": 2}})
        assert reply.json() == {"model": "affine", "signature": "predict", "outputs": {"output": 7.0}}
        reply = client.post("/predict/affine", json={"inputs": {"x": -1}})
        assert reply.status_code == 400
        assert "x must not be negative" in reply.json()["error"]
        assert "tensorflow" not in Path(f"/proc/{server.pid}/maps").read_text()

        with concurrent.futures.ThreadPoolExecutor() as pool:
            killed_at = time.monotonic()
            slow = pool.submit(client.post, "/predict/sleep", json={"inputs": {"seconds": 10.0}})
            wait_until_running(server, "sleep", batches=1)
            for child in children(server.pid):
                os.kill(child, signal.SIGKILL)
            assert slow.result(8).status_code == 503  # told when it died, not when the 10 s were over
            assert time.monotonic() - killed_at < 8
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 503
            wait_until_ready(server)
            assert client.get("/models/affine").json()["restarts"] == 1

            # Long enough for what is asked meanwhile, also on a machine that is busy.
            last = pool.submit(client.post, "/predict/sleep", json={"inputs": {"seconds": 4.0}})
            wait_until_running(server, "sleep", batches=2)
            server.process.send_signal(signal.SIGTERM)
            while client.get("/readyz").status_code == 200:
                time.sleep(0.01)
            assert client.get("/readyz").json() == {"error": "not ready: the server is shutting down"}
            reply = client.post("/predict/affine", json={"inputs": {"x": 2}})
            assert (reply.status_code, "shutting down" in reply.json()["error"]) == (503, True)
            assert last.result(10).status_code == 200
        assert server.process.wait(10) == 0
        assert "every queued request was answered" in server.log.read_text()


@pytest.mark.full
def test_a_request_that_is_half_sent_does_not_hold_up_a_stop(tmp_path):
    with serving(tmp_path, str(SERVICES / "one.py"), "--engine", "per_request") as server:
        wait_until_ready(server)
        with socket.create_connection((server.client.base_url.host, server.client.base_url.port)) as half:
            half.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            assert server.client.get("/healthz").status_code == 200
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(15) == 0


def test_a_model_that_cannot_load_ends_the_start(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    with serving(tmp_path, str(broken)) as server:
        assert server.process.wait(60) == 1
        assert "cannot serve: " in server.log.read_text()
        assert "nothing_of_that_name" in server.log.read_text()


def test_a_port_in_use_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "server.command_line", "serve", "model.py", "--port", port]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in answer.stderr
