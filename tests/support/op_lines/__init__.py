"""The table of programs that make each registered op: one line per op, or per group of ops that share a function.

`tests/vectorizer/test_ops.py` grows cases from the lines and runs them. A family of ops is a module, as among the
converters; `line.py` says what a line is and what operands may hold.
"""

from tests.support.op_lines import (
    elementwise,
    gradients,
    images,
    indexing,
    lists,
    matrices,
    randomness,
    reductions,
    shapes,
    text,
)

_FAMILIES = (
    reductions.counting,
    elementwise.elementwise,
    reductions.reductions,
    matrices.products,
    images.images,
    shapes.shapes,
    indexing.indexing,
    indexing.ordering,
    text.strings,
    lists.lists,
    lists.checks,
    gradients.gradients,
    matrices.linear_algebra,
    randomness.random_lines,
    reductions.segments,
    indexing.selections,
    images.filters,
    images.normalisations,
    images.poolings,
    images.pictures,
    matrices.matrices,
    matrices.diagonals,
    elementwise.quantisations,
    shapes.rearrangements,
    shapes.paddings,
    text.records,
    text.texts,
    indexing.sparse_parts,
    indexing.places,
)

LINES = [line for family in _FAMILIES for line in family()]
