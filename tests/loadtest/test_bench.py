"""The in-process benchmark: what it measures, and what it does with columns that misbehave."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import loadtest.__main__ as command
from loadtest.bench.columns import COLUMNS, Column, chosen_columns
from loadtest.bench.report import as_document, as_markdown, print_bench
from loadtest.bench.run import Cell, Settings, bench
from server.engines import ENGINES

ROOT = Path(__file__).parents[2]
PREPARE_S = 8.0


def fake(choice: str, process: str = "one") -> Column:
    return Column(choice, "a fake", "tests.support.bench_ways", choice, process)


def run(*columns: Column, batch_sizes: tuple[int, ...] = (1, 2), rounds: int = 2) -> tuple[Settings, list[Cell]]:
    settings = Settings("mlp", batch_sizes, columns, rounds=rounds, prepare_s=PREPARE_S)
    return settings, bench(settings)


def text_of(settings: Settings, cells: list[Cell]) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    print_bench(settings, cells, console)
    return console.export_text()


def test_each_batch_is_timed_once_for_each_column() -> None:
    settings, cells = run(fake("right"), fake("also_right", "other"), batch_sizes=(1, 32))
    assert [(cell.column, cell.rows, len(cell.seconds)) for cell in cells] == [
        ("right", 1, 8),
        ("also_right", 1, 8),
        ("right", 32, 4),
        ("also_right", 32, 4),
    ]
    for cell in cells:
        assert cell.median_s is not None
        assert cell.quartiles_s is not None
        assert min(cell.seconds) <= cell.quartiles_s[0] <= cell.median_s <= cell.quartiles_s[1] <= max(cell.seconds)
        assert cell.mean_figures == {"launches": 3.0, "nodes": 5.0}
    document = as_document(settings, cells)
    assert document["valid"]
    assert json.dumps(document)
    title, _, heading, _, *rows = as_markdown([document]).splitlines()
    assert title.startswith("`mlp`: ")
    assert heading == "| ms, batch of | 1 | 32 |"
    assert [row.split(" | ")[0] for row in rows] == ["| `right`", "| `also_right`"]


@pytest.mark.parametrize("choice", ["wrong", "wrong_later"])
def test_a_wrong_answer_has_no_figures_and_is_shown(choice: str) -> None:
    settings, cells = run(fake("right"), fake(choice), batch_sizes=(2,))
    right, wrong = cells
    assert right.seconds
    assert not right.wrong
    assert not wrong.seconds
    assert "row 1: 'output' is off by 1" in wrong.wrong
    assert not as_document(settings, cells)["valid"]
    text = text_of(settings, cells)
    assert f"WRONG: {choice}, batch 2: row 1" in text


def test_what_fails_dies_or_does_not_exist_says_so_and_the_others_go_on() -> None:
    settings, cells = run(fake("dying"), fake("failing"), fake("unavailable"), fake("right"))
    by_place = {(cell.column, cell.rows): cell for cell in cells}
    assert "ended with 3: last words" in by_place["dying", 1].detail
    assert by_place["failing", 1].detail == "ValueError: can't"
    assert by_place["unavailable", 1].detail == "there is no such thing"
    assert by_place["failing", 2].note == "from batch 1 on: failed"
    assert by_place["right", 1].seconds
    assert by_place["right", 2].seconds
    text = text_of(settings, cells)
    assert "failing, batch 1: ValueError: can't" in text
    assert "WRONG" not in text
    assert as_document(settings, cells)["valid"]


@pytest.mark.full
def test_one_that_takes_too_long_is_ended_and_its_neighbours_are_built_anew() -> None:
    settings, cells = run(fake("right"), fake("slow"), batch_sizes=(1,), rounds=1)
    right, slow = cells
    assert slow.note == "over 8 s"
    assert right.seconds
    assert "over 8 s" in text_of(settings, cells)


def test_what_is_not_installed_is_left_out() -> None:
    absent = Column("absent", "", "no_such_framework_here.way", "", "absent", needs="no_such_framework_here")
    settings, (cell,) = run(absent, batch_sizes=(1,))
    assert cell.note == "no_such_framework_here isn't installed: pip install 'batchd[bench]'"
    assert "no_such_framework_here isn't installed" in text_of(settings, [cell])


def test_there_is_a_column_for_each_dynamic_engine() -> None:
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert {name for name in ENGINES if name.startswith("dynamic")} <= set(names)
    assert [column.name for column in chosen_columns(["jax", "static"])] == ["jax", "static"]
    with pytest.raises(KeyError, match=r"no column 'pytorch'; choose from per_example"):
        chosen_columns(["pytorch"])


def answered(tmp_path: Path, workload: str, columns: str) -> None:
    """The command's own run: every column either answers rightly or says that it isn't installed."""
    file = tmp_path / "bench.json"
    arguments = ["bench", "--workload", workload, "--batch", "2", "--rounds", "1", "--columns", columns]
    done = subprocess.run(
        [sys.executable, "-m", "loadtest", *arguments, "--prepare-seconds", "120", "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "ms a batch" in done.stdout
    for document in json.loads(file.read_bytes()):
        for cell in document["cells"]:
            assert not cell["wrong"]
            assert cell["seconds"] or "isn't installed" in cell["note"], cell


def test_the_ways_of_tensorflow_agree(tmp_path: Path) -> None:
    answered(tmp_path, "lstm", "per_example,map_fn,by_hand,static,static_xla")


@pytest.mark.parametrize(
    ("module", "columns"),
    [("dynet", "dynet_1"), pytest.param("dynet", "dynet_0,dynet_2", marks=pytest.mark.full), ("jax", "jax")],
)
def test_other_frameworks_answer_every_workload_rightly(tmp_path: Path, module: str, columns: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} isn't installed; it comes with the extra `bench`")
    answered(tmp_path, "all", columns)


def test_the_command_refuses_names_that_do_not_exist() -> None:
    for arguments in (["--workload", "rnn"], ["--columns", "pytorch"], ["--batch", "0"], ["--batch", "many"]):
        result = CliRunner().invoke(command.main, ["bench", *arguments])
        assert result.exit_code == 2, (arguments, result.output)


def test_help_imports_no_framework() -> None:
    program = (
        "import sys; import loadtest.__main__, loadtest.bench.run, loadtest.bench.report; "
        "print(*sorted({'tensorflow', 'jax', 'dynet'} & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
