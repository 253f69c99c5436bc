"""What a program prints: the lines that the examples alone would print, in the order of the rows.

Rows that only fill the batch up print nothing. Where a function prints twice, a batch prints all first lines, then all
second ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer import fallback
from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import Value


@converts("StringFormat", compilable=False)
def convert_string_format(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """One text for each row. The kernel formats one example at a time."""
    return list(fallback.emit_per_row(op, inputs, batch))


@converts("PrintV2", compilable=False, always=True)
def convert_print(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The rows' texts in one piece, so that other threads' prints don't come between them."""
    texts = tf.boolean_mask(batch.rows(inputs[0]), batch.counted())

    def written() -> None:
        joined = tf.strings.reduce_join(texts, separator=op.attrs["end"])
        replay(op, [joined])

    tf.cond(tf.size(texts) > 0, written, lambda: None)
    return []


@converts("Print", compilable=False, always=True)
def convert_print_and_pass(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Hands its first operand on and prints the others."""
    fallback.run_for_effect(op, inputs, batch)
    return [inputs[0]]
