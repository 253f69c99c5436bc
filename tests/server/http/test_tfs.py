"""TensorFlow Serving's REST API, as its clients and its documentation have it."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from server.model_description import TensorDescription
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import running
from tests.support.protocol_service import Background, protocol_service

HALF = "/v1/models/half_plus_three"


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


@pytest.fixture(scope="module")
def client(served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}") as client:
        yield client


def predict(client: httpx.Client, model: str, content: str | bytes) -> httpx.Response:
    return client.post(f"/v1/models/{model}:predict", content=content)


def test_the_example_of_the_documentation(client):
    reply = client.post(f"{HALF}:predict", json={"instances": [1.0, 2.0, 5.0]})
    assert (reply.status_code, reply.json()) == (200, {"predictions": [3.5, 4.0, 5.5]})
    assert reply.headers["content-type"] == "application/json"
    assert int(reply.headers["x-batchd-batch-size"]) == 3


@pytest.mark.parametrize(
    "path",
    [
        f"{HALF}:predict",
        f"{HALF}/versions/1:predict",
        f"{HALF}/labels/1:predict",
        "/V1/Models/half_plus_three:PREDICT",
        "/v1/MODELS/half_plus_three/Versions/1:Predict",
    ],
)
def test_paths_whatever_their_case(client, path):
    assert client.post(path, json={"instances": [1.0]}).json() == {"predictions": [3.5]}


def test_rows_and_columns_say_the_same(client):
    rows = predict(client, "add", '{"instances": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]}').json()
    assert rows == {"predictions": [{"sum": 3, "difference": -1}, {"sum": 7, "difference": -1}]}
    columns = predict(client, "add", '{"inputs": {"a": [1, 3], "b": [2, 4]}}').json()
    assert columns == {"outputs": {"sum": [3, 7], "difference": [-1, -1]}}


def test_a_single_input_may_be_named_or_not(client):
    for body in ('{"instances": [1, {"x": 2}]}', '{"instances": [{"x": 1}, {"x": 2}]}', '{"instances": [1, 2.0]}'):
        assert predict(client, "half_plus_three", body).json() == {"predictions": [3.5, 4.0]}
    for body in ('{"inputs": [1, 2]}', '{"inputs": {"x": [1, 2]}}', '{"inputs": {"x": [1, 2], "more": 0}}'):
        assert predict(client, "half_plus_three", body).json() == {"outputs": [3.5, 4.0]}
    assert predict(client, "half_plus_three", '{"inputs": []}').json() == {"outputs": []}


def test_texts_and_bytes(client):
    not_utf8 = base64.b64encode(b"\xff").decode()
    body = {"instances": ["ab", {"b64": base64.b64encode(b"cd").decode()}, {"text": {"b64": not_utf8}}, ""]}
    predictions = client.post("/v1/models/shout:predict", json=body).json()["predictions"]
    assert [each["text"] for each in predictions] == ["AB", "CD", {"b64": not_utf8}, ""]
    assert [base64.b64decode(each["text_bytes"]["b64"]) for each in predictions] == [b"AB", b"CD", b"\xff", b""]
    columns = predict(client, "shout", '{"inputs": {"text": ["a", "b"]}}').json()["outputs"]
    assert columns == {"text": ["A", "B"], "text_bytes": [{"b64": "QQ=="}, {"b64": "Qg=="}]}


def test_instances_may_differ_in_shape(client):
    ragged = "[[[1, 2, 3]], [[4, 5, 6], [7, 8, 9]], []]"
    doubled = [[[2.0, 4.0, 6.0]], [[8.0, 10.0, 12.0], [14.0, 16.0, 18.0]], []]
    assert predict(client, "matrix", f'{{"instances": {ragged}}}').json() == {"predictions": doubled}
    assert predict(client, "matrix", f'{{"inputs": {{"m": {ragged}}}}}').json() == {"outputs": doubled}
    assert predict(client, "repeat", '{"instances": [1, 3]}').json() == {"predictions": [[1.0], [1.0, 1.0, 1.0]]}


def test_floats_are_short_and_never_look_like_integers(client):
    reply = predict(client, "matrix", '{"instances": [[[1, 0.05, 3e-7]]]}')
    assert reply.text == '{"predictions":[[[2.0,0.1,6e-7]]]}'


def test_what_is_not_finite_is_a_token_both_ways(client):
    reply = predict(client, "matrix", '{"instances": [[[NaN, Infinity, -Infinity]], [[1, 2, 3]]]}')
    assert reply.text == '{"predictions":[[[NaN,Infinity,-Infinity]],[[2.0,4.0,6.0]]]}'
    [value] = predict(client, "half_plus_three", '{"instances": [NaN]}').json()["predictions"]
    assert math.isnan(value)
    assert predict(client, "shout", '{"instances": ["NaN \\" Infinity"]}').json()["predictions"][0]["text"] == (
        'NAN " INFINITY'
    )


@pytest.mark.parametrize(("nonfinite", "status"), [("null", 200), ("error", 400)])
async def test_what_is_not_finite_otherwise(nonfinite, status):
    description = describe("m", [TensorDescription("x", "float32", [])], [TensorDescription("y", "float32", [])])
    async with running(m=lambda: FakeEngine(lambda x: x * 2, description), nonfinite=nonfinite) as service:
        reply = await service.client.post("/v1/models/m:predict", content=b'{"instances": [Infinity]}')
        assert reply.status_code == status
        assert reply.json() == {"predictions": [None]} if status == 200 else "not finite" in reply.json()["error"]
        tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": ["NaN"]}
        reply = await service.client.post("/v2/models/m/infer", json={"inputs": [tensor]})
        assert reply.status_code == status


@pytest.mark.parametrize(
    ("model", "body", "status", "sentence"),
    [
        ("add", "", 400, "JSON Parse error: The document is empty"),
        ("add", "{", 400, "not valid JSON"),
        ("add", "[" * 100_000, 400, "the body doesn't fit"),
        ("add", '{"instances": ' + "[" * 5000 + "]" * 5000 + "}", 400, ""),
        ("add", "[]", 400, "Expected `object`"),
        ("add", "{}", 400, "Missing 'inputs' or 'instances' key"),
        ("add", '{"instances": [1], "inputs": [1]}', 400, "not both"),
        ("add", '{"instances": []}', 400, "'instances' is empty"),
        ("add", '{"instances": {}}', 400, "'instances' must be a list"),
        ("add", '{"instances": [{"a": 1, "b": 2}, {"a": 1}]}', 400, "instance 1: Missing named input: 'b'"),
        ("add", '{"instances": [{"a": 1, "b": 2, "c": 3}]}', 400, "instance 0: unknown input 'c'"),
        ("add", '{"instances": [3]}', 400, "instance 0: expected an object of the inputs 'a', 'b'"),
        ("add", '{"instances": [{"a": 1, "b": 2.5}]}', 400, "instance 0: input 'b': expected a single int64"),
        ("add", '{"instances": [{"a": 1, "b": 2}, {"a": -1, "b": 2}]}', 400, "row 1: a must not be negative"),
        ("add", '{"inputs": {"a": [1]}}', 400, "Missing named input: 'b'"),
        ("add", '{"inputs": {"a": [1], "b": [1, 2]}}', 400, "differ in their number of examples"),
        ("add", '{"inputs": {"a": [1], "b": 1}}', 400, "input 'b' must be a list"),
        ("add", '{"signature_name": "x", "instances": [1]}', 404, "no signature 'x'; it has: predict"),
        ("add", '{"signature_name": 3, "instances": [1]}', 400, "at `signature_name`"),
        ("matrix", '{"instances": [[[1, 2, 3]], [[1, 2]]]}', 400, "instance 1: input 'm': expected float32"),
        ("matrix", '{"instances": [[[1, 2, 1e39]]]}', 400, "out of range for float32"),
        ("shout", '{"instances": [{"b64": "?"}]}', 400, "instance 0: input 'text': invalid base64"),
        ("nobody", '{"instances": [1]}', 404, "no model 'nobody'"),
        ("add/versions/2", '{"instances": [1]}', 404, "no version '2'"),
        ("add/labels/stable", '{"instances": [1]}', 404, "no version 'stable'"),
    ],
)
def test_wrong_requests(client, model, body, status, sentence):
    reply = predict(client, model, body)
    assert (reply.status_code, list(reply.json())) == (status, ["error"]), reply.text
    assert sentence in reply.json()["error"]


def test_the_default_signature_has_two_names(client):
    for name in ("serving_default", "predict", ""):
        body = {"signature_name": name, "instances": [1]}
        assert client.post(f"{HALF}:predict", json=body).json() == {"predictions": [3.5]}


def test_more_instances_than_may_wait(client):
    assert predict(client, "half_plus_three", str({"instances": [1] * 100}).replace("'", '"')).status_code == 200
    reply = predict(client, "half_plus_three", str({"instances": [1] * 101}).replace("'", '"'))
    assert (reply.status_code, "101 examples" in reply.json()["error"]) == (413, True)
    reply = predict(client, "half_plus_three", '{"instances": [' + "1," * 110_000 + "1]}")
    assert (reply.status_code, "more than 100000 values" in reply.json()["error"]) == (413, True)


def test_status_and_metadata(client):
    for path in (HALF, f"{HALF}/versions/1", f"{HALF}/labels/1", "/V1/models/half_plus_three"):
        fine = {"error_code": "OK", "error_message": ""}
        expected = [{"version": "1", "state": "AVAILABLE", "status": fine}]
        assert client.get(path).json() == {"model_version_status": expected}
        metadata = client.get(f"{path}/metadata").json()
        assert metadata["model_spec"] == {"name": "half_plus_three", "signature_name": "", "version": "1"}
        signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        assert signature["inputs"]["x"] == {
            "dtype": "DT_FLOAT",
            "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
            "name": "x:0",
        }


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("POST", "/v1/models/add:nothing", 400, "Malformed request: POST /v1/models/add:nothing"),
        ("GET", "/v1/models", 400, "Malformed request: GET /v1/models"),
        ("GET", "/v1/models/add/nothing", 400, "Malformed request"),
        ("POST", "/v1/models/add:classify", 501, "classify isn't served"),
        ("POST", "/v1/models/add:regress", 501, "regress isn't served"),
        ("GET", "/v1/models/add:predict", 405, "GET is not allowed"),
        ("POST", "/v1/models/add", 405, "POST is not allowed"),
        ("GET", "/v1/models/nobody", 404, "no model 'nobody'"),
        ("GET", "/v1/models/add/versions/2", 404, "no version '2'"),
        ("GET", "/v1/models/nobody/metadata", 404, "no model 'nobody'"),
    ],
)
def test_other_paths_and_methods(client, method, path, status, sentence):
    reply = client.request(method, path)
    assert (reply.status_code, list(reply.json())) == (status, ["error"])
    assert sentence in reply.json()["error"]


async def test_status_while_loading_and_restarting():
    may_start = asyncio.Event()

    def engine() -> FakeEngine:
        engine = FakeEngine(description=describe("m"))
        engine.may_start = may_start
        return engine

    async with running(wait=False, restart_backoff_s=5, m=engine) as service:
        await asyncio.sleep(0.02)
        reply = await service.client.post("/v1/models/m:predict", json={"instances": [[1]]})
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        may_start.set()
        while (await service.client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.01)
        service.engines.started[0].kill()
        await asyncio.sleep(0.05)
        [version] = (await service.client.get("/v1/models/m")).json()["model_version_status"]
        assert (version["state"], version["status"]["error_code"]) == ("LOADING", "UNAVAILABLE")


async def test_inputs_of_one_example_and_of_many_agree():
    """Every row of a request is what it would be alone, whatever the form."""
    description = describe("m", [TensorDescription("x", "float32", [2])], [TensorDescription("y", "float32", [2])])
    async with running(m=lambda: FakeEngine(lambda x: x * np.float32(3), description)) as service:
        examples = [[0.1 * index, index] for index in range(20)]
        together = await service.client.post("/v1/models/m:predict", json={"instances": examples})
        columns = await service.client.post("/v1/models/m:predict", json={"inputs": examples})
        assert together.json()["predictions"] == columns.json()["outputs"]
        for example, answer in zip(examples, together.json()["predictions"], strict=True):
            reply = await service.client.post("/predict/m", json={"inputs": {"x": example}})
            assert reply.json()["outputs"]["y"] == answer
