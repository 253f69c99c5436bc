"""Reading, writing, evaluating and flattening ListOps expressions."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

_PATH = Path(__file__).parents[2] / "examples" / "listops" / "expression.py"
_SPEC = importlib.util.spec_from_file_location("example_listops_expression", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
listops = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(listops)

expressions = st.recursive(
    st.integers(0, 9),
    lambda argument: st.tuples(
        st.sampled_from(list(listops.OPERATORS)), st.lists(argument, min_size=2, max_size=4).map(tuple)
    ),
    max_leaves=30,
)


def value_of_arrays(symbols: np.ndarray, children: np.ndarray) -> int:
    """Evaluates a tree straight from its arrays, node by node."""
    values: list[int] = []
    for symbol, row in zip(symbols, children, strict=True):
        name = listops.SYMBOLS[symbol]
        arguments = [values[child] for child in row if child >= 0]
        values.append(listops.OPERATORS[name](arguments) if arguments else int(name))
    return values[-1]


@given(expressions)
def test_text_and_back(expression) -> None:
    assert listops.parse(listops.to_text(expression)) == expression


@given(expressions)
def test_arrays_hold_the_same_tree_in_topological_order(expression) -> None:
    symbols, children = listops.to_arrays(expression)
    assert symbols.dtype == children.dtype == np.int32
    assert children.shape == (len(symbols), 4)
    assert (children < np.arange(len(symbols))[:, None]).all()
    assert value_of_arrays(symbols, children) == listops.evaluate(expression)


@given(st.integers(0, 2**32), st.integers(0, 4))
def test_random_expressions_have_the_asked_depth(seed: int, nesting: int) -> None:
    expression = listops.random_expression(np.random.default_rng(seed), nesting)
    assert listops.depth(expression) == nesting
    assert 0 <= listops.evaluate(expression) <= 9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("[MAX 2 9 [MIN 4 7] 0]", 9),
        ("[MED 1 2 4 9]", 3),
        ("[MED 1 2]", 1),
        ("[SM 9 9 9]", 7),
        ("[ SM 1  [MED 8 5 6] ]", 7),
    ],
)
def test_evaluates(text: str, value: int) -> None:
    assert listops.evaluate(listops.parse(text)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no expression"),
        ("[MAX 1 2", "1 lists are not closed"),
        ("[", "column 1: expected one of MIN, MAX, MED, SM, got ''"),
        ("[AVG 1 2]", "column 1: expected one of MIN, MAX, MED, SM, got 'AVG'"),
        ("[MAX 1]", "column 6: MAX takes 2 to 4 arguments, got 1"),
        ("[MAX 1 2 3 4 5]", "MAX takes 2 to 4 arguments, got 5"),
        ("[MAX 1 12]", "column 7: expected a digit or a list, got '12'"),
        ("MAX", "column 0: expected a digit or a list, got 'MAX'"),
        ("1 2", "column 2: the expression has ended, yet '2' follows"),
        ("[MAX 1 2]]", "column 9: the expression has ended, yet ']' follows"),
        ("]", "column 0: ']' closes nothing"),
    ],
)
def test_says_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^.+$") as caught:
        listops.parse(text)
    assert message in str(caught.value)
