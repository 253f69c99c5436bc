"""Life and death of engine processes. `tests/server/http/test_serve.py` has the life of a whole server."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.processes import children
from tests.support.serving import ROOT, SERVICES, Serving, serving

ANSWER_TO_TWO = {"output": 7.0}


def test_an_engine_that_is_killed_takes_nobody_with_it() -> None:
    files = (SERVICES / "deadly.py", SERVICES / "one.py")
    with serving(*files, "--engine", "per_request", "--models-loading-at-once", "2") as server:
        pids = _engine_pids(server)
        assert len(pids) == 2
        others: list[int] = []
        stop = threading.Event()
        neighbour = threading.Thread(target=_keep_asking, args=(server, others, stop))
        neighbour.start()
        try:
            _kill_and_look(server, pids, others)
        finally:
            stop.set()
            neighbour.join()


def _kill_and_look(server: Serving, pids: set[int], others: list[int]) -> None:
    with ThreadPoolExecutor(4) as pool:
        started_at = time.monotonic()
        replies = list(pool.map(lambda x: server.predict("deadly", {"x": x}), [13.0, 13.0, 13.0, 13.0]))
        assert time.monotonic() - started_at < 1
    for reply in replies:
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "'deadly'" in reply.json()["error"]
    _wait_restarted(server, "deadly")
    server.wait_ready()
    assert server.predict("deadly", {"x": 2.0}).json()["outputs"] == {"output": 2.0}
    assert set(others) == {200}
    assert len(others) > 10
    (gone,) = pids - _engine_pids(server)
    assert not Path(f"/proc/{gone}").exists()
    models = {model["name"]: model for model in server.client.get("/models").json()["models"]}
    assert (models["deadly"]["restarts"], models["affine"]["restarts"]) == (1, 0)
    assert server.metric("batchd_engine_restarts_total", model="deadly") == 1


@pytest.mark.complaint(21)
@pytest.mark.full
@pytest.mark.timeout(600)
def test_sigterm_under_load_loses_no_request() -> None:
    """Every request gets its answer or a 503 with Retry-After, until the connection is refused."""
    with serving(ROOT / "examples" / "digits" / "model.py", "--xla", "off") as server:
        inputs = {"image": [[0.0] * 8] * 8}
        statuses: list[int] = []
        with ThreadPoolExecutor(16) as pool:
            callers = [pool.submit(_ask_until_closed, server, inputs, statuses) for _ in range(16)]
            while statuses.count(200) <= 50:
                time.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)
            for caller in callers:
                caller.result(30)
        assert server.process.wait(20) == 0
        assert set(statuses) <= {200, 503}


def _ask_until_closed(server: Serving, inputs: dict[str, object], statuses: list[int]) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        while True:
            try:
                reply = client.post("/predict/digits", json={"inputs": inputs})
            except httpx.ConnectError:
                return
            statuses.append(reply.status_code)
            if reply.status_code == 503:
                assert "retry-after" in reply.headers
                return


def _keep_asking(server: Serving, statuses: list[int], stop: threading.Event) -> None:
    while not stop.is_set():
        reply = server.predict("affine", {"x": 2})
        statuses.append(reply.status_code if reply.json().get("outputs") == ANSWER_TO_TWO else -1)
        time.sleep(0.02)


def _wait_restarted(server: Serving, model: str) -> None:
    while server.client.get(f"/models/{model}").json()["restarts"] == 0:
        time.sleep(0.01)


def _engine_pids(server: Serving) -> set[int]:
    return children(server.process.pid)
