"""The Open Inference Protocol over gRPC, spoken by Triton's own client."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from server.grpc.messages import MESSAGES
from server.registry import SERVED_DTYPES
from tests.support.protocol_service import LIMIT_BYTES, Background, protocol_service

VALUES = {
    "bool": [True, False, True],
    **{f"int{bits}": [-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": [0, 1, 2**bits - 1] for bits in (8, 16, 32, 64)},
    **{f"float{bits}": [np.nan, -2.5, np.inf] for bits in (16, 32, 64)},
    "string": [b"a", b"", b"\xff\xfe"],
}


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


@pytest.fixture(scope="module")
def client(served) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(served.grpc) as client:
        yield client


@pytest.fixture(scope="module")
def stub(served) -> Iterator[object]:
    with grpc.insecure_channel(served.grpc) as channel:
        yield triton.service_pb2_grpc.GRPCInferenceServiceStub(channel)


def array_of(dtype: str) -> np.ndarray:
    return np.array([VALUES[dtype]] * 2, object if dtype == "string" else dtype)


def tensor(name: str, array: np.ndarray) -> triton.InferInput:
    datatype = "BYTES" if array.dtype == object else np_to_triton_dtype(array.dtype)
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def test_every_message_is_the_public_protocols():
    """Same names, numbers and types as in the client's own messages; what we leave out doesn't matter."""
    theirs = service_pb2.DESCRIPTOR.pool

    def name_of(descriptor: object) -> str:
        return descriptor.name if descriptor else ""

    checked = 0
    for name, message in MESSAGES.items():
        within = {"TensorMetadata": "ModelMetadataResponse.", "ModelIndex": "RepositoryIndexResponse."}
        within |= {"InferInputTensor": "ModelInferRequest.", "InferOutputTensor": "ModelInferResponse."}
        within |= {"InferRequestedOutputTensor": "ModelInferRequest."}
        public = theirs.FindMessageTypeByName(f"inference.{within.get(name, '')}{name}")
        for field in message.DESCRIPTOR.fields:
            other = public.fields_by_name[field.name]
            assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated)
            assert name_of(field.message_type) == name_of(other.message_type)
            assert name_of(field.containing_oneof) == name_of(other.containing_oneof)
            checked += 1
    assert checked > 100


def test_health_metadata_and_configuration(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("matrix")
    with pytest.raises(InferenceServerException, match="no version '2'"):
        client.is_model_ready("matrix", "2")
    assert set(client.get_server_metadata().extensions) >= {"binary_tensor_data", "statistics"}
    metadata = client.get_model_metadata("matrix", as_json=True)
    assert metadata["inputs"] == [{"name": "m", "datatype": "FP32", "shape": ["-1", "-1", "3"]}]
    config = client.get_model_config("echo").config
    assert (config.name, config.max_batch_size, len(config.input)) == ("echo", 8, 13)
    assert sorted(each.data_type for each in config.input) == [*range(1, 14)]


def test_repository_and_statistics(client):
    index = client.get_model_repository_index(as_json=True)["models"]
    assert {"name": "add", "version": "1", "state": "READY"} in index
    for more in ({"config": "{}"}, {"files": {"file:1/model.py": b"x"}, "config": "{}"}):
        with pytest.raises(InferenceServerException, match="the file that the server was started with") as caught:
            client.load_model("add", **more)
        assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
    before = client.get_inference_statistics("half_plus_three").model_stats[0]
    client.infer("half_plus_three", [tensor("x", np.float32([1, 2]))])
    after = client.get_inference_statistics("half_plus_three").model_stats[0]
    assert after.inference_count == before.inference_count + 2
    assert after.inference_stats.success.count == before.inference_stats.success.count + 1
    assert len(client.get_inference_statistics().model_stats) == 7


def test_every_dtype(client):
    inputs = [tensor(f"of_{dtype}", array_of(dtype)) for dtype in SERVED_DTYPES]
    result = client.infer("echo", inputs, request_id="7")
    for dtype in SERVED_DTYPES:
        np.testing.assert_array_equal(result.as_numpy(f"back_{dtype}"), array_of(dtype))
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("7", "echo", "1")


def test_how_it_was_served_is_in_the_trailing_metadata(stub):
    request = service_pb2.ModelInferRequest(model_name="half_plus_three")
    request.inputs.add(name="x", datatype="FP32", shape=[3]).contents.fp32_contents.extend([1, 2, 3])
    _, call = stub.ModelInfer.with_call(request)
    metadata = dict(call.trailing_metadata())
    assert (metadata["x-batchd-batch-size"], metadata["x-batchd-bucket"]) == ("3", "4")
    assert float(metadata["x-batchd-queue-ms"]) >= 0


def test_typed_contents(stub):
    """Where a client doesn't send raw bytes."""
    request = service_pb2.ModelInferRequest(model_name="echo")
    for dtype in SERVED_DTYPES:
        array = array_of(dtype) if dtype != "float16" else np.zeros([2, 0], dtype)
        datatype = "BYTES" if dtype == "string" else np_to_triton_dtype(array.dtype)
        made = request.inputs.add(name=f"of_{dtype}", datatype=datatype, shape=array.shape)
        field = {"bool": "bool", "int64": "int64", "uint64": "uint64", "float32": "fp32", "float64": "fp64"}.get(
            dtype, "bytes" if dtype == "string" else "uint" if dtype.startswith("u") else "int"
        )
        if dtype != "float16":
            getattr(made.contents, f"{field}_contents").extend(array.ravel().tolist())
    with pytest.raises(grpc.RpcError, match="FP16 goes in raw_input_contents only"):
        stub.ModelInfer(request)
    request.model_name = "add"
    del request.inputs[:]
    for name in "ab":
        made = request.inputs.add(name=name, datatype="INT64", shape=[2])
        made.contents.int64_contents.extend([1, 2])
    reply = stub.ModelInfer(request)
    assert np.frombuffer(reply.raw_output_contents[0], np.int64).tolist() == [2, 4]
    request.inputs[0].contents.int64_contents.append(3)
    with pytest.raises(grpc.RpcError, match="3 elements in int64_contents"):
        stub.ModelInfer(request)


def test_outputs_subset_and_order(client):
    inputs = [tensor("b", np.int64([3])), tensor("a", np.int64([1]))]
    wanted = [triton.InferRequestedOutput("difference"), triton.InferRequestedOutput("sum")]
    response = client.infer("add", inputs, outputs=wanted).get_response()
    assert [output.name for output in response.outputs] == ["difference", "sum"]
    with pytest.raises(InferenceServerException, match="unknown output 'nothing'"):
        client.infer("add", inputs, outputs=[triton.InferRequestedOutput("nothing")])


def test_no_examples(client):
    assert client.infer("matrix", [tensor("m", np.zeros([0, 2, 3], np.float32))]).as_numpy("double").shape == (0, 0, 3)


@pytest.mark.parametrize(
    ("model", "version", "inputs", "status", "sentence"),
    [
        ("nobody", "", {"a": [1]}, "NOT_FOUND", "no model 'nobody'"),
        ("add", "9", {"a": [1]}, "NOT_FOUND", "no version '9'"),
        ("add", "", {"a": [1]}, "INVALID_ARGUMENT", "missing input 'b'"),
        ("add", "", {"a": [1], "b": [1, 2]}, "INVALID_ARGUMENT", "differ in their number of examples"),
        ("add", "", {"a": [[1]], "b": [[1]]}, "INVALID_ARGUMENT", r"expected INT64 of shape \[n\]"),
        ("add", "", {"a": [1, -1], "b": [1, 2]}, "INVALID_ARGUMENT", "row 1: a must not be negative"),
        ("add", "", {"a": [1] * 101, "b": [1] * 101}, "RESOURCE_EXHAUSTED", "101 examples"),
    ],
)
def test_errors(client, model, version, inputs, status, sentence):
    arrays = [tensor(name, np.int64(values)) for name, values in inputs.items()]
    with pytest.raises(InferenceServerException, match=sentence) as caught:
        client.infer(model, arrays, model_version=version)
    assert caught.value.status() == f"StatusCode.{status}"


def test_raw_contents_that_do_not_fit(stub):
    request = service_pb2.ModelInferRequest(model_name="half_plus_three")
    made = request.inputs.add(name="x", datatype="FP32", shape=[2])
    for raw, sentence in (
        ([b"1234567"], "takes 8 bytes, got 7"),
        ([b"12345678", b""], "for each of 1 inputs, got 2"),
    ):
        del request.raw_input_contents[:]
        request.raw_input_contents.extend(raw)
        with pytest.raises(grpc.RpcError, match=sentence):
            stub.ModelInfer(request)
    del request.raw_input_contents[1:]
    made.contents.fp32_contents.extend([1, 2])
    with pytest.raises(grpc.RpcError, match="has contents, though raw_input_contents came"):
        stub.ModelInfer(request)


def test_a_thousand_mutated_messages(served, stub):
    """Never INTERNAL, and right answers in between."""
    right = service_pb2.ModelInferRequest(model_name="add", id="1")
    for name in "ab":
        right.inputs.add(name=name, datatype="INT64", shape=[2])
        right.raw_input_contents.append(np.int64([1, 2]).tobytes())
    right.parameters["priority"].int64_param = 1
    generator = random.Random(7)
    codes = set()
    with grpc.insecure_channel(served.grpc) as channel:
        send = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for number in range(1000):
            message = bytearray(right.SerializeToString())
            for _ in range(generator.choice((1, 1, 2, 3))):
                at = generator.randrange(len(message))
                message[at : at + generator.choice((0, 1, 1, 4))] = generator.randbytes(generator.choice((0, 1, 1, 2)))
            try:
                send(bytes(message))
            except grpc.RpcError as error:
                codes.add(error.code())
            if number % 100 == 0:
                reply = stub.ModelInfer(right)
                assert np.frombuffer(reply.raw_output_contents[0], np.int64).tolist() == [2, 4]
    assert grpc.StatusCode.INVALID_ARGUMENT in codes
    assert codes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_a_message_that_is_too_large(client):
    with pytest.raises(InferenceServerException) as caught:
        client.infer("matrix", [tensor("m", np.zeros([1, LIMIT_BYTES // 12 + 1, 3], np.float32))])
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    assert client.is_server_live()


def test_deadlines_of_the_request_and_of_the_call(client):
    x = [tensor("x", np.ones([1, 1], np.float32))]
    with pytest.raises(InferenceServerException, match="no answer before the deadline") as caught:
        client.infer("slow", x, timeout=1)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    with pytest.raises(InferenceServerException) as caught:
        client.infer("slow", x, client_timeout=0.05)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert client.infer("slow", x, priority=3).as_numpy("output").tolist() == [[2]]


def test_a_call_that_is_cancelled_is_counted_as_left(client, served):
    labels = {"model": "slow", "version": "1", "signature": "predict", "engine": "fake", "code": "499"}
    before = served.service.registry.get_sample_value("batchd_requests_total", labels) or 0
    x = [tensor("x", np.ones([1, 1], np.float32))]
    context = client.async_infer("slow", x, callback=lambda result, error: None)
    time.sleep(0.1)
    context.cancel()
    give_up_at = time.monotonic() + 5
    while (served.service.registry.get_sample_value("batchd_requests_total", labels) or 0) == before:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_many_in_flight_each_get_their_own(client):
    answers: queue.Queue = queue.Queue()
    for index in range(64):
        arrays = [tensor("a", np.int64([index])), tensor("b", np.int64([7 * index]))]
        client.async_infer(
            "add", arrays, callback=lambda result, error, index=index: answers.put((index, result, error))
        )
    for _ in range(64):
        index, result, error = answers.get(timeout=10)
        assert error is None
        assert result.as_numpy("sum").tolist() == [8 * index]


async def test_the_asyncio_client(served):
    async with triton_aio.InferenceServerClient(served.grpc) as client:
        assert await client.is_server_ready()
        result = await client.infer("add", [tensor(name, np.int64([1, 2])) for name in "ab"])
        assert result.as_numpy("sum").tolist() == [2, 4]


def test_streams_are_refused_with_a_sentence(client):
    refused = threading.Event()
    heard: list[InferenceServerException] = []

    def callback(result: object, error: InferenceServerException) -> None:
        heard.append(error)
        refused.set()

    client.start_stream(callback)
    assert refused.wait(5)
    client.stop_stream()
    assert "streams aren't served" in heard[0].message()


def test_methods_that_are_not_there(client):
    with pytest.raises(InferenceServerException) as caught:
        client.get_system_shared_memory_status()
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
