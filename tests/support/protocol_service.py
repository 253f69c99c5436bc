"""The whole HTTP process with gRPC beside it, in a thread of its own, for clients that block; engines in memory.

Its models, each with an obvious answer:
`echo` (13 vectors, one of each dtype, come back), `add` (a + b, refusing negative a), `half_plus_three` (a number),
`shout` (a text, in upper case, also as `text_bytes`), `repeat` (n -> n ones: replies that differ in length),
`matrix` ([length, 3] -> its double), `slow` (0.3 s a batch).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from server.access import Access
from server.access_log import AccessLogMode
from server.grpc.guard import Guard
from server.grpc.service import InferenceService, create_server
from server.model_description import TensorDescription
from server.observer import create_observer
from server.registry import SERVED_DTYPES
from server.tracing import Tracing
from tests.support.fake_engine import FakeEngine, describe
from tests.support.fake_files import FakeFiles
from tests.support.http_service import Service, running

LIMIT_BYTES = 4 * 1024 * 1024


def tensor(name: str, dtype: str = "float32", *shape: int | None) -> TensorDescription:
    """Describes a tensor of one example."""
    return TensorDescription(name, dtype, list(shape))


def echo() -> FakeEngine:
    inputs = [tensor(f"of_{dtype}", dtype, None) for dtype in SERVED_DTYPES]
    outputs = [tensor(f"back_{dtype}", dtype, None) for dtype in SERVED_DTYPES]
    return FakeEngine(lambda *arrays: arrays, describe("echo", inputs, outputs))


def add() -> FakeEngine:
    def compute(a, b):
        if a < 0:
            raise ValueError("a must not be negative")
        return a + b, a - b

    inputs = [tensor("a", "int64"), tensor("b", "int64")]
    return FakeEngine(compute, describe("add", inputs, [tensor("sum", "int64"), tensor("difference", "int64")]))


def half_plus_three() -> FakeEngine:
    return FakeEngine(lambda x: x / 2 + 3, describe("half_plus_three", [tensor("x")], [tensor("y")]))


def shout() -> FakeEngine:
    def compute(text):
        upper = np.array(text.item().upper(), object)
        return upper, upper

    outputs = [tensor("text", "string"), tensor("text_bytes", "string")]
    return FakeEngine(compute, describe("shout", [tensor("text", "string")], outputs))


def repeat() -> FakeEngine:
    description = describe("repeat", [tensor("n", "int32")], [tensor("ones", "float32", None)])
    return FakeEngine(lambda n: np.ones(int(n), np.float32), description)


def matrix() -> FakeEngine:
    description = describe("matrix", [tensor("m", "float32", None, 3)], [tensor("double", "float32", None, 3)])
    return FakeEngine(np.errstate(all="ignore")(lambda m: m + m), description)


def slow() -> FakeEngine:
    return FakeEngine(description=describe("slow"), seconds=0.3)


@dataclass
class Background:
    """Where it is, and the service in its own thread."""

    http: str
    grpc: str
    service: Service


@contextmanager
def protocol_service(
    *,
    engines: FakeFiles | None = None,
    access: Access | None = None,
    access_log: AccessLogMode = "errors",
    tracing: Tracing | None = None,
) -> Iterator[Background]:
    """Serves the models above, or those of `engines`, until the block ends."""
    started, done = threading.Event(), threading.Event()
    found: list[Background] = []

    async def serve() -> None:
        models = [echo, add, half_plus_three, shout, repeat, matrix, slow]
        prepared = {engine.__name__: engine for engine in models}
        limits = {"body_limit_bytes": LIMIT_BYTES, "element_limit": 100_000}
        seen = {"access_log": access_log, "tracing": tracing, "triton_metrics": True}
        async with running(**limits, **seen, engines=engines, access=access, **prepared) as service:
            inference = InferenceService(
                service.supervisor,
                service.dispatcher,
                service.metrics,
                product_version="1",
                request_timeout_s=10.0,
                element_limit=100_000,
                observer=create_observer(access_log, tracing),
            )
            server, port = create_server(
                inference, "127.0.0.1:0", LIMIT_BYTES, Guard(access or Access(), service.metrics)
            )
            await server.start()
            found.append(Background(f"127.0.0.1:{service.port}", f"127.0.0.1:{port}", service))
            started.set()
            await asyncio.to_thread(done.wait)
            await server.stop(None)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(20)
        yield found[0]
    finally:
        done.set()
        thread.join(20)
