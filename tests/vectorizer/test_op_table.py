"""The generated page of supported ops."""

from pathlib import Path

from vectorizer.op_table import as_markdown, as_text, op_rows

PAGE = Path(__file__).parents[2] / "docs" / "supported_ops.md"


def test_the_page_is_current():
    assert PAGE.read_text() == as_markdown(), "run: batchd ops --markdown > docs/supported_ops.md"


def test_rows_are_sorted_and_each_op_has_one():
    names = [row[0] for row in op_rows()]
    assert names == sorted(set(names))
    assert "GatherV2" in as_text()
