"""What is sent: examples with their expected replies, and the request bytes made of them before the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clients.exchange import predict_body, predict_path


@dataclass(frozen=True)
class Example:
    """One request's inputs (JSON form), and what the answer must be.

    outputs: the expected outputs in JSON form. error: the message, where the function rejects the example.
    With neither, the reply isn't checked.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any] | None = None
    error: str | None = None

    @property
    def is_checked(self) -> bool:
        return self.outputs is not None or self.error is not None


@dataclass(frozen=True)
class ExampleSet:
    """Examples of one model, as `python -m loadtest.oracle` wrote them.

    dtypes: of the outputs, by name. rtol: the model's own tolerance, None for that of the dtype.
    """

    model: str
    examples: Sequence[Example]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    rtol: float | None = None

    @classmethod
    def read(cls, path: Path) -> ExampleSet:
        document = json.loads(path.read_text(encoding="utf-8"))
        examples = [Example(**example) for example in document["examples"]]
        return cls(model=document["model"], examples=examples, dtypes=document["dtypes"], rtol=document["rtol"])


@dataclass(frozen=True)
class Target:
    """Where to send, and the bytes of each distinct request; number k sends `requests[k % len(requests)]`."""

    host: str
    port: int
    requests: Sequence[bytes]


def target(url: str, model: str, examples: Sequence[Example], timeout_ms: float | None = None) -> Target:
    """Requests to `POST /predict/{model}` at `url` (http only), one for each example."""
    if not examples:
        raise ValueError(f"no examples for model {model!r}; at least one is needed")
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise ValueError(f"{url!r}: expected http://HOST:PORT")
    head = (
        f"POST {parts.path.rstrip('/')}{predict_path(model)} HTTP/1.1\r\n"
        f"Host: {parts.netloc}\r\n"
        "Content-Type: application/json\r\n"
    )
    return Target(
        host=parts.hostname,
        port=parts.port or 80,
        requests=[_request_bytes(head, example, timeout_ms) for example in examples],
    )


def _request_bytes(head: str, example: Example, timeout_ms: float | None) -> bytes:
    body = predict_body(example.inputs, {}, signature=None, timeout_ms=timeout_ms)
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
