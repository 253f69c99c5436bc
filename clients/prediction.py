"""The answer to one request: named outputs, and how the server came by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Provenance:
    """How a request was served; a field is None where the server didn't say.

    batch_size: examples that were computed together, this one included.
    queue_ms: time from arrival to the start of the batch, milliseconds.
    compute_ms: time of the batch in the engine, milliseconds.
    request_id: what the server's log calls the request.
    """

    batch_size: int | None = None
    queue_ms: float | None = None
    compute_ms: float | None = None
    request_id: str | None = None

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Provenance:
        """Read the X-Batchd-* headers and X-Request-Id; `headers` must look names up in lower case."""
        batch_size = _number(headers.get("x-batchd-batch-size"))
        return cls(
            batch_size=None if batch_size is None else int(batch_size),
            queue_ms=_number(headers.get("x-batchd-queue-ms")),
            compute_ms=_number(headers.get("x-batchd-compute-ms")),
            request_id=headers.get("x-request-id"),
        )


@dataclass(frozen=True, eq=False)
class Prediction(Mapping[str, Any]):
    """Output name -> value: a numpy array, or for rank 0 a Python bool, int, float, str or bytes.

    Arrays have the dtype that the model declares; arrays of strings are object arrays of str (bytes where
    the content isn't UTF-8).
    """

    model: str
    signature: str
    outputs: Mapping[str, Any]
    provenance: Provenance

    def __getitem__(self, name: str) -> Any:
        if name not in self.outputs:
            raise KeyError(f"no output {name!r}; {self.model!r} returned {', '.join(self.outputs)}")
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
