"""Each layer that `keras.layers` exports: its line in `docs/keras_layers.md` is true, and its answers are right."""

import random
from pathlib import Path

import pytest

from tests.support.keras_recipes import NOT_APPLICABLE, RECIPES
from tests.support.keras_table import alias_of, as_markdown, exported, row, vectorized
from tests.support.oracle import check
from vectorizer import VectorizationError

PAGE = Path(__file__).parents[2] / "docs" / "keras_layers.md"
CASES = [(name, recipe) for name in sorted(RECIPES) for recipe in RECIPES[name]]
SAMPLE = random.Random(0).sample(CASES, 25)


def test_every_exported_layer_has_a_recipe_or_a_reason():
    unknown = [name for name in exported() if name not in RECIPES | NOT_APPLICABLE and alias_of(name) is None]
    assert not unknown, f"add to RECIPES or NOT_APPLICABLE in tests/support/keras_recipes.py: {unknown}"
    gone = sorted((RECIPES.keys() | NOT_APPLICABLE.keys()) - set(exported()))
    assert not gone, f"no longer in keras.layers: {gone}"
    assert not RECIPES.keys() & NOT_APPLICABLE.keys()


def test_the_page_has_a_line_for_every_exported_layer():
    listed = {line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")}
    assert sorted(listed) == exported()


@pytest.mark.full
def test_the_page_is_current():
    assert PAGE.read_text() == as_markdown(), "run: python -m tests.support.keras_table > docs/keras_layers.md"


def cases(chosen):
    return [pytest.param(name, recipe, id=f"{name}-{recipe.inputs}") for name, recipe in chosen]


def compare(name, recipe):
    found = vectorized(recipe)
    assert str(row(name, recipe, found)) in PAGE.read_text().splitlines(), "the page isn't current"
    if not isinstance(found, VectorizationError):
        check(found, None, recipe.examples(), fallbacks=None, rtol=recipe.rtol)


@pytest.mark.parametrize(("name", "recipe"), cases(SAMPLE))
def test_sample(name, recipe):
    compare(name, recipe)


@pytest.mark.full
@pytest.mark.parametrize(("name", "recipe"), cases(case for case in CASES if case not in SAMPLE))
def test_the_others(name, recipe):
    compare(name, recipe)
