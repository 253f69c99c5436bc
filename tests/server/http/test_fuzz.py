"""Mutated requests of the binary protocol: never a 5xx, always a sentence, and right answers in between."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.support.protocol_service import Background, protocol_service

ALLOWED = {200, 400, 404, 413, 415}
HEADER = "inference-header-content-length"
NUMBERS = (b"0", b"-1", b"1", b"7", b"255", b"65536", b"4294967295", b"9223372036854775808", b"1e400", b"1" * 5000)
WORDS = (b"null", b"true", b"[]", b"{}", b'""', b"NaN", b"[[", b"}", b"\\", b"\xff", b"\0", b'"data":[1]', b'"BYTES"')


@pytest.fixture(scope="module")
def served() -> Iterator[Background]:
    with protocol_service() as served:
        yield served


def seeds() -> list[tuple[str, bytes, bytes]]:
    """Right requests: path, JSON, binary data."""
    texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"", b"abc", b"\xff"))
    made = []
    for model, tensors in {
        "matrix": [("m", [2, 1, 3], "FP32", np.arange(6, dtype=np.float32).tobytes())],
        "add": [(name, [2], "INT64", np.int64([1, 2]).tobytes()) for name in "ab"],
        "shout": [("text", [3], "BYTES", texts)],
        "echo": [
            (f"of_{dtype}", [2, 2], datatype, bytes(4 * size))
            for dtype, datatype, size in (
                *(("bool", "BOOL", 1), ("string", "BYTES", 4)),
                *((f"int{8 * size}", f"INT{8 * size}", size) for size in (1, 2, 4, 8)),
                *((f"uint{8 * size}", f"UINT{8 * size}", size) for size in (1, 2, 4, 8)),
                *((f"float{8 * size}", f"FP{8 * size}", size) for size in (2, 4, 8)),
            )
        ],
    }.items():
        inputs = [
            {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(blob)}}
            for name, shape, datatype, blob in tensors
        ]
        head = json.dumps({"id": "1", "inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        made.append((f"/v2/models/{model}/infer", head, b"".join(blob for *_, blob in tensors)))
    return made


def mutate(generator: random.Random, text: bytes) -> bytes:
    """Returns the text with one thing wrong."""
    at = generator.randrange(len(text) + 1)
    to = min(len(text), at + generator.choice((1, 1, 2, 4, 16, 100)))
    kind = generator.randrange(7)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + text[to:]
    if kind == 2:
        return text[:at] + generator.randbytes(generator.choice((1, 2, 8))) + text[at:]
    if kind == 3:
        return text[:at] + text[at:to] * generator.choice((2, 3, 50)) + text[to:]
    if kind == 4:
        return text[:at] + generator.choice(WORDS) + text[to:]
    digits = [index for index, byte in enumerate(text) if 48 <= byte <= 57]
    if not digits:
        return text + b"1"
    at = generator.choice(digits)
    return text[:at] + generator.choice(NUMBERS) + text[at + 1 :]


def fuzz(served: Background, requests: int) -> None:
    generator = random.Random(20)
    statuses: dict[int, int] = {}
    right = seeds()
    with httpx.Client(base_url=f"http://{served.http}", timeout=20) as client:
        for number in range(requests):
            path, head, blob = generator.choice(right)
            length = len(head)
            for _ in range(generator.choice((1, 1, 1, 2, 3))):
                part = generator.randrange(10)
                if part < 6:
                    head = mutate(generator, head)
                    length = len(head) if generator.random() < 0.9 else length
                elif part < 9:
                    blob = mutate(generator, blob)
                else:
                    length = generator.choice((0, 1, length - 1, length + 1, 10**9, 10**30))
            body = head + blob
            headers = {HEADER: str(length)}
            if generator.random() < 0.1:
                packed = gzip.compress(body, 1)
                body = packed if generator.random() < 0.5 else mutate(generator, packed)
                headers["content-encoding"] = "gzip"
            reply = client.post(path, content=body, headers=headers)
            assert reply.status_code in ALLOWED, (reply.status_code, reply.text, body, headers)
            statuses[reply.status_code] = statuses.get(reply.status_code, 0) + 1
            if reply.status_code != 200:
                assert list(reply.json()) == ["error"]
            if number % 100 == 0:
                path, head, blob = right[1]
                reply = client.post(path, content=head + blob, headers={HEADER: str(len(head))})
                size = int(reply.headers[HEADER])
                assert np.frombuffer(reply.content[size:], np.int64).tolist() == [2, 4, 0, 0]
    assert statuses[400] > requests / 2
    assert statuses[200] > requests / 100


def test_a_thousand_mutated_requests(served):
    fuzz(served, 1_000)


@pytest.mark.full
def test_ten_thousand_mutated_requests(served):
    fuzz(served, 10_000)
