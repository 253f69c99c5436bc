"""Optionals: how TensorFlow hands a branch's intermediate values to its gradient.

The branch that ran wraps them, the other one says "none". Where both branches run on all rows, a row's optional is the
wrapped value if the row took that branch; nobody reads it otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vectorizer.batch import Batch
from vectorizer.compounds import OptionalValue, unwrap, wrap
from vectorizer.program import Op
from vectorizer.registry import converts


@converts("OptionalFromValue", always=True)
def convert_optional_from_value(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """Wraps."""
    return [wrap(inputs)]


@converts("OptionalNone", always=True)
def convert_optional_none(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """Wraps nothing."""
    return [OptionalValue({})]


@converts("OptionalGetValue", always=True)
def convert_optional_get_value(op: Op, inputs: Sequence[Any], batch: Batch) -> list[Any]:
    """Unwraps."""
    types = [var.dtype for var in op.outputs]
    return list(unwrap(inputs[0], types, [var.rank for var in op.outputs]))
