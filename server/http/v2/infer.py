"""`POST /v2/models/{model}[/versions/{version}]/infer`: JSON, binary tensors behind the JSON, or both.

A body with binary tensors is JSON of as many bytes as the header Inference-Header-Content-Length says, and then the
bytes of each input that has a `binary_data_size`, in their order. Replies are made in the same way. The arrays are
views of the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import msgspec
import orjson

from server.engines.batch_result import Array
from server.errors import InvalidInput
from server.http.body import check_elements
from server.http.codec import TensorReader
from server.http.envelope import read_envelope
from server.http.exchange import JSON, Arrival, Write
from server.http.nonfinite import Nonfinite, numbers_to_json
from server.lanes import Lane, Lanes
from server.metrics import Metrics
from server.model_description import SignatureDescription, TensorDescription
from server.open_inference.datatypes import DATATYPES, array_from_bytes, array_to_bytes
from server.open_inference.request import InferSignature, Wishes, read_wishes, refuse_unsupported, shown
from server.prediction import PredictReply, PredictRequest
from server.supervisor import Supervisor
from server.tensors import join_rows, of_many

PATH = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
_HEADER = b"inference-header-content-length"
_OCTETS = (b"content-type", b"application/octet-stream")
_NESTED = re.compile(rb"\s*\[\s*\[")


class InputTensor(msgspec.Struct):
    """One of a request's inputs; `data` stays JSON text until the signature is known."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: msgspec.Raw = msgspec.Raw()


class OutputWish(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: dict[str, Any] | None = None


class Envelope(msgspec.Struct):
    """A request's JSON."""

    inputs: list[InputTensor]
    id: str = ""
    parameters: dict[str, Any] | None = None
    outputs: list[OutputWish] | None = None


class InferCodec(InferSignature):
    """Reads JSON tensors of one signature, too."""

    def __init__(self, signature: SignatureDescription, text_limit: int) -> None:
        super().__init__(signature, text_limit)
        self._nested = {tensor.name: TensorReader(of_many(tensor)) for tensor in signature.inputs}
        self._flat = {
            tensor.name: TensorReader(TensorDescription(tensor.name, tensor.dtype, [None]))
            for tensor in signature.inputs
        }

    def read_json(self, name: str, shape: tuple[int, ...], data: msgspec.Raw) -> Array:
        """Returns the array of `data`, nested lists or a flat one. Raises InvalidInput."""
        is_nested = len(shape) > 1 and _NESTED.match(memoryview(data)) is not None
        array = (self._nested if is_nested else self._flat)[name].read(data)
        if is_nested and array.shape != shape:
            raise InvalidInput(f"input {name!r}: its shape is {list(shape)}, its data's {list(array.shape)}")
        if array.size != prod(shape):
            raise InvalidInput(f"input {name!r}: shape {list(shape)} has {prod(shape)} elements, its data {array.size}")
        return array.reshape(shape)


class InferFormat:
    """Reads and writes the protocol's requests and replies."""

    def __init__(
        self,
        supervisor: Supervisor,
        metrics: Metrics,
        *,
        request_timeout_s: float,
        element_limit: int,
        nonfinite: Nonfinite,
    ) -> None:
        self._lanes = Lanes(supervisor, metrics, partial(InferCodec, text_limit=element_limit))
        self._request_timeout_s = request_timeout_s
        self._element_limit = element_limit
        self._nonfinite: Nonfinite = nonfinite
        self._decoder = msgspec.json.Decoder(Envelope)

    def read(self, arrival: Arrival) -> tuple[PredictRequest, Write]:
        """Returns the request and how to answer it. Raises BatchdError for what can't be answered."""
        json_text, binary = _split(arrival.body, arrival.header(_HEADER))
        check_elements(json_text, self._element_limit)
        envelope = read_envelope(self._decoder, json_text, tokens=True)
        wishes = read_wishes(envelope.parameters or {}, self._request_timeout_s)
        asked = PATH.fullmatch(arrival.path)
        assert asked is not None
        lane = self._lanes.find(asked["model"], asked["version"] or "", wishes.signature)
        arrival.metrics = lane.metrics
        deadline = arrival.deadline(wishes.timeout_s)
        rows = lane.codec.rows(self._read_inputs(lane.codec, envelope.inputs, binary))
        wanted = envelope.outputs or ()
        outputs = lane.codec.choose_outputs(wish.name for wish in wanted)
        as_binary = {wish.name: _binary_wish(wish) for wish in wanted}
        request = PredictRequest(
            lane.model.name,
            lane.signature.name,
            rows,
            deadline,
            wishes.priority,
            envelope.id,
            attachment=lane.attachment,
        )
        return request, partial(self._write, lane, envelope.id, wishes, outputs, as_binary)

    def _read_inputs(self, codec: InferCodec, tensors: list[InputTensor], binary: memoryview) -> dict[str, Array]:
        codec.check_input_names([tensor.name for tensor in tensors])
        arrays = {}
        start = 0
        for tensor in tensors:
            name = tensor.name
            shape = codec.check_form(name, tensor.datatype, tensor.shape)
            refuse_unsupported(name, tensor.parameters or {})
            size = _binary_size(tensor)
            if size is None:
                arrays[name] = codec.read_json(name, shape, tensor.data)
                continue
            if start + size > len(binary):
                missing = start + size - len(binary)
                raise InvalidInput(f"input {name!r}: expecting {missing} additional bytes of binary data")
            dtype = codec.inputs[name].dtype
            arrays[name] = array_from_bytes(name, dtype, shape, binary[start : start + size])
            start += size
        if start != len(binary):
            raise InvalidInput(f"{len(binary) - start} bytes of binary data are left over after the last input")
        return arrays

    def _write(
        self,
        lane: Lane[InferCodec],
        id: str,
        wishes: Wishes,
        outputs: Sequence[tuple[int, TensorDescription]],
        as_binary: Mapping[str, bool | None],
        reply: PredictReply,
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        tensors, blobs = [], []
        for index, tensor in outputs:
            array = join_rows(tensor, reply.rows, index)
            answer: dict[str, Any] = {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": array.shape}
            wish = as_binary.get(tensor.name)
            if wishes.binary_outputs if wish is None else wish:
                blobs.append(array_to_bytes(array))
                answer["parameters"] = {"binary_data_size": len(blobs[-1])}
            else:
                answer["data"] = self._data(tensor.name, array.reshape(-1))
            tensors.append(answer)
        document = {
            "model_name": lane.model.name,
            "model_version": lane.model.version,
            **({"id": id} if id else {}),
            "outputs": tensors,
        }
        head = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
        if not blobs:
            return head, [JSON]
        return b"".join([head, *blobs]), [_OCTETS, (_HEADER, b"%d" % len(head))]

    def _data(self, name: str, flat: Array) -> Any:
        if flat.dtype.kind != "O":
            return numbers_to_json(name, flat, self._nonfinite)
        try:
            return [text.decode() for text in flat.tolist()]
        except UnicodeDecodeError:
            raise InvalidInput(
                f"output {name!r} has bytes that are not UTF-8, which JSON can't hold; ask for it as binary_data"
            ) from None


def _split(body: bytes, length: bytes | None) -> tuple[bytes | memoryview, memoryview]:
    """Returns the JSON and what follows it."""
    if length is None:
        return body, memoryview(b"")
    if not length.isdigit():
        raise InvalidInput(f"Inference-Header-Content-Length must be a whole number, got {length.decode('latin-1')!r}")
    size = int(length[:20])
    if size == 0:
        raise InvalidInput("Inference-Header-Content-Length 0, a body without JSON, isn't supported")
    if size > len(body):
        raise InvalidInput(f"Inference-Header-Content-Length is {size}, but the body has {len(body)} bytes")
    whole = memoryview(body)
    return whole[:size], whole[size:]


def _binary_size(tensor: InputTensor) -> int | None:
    """Returns the bytes of a binary input, None for JSON. Raises InvalidInput unless it is exactly one of them."""
    size = (tensor.parameters or {}).get("binary_data_size")
    has_data = len(memoryview(tensor.data)) > 0
    if size is None:
        if not has_data:
            raise InvalidInput(f"input {tensor.name!r} has neither data nor the parameter 'binary_data_size'")
        return None
    if has_data:
        raise InvalidInput(f"input {tensor.name!r} has both data and the parameter 'binary_data_size'")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InvalidInput(f"input {tensor.name!r}: 'binary_data_size' must be a number of bytes, got {shown(size)}")
    return size


def _binary_wish(wish: OutputWish) -> bool | None:
    parameters = wish.parameters or {}
    refuse_unsupported(wish.name, parameters)
    binary = parameters.get("binary_data")
    return binary if isinstance(binary, bool) else None
