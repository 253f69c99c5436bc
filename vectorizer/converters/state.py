"""Variables and tables. Reads are shared; what writes is refused before anything is emitted (`effects.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.indexing import gather_rows
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, at_axis, batched, shared


@converts("ResourceGather", checks="an index is out of range")
def convert_resource_gather(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rows of a variable."""
    resource, indices = inputs
    if op.attrs.get("batch_dims"):
        raise NotConvertible("a gather from a variable with batch dimensions")
    table = tf.raw_ops.ReadVariableOp(resource=resource.tensor, dtype=op.attrs["dtype"])
    table.set_shape([None, *op.outputs[0].shape.as_list()[indices.rank :]])
    return [gather_rows(shared(table), indices, batch)]


@converts("LookupTableFindV2", compilable=False)
def convert_table_find(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Looks each key up."""
    table, keys, default = inputs
    if table.batched or default.batched:
        raise NotConvertible("a lookup whose table or default differs between examples")
    (found,) = replay(op, [table.tensor, keys.tensor, default.tensor])
    found.set_shape(keys.tensor.shape)
    return [batched(found, keys.sizes)]


@converts("AssignAddVariableOp AssignSubVariableOp", compilable=False, always=True)
def convert_assign_add(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Adds the sum of the values of all examples that are ok; `vectorize` emits it last."""
    resource, value = inputs
    if value.sizes:
        raise NotConvertible("the shape of what is added differs between examples")
    rows = batch.rows(value)
    counted = at_axis(tf.logical_and(batch.counted(), batch.ok), value.rank)
    total = tf.reduce_sum(tf.where(counted, rows, tf.zeros([], rows.dtype)), axis=0)
    replay(op, [resource.tensor, total])
    return []
