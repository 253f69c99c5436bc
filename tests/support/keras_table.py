"""The page `docs/keras_layers.md`: what becomes of each layer class that `keras.layers` exports.

`python -m tests.support.keras_table > docs/keras_layers.md` makes it of `keras_recipes.py`; a test keeps it current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from keras import layers

from tests.support.keras_recipes import NOT_APPLICABLE, RECIPES, Recipe
from vectorizer import VectorizationError, Vectorized, regions, vectorize


@dataclass(frozen=True)
class Row:
    """One line of the page; `verdict` is what happens to the layer, and why."""

    layer: str
    example: str
    verdict: str

    def __str__(self) -> str:
        return f"| `{self.layer}` | {self.example} | {self.verdict} |"


def exported() -> list[str]:
    """Every class in `keras.layers`, by name."""
    return sorted(name for name, value in vars(layers).items() if inspect.isclass(value))


def alias_of(name: str) -> str | None:
    """The name with a recipe under which `keras.layers` exports the same class, if `name` has none of its own."""
    if name in RECIPES or name in NOT_APPLICABLE:
        return None
    return next((other for other in RECIPES if getattr(layers, other, None) is getattr(layers, name)), None)


def vectorized(recipe: Recipe) -> Vectorized | VectorizationError:
    """The recipe's layer, vectorized, or why it is refused."""
    try:
        return vectorize(recipe.function(), recipe.specs)
    except VectorizationError as refusal:
        return refusal


def row(name: str, recipe: Recipe, found: Vectorized | VectorizationError) -> Row:
    """The line of one recipe."""
    return Row(name, recipe.inputs, _verdict(found))


def _verdict(found: Vectorized | VectorizationError) -> str:
    if isinstance(found, VectorizationError):
        reasons = dict.fromkeys(f"`{finding.op.type}` {_unnumbered(finding.reason)}" for finding in found.findings)
        return "refused: " + "; ".join(reasons)
    if found.report.fallbacks:
        reasons = dict.fromkeys(f"`{entry.op_type}` ({entry.reason})" for entry in found.report.fallbacks)
        return "looped over rows: " + ", ".join(reasons)
    if not found.compilable:
        return "native"
    whole = regions.split(found.program, frozenset(found.report.looped)).whole
    return "native, compiled by XLA" if whole else "native, in part compiled by XLA"


def _unnumbered(reason: str) -> str:
    """Without the numbers that Keras gives to layers of one class in one process."""
    return re.sub(r"_\d+/", "/", reason)


def rows() -> Iterator[Row]:
    """Every line of the page. Takes about a minute."""
    for name in exported():
        if name in NOT_APPLICABLE:
            yield Row(name, "", f"not applicable: {NOT_APPLICABLE[name]}")
        elif alias_of(name):
            yield Row(name, "", f"another name of `{alias_of(name)}`")
        else:
            yield from (row(name, recipe, vectorized(recipe)) for recipe in RECIPES[name])


def as_markdown() -> str:
    """The page."""
    lines = [
        "# Keras layers",
        "",
        "Every layer class that `keras.layers` exports (Keras 3, on TensorFlow), in inference mode, as a function of",
        "one example: `lambda x: layer(x[None])[0]`. `n` is a size that differs between examples. Made by",
        "`python -m tests.support.keras_table`; tests keep it current, and compare every line with the layer itself,",
        "example by example, plain and under XLA.",
        "",
        "*Native*: one op of the layer is one op of the batch. *Looped over rows*: the named ops run once for each",
        "row, the others are native. *Refused*: `vectorize` says so before anything is served.",
        "",
        "| layer | one example | across the batch |",
        "|---|---|---|",
        *map(str, rows()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
