"""ModelInfer: messages to arrays and back. The arrays of raw contents are views of the message."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from server.engines.batch_result import Array
from server.errors import InvalidInput
from server.grpc.messages import MESSAGES
from server.lanes import Lane, Lanes
from server.metrics import LaneMetrics
from server.open_inference.datatypes import DATATYPES, array_from_bytes, array_to_bytes
from server.open_inference.request import UNSUPPORTED, WISHES, InferSignature, read_wishes, refuse_unsupported
from server.prediction import PredictReply, PredictRequest
from server.tensors import join_rows

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Where a tensor's elements stand if they are not raw; FP16 has no such place."""


class InferCall:
    """One ModelInfer call: the request that it makes, and its reply. `metrics` is set once the model is found."""

    def __init__(self, message: Any, arrived_at: float) -> None:
        self._message = message
        self._arrived_at = arrived_at
        self._lane: Lane[InferSignature] | None = None
        self.metrics: LaneMetrics | None = None

    def read(self, lanes: Lanes[InferSignature], timeout_s: float) -> PredictRequest:
        """Returns the request. Raises BatchdError for what can't be answered."""
        message = self._message
        wishes = read_wishes(_parameters(message.parameters, WISHES), timeout_s)
        lane = self._lane = lanes.find(message.model_name, message.model_version, wishes.signature)
        self.metrics = lane.metrics
        rows = lane.codec.rows(self._arrays(lane.codec))
        self._outputs = lane.codec.choose_outputs(output.name for output in message.outputs)
        for output in message.outputs:
            refuse_unsupported(output.name, _parameters(output.parameters, UNSUPPORTED))
        return PredictRequest(
            lane.model.name,
            lane.signature.name,
            rows,
            self._arrived_at + wishes.timeout_s,
            wishes.priority,
            message.id,
            attachment=lane.attachment,
        )

    def write(self, reply: PredictReply) -> Any:
        """Returns the message that answers."""
        assert self._lane is not None
        model = self._lane.model
        answer = MESSAGES["ModelInferResponse"](model_name=model.name, model_version=model.version, id=self._message.id)
        for index, tensor in self._outputs:
            array = join_rows(tensor, reply.rows, index)
            answer.outputs.add(name=tensor.name, datatype=DATATYPES[tensor.dtype], shape=array.shape)
            answer.raw_output_contents.append(array_to_bytes(array))
        return answer

    def _arrays(self, signature: InferSignature) -> dict[str, Array]:
        tensors, raw = self._message.inputs, self._message.raw_input_contents
        if len(tensors) > _MOST_INPUTS + len(signature.inputs):
            raise InvalidInput(f"{len(tensors)} inputs came; the signature takes {len(signature.inputs)}")
        signature.check_input_names([tensor.name for tensor in tensors])
        if raw and len(raw) != len(tensors):
            raise InvalidInput(f"expected raw_input_contents for each of {len(tensors)} inputs, got {len(raw)}")
        arrays = {}
        for index, tensor in enumerate(tensors):
            refuse_unsupported(tensor.name, _parameters(tensor.parameters, UNSUPPORTED))
            shape = signature.check_form(tensor.name, tensor.datatype, tensor.shape)
            dtype = signature.inputs[tensor.name].dtype
            if raw:
                if tensor.HasField("contents"):
                    raise InvalidInput(f"input {tensor.name!r} has contents, though raw_input_contents came")
                arrays[tensor.name] = array_from_bytes(tensor.name, dtype, shape, memoryview(raw[index]))
            else:
                arrays[tensor.name] = _array_of_contents(tensor, dtype, shape)
        return arrays


def _array_of_contents(tensor: Any, dtype: str, shape: tuple[int, ...]) -> Array:
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise InvalidInput(f"input {tensor.name!r}: {tensor.datatype} goes in raw_input_contents only")
    values = getattr(tensor.contents, field)
    if len(values) != prod(shape):
        raise InvalidInput(f"input {tensor.name!r}: shape {list(shape)}, but {len(values)} elements in {field}")
    try:
        array = np.array(values, dtype=object if dtype == "string" else dtype)
    except OverflowError:
        raise InvalidInput(f"input {tensor.name!r}: a value is out of range for {tensor.datatype}") from None
    return array.reshape(shape)


def _parameters(message: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns those of these names; others may be there, in any number."""
    found = {name: message[name] for name in names if name in message}
    return {name: getattr(value, kind) for name, value in found.items() if (kind := value.WhichOneof(_CHOICE))}


_CHOICE = "parameter_choice"
_MOST_INPUTS = 100
"""How many too many are named in an error."""
