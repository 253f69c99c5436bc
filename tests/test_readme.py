"""Every command and every program in README.md and the examples' pages, run against real servers.

What is printed beneath a command must be what comes out: numbers within 1e-3, headers by name. A command that no rule
here knows fails its test, so that none is printed that nobody has run.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import Block, blocks_of, table_rows
from tests.support.serving import BATCHD, ROOT, Serving, environment, serving

README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "docs" / "observability.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "examples").glob("*/README.md")),
]
BLOCKS = [block for page in PAGES for block in blocks_of(page, ROOT)]
COMMANDS = [block for block in BLOCKS if block.language == "sh"]
PROGRAMS = [block for block in BLOCKS if block.language == "python"]
MODELS = [f"examples/{name}/model.py" for name in ("digits", "language", "listops")]
EXAMPLES_URL, OWN_URL = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
TOLERANCE = 1e-3
LONGEST_S = 120

# Plain programs are the same functions and load sooner.
QUICK = ("--xla", "off")


@pytest.fixture(scope="module")
def examples_server() -> Iterator[Serving]:
    """What `make serve` serves."""
    with serving(*(ROOT / model for model in MODELS), *QUICK, "--models-loading-at-once", "3") as server:
        yield server


@pytest.fixture(scope="module")
def own_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's `my_model.py`."""
    (program,) = (block.text for block in PROGRAMS if block.text.startswith("# my_model.py"))
    path = tmp_path_factory.mktemp("own") / "my_model.py"
    path.write_text(program + "\n")
    return path


@pytest.fixture(scope="module")
def own_server(own_model: Path) -> Iterator[Serving]:
    """What `batchd serve my_model.py` serves."""
    with serving(own_model, *QUICK) as server:
        yield server


@pytest.fixture
def at_real_addresses(request: pytest.FixtureRequest) -> Any:
    """A function: the same text, with the addresses of servers that run in place of the documented ones."""

    def translate(text: str) -> str:
        for documented, fixture in ((EXAMPLES_URL, "examples_server"), (OWN_URL, "own_server")):
            if documented in text:
                text = text.replace(documented, request.getfixturevalue(fixture).url)
        return text

    return translate


def run(command: list[str], folder: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(block: Block) -> list[list[str]]:
    """The commands of a block as words; one may go over several lines, within quotes or after a backslash."""
    commands, pending = [], ""
    for line in block.text.splitlines():
        pending += line + "\n"
        with contextlib.suppress(ValueError):  # a quotation that is still open
            if not line.endswith("\\"):
                commands.append([word for word in shlex.split(pending) if word.strip()])
                pending = ""
    assert not pending, f"{block}: a quotation isn't closed"
    return commands


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_command(block: Block, request: pytest.FixtureRequest, at_real_addresses: Any) -> None:
    for words in lines_of(block):
        words = ["python" if word.endswith("bin/python") else word.removeprefix(".venv/bin/") for word in words]
        match words:
            case ["curl", *_]:
                printed = run([at_real_addresses(word) for word in words])
                assert "error" not in printed
                _assert_shown(printed, block)
            case ["batchd", "predict", *_]:
                printed = run([*BATCHD, *words[1:], "--url", at_real_addresses(EXAMPLES_URL)])
                _assert_shown(printed, block)
            case ["batchd", "serve", "my_model.py", "--port", "8001"]:
                assert request.getfixturevalue("own_server").client.get("/readyz").status_code == 200
            case ["batchd", "serve", model]:
                served = request.getfixturevalue("examples_server").client.get("/models").json()["models"]
                assert str(ROOT / model) in [each["source"] for each in served]
            case ["python", program, *arguments] if program.endswith("/client.py"):
                url = at_real_addresses(EXAMPLES_URL)
                assert "predicted" in run([sys.executable, program, *arguments, "--url", url])
            case ["make", target]:
                _assert_is_a_target(target)
            case _:
                pytest.fail(f"{block}: no test runs `{shlex.join(words)}`")


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_program(block: Block, own_server: Serving, at_real_addresses: Any) -> None:
    if block.text.startswith("# my_model.py"):
        assert len(block.text.splitlines()) <= 15
        assert [model["name"] for model in own_server.client.get("/models").json()["models"]] == ["collatz"]
        return
    printed = run([sys.executable, "-c", at_real_addresses(block.text)])
    assert block.output is not None
    assert printed.rstrip("\n") == block.output.text


def test_make_serve_serves_what_the_tests_serve() -> None:
    planned = run(["make", "--dry-run", "serve"])
    assert f".venv/bin/batchd serve {' '.join(MODELS)} --host 127.0.0.1 --port 8000" in planned


def test_your_own_model_counts_right(own_server: Serving) -> None:
    for n, steps in ((1, 0), (7, 16), (27, 111), (97, 118)):
        assert own_server.predict("collatz", {"n": n}).json()["outputs"] == {"steps": steps}


def test_the_report_shows_lines_of_your_own_file(own_server: Serving) -> None:
    (signature,) = own_server.client.get("/models/collatz").json()["signatures"]
    report = signature["report_text"]
    assert re.search(r"collatz: \d+ ops, 0 looped over rows", report)
    assert re.search(r"While +my_model.py:11 +loop until no row is active, masked", report)


@pytest.mark.full
def test_explain_prints_the_same_report(own_model: Path, own_server: Serving) -> None:
    assert ".venv/bin/batchd explain my_model.py" in README.read_text()
    (signature,) = own_server.client.get("/models/collatz").json()["signatures"]
    assert run([*BATCHD, "explain", "my_model.py"], own_model.parent).strip() == signature["report_text"].strip()


@pytest.mark.parametrize("row", table_rows(README.read_text(encoding="utf-8"), "`POST`"), ids=lambda row: row[1][:40])
def test_error(row: list[str], examples_server: Serving) -> None:
    path, body, status, sentence = row
    reply = examples_server.client.post(path, content=body)
    assert (reply.status_code, reply.json()) == (int(status), {"error": sentence})


def test_metrics(examples_server: Serving) -> None:
    """Every metric of the table is exported, and none is left out."""
    examples_server.predict("language", {"text": "a"})
    exported = examples_server.client.get("/metrics").text
    families = set(re.findall(r"^# TYPE (batchd_\w+) ", exported, re.MULTILINE))
    told = {name for row in table_rows(README.read_text(), "metric") for name in re.findall(r"batchd_\w+", row[0])}
    assert told == families


def test_no_example_model_falls_back_to_a_loop_over_rows(examples_server: Serving) -> None:
    for model in ("digits", "language", "listops"):
        (signature,) = examples_server.client.get(f"/models/{model}").json()["signatures"]
        assert signature["report"]["fallbacks"] == []
        assert ", 0 looped over rows" in signature["report_text"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_names_in_the_life_of_a_request_exist_where_they_are_said_to() -> None:
    """Each step names functions and links files: every name stands in one of its files."""
    (story,) = re.findall(r"^## The life of a request\n(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    steps = re.split(r"^\d+\. ", story, flags=re.MULTILINE)[1:]
    seen = ""
    for step in steps:
        seen += "".join((ROOT / path).read_text() for path in re.findall(r"\]\((\S+?\.py)\)", step))
        for name in re.findall(r"`([A-Za-z_]+(?:\.[a-z_]+)?)`", re.sub(r"\[[^]]*\]\(\S+\)", "", step)):
            for part in name.split("."):
                assert re.search(rf"\b{part}\b", seen), f"{name} is in no file that is linked by then"


def _assert_is_a_target(target: str) -> None:
    """`tests/test_makefile.py` runs the targets."""
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _assert_shown(printed: str, block: Block) -> None:
    """What came out is what the page shows, or says in the sentence that follows ("answers `de`, ...")."""
    if block.output is None:
        outputs = json.loads(printed)["outputs"]
        page = (ROOT / block.file).read_text(encoding="utf-8").split(block.text)[1]
        told = re.match(r"\n```\s+answers `(\w+)`, with probability (\d\.\d+)", page)
        assert told is not None, f"{block}: nothing says what is answered"
        answer, probability = told.groups()
        assert answer in map(str, outputs.values())
        assert math.isclose(max(outputs["probabilities"]), float(probability), abs_tol=TOLERANCE)
        return
    shown = block.output.text
    if block.output.language == "http":
        (printed_head, printed), (shown_head, shown) = _split_reply(printed), _split_reply(shown)
        assert printed_head[0] == shown_head[0]
        names = [[line.partition(":")[0] for line in head[1:]] for head in (printed_head, shown_head)]
        assert names[0] == names[1]
    _assert_same(json.loads(printed), json.loads(shown))


def _split_reply(text: str) -> tuple[list[str], str]:
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    return head.splitlines(), body


def _assert_same(got: Any, shown: Any) -> None:
    if isinstance(shown, float) and isinstance(got, float | int):
        assert math.isclose(got, shown, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    elif isinstance(shown, dict):
        assert got.keys() == shown.keys()
        for key, value in shown.items():
            _assert_same(got[key], value)
    elif isinstance(shown, list):
        assert len(got) == len(shown)
        for one, other in zip(got, shown, strict=True):
            _assert_same(one, other)
    else:
        assert got == shown
