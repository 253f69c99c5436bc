"""Request ids and log lines over gRPC."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2

from server.logs import JsonFormatter
from tests.support.protocol_service import Background, protocol_service


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service(access_log="all") as served:
        yield served


@pytest.fixture
def stub(served) -> Iterator[object]:
    with grpc.insecure_channel(served.grpc) as channel:
        yield triton.service_pb2_grpc.GRPCInferenceServiceStub(channel)


def infer_request(value: float, model: str = "half_plus_three") -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name=model, id="theirs")
    request.inputs.add(name="x", shape=[1], datatype="FP32")
    request.raw_input_contents.append(np.float32([value]).tobytes())
    return request


def trailing(call: grpc.Call) -> dict[str, str]:
    return dict(call.trailing_metadata())


def test_every_call_echoes_the_id(stub):
    given = (("x-request-id", "mine"),)
    answer, call = stub.ModelInfer.with_call(infer_request(1), metadata=given)
    assert (answer.id, trailing(call)["x-request-id"]) == ("theirs", "mine")
    assert "x-batchd-batch-size" in trailing(call)
    for method, message in (
        ("ServerLive", service_pb2.ServerLiveRequest()),
        ("ModelMetadata", service_pb2.ModelMetadataRequest(name="add")),
        ("ModelStatistics", service_pb2.ModelStatisticsRequest()),
        ("RepositoryIndex", service_pb2.RepositoryIndexRequest()),
    ):
        _, call = getattr(stub, method).with_call(message, metadata=given)
        assert trailing(call)["x-request-id"] == "mine"


def test_errors_echo_it_too(stub):
    given = (("x-request-id", "mine"),)
    for method, message in (
        ("ModelInfer", infer_request(1, "nobody")),
        ("ModelInfer", service_pb2.ModelInferRequest(model_name="add")),
        ("ModelReady", service_pb2.ModelReadyRequest(name="nobody")),
        ("ModelReady", service_pb2.ModelReadyRequest(name="nobody")),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            getattr(stub, method)(message, metadata=given)
        assert trailing(refused.value)["x-request-id"] == "mine"
    with pytest.raises(grpc.RpcError) as refused:
        list(stub.ModelStreamInfer(iter([infer_request(1)]), metadata=given))
    assert trailing(refused.value)["x-request-id"] == "mine"


def test_ids_that_arent_safe_are_replaced(stub):
    made = set()
    for id in ("two words", "x" * 200, None):
        metadata = () if id is None else (("x-request-id", id),)
        _, call = stub.ServerLive.with_call(service_pb2.ServerLiveRequest(), metadata=metadata)
        made.add(trailing(call)["x-request-id"])
    assert len(made) == 3
    assert not made & {"two words", "x" * 200}


def test_each_call_has_a_line(stub, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    lines: list[dict] = []
    caplog.handler.addFilter(lambda record: lines.append(json.loads(JsonFormatter().format(record))) or True)
    parent = ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01")
    stub.ModelInfer(infer_request(1), metadata=(("x-request-id", "r1"), parent))
    with pytest.raises(grpc.RpcError):
        stub.ModelInfer(infer_request(1, "nobody"), metadata=(("x-request-id", "r2"),))
    give_up_at = time.monotonic() + 5
    while sum(line["logger"] == "batchd.access" for line in lines) < 2 and time.monotonic() < give_up_at:
        time.sleep(0.01)  # a line is written after the reply is sent
    answered, refused = [line for line in lines if line["logger"] == "batchd.access"]
    told = {"request_id": "r1", "trace_id": "a" * 32, "protocol": "grpc", "status": 200, "batch_size": 1}
    assert answered | told | {"model": "half_plus_three"} == answered
    assert answered["message"] == "ModelInfer /inference.GRPCInferenceService/ModelInfer 200"
    assert refused | {"request_id": "r2", "status": 404, "reason": "unknown_model"} == refused
