"""The generated page of supported ops."""

from pathlib import Path

from vectorizer.op_table import accounted_for, as_markdown, as_text, op_rows

PAGE = Path(__file__).parents[2] / "docs" / "supported_ops.md"
PFOR_OPS = Path(__file__).parents[1] / "support" / "tf_pfor_ops.txt"


def test_the_page_is_current():
    assert PAGE.read_text() == as_markdown(), "run: batchd ops --markdown > docs/supported_ops.md"


def test_rows_are_sorted_and_each_op_has_one():
    names = [row[0] for row in op_rows()]
    assert names == sorted(set(names))
    assert "GatherV2" in as_text()


def pfor_ops():
    return {line for line in PFOR_OPS.read_text().splitlines() if line and not line.startswith("#")}


def test_every_op_that_pfor_converts_is_accounted_for():
    assert len(pfor_ops()) == 320
    assert not pfor_ops() - set(accounted_for())


def test_at_least_eighty_ops_more_than_pfor():
    assert len({row[0] for row in op_rows()} - pfor_ops()) >= 80
