"""`batchd predict` as a click command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from clients.command_line import predict
from tests.support.stub_server import StubApplication, stub_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server(StubApplication()) as url:
        yield url


def run(url: str, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(predict, [*arguments, "--url", url], input=stdin)


def test_prints_outputs_as_json(url: str) -> None:
    result = run(url, "double", 'x=[1, 2.5, "NaN"]')
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"output": [2.0, 5.0, "NaN"]}
    assert result.stderr == ""


@pytest.mark.parametrize("text", ["guten Morgen", "42", "a=b", '["list"]'])
def test_text_stands_without_quotes(url: str, text: str) -> None:
    result = run(url, "shout", f"text={text}")
    assert json.loads(result.stdout) == {"text": text.upper(), "length": len(text)}


def test_verbose_says_how_it_was_served(url: str) -> None:
    result = run(url, "double", "x=[1]", "-v")
    assert result.stderr == "batch of 4, queued 0.5 ms, computed in 1.25 ms\n"


@pytest.mark.parametrize("name", ["x.json", "x.npy"])
def test_values_from_files(url: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "x.json":
        path.write_text("[1.5, 2]")
    else:
        np.save(path, np.float32([1.5, 2]))
    assert json.loads(run(url, "double", f"x=@{path}").stdout) == {"output": [3.0, 4.0]}


def test_text_from_a_file(url: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("bonjour")
    assert json.loads(run(url, "shout", f"text=@{path}").stdout)["text"] == "BONJOUR"


@pytest.mark.parametrize("where", ["argument", "file", "stdin"])
def test_all_inputs_as_one_object(url: str, tmp_path: Path, where: str) -> None:
    document = '{"x": [4]}'
    path = tmp_path / "inputs.json"
    path.write_text(document)
    argument = {"argument": document, "file": f"@{path}", "stdin": "-"}[where]
    result = run(url, "double", "--json", argument, stdin=document)
    assert json.loads(result.stdout) == {"output": [8.0]}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["double"], 2, "give the inputs either as NAME=VALUE or with --json"),
        (["double", "x=1", "--json", "{}"], 2, "give the inputs either"),
        (["double", "x"], 2, "'x': expected NAME=VALUE"),
        (["double", "x=1", "x=2"], 2, "input 'x' is given twice"),
        (["double", "x=[1,"], 2, "input 'x': '[1,' isn't JSON"),
        (["double", "x=@no/such.json"], 2, "no/such.json"),
        (["double", "--json", "[1]"], 2, "expected an object of inputs"),
        (["absent", "x=1"], 1, "no model 'absent'; there are double, shout"),
        (["shout", "txt=hello"], 1, "unknown input 'txt'"),
        (["shout", "text=a", "--signature", "gradient"], 1, "no signature 'gradient'"),
        (["rejects", "--json", "{}"], 1, "input 'x': expected float32"),
    ],
)
def test_mistakes_get_a_sentence(url: str, arguments: list[str], exit_code: int, sentence: str) -> None:
    result: Any = run(url, *arguments)
    assert result.exit_code == exit_code
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_no_server() -> None:
    result = run("http://127.0.0.1:9", "double", "x=1")
    assert result.exit_code == 1
    assert "cannot reach http://127.0.0.1:9" in result.output
