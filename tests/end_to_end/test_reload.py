"""Reloading with real processes: a file is rewritten while its model serves."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.serving import Serving, serving

QUICK = ("--engine", "per_request", "--no-compile-cache")
MODEL = """
@model(name="line", version="{version}", inputs={{"x": tf.TensorSpec([], tf.float32)}}, samples=[0.0], max_batch_size=4)
def line(x):
    return {times} * x
"""


@pytest.mark.full
def test_a_rewritten_file_takes_over_and_a_broken_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(_models(("1", 2)))
    with serving(file, *QUICK) as server, _asking(server) as statuses:
        assert _ask(server) == 2
        file.write_text(_models(("2", 3)))
        assert _change(server, "load") == (200, "")
        assert _ask(server) == _ask(server, "2") == 3
        file.write_text("import nothing_of_that_name\n")
        status, why = _change(server, "load")
        assert status == 400
        assert "No module named 'nothing_of_that_name'" in why
        assert why.endswith("version '2' goes on serving")
        assert _ask(server) == 3
    assert set(statuses) == {200}


@pytest.mark.full
@pytest.mark.timeout(600)
def test_versions_side_by_side_and_unloaded(tmp_path: Path) -> None:
    both, other = tmp_path / "both.py", tmp_path / "other.py"
    both.write_text(_models(("1", 2), ("2", 3)))
    other.write_text(_models(("10", 4)))
    with serving(both, other, *QUICK) as server, _asking(server) as statuses:
        assert [_ask(server, version) for version in ("1", "2", "10", None)] == [2, 3, 4, 4]
        both.write_text(_models(("1", 5)))
        assert _change(server, "load") == (200, "")
        assert [_ask(server, version) for version in ("1", "10", None)] == [5, 4, 4]
        _wait(lambda: len(_engine_pids(server)) == 2)
        assert set(statuses) == {200}
        assert _change(server, "unload") == (200, "")
        assert _engine_pids(server) == set()
        assert server.client.get("/readyz").status_code == 200
        assert _change(server, "load") == (200, "")
        assert _ask(server) == 4
    assert set(statuses) == {200, 404, 503}  # unloaded; being loaded again


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_twenty_reloads_under_load_leave_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(_models(("1", 0)))
    with serving(file, *QUICK) as server, _asking(server) as statuses:
        kept: list[tuple[int, int]] = []
        for reload in range(23):
            file.write_text(_models(("1", reload)))
            assert _change(server, "load") == (200, "")
            assert _ask(server) == reload
            _wait(lambda: len(_engine_pids(server)) == 1)
            _wait(lambda: not kept or _descriptors(server) <= kept[0][1])  # what it shared goes a moment after it
            kept.append((_resident_bytes(server), _descriptors(server)))
    assert set(statuses) == {200}
    assert len(statuses) > 500
    memory, descriptors = zip(*kept[2:], strict=True)
    assert max(memory) < 1.05 * memory[0], [f"{each / 2**20:.1f} MiB" for each in memory]
    assert max(descriptors) <= descriptors[0] + 2, descriptors


def _models(*versions: tuple[str, int]) -> str:
    """A file that registers these versions of x * times."""
    models = [MODEL.format(version=version, times=float(times)) for version, times in versions]
    return "\n".join(["import tensorflow as tf", "from server import model", *models])


@contextmanager
def _asking(server: Serving) -> Iterator[list[int]]:
    """Keeps asking for the latest version from four connections; gives the statuses of the replies."""
    statuses: list[int] = []
    stop = threading.Event()

    def keep_asking() -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while not stop.wait(0.01):
                statuses.append(client.post("/predict/line", json={"inputs": {"x": 1}}).status_code)

    callers = [threading.Thread(target=keep_asking) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        yield statuses
    finally:
        stop.set()
        for caller in callers:
            caller.join()


def _ask(server: Serving, version: str | None = None) -> float:
    body = {"inputs": {"x": 1}} | ({"version": version} if version else {})
    return server.client.post("/predict/line", json=body).json()["outputs"]["output"]


def _change(server: Serving, what: str) -> tuple[int, str]:
    reply = server.client.post(f"/v2/repository/models/line/{what}", timeout=120)
    return reply.status_code, reply.json().get("error", "")


def _wait(condition) -> None:
    give_up_at = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def _engine_pids(server: Serving) -> set[int]:
    return {int(pid) for task in _tasks(server) for pid in (task / "children").read_text().split()}


def _tasks(server: Serving) -> list[Path]:
    return list(Path(f"/proc/{server.process.pid}/task").iterdir())


def _resident_bytes(server: Serving) -> int:
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _descriptors(server: Serving) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))
