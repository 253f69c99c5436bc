"""What a message may hold, tried by exceeding it: a status of gRPC's that says so, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2

from tests.support.protocol_service import LIMIT_BYTES, Background, protocol_service

SOON_S = 8.0
"""Measured: under 0.5 s each, on a machine that does nothing else."""
ALLOWED = {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "NOT_FOUND"}
Request = service_pb2.ModelInferRequest


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


@pytest.fixture(scope="module")
def channel(served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel) -> Any:
    return triton.service_pb2_grpc.GRPCInferenceServiceStub(channel)


def right() -> Any:
    request = Request(model_name="half_plus_three")
    request.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(2)
    return request


@pytest.fixture(autouse=True)
def serves_on(stub) -> Iterator[None]:
    yield
    assert stub.ModelInfer(right()).raw_output_contents[0] == b"\0\0\x80@"


def refusal(call: Callable[[], Any]) -> str:
    """Returns what is said about a message that can't be answered."""
    started_at = time.perf_counter()
    with pytest.raises(grpc.RpcError) as refused:
        call()
    assert time.perf_counter() - started_at < SOON_S
    assert refused.value.code().name in ALLOWED
    assert len(refused.value.details()) <= 2000
    return refused.value.details()


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_message_that_becomes_too_large(stub, compression):
    request = right()
    request.raw_input_contents.append(bytes(10 * LIMIT_BYTES))
    assert "larger than max" in refusal(lambda: stub.ModelInfer(request, compression=compression))
    assert "larger than max" in refusal(lambda: stub.ModelInfer(request))
    assert stub.ModelInfer(right(), compression=compression).raw_output_contents[0] == b"\0\0\x80@"


def many_contents(field: str, value: Any, count: int) -> Any:
    request = Request(model_name="shout")
    contents = request.inputs.add(name="text", datatype="BYTES", shape=[1]).contents
    getattr(contents, field).extend([value] * count)
    return request


def many_of(field: str, count: int) -> Any:
    request = right()
    getattr(request, field).extend([type(getattr(request, field).add())()] * count)
    return request


def many_parameters(of: str) -> Any:
    request = right()
    if of == "output":
        request.outputs.add(name="y")
    where = {"request": request, "input": request.inputs[0], "output": request.outputs[0] if of == "output" else None}
    for number in range(100_000):
        where[of].parameters[str(number)].bool_param = True
    return request


MANY = {
    "texts": lambda: many_contents("bytes_contents", b"", 1_500_000),
    "numbers of another kind": lambda: many_contents("int_contents", 0, 3_000_000),
    "inputs": lambda: many_of("inputs", 1_500_000),
    "outputs": lambda: many_of("outputs", 1_500_000),
    "sizes": lambda: Request(
        model_name="half_plus_three", inputs=[{"name": "x", "datatype": "FP32", "shape": [1] * 3_000_000}]
    ),
    "raw contents": lambda: Request(model_name="half_plus_three", raw_input_contents=[b""] * 1_500_000),
}


@pytest.mark.parametrize("make", MANY.values(), ids=MANY)
def test_many(stub, make):
    request = make()
    refusal(lambda: stub.ModelInfer(request))


@pytest.mark.parametrize("of", ["request", "input", "output"])
def test_many_parameters_that_mean_nothing(stub, of):
    request = many_parameters(of)
    started_at = time.perf_counter()
    assert stub.ModelInfer(request).raw_output_contents[0] == b"\0\0\x80@"
    assert time.perf_counter() - started_at < SOON_S


@pytest.mark.parametrize("size", [-(2**63), -1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1])
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("raw", [None, b"", bytes(12)])
def test_shapes_that_promise_more_than_comes(stub, size, at, raw):
    for others in (0, 1, 2**31 - 1):
        shape = [others, others, 3]
        shape[at] = size
        request = Request(model_name="matrix")
        request.inputs.add(name="m", datatype="FP32", shape=shape)
        if raw is not None:
            request.raw_input_contents.append(raw)
        if shape[0] == 0 and 0 <= shape[1] < 2**31 and shape[2] == 3 and not raw:
            assert list(stub.ModelInfer(request).outputs[0].shape) == [0, 0, 3]
        else:
            refusal(lambda request=request: stub.ModelInfer(request))


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 4])
def test_texts_that_promise_more_bytes_than_come(stub, length):
    for count in (1, 2, 2**31 - 1):
        request = Request(model_name="shout", raw_input_contents=[length.to_bytes(4, "little") + b"abc"])
        request.inputs.add(name="text", datatype="BYTES", shape=[count])
        said = refusal(lambda request=request: stub.ModelInfer(request))
        assert "take more than the 7 bytes that came" in said or "more than 100000 texts" in said


def test_long_names_are_cut_in_errors(stub):
    name = "n" * 3_000_000
    for request in (
        Request(model_name=name),
        Request(model_name="half_plus_three", model_version=name),
        Request(model_name="half_plus_three", inputs=[{"name": name}]),
        Request(model_name="half_plus_three", inputs=[{"name": "x", "datatype": name, "shape": [1]}]),
        Request(model_name="half_plus_three", parameters={"signature": {"string_param": name}}),
    ):
        refusal(lambda request=request: stub.ModelInfer(request))
    request = right()
    request.id = name
    assert stub.ModelInfer(request).id == name


def nested(depth: int) -> bytes:
    """Messages within messages, in a field whose content is one."""
    message = b""
    for _ in range(depth):
        length, size = len(message), b""
        while length > 127:
            size += bytes([length & 127 | 128])
            length >>= 7
        message = b"\x2a" + size + bytes([length]) + message
    return message


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\xa3\x06" * 1_000_000, id="groups that never end"),
        pytest.param(nested(3_000), id="messages in messages"),
        pytest.param(b"\x2a\xff\xff\xff\xff\x0f", id="a length beyond all"),
        pytest.param(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", id="a length that overflows"),
    ],
)
def test_messages_that_are_none(channel, message):
    refusal(lambda: channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(message))


def test_metadata_beyond_the_limit(stub):
    """gRPC's own limit; whatever it says, the next call is answered."""
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(right(), metadata=[("authorization", "x" * 1_000_000)])
    assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
