"""Tokens over gRPC: each call has its right, and refusals have gRPC's own codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from server.access import Access
from server.grpc.guard import RIGHTS
from server.grpc.messages import MESSAGES
from server.tokens import TokenFile
from tests.support.protocol_service import Background, protocol_service

TOKENS = {right: f"the-token-with-{right}" for right in ("predict", "metrics", "admin")}
REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
SERVICE = "/inference.GRPCInferenceService"


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Background]:
    path: Path = tmp_path_factory.mktemp("access") / "tokens"
    path.write_text("".join(f"{right} {token}\n" for right, token in TOKENS.items()))
    path.chmod(0o600)
    with protocol_service(Access(tokens=TokenFile(path))) as served:
        yield served


@pytest.fixture(scope="module")
def channel(served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.grpc) as channel:
        yield channel


def code_of(channel: grpc.Channel, call: str, *authorization: str) -> grpc.StatusCode:
    """What comes of an empty message."""
    metadata = [("authorization", value) for value in authorization]
    kind = channel.stream_stream if call == "ModelStreamInfer" else channel.unary_unary
    message = iter([b""]) if call == "ModelStreamInfer" else b""
    try:
        reply = kind(f"{SERVICE}/{call}")(message, metadata=metadata, timeout=20)
        if call == "ModelStreamInfer":
            list(reply)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_the_table_has_every_call():
    requests = {name.removesuffix("Request") for name in MESSAGES if name.endswith("Request")}
    assert set(RIGHTS) == requests | {"ModelStreamInfer"}
    assert {call for call, right in RIGHTS.items() if right is None} == {"ServerLive", "ServerReady", "ModelReady"}
    assert {call for call, right in RIGHTS.items() if right == "admin"} == {
        "RepositoryModelLoad",
        "RepositoryModelUnload",
    }


@pytest.mark.parametrize("call", RIGHTS)
def test_each_call_needs_its_right(channel, call):
    needed = RIGHTS[call]
    for authorization in ((), ("Bearer no-such-token-here",), ("Basic x",), (f"Bearer {TOKENS['predict']}",) * 2):
        code = code_of(channel, call, *authorization)
        assert (code is grpc.StatusCode.UNAUTHENTICATED) == (needed is not None)
    for right, token in TOKENS.items():
        code = code_of(channel, call, f"Bearer {token}")
        assert (code is grpc.StatusCode.PERMISSION_DENIED) == (needed not in (None, right))
        assert code is not grpc.StatusCode.UNAUTHENTICATED


def test_what_is_no_call_needs_no_token(channel):
    assert code_of(channel, "Nothing") is grpc.StatusCode.UNIMPLEMENTED


def test_tritons_client_shows_a_token(served):
    x = triton.InferInput("x", [1], "FP32")
    x.set_data_from_numpy(np.float32([2]))
    with triton.InferenceServerClient(served.grpc) as client:
        assert client.is_server_ready()
        with pytest.raises(InferenceServerException, match="this needs a token") as caught:
            client.infer("half_plus_three", [x])
        assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        shown = {"authorization": f"Bearer {TOKENS['predict']}"}
        assert client.infer("half_plus_three", [x], headers=shown).as_numpy("y").tolist() == [4.0]
        with pytest.raises(InferenceServerException, match="doesn't have the right 'metrics'"):
            client.get_inference_statistics(headers=shown)


@pytest.mark.parametrize(
    ("access", "metadata", "refused"),
    [
        (Access(address="0.0.0.0"), [], True),
        (Access(), [], False),
        (Access(), [("origin", "https://evil.example")], True),
        (Access(), [("x-forwarded-for", "203.0.113.9")], True),
        (Access(admin="off"), [], True),
    ],
)
def test_admin_without_tokens(access, metadata, refused):
    with protocol_service(access) as served, grpc.insecure_channel(served.grpc) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{SERVICE}/RepositoryModelLoad")(b"\x12\x01a", metadata=metadata, timeout=20)
        assert (caught.value.code() is grpc.StatusCode.PERMISSION_DENIED) == refused
        assert code_of(channel, "ServerMetadata") is grpc.StatusCode.OK
