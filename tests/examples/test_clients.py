"""The examples' clients print prediction beside truth, and the two agree."""

import re

import pytest


def parsed(lines: list[str]) -> list[tuple[str, str]]:
    """(prediction, truth) of each line."""
    found = [re.match(r"predicted (\S+) \([\d.]+% sure\), truth (\w+)", line) for line in lines]
    assert all(found), lines
    return [(match[1], match[2]) for match in found if match]


@pytest.mark.parametrize(
    ("name", "arguments", "line_count"),
    [
        ("digits", ["--count", "20"], 20),
        ("language", [], 16),
        ("listops", ["[MAX 2 9 [MIN 4 7] 0]", "[MED 3 5 9]", "[MIN [MAX 3 4] 8]"], 3),
    ],
)
def test_prediction_agrees_with_truth(run_client, name: str, arguments: list[str], line_count: int) -> None:
    pairs = parsed(run_client(name, *arguments))
    assert len(pairs) == line_count
    assert sum(prediction == truth for prediction, truth in pairs) >= 0.9 * line_count


def test_listops_draws_expressions_of_each_depth(run_client) -> None:
    assert len(parsed(run_client("listops"))) == 8


def test_language_takes_texts_of_the_callers_own(run_client) -> None:
    (line,) = run_client("language", "Guten Morgen, wie geht es dir?")
    assert re.fullmatch(r"predicted de \([\d.]+% sure\): Guten Morgen, wie geht es dir\?", line)
