"""A server that speaks batchd's wire format and computes something obvious; for tests of what calls servers.

Models: `double` (x -> 2x), `shout` (text -> upper case and its length), `echo` (every input comes back), and
some that fail in one way each. As a program it takes the arguments of `batchd serve`; `--engine` then chooses
a vice: `honest`, `wrong` (every 10th answer is), `lossy` (every 10th connection is cut), `refusing` (every
10th request gets 503), `dying` (ends at once).
"""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

FLOAT_VECTOR = {"dtype": "float32", "shape": [None]}
DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "double": {"inputs": {"x": FLOAT_VECTOR}, "outputs": {"output": FLOAT_VECTOR}},
    "shout": {
        "inputs": {"text": {"dtype": "string", "shape": []}},
        "outputs": {"text": {"dtype": "string", "shape": []}, "length": {"dtype": "int32", "shape": []}},
    },
}


class HttpProblem(Exception):
    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers or {}


@dataclass
class StubApplication:
    """The ASGI application; what it saw stays in `requests`."""

    engine: str = "honest"
    ready_after: int = 0
    refusals: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    predictions: int = 0

    def reset(self) -> None:
        """Forget what was seen, and every vice."""
        vars(self).update(vars(StubApplication()))

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _read_body(receive)
        headers: dict[str, str] = {}
        try:
            status, document = 200, await self.answer(scope["method"], scope["path"], body, headers)
        except HttpProblem as problem:
            status, document, headers = problem.status, {"error": str(problem)}, problem.headers
        content = document if isinstance(document, bytes) else orjson.dumps(document)
        if document == b"cut":
            # A body shorter than promised makes uvicorn drop the connection.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
            await send({"type": "http.response.body", "body": b"{"})
            return
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content})

    async def answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
        if path == "/healthz":
            return {"status": "ok"}
        if path == "/readyz":
            self.ready_after -= 1
            if self.ready_after >= 0:
                raise HttpProblem(503, f"loading double: {self.ready_after + 1} buckets to go")
            return {"status": "ready"}
        if path == "/metrics":
            return self.metrics()
        if path == "/models":
            return {"models": [{"name": name} for name in DESCRIPTIONS]}
        if path.startswith("/models/"):
            return self.describe(path.removeprefix("/models/"))
        if method == "POST" and path.startswith("/predict/"):
            document = orjson.loads(body)
            self.requests.append(document)
            headers |= {"x-batchd-batch-size": "4", "x-batchd-queue-ms": "0.5", "x-batchd-compute-ms": "1.25"}
            return await self.predict(path.removeprefix("/predict/"), document)
        raise HttpProblem(404, f"nothing at {path}")

    def describe(self, name: str) -> dict[str, Any]:
        if name not in DESCRIPTIONS:
            raise HttpProblem(404, f"no model {name!r}; there are {', '.join(DESCRIPTIONS)}")
        signature = {
            kind: [{"name": tensor, **spec} for tensor, spec in tensors.items()]
            for kind, tensors in DESCRIPTIONS[name].items()
        }
        return {"name": name, "signatures": [{"name": "predict", **signature}]}

    async def predict(self, name: str, document: dict[str, Any]) -> Any:
        self.predictions += 1
        if self.refusals > 0:
            self.refusals -= 1
            raise HttpProblem(503, "the queue is full", {"retry-after": "0.01"})
        tenth = self.predictions % 10 == 0
        if self.engine == "lossy" and tenth:
            return b"cut"
        if self.engine == "refusing" and tenth:
            raise HttpProblem(503, "the queue is full", {"retry-after": "1"})
        inputs = document["inputs"]
        self.check(name, document)
        outputs: dict[str, Any]
        if name == "double":
            outputs = {"output": [item if isinstance(item, str) else 2 * item for item in inputs["x"]]}
            if self.engine == "wrong" and tenth:
                outputs["output"] = [1.001 * item for item in outputs["output"]]
        elif name == "shout":
            outputs = {"text": inputs["text"].upper(), "length": len(inputs["text"])}
        elif name == "echo":
            outputs = inputs
        elif name == "rejects":
            raise HttpProblem(400, "input 'x': expected float32 of shape [length], got 3")
        elif name == "late":
            raise HttpProblem(504, "the deadline of 5 ms passed in the queue")
        elif name == "huge":
            raise HttpProblem(413, "the body has 20 MB; at most 10 MB are taken")
        elif name == "slow":
            await asyncio.sleep(5)
            outputs = {}
        elif name == "cut":
            return b"cut"
        elif name == "garbled":
            return b"<html>not ours</html>"
        else:
            raise HttpProblem(404, f"no model {name!r}; there are {', '.join(DESCRIPTIONS)}")
        return {"model": name, "signature": document.get("signature", "predict"), "outputs": outputs}

    def check(self, name: str, document: dict[str, Any]) -> None:
        if name not in DESCRIPTIONS:
            return
        if document.get("signature", "predict") != "predict":
            raise HttpProblem(404, f"{name!r} has no signature {document['signature']!r}; it has 'predict'")
        for unknown in set(document["inputs"]) - set(DESCRIPTIONS[name]["inputs"]):
            raise HttpProblem(400, f"unknown input {unknown!r}")

    def metrics(self) -> bytes:
        labels = '{model="double",signature="predict",engine="honest"}'
        batches = self.predictions / 4
        return (
            "# TYPE batchd_batch_size histogram\n"
            f"batchd_batch_size_sum{labels} {float(self.predictions)}\n"
            f"batchd_batch_size_count{labels} {batches}\n"
        ).encode()


async def _read_body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def _server(application: StubApplication, port: int) -> uvicorn.Server:
    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, log_level="critical", lifespan="off", access_log=False
    )
    return uvicorn.Server(config)


@contextmanager
def stub_server(application: StubApplication) -> Iterator[str]:
    """Serve `application` from a thread of this process; yields its URL."""
    server = _server(application, port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    started = threading.Event()
    while not server.started:
        started.wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", default="honest")
    arguments = parser.parse_args()
    if arguments.engine == "dying":
        raise SystemExit("cannot vectorize 'double': 1 op")
    _server(StubApplication(engine=arguments.engine), arguments.port).run()


if __name__ == "__main__":
    main()
