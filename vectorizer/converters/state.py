"""Variables and tables. Reads are shared; what would write is refused before anything is emitted."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.indexing import gather_rows
from vectorizer.program import Op
from vectorizer.registry import converts, replay
from vectorizer.values import NotConvertible, Value, batched, shared

REFUSED = {
    **dict.fromkeys(
        """AssignVariableOp AssignAddVariableOp AssignSubVariableOp ResourceScatterUpdate
        ResourceScatterAdd ResourceScatterSub ResourceScatterMul ResourceScatterDiv
        ResourceScatterMin ResourceScatterMax ResourceScatterNdUpdate ResourceScatterNdAdd
        ResourceScatterNdSub ResourceStridedSliceAssign LookupTableInsertV2 LookupTableRemoveV2
        StackPushV2""".split(),
        "writes state for each example; keep the function free of side effects, update state outside of it",
    ),
    **dict.fromkeys(
        "PyFunc PyFuncStateless EagerPyFunc".split(),
        "calls back into Python, which can't be vectorized; write it with TensorFlow ops, or move it out",
    ),
    **dict.fromkeys(
        """RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal ParameterizedTruncatedNormal
        RandomGamma RandomPoissonV2 RandomShuffle Multinomial RngReadAndSkip RngSkip StatefulUniform
        StatefulStandardNormalV2 StatefulTruncatedNormal StatefulRandomBinomial StatefulUniformInt
        StatefulUniformFullInt""".split(),
        "draws random numbers from hidden state; use tf.random.stateless_* with a seed that is an input",
    ),
    **dict.fromkeys(
        "IteratorGetNext QueueDequeueV2 ReadFile WriteFile".split(),
        "has side effects; move it out of the model",
    ),
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


@converts("LookupTableFindV2", compilable=False)
def convert_table_find(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Looks each key up."""
    table, keys, default = inputs
    if table.batched or default.batched:
        raise NotConvertible("a lookup whose table or default differs between examples")
    (found,) = replay(op, [table.tensor, keys.tensor, default.tensor])
    found.set_shape(keys.tensor.shape)
    return [batched(found, keys.sizes)]
