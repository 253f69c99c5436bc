"""The comparison over child processes, with a stub in batchd's place; and the command around it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import loadtest.__main__ as command
from loadtest import slo
from loadtest.compare import Settings, compare
from loadtest.report import as_document
from loadtest.results import read_jsonl
from loadtest.servers import BatchCount, ServerFailed, ServerUnderTest, metric_total
from loadtest.slo import met
from loadtest.targets import Example, ExampleSet
from tests.support import stub_server

STUB = (sys.executable, str(Path(stub_server.__file__)))
DOUBLES = ExampleSet(
    "double",
    [Example({"x": [k + 1.0]}, outputs={"output": [2 * (k + 1.0)]}) for k in range(7)],
    {"output": "float32"},
)
SETTINGS = Settings("model.py", ["honest"], requests=60, rounds=2, concurrency=4, command=STUB)


def test_both_phases_on_every_engine_there_and_back(tmp_path: Path) -> None:
    said: list[str] = []
    settings = replace(SETTINGS, engines=["honest", "refusing"], raw_folder=tmp_path)
    comparison = compare(settings, DOUBLES, said.append)
    assert comparison.is_valid, comparison.faults
    assert [phase.engine for phase in comparison.phases] == ["honest", "refusing"] * 2
    order = [line.split(": ")[1].split(",")[0] for line in said if line.startswith("saturated")]
    assert order == ["honest", "refusing", "refusing", "honest"]
    for phase in comparison.phases:
        assert phase.summary.offered == phase.summary.ok + phase.summary.shed
        assert phase.mean_batch_size == pytest.approx(4)
    assert comparison.phases[1].summary.shed == 12
    assert len(read_jsonl(tmp_path / "double-refusing-saturated-2.jsonl")) == 60
    slowest = min(phase.summary.throughput_per_s for phase in comparison.phases[:2])
    assert comparison.rate_per_s == pytest.approx(slowest / 2)
    assert json.dumps(as_document(comparison))


@pytest.mark.parametrize(("engine", "faults"), [("wrong", "6 of 60 replies wrong"), ("lossy", "6 of 60 replies lost")])
def test_wrong_and_lost_replies_make_it_invalid(engine: str, faults: str) -> None:
    comparison = compare(replace(SETTINGS, engines=[engine], rounds=1, steady=False), DOUBLES)
    assert not comparison.is_valid
    assert any(faults in fault for fault in comparison.faults)


@pytest.fixture
def short_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slo, "ATTEMPT_S", 0.05)
    monkeypatch.setattr(slo, "MOST_ATTEMPTS", 4)


@pytest.mark.usefixtures("short_attempts")
def test_each_engine_is_asked_for_the_rate_that_it_carries_within_the_objective() -> None:
    settings = replace(SETTINGS, engines=["honest", "refusing"], rounds=1, steady=False, slo_ms=200)
    comparison = compare(settings, DOUBLES)
    assert comparison.is_valid, comparison.faults
    saturated, _, *carried = comparison.phases
    assert [phase.engine for phase in carried] == ["honest"]  # the other refuses one in ten at any rate
    assert carried[0].title == "within 200 ms, poisson"
    (records,) = carried[0].attacks
    assert met(records, 200)
    assert 0 < carried[0].summary.throughput_per_s < 1.2 * saturated.summary.throughput_per_s
    assert "refusing: no rate was carried within 200 ms" in comparison.remarks


@pytest.mark.usefixtures("short_attempts")
def test_a_wrong_reply_at_a_rate_that_was_not_carried_is_a_fault() -> None:
    settings = replace(SETTINGS, engines=["wrong"], rounds=1, steady=False, slo_ms=200)
    faults = compare(settings, DOUBLES).faults
    assert any("wrong (within 200 ms, poisson): " in fault for fault in faults), faults


def test_a_server_that_does_not_start_shows_its_log() -> None:
    with pytest.raises(ServerFailed, match=r"(?s)ended with 1 before it was ready.*cannot vectorize 'double'"):
        compare(replace(SETTINGS, engines=["dying"]), DOUBLES)


def test_a_server_that_ends_by_itself_is_noticed() -> None:
    server = ServerUnderTest("model.py", "honest", STUB)
    server.start()
    assert server.batches("double") == BatchCount(0, 0)
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    with pytest.raises(ServerFailed, match="ended by itself with -9"):
        server.stop()


METRICS = """# HELP batchd_batch_size examples per batch
# TYPE batchd_batch_size histogram
batchd_batch_size_bucket{model="a",le="1.0"} 9.0
batchd_batch_size_count{model="a",signature="predict"} 3.0
batchd_batch_size_count{model="a",signature="gradient"} 2.0
batchd_batch_size_count{model="b",signature="predict"} 5.0
batchd_batch_size_sum{model="a",signature="predict"} 1.5e+01
batchd_up 1
"""


@pytest.mark.parametrize(
    ("name", "labels", "total"),
    [
        ("batchd_batch_size_count", {"model": "a"}, 5),
        ("batchd_batch_size_count", {"model": "a", "signature": "predict"}, 3),
        ("batchd_batch_size_count", {}, 10),
        ("batchd_batch_size_sum", {"model": "a"}, 15),
        ("batchd_batch_size", {"model": "a"}, 0),
        ("batchd_up", {}, 1),
    ],
)
def test_metric_total(name: str, labels: dict[str, str], total: float) -> None:
    assert metric_total(METRICS, name, **labels) == total


def test_mean_since() -> None:
    assert BatchCount(10, 100).mean_since(BatchCount(5, 20)) == 16
    assert BatchCount(5, 20).mean_since(BatchCount(5, 20)) is None


@pytest.fixture
def stub_comparison(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model file whose expected replies are known, and a batchd that is the stub."""
    monkeypatch.setattr(command, "expected_replies", lambda settings: DOUBLES)
    monkeypatch.setattr(command, "Settings", lambda **options: Settings(command=STUB, **options))
    model = tmp_path / "model.py"
    model.touch()
    return model


def test_the_command_prints_one_table(stub_comparison: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["compare", "--model", str(stub_comparison), "--engines", "honest", "--requests", "40"]
    arguments += ["--rounds", "1", "--concurrency", "4", "--json", str(figures)]
    result = CliRunner().invoke(command.main, arguments)
    assert result.exit_code == 0, result.output
    assert "all right" in result.stdout
    for heading in ("req/s", "p50 ms", "p99 ms", "mean", "ok", "shed", "timeout", "error", "wrong"):
        assert heading in result.stdout
    document = json.loads(figures.read_text())
    assert document["valid"] is True
    assert [phase["engine"] for phase in document["phases"]] == ["honest"]
    assert document["machine"]["cores"] >= 1


def test_the_command_fails_when_a_reply_is_wrong(stub_comparison: Path) -> None:
    arguments = ["compare", "--model", str(stub_comparison), "--engines", "wrong", "--requests", "20"]
    arguments += ["--rounds", "1", "--rate", "200"]
    result = CliRunner().invoke(command.main, arguments)
    assert result.exit_code == 1
    assert "INVALID" in result.stdout
    assert "expected" in result.stdout


@pytest.mark.full
@pytest.mark.timeout(600)
def test_real_engines_answer_a_real_model_rightly(tmp_path: Path) -> None:
    """The command of the README, shortened: real servers, and the oracle in its own process."""
    figures = tmp_path / "figures.json"
    arguments = ["--model", "language", "--engines", "static,while_loop,per_request"]
    arguments += ["--requests", "200", "--rounds", "1", "--slo-ms", "0", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "loadtest", "compare", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all right" in done.stdout
    for phase in json.loads(figures.read_text())["phases"]:
        assert phase["ok"] == phase["offered"] == 200
        assert phase["mean_batch_size"] >= 1


def test_an_unknown_model_is_named() -> None:
    result = CliRunner().invoke(command.main, ["compare", "--model", "no_such_model"])
    assert result.exit_code == 2
    assert "'no_such_model'" in result.output


def test_attack_and_report_on_a_running_server(tmp_path: Path) -> None:
    raw = tmp_path / "raw.jsonl"
    with ServerUnderTest("model.py", "honest", STUB) as server:
        attack = ["attack", server.url, "--model", "double", "--json", '{"x": [1]}', "--requests", "20"]
        result = CliRunner().invoke(command.main, [*attack, "--raw", str(raw)])
        assert result.exit_code == 0, result.output
        result = CliRunner().invoke(command.main, [*attack, "--json", "[1]"])
        assert "expected an object of inputs" in result.output
        result = CliRunner().invoke(command.main, ["attack", server.url, "--model", "absent", "--json", "{}"])
        assert result.exit_code == 1
    report = CliRunner().invoke(command.main, ["report", str(raw)])
    assert report.exit_code == 0
    assert " 20 " in report.stdout
