"""What batching buys on the language model: throughput against one call each, batch sizes, and no needless wait."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.attack import attack
from loadtest.compare import Settings, expected_replies
from loadtest.pacer import ClosedLoop, open_loop
from loadtest.targets import ExampleSet, target
from tests.support.serving import ROOT, Serving, serving

MODEL = ROOT / "examples" / "language" / "model.py"
CONNECTIONS = 32
SECONDS = 8
LEAST_GAIN = 3.0
LEAST_MEAN_BATCH = 16.0

# wrk sends the bodies in turn; every thread starts at another.
WRK_SCRIPT = """
local bodies = {BODIES}
local at = math.random(#bodies)
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
  at = at % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[at])
end
"""

pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def examples() -> ExampleSet:
    return expected_replies(Settings(str(MODEL), engines=[], requests=300))


@pytest.fixture(scope="module")
def static(examples: ExampleSet) -> Iterator[Serving]:
    with _warm_server("static", examples) as server:
        yield server


@contextmanager
def _warm_server(engine: str, examples: ExampleSet) -> Iterator[Serving]:
    with serving(MODEL, "--engine", engine, "--compile-budget-s", "300") as server:
        attack(target(server.url, "language", examples.examples), ClosedLoop(300, CONNECTIONS))
        yield server


def test_static_is_three_times_as_fast_as_one_call_each(static: Serving, examples: ExampleSet, tmp_path: Path) -> None:
    """Turn and turn about, since the machine may drift; the best of each counts."""
    with _warm_server("per_request", examples) as alone:
        rounds = [(_saturate(static, examples, tmp_path), _saturate(alone, examples, tmp_path)) for _ in range(3)]
    batched, single = (max(rates) for rates in zip(*rounds, strict=True))
    print(f"static {batched:,.0f}/s, per_request {single:,.0f}/s, gain {batched / single:.1f}")
    assert batched >= LEAST_GAIN * single
    assert static.metric("batchd_compiles_total", phase="serving") == 0


def test_arrivals_that_outrun_the_engine_make_large_batches(static: Serving, examples: ExampleSet) -> None:
    before = _batches(static)
    attack(target(static.url, "language", examples.examples), open_loop("poisson", 20_000.0, 4000, seed=1))
    batches, rows = (now - then for now, then in zip(_batches(static), before, strict=True))
    print(f"mean batch size {rows / batches:.1f}")
    assert rows / batches > LEAST_MEAN_BATCH


def test_no_request_waits_while_the_engine_is_idle(static: Serving, examples: ExampleSet) -> None:
    """One connection never has company: each request goes to the engine at once, in a batch of its own."""
    log = attack(target(static.url, "language", examples.examples), ClosedLoop(200, 1))
    assert {exchange.status for exchange in log.exchanges} == {200}
    headers = [exchange.headers or {} for exchange in log.exchanges]
    assert {each["x-batchd-batch-size"] for each in headers} == {"1"}
    assert {each["x-batchd-reason"] for each in headers} == {"idle"}
    queued_ms = sorted(float(each["x-batchd-queue-ms"]) for each in headers)
    assert queued_ms[len(queued_ms) // 2] < 1.0


def _batches(server: Serving) -> tuple[float, float]:
    return tuple(server.metric(f"batchd_batch_size_{part}", model="language") for part in ("count", "sum"))


def _saturate(server: Serving, examples: ExampleSet, folder: Path) -> float:
    """Requests per second that 32 connections get through; by wrk where there is one, which costs less itself."""
    if shutil.which("wrk") is None:
        log = attack(target(server.url, "language", examples.examples), ClosedLoop(4000, CONNECTIONS))
        assert {exchange.status for exchange in log.exchanges} == {200}
        return len(log.exchanges) / log.elapsed_s
    bodies = ", ".join(_lua_string(json.dumps({"inputs": dict(each.inputs)})) for each in examples.examples)
    script = folder / "bodies.lua"
    script.write_text(WRK_SCRIPT.replace("BODIES", bodies))
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", str(script), f"{server.url}/predict/language"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in printed, printed
    (rate,) = re.findall(r"Requests/sec: +([\d.]+)", printed)
    return float(rate)


def _lua_string(text: str) -> str:
    return "[==[" + text + "]==]"
