"""ListOps expressions in plain Python: read, write, evaluate, turn into arrays, draw at random.

An expression is a digit, or an operator's name and 2 to 4 arguments: ``[MAX 2 9 [MIN 4 7] 0]`` is
``("MAX", (2, 9, ("MIN", (4, 7)), 0))``. After Nangia and Bowman, "ListOps: A Diagnostic Dataset for
Latent Tree Learning" (2018, arXiv 1804.06028).
"""

import re
import statistics
from collections.abc import Callable, Sequence

import numpy as np

Expression = int | tuple[str, tuple["Expression", ...]]

OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "MIN": min,
    "MAX": max,
    "MED": lambda values: int(statistics.median(values)),
    "SM": lambda values: sum(values) % 10,
}
# A node's symbol is its place here: first the digits, then the operators.
SYMBOLS = (*map(str, range(10)), *OPERATORS)
MIN_ARGUMENTS = 2
MAX_ARGUMENTS = 4


def parse(text: str) -> Expression:
    """The expression written in ``text``; ValueError says what is wrong, and where."""
    tokens = [(match.group(), match.start()) for match in re.finditer(r"[\[\]]|[^\s\[\]]+", text)]
    open_lists: list[tuple[str, list[Expression]]] = []
    places = iter(tokens)
    for token, start in places:
        if token == "[":
            operator, operator_start = next(places, ("", len(text)))
            if operator not in OPERATORS:
                known = ", ".join(OPERATORS)
                raise ValueError(f"column {operator_start}: expected one of {known}, got {operator!r}")
            open_lists.append((operator, []))
            continue
        finished: Expression
        if token == "]":
            if not open_lists:
                raise ValueError(f"column {start}: ']' closes nothing")
            operator, arguments = open_lists.pop()
            if not MIN_ARGUMENTS <= len(arguments) <= MAX_ARGUMENTS:
                raise ValueError(f"column {start}: {operator} takes 2 to 4 arguments, got {len(arguments)}")
            finished = (operator, tuple(arguments))
        elif token in SYMBOLS[:10]:
            finished = int(token)
        else:
            raise ValueError(f"column {start}: expected a digit or a list, got {token!r}")
        if open_lists:
            open_lists[-1][1].append(finished)
            continue
        for rest, rest_start in places:
            raise ValueError(f"column {rest_start}: the expression has ended, yet {rest!r} follows")
        return finished
    raise ValueError(f"{len(open_lists)} lists are not closed" if open_lists else "there is no expression")


def to_text(expression: Expression) -> str:
    """The expression as ``parse`` reads it."""
    if isinstance(expression, int):
        return str(expression)
    operator, arguments = expression
    return f"[{operator} {' '.join(map(to_text, arguments))}]"


def evaluate(expression: Expression) -> int:
    """The exact value, 0 to 9; MED of an even number is the mean of the middle two, rounded down."""
    if isinstance(expression, int):
        return expression
    operator, arguments = expression
    return OPERATORS[operator]([evaluate(argument) for argument in arguments])


def depth(expression: Expression) -> int:
    """How many lists are nested in each other: 0 for a digit."""
    return 0 if isinstance(expression, int) else 1 + max(map(depth, expression[1]))


def to_arrays(expression: Expression) -> tuple[np.ndarray, np.ndarray]:
    """Symbols [n] int32 and children [n, 4] int32 (-1 for none), children before parents, the root last."""
    symbols: list[int] = []
    children: list[list[int]] = []

    def add(node: Expression) -> int:
        name, arguments = (str(node), ()) if isinstance(node, int) else node
        indices = [add(argument) for argument in arguments]
        symbols.append(SYMBOLS.index(name))
        children.append(indices + [-1] * (MAX_ARGUMENTS - len(indices)))
        return len(symbols) - 1

    add(expression)
    return np.array(symbols, np.int32), np.array(children, np.int32)


def random_expression(generator: np.random.Generator, nesting: int) -> Expression:
    """A random expression exactly ``nesting`` lists deep.

    One argument, at a random place, is one list less deep; of the others three in five are digits, the
    rest lists of any smaller depth.
    """
    if nesting == 0:
        return int(generator.integers(10))
    count = int(generator.integers(MIN_ARGUMENTS, MAX_ARGUMENTS + 1))
    deepest = int(generator.integers(count))
    arguments = []
    for place in range(count):
        shallow = nesting == 1 or generator.random() < 0.6
        below = 0 if shallow else int(generator.integers(1, nesting))
        arguments.append(random_expression(generator, nesting - 1 if place == deepest else below))
    return list(OPERATORS)[int(generator.integers(len(OPERATORS)))], tuple(arguments)
