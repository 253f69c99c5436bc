"""What users of other servers have complained about, where it concerns what goes over the wire.

Each test has the complaint for a name, and says where it was made.
"""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pytest

from server.model_description import TensorDescription
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import Service, running


def tensor(name: str, dtype: str = "float32", *shape: int | None) -> TensorDescription:
    return TensorDescription(name, dtype, list(shape))


def positive() -> FakeEngine:
    """Two outputs; refuses what is negative; slow enough for company."""

    def compute(x):
        if (x < 0).any():
            raise ValueError("x must not be negative")
        return x + x, x * x

    outputs = [tensor("double", "float32", None), tensor("square", "float32", None)]
    return FakeEngine(compute, describe("m", [tensor("x", "float32", None)], outputs), seconds=0.02)


def infer_body(rows: list[list[float]], **more: object) -> dict:
    shape = [len(rows), len(rows[0])]
    return {"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": rows}], **more}


async def ask(service: Service, protocol: str, value: float):
    if protocol == "v2":
        return await service.client.post("/v2/models/m/infer", json=infer_body([[value]]))
    return await service.client.post("/v1/models/m:predict", json={"instances": [[value]]})


@pytest.mark.complaint(1)
@pytest.mark.parametrize("protocol", ["v2", "tfs"])
async def test_one_bad_example_fails_its_whole_batch(protocol):
    """Lightning-AI/LitServe#340; and KServe's batcher, which answers all with 200 and a message"""
    async with running(m=positive) as service:
        replies = await asyncio.gather(*(ask(service, protocol, value - 1) for value in range(8)))
        assert [reply.status_code for reply in replies] == [400] + [200] * 7
        assert max(service.engines.started[0].sizes) > 1
        assert replies[0].json() == {"error": "x must not be negative"}


@pytest.mark.complaint(9)
async def test_instances_of_different_lengths_are_refused():
    """tensorflow/serving#1538, tensorflow/serving#1934, tensorflow/serving#530"""
    async with running(m=positive) as service:
        reply = await service.client.post("/v1/models/m:predict", json={"instances": [[1], [1, 2, 3], []]})
        assert [each["double"] for each in reply.json()["predictions"]] == [[2.0], [2.0, 4.0, 6.0], []]


@pytest.mark.complaint(10)
async def test_inputs_without_a_batch_dimension_cannot_be_batched():
    """tensorflow/serving#494, tensorflow/serving#1036, tensorflow/serving#1682"""
    description = describe("m", [tensor("x"), tensor("flag", "bool")], [tensor("y")])
    async with running(m=lambda: FakeEngine(lambda x, flag: x if flag else -x, description, seconds=0.02)) as service:
        bodies = [{"instances": [{"x": index, "flag": index % 2 == 0}]} for index in range(8)]
        replies = await asyncio.gather(*(service.client.post("/v1/models/m:predict", json=body) for body in bodies))
        assert [reply.json()["predictions"] for reply in replies] == [[0], [-1], [2], [-3], [4], [-5], [6], [-7]]
        assert max(service.engines.started[0].sizes) > 1


@pytest.mark.complaint(12)
async def test_unbatching_gives_one_client_three_results_and_ignores_the_outputs_asked_for():
    """SeldonIO/MLServer#1306, #903, #1718, #514, #1541"""
    async with running(m=positive) as service:

        async def check(index: int) -> None:
            rows = [[float(index), float(row)] for row in range(1 + index % 3)]
            output = "double" if index % 2 else "square"
            body = infer_body(rows, id=str(index), outputs=[{"name": output}], parameters={"text": "a, b\n" * 100})
            reply = (await service.client.post("/v2/models/m/infer", json=body)).json()
            assert reply["id"] == str(index)
            [answer] = reply["outputs"]
            expected = np.float32(rows) * (2 if index % 2 else np.float32(rows))
            assert (answer["name"], answer["shape"]) == (output, list(expected.shape))
            assert answer["data"] == expected.ravel().tolist()

        await asyncio.gather(*map(check, range(24)))


@pytest.mark.complaint(25)
async def test_what_is_not_finite_makes_invalid_json_or_a_500():
    """pytorch/serve#1304; triton-inference-server/server#3711; tensorflow/serving#1014: `6e-07.0`; model_server#4337"""
    description = describe("m", [tensor("x", "float32", None)], [tensor("y", "float32", None)])
    async with running(m=lambda: FakeEngine(lambda x: x, description)) as service:
        values = ["NaN", "Infinity", "-Infinity", 6e-07]
        own = await service.predict("m", inputs={"x": values})
        assert own.text.endswith('{"y":["NaN","Infinity","-Infinity",6e-7]}}')
        for path, body in (
            ("/v1/models/m:predict", b'{"instances": [[NaN, Infinity, -Infinity, 6e-07]]}'),
            ("/v2/models/m/infer", json.dumps(infer_body([[math.nan, math.inf, -math.inf, 6e-07]])).encode()),
        ):
            reply = await service.client.post(path, content=body)
            assert (reply.status_code, "[NaN,Infinity,-Infinity,6e-7]" in reply.text) == (200, True)
            assert json.loads(reply.text)
