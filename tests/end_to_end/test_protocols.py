"""One real model, asked in every protocol by its own clients; all answers are the function's."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.support.serving import SERVICES, Serving, serving

IDS = np.int32([[0, 1], [2, 3], [4, 4]])
SCALES = np.float32([1, -2, 0.5])
TAGS = np.array([b"a", b"", "ключ".encode()], object)
TOTALS = [[1.0, 2.0], [-10.0, -12.0], [4.0, 4.5]]


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving(SERVICES / "guarded.py", "--xla", "off", "--grpc-port", "0") as server:
        yield server


def grpc_address(server: Serving) -> str:
    found = re.search(r"listens for gRPC on (\S+)", server.log.read_text())
    assert found
    return found[1]


def inputs(triton, ids=IDS, **how) -> list:
    made = []
    for name, array, datatype in (("ids", ids, "INT32"), ("scale", SCALES, "FP32"), ("tag", TAGS, "BYTES")):
        tensor = triton.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array, **how)
        made.append(tensor)
    return made


def check(result) -> None:
    np.testing.assert_allclose(result.as_numpy("total"), TOTALS)
    assert result.as_numpy("tag").tolist() == TAGS.tolist()


@pytest.mark.parametrize("binary", [True, False])
def test_v2(server, binary):
    with triton_http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        assert client.is_model_ready("guarded")
        metadata = client.get_model_metadata("guarded")
        assert metadata["inputs"][0] == {"name": "ids", "datatype": "INT32", "shape": [-1, -1]}
        outputs = [triton_http.InferRequestedOutput(name, binary_data=binary) for name in ("total", "tag")]
        result = client.infer("guarded", inputs(triton_http, binary_data=binary))
        check(result)
        texts = client.infer("guarded", inputs(triton_http, binary_data=binary), outputs=outputs).as_numpy("tag")
        assert [each if isinstance(each, bytes) else each.encode() for each in texts] == TAGS.tolist()
        with pytest.raises(InferenceServerException, match=r"row 1: .*9 is not in \[0, 5\)"):
            client.infer("guarded", inputs(triton_http, np.int32([[0, 1], [9, 0], [1, 1]]), binary_data=binary))


def test_grpc(server):
    with triton_grpc.InferenceServerClient(grpc_address(server)) as client:
        assert client.is_server_ready()
        check(client.infer("guarded", inputs(triton_grpc)))
        with pytest.raises(InferenceServerException, match=r"row 1: .*9 is not in \[0, 5\)"):
            client.infer("guarded", inputs(triton_grpc, np.int32([[0, 1], [9, 0], [1, 1]])))


def test_tensorflow_serving(server):
    instances = [
        {"ids": ids, "scale": scale, "tag": tag.decode()}
        for ids, scale, tag in zip([[0, 1], [2, 3, 1], []], SCALES.tolist(), TAGS, strict=True)
    ]
    reply = server.client.post("/v1/models/guarded:predict", json={"instances": instances})
    assert reply.status_code == 200, reply.text
    predictions = reply.json()["predictions"]
    alone = [server.predict("guarded", instance).json()["outputs"] for instance in instances]
    assert predictions == alone
    columns = {"ids": IDS.tolist(), "scale": SCALES.tolist(), "tag": [tag.decode() for tag in TAGS]}
    outputs = server.client.post("/v1/models/guarded:predict", json={"inputs": columns}).json()["outputs"]
    np.testing.assert_allclose(outputs["total"], TOTALS)


def test_a_stop_answers_what_was_asked_over_grpc(server):
    """Last, since it ends the server."""
    answered, asked = [], threading.Event()
    with triton_grpc.InferenceServerClient(grpc_address(server)) as client:

        def ask() -> None:
            while True:
                try:
                    check(client.infer("guarded", inputs(triton_grpc)))
                except InferenceServerException as error:
                    answered.append(error)
                    return
                answered.append(None)
                asked.set()

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(20)
        server.process.send_signal(signal.SIGTERM)
        started_at = time.monotonic()
        assert server.process.wait(20) == 0
        assert time.monotonic() - started_at < 10
        thread.join(20)
    # What arrives in the moment of closing, gRPC itself cancels: no call of it was made.
    assert answered[-1].status() in ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED")
    assert all(answer is None for answer in answered[:-1])
