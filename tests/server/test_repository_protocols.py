"""Triton's own clients load, unload and list models, over HTTP and gRPC, blocking and not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

from server.errors import ModelLoadError
from tests.support.fake_files import FakeFiles, FakeModel
from tests.support.protocol_service import Background, protocol_service

KINDS = ["http", "http.aio", "grpc", "grpc.aio"]
VERSIONS = [FakeModel(version="1"), FakeModel(version="2", times=3)]


@pytest.fixture
def served() -> Iterator[Background]:
    with protocol_service(engines=FakeFiles({"file.py": VERSIONS})) as served:
        yield served


class Client:
    """One of Triton's clients; all are called in the same way here."""

    def __init__(self, served: Background, kind: str) -> None:
        protocol, _, is_async = kind.partition(".")
        modules = {"http": triton_http, "grpc": triton_grpc, "http.aio": triton_http_aio, "grpc.aio": triton_grpc_aio}
        self._module = modules[kind]
        self._is_async = bool(is_async)
        self._client = self._module.InferenceServerClient(getattr(served, protocol))
        self._as_json = {"as_json": True} if protocol == "grpc" else {}

    async def call(self, method: str, *arguments: object, **more: object) -> object:
        answer = getattr(self._client, method)(*arguments, **more)
        return await answer if self._is_async else answer

    async def index(self) -> list[tuple[str, str]]:
        index = await self.call("get_model_repository_index", **self._as_json)
        listed = index["models"] if isinstance(index, dict) else index
        return [(each["version"], f"{each['state']} {each.get('reason', '')}".strip()) for each in listed]

    async def infer(self, version: str = "") -> tuple[str, float]:
        tensor = self._module.InferInput("x", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.float32([[1]]))
        result = await self.call("infer", "m", [tensor], model_version=version)
        response = result.get_response()
        answered_by = response["model_version"] if isinstance(response, dict) else response.model_version
        return answered_by, float(result.as_numpy("output")[0, 0])

    async def close(self) -> None:
        await self.call("close")


@pytest.mark.parametrize("kind", KINDS)
async def test_load_unload_and_index(served, kind):
    client = Client(served, kind)
    files = served.service.engines
    assert await client.index() == [("1", "READY"), ("2", "READY")]
    assert [await client.infer(version) for version in ("1", "2", "")] == [("1", 2), ("2", 3), ("2", 3)]
    files.write("file.py", FakeModel(version="3", times=4))
    await client.call("load_model", "m")
    assert await client.infer() == ("3", 4)
    with pytest.raises(InferenceServerException, match=r"no version '2'; served here: version '3'|is unloading"):
        await client.infer("2")
    files.write("file.py", FakeModel(version="4", load_error=ModelLoadError("broken at file.py:3")))
    with pytest.raises(InferenceServerException, match=r"broken at file.py:3; version '3' goes on serving"):
        await client.call("load_model", "m")
    assert (await client.index())[0] == ("3", "READY the last load failed: broken at file.py:3")
    await client.call("unload_model", "m", unload_dependents=True)
    assert await client.index() == [("3", "UNAVAILABLE unloaded")]
    assert not await client.call("is_model_ready", "m")
    assert await client.call("is_server_ready")
    with pytest.raises(InferenceServerException, match="is unloaded"):
        await client.infer()
    with pytest.raises(InferenceServerException, match="no model 'nobody'"):
        await client.call("load_model", "nobody")
    with pytest.raises(InferenceServerException, match="the file that the server was started with"):
        await client.call("load_model", "m", config='{"backend": "python"}')
    files.write("file.py", FakeModel(version="4"))
    await client.call("load_model", "m")
    assert (await client.index(), await client.infer("4")) == ([("4", "READY")], ("4", 2))
    await client.close()
