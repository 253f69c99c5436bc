"""What a request may hold, tried by exceeding it, in every format that can carry it: a sentence, and soon.

Each family is one way to cost a server more than the request cost its sender.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import httpx
import pytest

from tests.support.protocol_service import LIMIT_BYTES, Background, protocol_service

SOON_S = 8.0
"""Measured: under 0.3 s each, on a machine that does nothing else."""
LONGEST_ERROR = 2100


@dataclass(frozen=True)
class Way:
    """One place of one format where JSON may stand. `around(text)`: a body that has it there."""

    path: str
    around: Callable[[bytes], bytes]


def v2(model: str, name: str, datatype: str, shape: str = "[1]") -> Way:
    head = f'{{"inputs": [{{"name": "{name}", "datatype": "{datatype}", "shape": {shape}, "data": '.encode()
    return Way(f"/v2/models/{model}/infer", lambda text: head + text + b"}]}")


def within(path: str, before: str, after: str) -> Way:
    return Way(path, lambda text: before.encode() + text + after.encode())


X = '"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]'
HALF = "/v2/models/half_plus_three/infer"
VALUES = {
    "own": within("/predict/half_plus_three", '{"inputs": {"x": ', "}}"),
    "own, a list": within("/predict/matrix", '{"inputs": {"m": ', "}}"),
    "own, an integer": within("/predict/add", '{"inputs": {"b": 1, "a": ', "}}"),
    "own, a text": within("/predict/shout", '{"inputs": {"text": ', "}}"),
    "v2": v2("half_plus_three", "x", "FP32"),
    "v2, a list": v2("matrix", "m", "FP32", "[1, 1, 3]"),
    "v2, texts": v2("shout", "text", "BYTES"),
    "tfs, rows": within("/v1/models/half_plus_three:predict", '{"instances": ', "}"),
    "tfs, one row": within("/v1/models/matrix:predict", '{"instances": [', "]}"),
    "tfs, named rows": within("/v1/models/add:predict", '{"instances": [{"b": 1, "a": ', "}]}"),
    "tfs, columns": within("/v1/models/matrix:predict", '{"inputs": {"m": ', "}}"),
    "tfs, texts": within("/v1/models/shout:predict", '{"instances": ', "}"),
}
ELSEWHERE = {
    "own, the model": within("/predict", '{"inputs": {"x": 1}, "model": ', "}"),
    "own, the deadline": within("/predict/half_plus_three", '{"inputs": {"x": 1}, "timeout_ms": ', "}"),
    "own, unknown": within("/predict/half_plus_three", '{"inputs": {"x": 1}, "more": ', "}"),
    "own, an unknown input": within("/predict/half_plus_three", '{"inputs": {"x": 1, "more": ', "}}"),
    "v2, the timeout": within(HALF, f'{{{X}, "parameters": {{"timeout": ', "}}"),
    "v2, the signature": within(HALF, f'{{{X}, "parameters": {{"signature": ', "}}"),
    "v2, bytes": within(
        HALF, '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": ', "}}]}"
    ),
    "v2, the id": within(HALF, f'{{{X}, "id": ', "}"),
    "v2, a shape": within(HALF, '{"inputs": [{"name": "x", "datatype": "FP32", "data": [1], "shape": ', "}]}"),
    "v2, a size": within(HALF, '{"inputs": [{"name": "x", "datatype": "FP32", "data": [1], "shape": [', "]}]}"),
    "tfs, the signature": within("/v1/models/add:predict", '{"instances": [1], "signature_name": ', "}"),
    "the index": within("/v2/repository/index", '{"ready": ', "}"),
}
SKIPPED = {
    "v2, a parameter": within(HALF, f'{{{X}, "parameters": {{"mine": ', "}}"),
    "v2, a tensor's parameter": within(HALF, '{"inputs": [' + X[11:-2] + ', "parameters": {"mine": ', "}}]}"),
    "v2, an output's parameter": within(HALF, f'{{{X}, "outputs": [{{"name": "y", "parameters": {{"a": ', "}}]}"),
    "v2, unknown": within(HALF, f'{{{X}, "more": ', "}"),
    "v2, unknown of a tensor": within(HALF, '{"inputs": [' + X[11:-2] + ', "more": ', "}]}"),
    "tfs, unknown": within("/v1/models/half_plus_three:predict", '{"instances": [1], "more": ', "}"),
    "the index, unknown": within("/v2/repository/index", '{"more": ', "}"),
}
"""Where values are read or passed over that mean nothing here, so that only what can't be parsed is refused."""
EVERYWHERE = VALUES | ELSEWHERE | SKIPPED


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


@pytest.fixture(scope="module")
def client(served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}", timeout=60) as client:
        yield client


@pytest.fixture(autouse=True)
def serves_on(client) -> Iterator[None]:
    """Behind every test, the right answer to a right request."""
    yield
    after = client.post("/predict/half_plus_three", json={"inputs": {"x": 2}})
    assert after.json()["outputs"] == {"y": 4.0}


def assert_refused(client: httpx.Client, path: str, body: bytes, statuses=(400, 413), **headers: str) -> str:
    """Returns the sentence."""
    started_at = time.perf_counter()
    reply = client.post(path, content=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert time.perf_counter() - started_at < SOON_S
    assert reply.status_code in statuses, reply.text[:300]
    assert list(reply.json()) == ["error"]
    assert len(reply.content) < LONGEST_ERROR
    return reply.json()["error"]


@pytest.mark.parametrize("way", EVERYWHERE.values(), ids=EVERYWHERE)
def test_nesting(client, way):
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")):
        assert_refused(client, way.path, way.around(opening * 100_000 + b"1" + closing * 100_000))
        for depth in (300, 900, 990, 5_000):  # what Python's own limit lets through depends on its version
            reply = client.post(way.path, content=way.around(opening * depth + b"1" + closing * depth))
            assert reply.status_code in ((200, 400) if way in SKIPPED.values() else (400, 404))
            assert len(reply.content) < LONGEST_ERROR
    assert_refused(client, way.path, way.around(b"[" * 1_000_000))


@pytest.mark.parametrize("way", EVERYWHERE.values(), ids=EVERYWHERE)
def test_nesting_behind_a_token_that_makes_it_be_read_twice(client, way):
    assert_refused(client, way.path, b'{"y": NaN, ' + way.around(b"[" * 100_000 + b"]" * 100_000)[1:])


HUGE = (
    *(b"9" * digits for digits in (400, 4_000, 4_301, 1_000_000)),
    *(b"-" + b"9" * 5_000, b"1e999999", b"1e" + b"9" * 100_000, b"9" * 400 + b".5"),
)


@pytest.mark.parametrize("way", (VALUES | ELSEWHERE).values(), ids=VALUES | ELSEWHERE)
def test_huge_numbers(client, way):
    """Converting n digits may take time that grows with their square."""
    for number in HUGE:
        assert_refused(client, way.path, way.around(number))
        assert_refused(client, way.path, way.around(b"[" + number + b"]"))


@pytest.mark.parametrize("way", SKIPPED.values(), ids=SKIPPED)
def test_huge_numbers_that_mean_nothing(client, way):
    for number in (b"9" * 3_000_000, b"1e" + b"9" * 1_000_000, b"0." + b"0" * 3_000_000 + b"1"):
        started_at = time.perf_counter()
        reply = client.post(way.path, content=way.around(number))
        assert time.perf_counter() - started_at < SOON_S
        assert reply.status_code in (200, 400)


def test_many_huge_numbers(client):
    numbers = b"[" + b",".join([b"9" * 4_000] * 1_000) + b"]"
    for way in VALUES.values():
        assert_refused(client, way.path, way.around(numbers))


def test_small_numbers_with_many_digits_are_numbers(client):
    for number in (b"0." + b"1" * 100_000, b"1e-99999", b"0" + b".0" + b"0" * 10_000):
        reply = client.post("/predict/half_plus_three", content=VALUES["own"].around(number))
        assert reply.status_code == 200


@pytest.mark.parametrize("way", VALUES.values(), ids=VALUES)
def test_many_elements(client, way):
    """The service allows 100,000 values and 100 examples."""
    for element in (b"1", b'""', b"[]", b'{"a":1}', b'{"b64":""}', b'{"a":1,"b":1}'):
        values = 1 + element.count(b",")
        for count in (99_000 // values, min(500_000, LIMIT_BYTES // (len(element) + 2))):
            assert_refused(client, way.path, way.around(b"[" + b",".join([element] * count) + b"]"))


def test_the_element_limit_is_exact(client):
    def rows(count: int) -> bytes:
        return VALUES["own, a list"].around(b"[" + b",".join([b"[1,2,3]"] * count) + b"]")

    assert "more than 100000 values" in assert_refused(client, "/predict/matrix", rows(70_000), statuses=(413,))
    assert client.post("/predict/matrix", content=rows(33_000)).status_code == 200


@pytest.mark.parametrize("last", [b'"NaN"', b'"x"', b"true", b"null", b"1e39", b"[1]", b'{"b64": ""}', b"9" * 400])
def test_one_odd_element_at_the_end_of_many(client, last):
    """The usual ones are read whole; looking at each costs more."""
    for path, before, rows in (
        ("/predict/matrix", b'{"inputs": {"m": [', b"[1,2,3],"),
        ("/v1/models/matrix:predict", b'{"inputs": {"m": [[', b"[1,2,3],"),
    ):
        body = before + rows * 33_000 + b"[1,2," + last + b"]" + (b"]]}}" if b"[[" in before else b"]}}")
        started_at = time.perf_counter()
        reply = client.post(path, content=body)
        assert time.perf_counter() - started_at < SOON_S
        assert reply.status_code == (200 if last == b'"NaN"' else 400), reply.text[:300]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict/add", {"inputs": {str(number): 1 for number in range(90_000)}}),
        (HALF, {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}] * 25_000}),
        (
            HALF,
            {"inputs": [{"name": str(n), "shape": [1], "datatype": "FP32", "data": [1]} for n in range(24_000)]},
        ),
        (HALF, json.loads(f"{{{X}}}") | {"outputs": [{"name": "y"}] * 90_000}),
        (HALF, json.loads(f"{{{X}}}") | {"outputs": [{"name": str(number)} for number in range(90_000)]}),
        ("/v1/models/add:predict", {"instances": [{str(number): 1 for number in range(90_000)}]}),
        ("/v1/models/add:predict", {"inputs": {str(number): [1] for number in range(90_000)}}),
    ],
)
def test_many_names(client, path, body):
    assert_refused(client, path, json.dumps(body).encode())


LONG = "n" * 3_000_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", {"model": LONG, "inputs": {}}),
        ("/predict/add", {"signature": LONG, "inputs": {}}),
        ("/predict/add", {"inputs": {LONG: 1}}),
        ("/predict/add", {"inputs": {"a": LONG, "b": 1}}),
        ("/predict/add", {LONG: 1, "inputs": {}}),
        (HALF, {"inputs": [{"name": LONG, "shape": [1], "datatype": "FP32", "data": [1]}]}),
        (HALF, {"inputs": [{"name": "x", "shape": [1], "datatype": LONG, "data": [1]}]}),
        (HALF, {"inputs": [{"name": "x", "shape": [1] * 90_000, "datatype": "FP32", "data": [1]}]}),
        (HALF, json.loads(f"{{{X}}}") | {"outputs": [{"name": LONG}]}),
        (HALF, json.loads(f"{{{X}}}") | {"parameters": {"signature": LONG}}),
        (HALF, json.loads(f"{{{X}}}") | {"parameters": {"timeout": LONG}}),
        ("/v1/models/add:predict", {"signature_name": LONG, "instances": [1]}),
        ("/v1/models/add:predict", {"instances": [{LONG: 1}]}),
    ],
)
def test_long_names_are_cut_in_errors(client, path, body):
    assert_refused(client, path, json.dumps(body).encode(), statuses=(400, 404))


def test_a_long_id_comes_back_whole(client):
    reply = client.post(HALF, content=json.dumps(json.loads(f"{{{X}}}") | {"id": LONG}))
    assert reply.json()["id"] == LONG


@pytest.mark.parametrize("header", ["content-encoding", "inference-header-content-length", "accept-encoding"])
@pytest.mark.parametrize("value", ["x" * 30_000, "9" * 30_000, "gzip," * 6_000, "-1", "0x10", "1" * 19, "²"])
def test_odd_header_values(client, header, value):
    reply = client.post(HALF, content=f"{{{X}}}".encode(), headers={header: value.encode()})
    assert reply.status_code in ({200} if header == "accept-encoding" else {200, 400, 413, 415})
    assert len(reply.content) < LONGEST_ERROR


@pytest.mark.parametrize("path", ["/predict/{}", "/v2/models/{}/infer", "/v1/models/{}:predict", "/models/{}", "/{}"])
def test_long_paths(client, path):
    for name in ("x" * 30_000, "%2e%2e%2f" * 3_000, "x" * 5_000, "%2e%2e%2f" * 500, "%00%0d%0a%ff"):
        reply = client.post(path.format(name), content=f"{{{X}}}".encode())
        assert reply.status_code in ({414} if len(name) > 20_000 else {400, 404, 405})
        assert list(reply.json()) == ["error"]
        assert len(reply.content) < 2 * LONGEST_ERROR  # escapes of what was cut


PATHS = ("/predict/half_plus_three", HALF, "/v1/models/half_plus_three:predict", "/v2/repository/index")
BOMB = b" " * 100_000_000
BOMBS = {"gzip": gzip.compress(BOMB, 6), "deflate": zlib.compress(BOMB, 6)}
BOMBS["x-gzip"] = BOMBS["gzip"]


@pytest.mark.parametrize("path", PATHS)
def test_a_body_beyond_the_limit(client, path):
    assert_refused(client, path, b" " * (LIMIT_BYTES + 1), statuses=(413,))

    def chunks() -> Iterator[bytes]:
        for _ in range(LIMIT_BYTES // 65536 + 2):
            yield b" " * 65536

    assert client.post(path, content=chunks()).status_code == 413


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("encoding", BOMBS)
def test_a_body_that_becomes_too_large(client, path, encoding):
    packed = BOMBS[encoding]
    assert len(packed) < LIMIT_BYTES / 20
    said = assert_refused(client, path, packed, statuses=(413,), content_encoding=encoding)
    assert said == f"the decompressed body is larger than the limit of {LIMIT_BYTES} bytes"
    in_pieces = (packed[start : start + 1000] for start in range(0, len(packed), 1000))
    assert client.post(path, content=in_pieces, headers={"content-encoding": encoding}).status_code == 413


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,deflate", "br", "zstd", "gzip;q=1", "identity, gzip"])
def test_bodies_packed_twice_or_in_ways_that_are_not_known(client, encoding):
    packed = gzip.compress(gzip.compress(b" " * 10_000_000))
    assert_refused(client, HALF, packed, statuses=(415,), content_encoding=encoding)


def test_of_two_members_only_one_is_allowed(client):
    packed = gzip.compress(b"{}") + BOMBS["gzip"]
    said = assert_refused(client, HALF, packed, content_encoding="gzip")
    assert "something follows its end" in said


SIZES = (-(2**63), -1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64)


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("promised", [None, 0, 12, 2**31, 2**63])
def test_shapes_that_promise_more_than_comes(client, at, promised):
    """Products overflow, or are 0 where another size is huge; no array is made of what is only promised."""
    for size, others in product(SIZES, (0, 1, 2**31 - 1)):
        shape = [others, others, 3]
        shape[at] = size
        tensor = {"name": "m", "datatype": "FP32", "shape": shape}
        tensor |= {"data": []} if promised is None else {"parameters": {"binary_data_size": promised}}
        head = json.dumps({"inputs": [tensor]}).encode()
        extra = {} if promised is None else {"inference-header-content-length": str(len(head))}
        body = head if promised in (None, 0) else head + bytes(12)
        started_at = time.perf_counter()
        reply = client.post("/v2/models/matrix/infer", content=body, headers=extra)
        assert time.perf_counter() - started_at < SOON_S
        # No examples, each of which would be huge, are an answer: nothing.
        is_nothing = shape[0] == 0 and 0 <= shape[1] < 2**31 and shape[2] == 3 and promised in (None, 0)
        assert reply.status_code in ((200,) if is_nothing else (400, 413)), (shape, reply.text[:300])


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 2**31 - 1, 5, 4])
def test_texts_that_promise_more_bytes_than_come(client, length):
    for count in (1, 2, 2**31 - 1):
        blob = length.to_bytes(4, "little") + b"abc"
        tensor = {"name": "text", "datatype": "BYTES", "shape": [count], "parameters": {"binary_data_size": len(blob)}}
        head = json.dumps({"inputs": [tensor]}).encode()
        said = assert_refused(
            client, "/v2/models/shout/infer", head + blob, inference_header_content_length=str(len(head))
        )
        assert "take more than the 7 bytes that came" in said or "more than 100000 texts" in said


def test_of_keys_that_stand_twice_the_last_counts(client):
    """As in Python and JavaScript, wherever it is: so a proxy that checks requests sees what is computed."""
    body = b'{"inputs": {"a": 7, "b": 9}, "inputs": {"a": 7, "a": 1, "b": 1}}'
    assert client.post("/predict/add", content=body).json()["outputs"] == {"sum": 2, "difference": 0}
    body = b'{"instances": [9], "instances": [{"a": 7, "b": 1, "a": 1}]}'
    assert client.post("/v1/models/add:predict", content=body).json() == {"predictions": [{"sum": 2, "difference": 0}]}
    body = b'{"inputs": [], "inputs": [{"name": "x", "shape": [9], "shape": [1], "datatype": "FP32", "data": [1]}]}'
    assert client.post(HALF, content=body).json()["outputs"][0]["data"] == [3.5]
    body = f'{{"inputs": [{X[11:-1]}, {X[11:-1]}]}}'.encode()
    assert "stands twice" in assert_refused(client, HALF, body)


@pytest.mark.parametrize("deadline", ["1e308", "1e300", "9007199254740993", "1e-300"])
def test_odd_deadlines(client, deadline):
    body = f'{{"inputs": {{"x": 2}}, "timeout_ms": {deadline}}}'
    assert client.post("/predict/half_plus_three", content=body).status_code in (200, 504)
    for timeout in (2**64 - 1, 2**63, 1):
        body = f'{{{X}, "parameters": {{"timeout": {timeout}, "priority": {timeout}}}}}'
        assert client.post(HALF, content=body).status_code in (200, 504)


def test_it_was_never_an_error_of_the_server(served):
    """Last: all that was asked is counted."""
    text = served.service.metrics.exposition().decode()
    assert 'code="400"' in text
    assert 'code="5' not in text.replace('code="504"', "")
