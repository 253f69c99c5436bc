"""Each of the 25 public complaints has a test that names it, and the page says which."""

from __future__ import annotations

from tests.support.complaints import COMPLAINTS, PAGE, markdown, marked_tests


def test_each_complaint_has_a_test() -> None:
    named = {number for test in marked_tests() for number in test.numbers}
    assert sorted(COMPLAINTS) == list(range(1, 26))
    assert named == set(COMPLAINTS), f"without a test: {sorted(set(COMPLAINTS) - named)}"


def test_the_marked_functions_are_tests() -> None:
    tests = list(marked_tests())
    assert all(test.name.startswith("test_") and test.numbers for test in tests)
    assert len(set(tests)) == len(tests)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m tests.support.complaints > docs/complaints.md"
