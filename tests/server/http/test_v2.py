"""The Open Inference Protocol over REST, spoken by Triton's own client, and raw where that client can't misbehave."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from server.registry import SERVED_DTYPES
from tests.support.protocol_service import LIMIT_BYTES, Background, protocol_service

VALUES = {
    "bool": [True, False, True],
    **{f"int{bits}": [-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": [0, 1, 2**bits - 1] for bits in (8, 16, 32, 64)},
    **{f"float{bits}": [0.1, -2.5, 1e4] for bits in (16, 32, 64)},
    "string": [b"a", b"", "ключ".encode()],
}


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


@pytest.fixture(scope="module")
def client(served) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(served.http, concurrency=8) as client:
        yield client


@pytest.fixture(scope="module")
def raw(served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}") as raw:
        yield raw


def array_of(dtype: str, rows: int = 2) -> np.ndarray:
    return np.array([VALUES[dtype]] * rows, object if dtype == "string" else dtype)


def tensor(name: str, array: np.ndarray, binary: bool = True) -> triton.InferInput:
    datatype = "BYTES" if array.dtype == object else np_to_triton_dtype(array.dtype)
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def doubled(raw: httpx.Client, body: dict | bytes, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return raw.post("/v2/models/matrix/infer", content=content, headers=headers)


def one_input(data: object, shape: list[int], datatype: str = "FP32", **more: object) -> dict:
    return {"inputs": [{"name": "m", "shape": shape, "datatype": datatype, "data": data}], **more}


def test_health_metadata_and_configuration(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("matrix")
    assert client.is_model_ready("matrix", "1")
    assert not client.is_model_ready("matrix", "2")
    assert not client.is_model_ready("nobody")
    metadata = client.get_server_metadata()
    assert metadata["name"] == "batchd"
    assert {"binary_tensor_data", "statistics"} <= set(metadata["extensions"])
    model = client.get_model_metadata("matrix")
    assert model["versions"] == ["1"]
    assert model["inputs"] == [{"name": "m", "datatype": "FP32", "shape": [-1, -1, 3]}]
    assert client.get_model_metadata("matrix", "1") == model
    config = client.get_model_config("matrix")
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (8, [-1, 3])
    assert config["input"][0]["data_type"] == "TYPE_FP32"


def test_repository(client):
    index = client.get_model_repository_index()
    assert {"name": "matrix", "version": "1", "state": "READY", "reason": ""} in index
    for more in ({"config": "{}"}, {"files": {"file:1/model.py": b"x"}, "config": "{}"}):
        with pytest.raises(InferenceServerException, match="loaded from the file that the server was started with"):
            client.load_model("matrix", **more)


def test_statistics_count_requests_examples_and_batches(client):
    def read() -> dict:
        return client.get_inference_statistics("half_plus_three")["model_stats"][0]

    before = read()
    for _ in range(3):
        client.infer("half_plus_three", [tensor("x", np.float32([1, 2]))])
    with pytest.raises(InferenceServerException):
        client.infer("half_plus_three", [tensor("x", np.float32([[1, 2]]))])
    after = read()
    assert after["inference_count"] - before["inference_count"] == 6
    assert after["execution_count"] - before["execution_count"] == 3
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 3
    assert after["inference_stats"]["fail"]["count"] - before["inference_stats"]["fail"]["count"] == 1
    assert after["inference_stats"]["compute_infer"]["ns"] > before["inference_stats"]["compute_infer"]["ns"]
    everything = client.get_inference_statistics()["model_stats"]
    assert len(everything) == 7


@pytest.mark.parametrize("dtype", SERVED_DTYPES)
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_every_dtype_in_json_and_binary_both_ways(raw, dtype, binary_in, binary_out):
    """Bytes made here and not by the client, whose JSON refuses half floats."""
    array = array_of(dtype)
    inputs, blobs = [], []
    for other in SERVED_DTYPES:
        asked = array if other == dtype else array_of(other)[:, :0]
        described = {"name": f"of_{other}", "shape": list(asked.shape), "datatype": _datatype(other)}
        if binary_in and other == dtype:
            blobs.append(_bytes(asked))
            described["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            described["data"] = [
                each.decode() if dtype == other == "string" else each for each in asked.ravel().tolist()
            ]
        inputs.append(described)
    head = json.dumps(
        {"inputs": inputs, "outputs": [{"name": f"back_{dtype}", "parameters": {"binary_data": binary_out}}]}
    ).encode()
    reply = raw.post(
        "/v2/models/echo/infer",
        content=head + b"".join(blobs),
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert reply.status_code == 200, reply.text
    size = int(reply.headers.get("inference-header-content-length", len(reply.content)))
    assert ("inference-header-content-length" in reply.headers) == binary_out
    [output] = json.loads(reply.content[:size])["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == (f"back_{dtype}", _datatype(dtype), [2, 3])
    if binary_out:
        assert output["parameters"] == {"binary_data_size": len(_bytes(array))}
        assert reply.content[size:] == _bytes(array)
    else:
        back = [each.encode() if dtype == "string" else each for each in output["data"]]
        np.testing.assert_array_equal(np.array(back, array.dtype), array.ravel())


def _datatype(dtype: str) -> str:
    return "BYTES" if dtype == "string" else np_to_triton_dtype(np.dtype(dtype))


def _bytes(array: np.ndarray) -> bytes:
    if array.dtype == object:
        return b"".join(len(text).to_bytes(4, "little") + text for text in array.flat)
    return array.tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype in SERVED_DTYPES if dtype != "float16"])
def test_every_dtype_by_the_client(client, dtype):
    inputs = [
        tensor(f"of_{other}", array_of(other), binary=other == "float16" or other != dtype) for other in SERVED_DTYPES
    ]
    for binary in (True, False):
        outputs = [triton.InferRequestedOutput(f"back_{dtype}", binary_data=binary)]
        back = client.infer("echo", inputs, outputs=outputs).as_numpy(f"back_{dtype}")
        assert [_as_bytes(each) for each in back.ravel()] == [_as_bytes(each) for each in array_of(dtype).ravel()]
    every = client.infer("echo", inputs)
    np.testing.assert_array_equal(every.as_numpy(f"back_{dtype}"), array_of(dtype))


def _as_bytes(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


def test_one_input_binary_and_one_json_and_the_id(client):
    inputs = [tensor("a", np.int64([1, 2]), binary=True), tensor("b", np.int64([3, 4]), binary=False)]
    result = client.infer("add", inputs, request_id="seven")
    assert result.as_numpy("sum").tolist() == [4, 6]
    assert result.as_numpy("difference").tolist() == [-2, -2]
    assert result.get_response()["id"] == "seven"
    assert (result.get_response()["model_name"], result.get_response()["model_version"]) == ("add", "1")


def test_outputs_subset_and_order(client, raw):
    inputs = [tensor("b", np.int64([3])), tensor("a", np.int64([1]))]
    wanted = [triton.InferRequestedOutput("difference"), triton.InferRequestedOutput("sum", binary_data=False)]
    response = client.infer("add", inputs, outputs=wanted).get_response()
    assert [output["name"] for output in response["outputs"]] == ["difference", "sum"]
    assert client.infer("add", inputs, outputs=wanted[:1]).as_numpy("sum") is None
    body = {
        "inputs": [{"name": name, "shape": [1], "datatype": "INT64", "data": [1]} for name in "ab"],
        "outputs": [{"name": "nothing"}],
    }
    reply = raw.post("/v2/models/add/infer", json=body)
    assert (reply.status_code, "unknown output 'nothing'" in reply.text) == (400, True)
    reply = raw.post("/v2/models/add/infer", json=body | {"outputs": [{"name": "sum"}] * 2})
    assert (reply.status_code, "asked for twice" in reply.text) == (400, True)


def test_texts_empty_and_not_utf8(client, raw):
    texts = np.array([b"", b"\xff\xfe", b"abc"], object)
    result = client.infer("shout", [tensor("text", texts)])
    assert result.as_numpy("text").tolist() == [b"", b"\xff\xfe", b"ABC"]
    with pytest.raises(InferenceServerException, match="not UTF-8"):
        client.infer("shout", [tensor("text", texts)], outputs=[triton.InferRequestedOutput("text", binary_data=False)])
    body = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [{"b64": "YWI="}]}]}
    assert raw.post("/v2/models/shout/infer", json=body).json()["outputs"][0]["data"] == ["AB"]


def test_no_examples_and_examples_without_elements(client):
    for shape in ((0, 2, 3), (2, 0, 3)):
        for binary in (True, False):
            wanted = [triton.InferRequestedOutput("double", binary_data=binary)]
            result = client.infer("matrix", [tensor("m", np.zeros(shape, np.float32), binary)], outputs=wanted)
            [output] = result.get_response()["outputs"]
            assert output["shape"] == ([0, 0, 3] if shape[0] == 0 else list(shape))


def test_data_may_be_nested_or_flat(raw):
    nested = doubled(raw, one_input([[[1, 2, 3]], [[4, 5, 6.5]]], [2, 1, 3])).json()
    flat = doubled(raw, one_input([1, 2, 3, 4, 5, 6.5], [2, 1, 3])).json()
    assert nested == flat
    assert flat["outputs"][0]["data"] == [2, 4, 6, 8, 10, 13]


def test_what_is_not_finite_is_a_token(client, raw):
    array = np.float32([[[np.nan, np.inf, -np.inf]]])
    for binary in (True, False):
        wanted = [triton.InferRequestedOutput("double", binary_data=binary)]
        back = client.infer("matrix", [tensor("m", array, binary)], outputs=wanted).as_numpy("double")
        np.testing.assert_array_equal(back.ravel(), array.ravel())
    reply = doubled(raw, b'{"inputs":[{"name":"m","shape":[1,1,3],"datatype":"FP32","data":[NaN,-Infinity,1]}]}')
    assert reply.text.endswith('"data":[NaN,-Infinity,2.0]}]}')


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_both_ways(client, raw, algorithm):
    array = np.ones([4, 200, 3], np.float32)
    result = client.infer(
        "matrix",
        [tensor("m", array)],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    np.testing.assert_array_equal(result.as_numpy("double"), 2 * array)
    body = json.dumps(one_input(array.ravel().tolist(), [4, 200, 3])).encode()
    packed = gzip.compress(body) if algorithm == "gzip" else zlib.compress(body)
    reply = doubled(raw, packed, **{"content-encoding": algorithm, "accept-encoding": algorithm})
    assert (reply.status_code, reply.headers["content-encoding"]) == (200, algorithm)
    assert int(reply.headers["content-length"]) < len(reply.content) / 5
    small = doubled(raw, one_input([1, 2, 3], [1, 1, 3]), **{"accept-encoding": algorithm})
    assert "content-encoding" not in small.headers


def test_a_body_that_becomes_too_large_is_not_decompressed(raw):
    bomb = gzip.compress(b" " * (LIMIT_BYTES + 1))
    assert len(bomb) < 10_000
    reply = doubled(raw, bomb, **{"content-encoding": "gzip"})
    assert (reply.status_code, "decompressed body is larger" in reply.text) == (413, True)
    for path in ("/predict/matrix", "/v1/models/matrix:predict", "/v2/repository/index"):
        assert raw.post(path, content=bomb, headers={"content-encoding": "gzip"}).status_code == 413


@pytest.mark.parametrize(
    ("body", "encoding", "status", "sentence"),
    [
        (b"{}", "br", 415, "content-encoding 'br' is not known"),
        (b"{}", "gzip", 400, "can't be decompressed as gzip"),
        (gzip.compress(b"{}", mtime=0)[:-4], "gzip", 400, "its end is missing"),
        (gzip.compress(b"{}", mtime=0) + b"x", "gzip", 400, "something follows its end"),
    ],
)
def test_wrongly_compressed(raw, body, encoding, status, sentence):
    reply = doubled(raw, body, **{"content-encoding": encoding})
    assert (reply.status_code, sentence in reply.json()["error"]) == (status, True)


def test_the_deadline_and_the_priority_are_the_requests(client):
    with pytest.raises(InferenceServerException, match="no answer before the deadline") as caught:
        client.infer("slow", [tensor("x", np.ones([1, 1], np.float32))], timeout=1)
    assert caught.value.status() == "504"
    assert client.infer("add", [tensor(name, np.int64([1])) for name in "ab"], priority=1).as_numpy("sum") == [2]


def test_many_in_flight_each_get_their_own(client):
    waiting = []
    for index in range(64):
        waiting.append(client.async_infer("add", [tensor("a", np.int64([index])), tensor("b", np.int64([7 * index]))]))
    for index, each in enumerate(waiting):
        assert each.get_result().as_numpy("sum").tolist() == [8 * index]


async def test_the_asyncio_client(served):
    async with triton_aio.InferenceServerClient(served.http) as client:
        assert await client.is_server_ready()

        async def ask(index: int) -> None:
            result = await client.infer("add", [tensor(name, np.int64([index])) for name in "ab"])
            assert result.as_numpy("sum").tolist() == [2 * index]

        await asyncio.gather(*map(ask, range(64)))
        with pytest.raises(InferenceServerException, match="no model 'nobody'"):
            await client.infer("nobody", [tensor("a", np.int64([1]))])


def test_a_request_of_more_rows_than_a_batch_and_of_more_than_may_wait(client):
    a = np.arange(50)
    result = client.infer("add", [tensor("a", a), tensor("b", a)])
    np.testing.assert_array_equal(result.as_numpy("sum"), 2 * a)
    a = np.arange(101)
    with pytest.raises(InferenceServerException, match="101 examples; at most 100 may wait at once") as caught:
        client.infer("add", [tensor("a", a), tensor("b", a)])
    assert caught.value.status() == "413"


def test_a_row_that_fails_fails_the_request_and_is_named(client):
    with pytest.raises(InferenceServerException, match="row 2: a must not be negative") as caught:
        client.infer("add", [tensor("a", np.int64([1, 2, -3])), tensor("b", np.int64([1, 1, 1]))])
    assert caught.value.status() == "400"


def test_rows_whose_outputs_differ_in_shape_are_no_tensor(client):
    assert client.infer("repeat", [tensor("n", np.int32([3, 3]))]).as_numpy("ones").shape == (2, 3)
    with pytest.raises(InferenceServerException, match="differs in shape between the rows"):
        client.infer("repeat", [tensor("n", np.int32([3, 4]))])


WRONG = [
    (b"", "the body is empty"),
    (b"{", "the body is not valid JSON"),
    (b"[" * 100_000, "the body doesn't fit"),
    (b'{"inputs":[{"name":"m","shape":[1,1,3],"datatype":"FP32","data":' + b"[" * 5000 + b"]" * 5000 + b"}]}", ""),
    (b"[]", "Expected `object`, got `array`"),
    (b"{}", "missing required field `inputs`"),
    ({"inputs": []}, "missing input 'm'"),
    ({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}, "unknown input 'x'"),
    (one_input([1, 2, 3], [1, 3]), "expected FP32 of shape [n, length, 3], got FP32 of shape [1, 3]"),
    (one_input([1, 2], [1, 1, 2]), "got FP32 of shape [1, 1, 2]"),
    (one_input([1, 2, 3], [1, 1, 3], "INT32"), "got INT32 of shape [1, 1, 3]"),
    (one_input([1, 2, 3], [1, 1, 3], "BF16"), "got BF16 of shape [1, 1, 3]"),
    (one_input([], [0, -1, 3]), "got FP32 of shape [0, -1, 3]"),
    (one_input([], [0, 2**62, 3]), "got FP32 of shape [0, 4611686018427387904, 3]"),
    (one_input([1, 2], [1, 1, 3]), "shape [1, 1, 3] has 3 elements, its data 2"),
    (one_input([[[1, 2, 3]]], [1, 2, 3]), "its shape is [1, 2, 3], its data's [1, 1, 3]"),
    (one_input([[[1, 2, 3]], [[1, 2]]], [2, 1, 3]), "input 'm'"),
    (one_input([1, 2, True], [1, 1, 3]), "got bool at [2]"),
    (one_input([1, 2, None], [1, 1, 3]), "got null at [2]"),
    (one_input([1, 2, 1e39], [1, 1, 3]), "out of range for float32"),
    (b'{"inputs":[{"name":"m","shape":[1,1,3],"datatype":"FP32","data":[1,2,1e400]}]}', ""),
    (one_input("abc", [1, 1, 3]), "got string"),
    ({"inputs": [{"name": "m", "shape": [1, 1, 3], "datatype": "FP32"}]}, "neither data nor"),
    (one_input([1, 2, 3], [1, 1, 3], parameters={"timeout": -1}), "parameter 'timeout' must be a whole number"),
    (one_input([1, 2, 3], [1, 1, 3], parameters={"priority": "1"}), "parameter 'priority'"),
    (one_input([1, 2, 3], [1, 1, 3], parameters={"signature": 3}), "parameter 'signature'"),
    ({"inputs": 2 * one_input([1, 2, 3], [1, 1, 3])["inputs"]}, "an input stands twice"),
    (
        one_input([1, 2, 3], [1, 1, 3], outputs=[{"name": "double", "parameters": {"classification": 3}}]),
        "'classification' isn't supported",
    ),
]


@pytest.mark.parametrize(("body", "sentence"), WRONG)
def test_wrong_requests(raw, body, sentence):
    reply = doubled(raw, body)
    assert (reply.status_code, list(reply.json())) == (400, ["error"])
    assert sentence in reply.json()["error"]


def binary_request(size: object = 12, blob: bytes = bytes(12), length: object = None, **more: object) -> tuple:
    described = {"name": "m", "shape": [1, 1, 3], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [described | more]}).encode()
    return head + blob, str(len(head) if length is None else length)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (binary_request(length="x"), "must be a whole number"),
        (binary_request(length="-1"), "must be a whole number"),
        (binary_request(length=10**30), "but the body has"),
        (binary_request(length=0), "isn't supported"),
        (binary_request(length=1000), "Inference-Header-Content-Length is 1000, but the body has"),
        (binary_request(length=20), "the body is not valid JSON"),
        (binary_request(blob=bytes(8)), "expecting 4 additional bytes"),
        (binary_request(blob=bytes(13)), "1 bytes of binary data are left over"),
        (binary_request(size=8, blob=bytes(8)), "FP32 of shape [1, 1, 3] takes 12 bytes, got 8"),
        (binary_request(size=-1), "must be a number of bytes"),
        (binary_request(size="12"), "must be a number of bytes"),
        (binary_request(data=[1, 2, 3]), "both data and"),
    ],
)
def test_wrong_binary_requests(raw, request_, sentence):
    body, length = request_
    reply = doubled(raw, body, **{"inference-header-content-length": length})
    assert (reply.status_code, list(reply.json())) == (400, ["error"])
    assert sentence in reply.json()["error"]


@pytest.mark.parametrize(
    ("blob", "sentence"),
    [
        (b"\1\0\0\0a", "take more than the 5 bytes"),
        (b"\1\0\0\0a\5\0\0\0b", "take more than the 10 bytes"),
        (b"\1\0\0\0a\0\0\0\0\0", "1 bytes are left over after 2 elements"),
        (b"\xff\xff\xff\xff" * 2, "take more than"),
    ],
)
def test_wrong_binary_texts(raw, blob, sentence):
    described = {"name": "text", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(blob)}}
    head = json.dumps({"inputs": [described]}).encode()
    headers = {"inference-header-content-length": str(len(head))}
    reply = raw.post("/v2/models/shout/infer", content=head + blob, headers=headers)
    assert (reply.status_code, sentence in reply.json()["error"]) == (400, True)


def test_errors_reach_the_client_with_status_and_sentence(client, raw):
    for model, version, status, sentence in (
        ("nobody", "", "404", "no model 'nobody'"),
        ("add", "7", "404", "model 'add' has no version '7'; served here: version '1'"),
        ("matrix", "", "400", "missing input 'm'; unknown input 'a'"),
    ):
        with pytest.raises(InferenceServerException, match=sentence) as caught:
            client.infer(model, [tensor("a", np.int64([1]))], model_version=version)
        assert caught.value.status() == status
    for method, path, status in (
        ("GET", "/v2/models/add/infer", 405),
        ("POST", "/v2/models/add", 405),
        ("GET", "/v2/models/add/nothing", 404),
        ("POST", "/v2/models//infer", 404),
        ("GET", "/v2/models/nobody/config", 404),
        ("GET", "/v2/models/nobody/stats", 404),
        ("POST", "/v2/repository/nothing", 404),
    ):
        reply = raw.request(method, path)
        assert (reply.status_code, list(reply.json())) == (status, ["error"]), path


def test_limits(raw, client):
    reply = doubled(raw, b"x" * (LIMIT_BYTES + 1))
    assert (reply.status_code, list(reply.json())) == (413, ["error"])
    reply = doubled(raw, one_input([0] * 300_000, [1, 100_000, 3]))
    assert (reply.status_code, "more than 100000 values" in reply.text) == (413, True)
    many = np.full([100_001], b"", object)
    with pytest.raises(InferenceServerException, match="more than 100000 texts") as caught:
        client.infer("shout", [tensor("text", many)])
    assert caught.value.status() == "413"
    large = np.zeros([1, 300_000, 3], np.float32)
    assert client.infer("matrix", [tensor("m", large)]).as_numpy("double").shape == large.shape
