"""Variables and tables. Reads are shared; what would write is refused before anything is emitted."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.indexing import convert_gather_nd, gather_rows
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, shared

_WRITES = "writes state for each example; keep the function free of side effects, update state outside of it"
_CALLS_PYTHON = "calls back into Python, which can't be vectorized; write it with TensorFlow ops, or move it out"
_DRAWS = "draws random numbers from hidden state; use tf.random.stateless_* with a seed that is an input"
_EFFECTS = "has side effects; move it out of the model"
REFUSED = {
    "AssignVariableOp": _WRITES,
    "AssignAddVariableOp": _WRITES,
    "AssignSubVariableOp": _WRITES,
    "ResourceScatterUpdate": _WRITES,
    "ResourceScatterAdd": _WRITES,
    "ResourceScatterSub": _WRITES,
    "ResourceScatterMul": _WRITES,
    "ResourceScatterDiv": _WRITES,
    "ResourceScatterMin": _WRITES,
    "ResourceScatterMax": _WRITES,
    "ResourceScatterNdUpdate": _WRITES,
    "ResourceScatterNdAdd": _WRITES,
    "ResourceScatterNdSub": _WRITES,
    "ResourceStridedSliceAssign": _WRITES,
    "LookupTableInsertV2": _WRITES,
    "LookupTableRemoveV2": _WRITES,
    "StackPushV2": _WRITES,
    "PyFunc": _CALLS_PYTHON,
    "PyFuncStateless": _CALLS_PYTHON,
    "EagerPyFunc": _CALLS_PYTHON,
    "RandomUniform": _DRAWS,
    "RandomUniformInt": _DRAWS,
    "RandomStandardNormal": _DRAWS,
    "TruncatedNormal": _DRAWS,
    "ParameterizedTruncatedNormal": _DRAWS,
    "RandomGamma": _DRAWS,
    "RandomPoissonV2": _DRAWS,
    "RandomShuffle": _DRAWS,
    "Multinomial": _DRAWS,
    "RngReadAndSkip": _DRAWS,
    "RngSkip": _DRAWS,
    "StatefulUniform": _DRAWS,
    "StatefulStandardNormalV2": _DRAWS,
    "StatefulTruncatedNormal": _DRAWS,
    "StatefulRandomBinomial": _DRAWS,
    "StatefulUniformInt": _DRAWS,
    "StatefulUniformFullInt": _DRAWS,
    "IteratorGetNext": _EFFECTS,
    "QueueDequeueV2": _EFFECTS,
    "ReadFile": _EFFECTS,
    "WriteFile": _EFFECTS,
}


@converts("ResourceGather", checks="an index is out of range")
def convert_resource_gather(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Rows of a variable."""
    resource, indices = inputs
    if op.attrs.get("batch_dims"):
        raise NotConvertible("a gather from a variable with batch dimensions")
    table = tf.raw_ops.ReadVariableOp(resource=resource.tensor, dtype=op.attrs["dtype"])
    table.set_shape([None, *op.outputs[0].shape.as_list()[indices.rank :]])
    return [gather_rows(shared(table), indices, batch)]


@converts("ResourceGatherNd", checks="an index is out of range")
def convert_resource_gather_nd(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Slices of a variable by coordinate vectors."""
    resource, indices = inputs
    table = tf.raw_ops.ReadVariableOp(resource=resource.tensor, dtype=op.attrs["dtype"])
    if table.shape.rank is None and indices.shape[-1] is not None:
        inner = op.outputs[0].shape.as_list()[indices.rank - 1 :]
        table.set_shape([*[None] * indices.shape[-1], *inner])
    return list(convert_gather_nd(op, [shared(table), indices], batch))


@converts("LookupTableFindV2", compilable=False)
def convert_table_find(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Looks each key up."""
    table, keys, default = inputs
    if table.batched or default.batched:
        raise NotConvertible("a lookup whose table or default differs between examples")
    (found,) = replay(op, [table.tensor, keys.tensor, default.tensor])
    found.set_shape(keys.tensor.shape)
    return [batched(found, keys.sizes)]
