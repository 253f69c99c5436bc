"""`/v1/models/{model}[/versions/{version}|/labels/{label}]`: `:predict`, `/metadata`, and the status.

The path is matched whatever its case, as TensorFlow Serving does. A version may be any word here: a label is the name
of a version that isn't a number. Without one, the latest is meant; the status is that of all.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec
import orjson

from server.dispatcher import Dispatcher
from server.errors import BatchdError, InvalidInput, Unsupported
from server.http.body import BodyLimits, Receive, Scope, Send, check_elements
from server.http.envelope import read_envelope
from server.http.exchange import JSON, Arrival, Exchange, Write, reply_error, reply_not_allowed, send_reply
from server.http.nonfinite import Nonfinite
from server.http.tfs.metadata import meant, metadata, status
from server.http.tfs.values import TfsCodec
from server.http.turns import Turns
from server.lanes import Lane, Lanes
from server.metrics import Metrics
from server.prediction import PredictReply, PredictRequest
from server.supervisor import Supervisor

PREFIX = "/v1/models"
_PATH = re.compile(
    r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?"
    r"(?P<rest>:(?:predict|classify|regress)|/metadata|)",
    re.IGNORECASE,
)


class Envelope(msgspec.Struct):
    """A request's body: one of `instances` and `inputs`, which stay JSON text until the signature is known."""

    signature_name: str = ""
    instances: msgspec.Raw = msgspec.Raw()
    inputs: msgspec.Raw = msgspec.Raw()


class TfsFormat:
    """Reads and writes predict requests."""

    def __init__(
        self,
        supervisor: Supervisor,
        metrics: Metrics,
        *,
        request_timeout_s: float,
        element_limit: int,
        nonfinite: Nonfinite,
        example_limit: int,
    ) -> None:
        self._lanes = Lanes(supervisor, metrics, partial(TfsCodec, example_limit=example_limit))
        self._request_timeout_s = request_timeout_s
        self._element_limit = element_limit
        self._nonfinite: Nonfinite = nonfinite
        self._decoder = msgspec.json.Decoder(Envelope)

    def read(self, arrival: Arrival) -> tuple[PredictRequest, Write]:
        """Returns the request and how to answer it. Raises BatchdError for what can't be answered."""
        asked = _PATH.fullmatch(arrival.path)
        assert asked is not None
        if asked["rest"].lower() != ":predict":
            raise Unsupported(f"{asked['rest'][1:].lower()} isn't served, it takes tf.Examples; use predict")
        if not arrival.body.strip():
            raise InvalidInput("JSON Parse error: The document is empty")
        check_elements(arrival.body, self._element_limit)
        envelope = read_envelope(self._decoder, arrival.body, tokens=True)
        rows, columns = bool(memoryview(envelope.instances)), bool(memoryview(envelope.inputs))
        if rows == columns:
            raise InvalidInput("give one of 'instances' and 'inputs', not both" if rows else _NO_VALUES)
        lane = self._lanes.find(asked["model"], _version(asked), meant(envelope.signature_name))
        arrival.metrics = lane.metrics
        deadline = arrival.deadline(self._request_timeout_s)
        read = lane.codec.read_instances if rows else lane.codec.read_columns
        examples = read(envelope.instances if rows else envelope.inputs)
        request = PredictRequest(lane.model.name, lane.signature.name, examples, deadline, attachment=lane.attachment)
        return request, partial(self._write, lane, rows)

    def _write(
        self, lane: Lane[TfsCodec], as_rows: bool, reply: PredictReply
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        if as_rows:
            answer = {"predictions": lane.codec.write_rows(reply.rows, self._nonfinite)}
        else:
            answer = {"outputs": lane.codec.write_columns(reply.rows, self._nonfinite)}
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), [JSON]


class TfsService:
    """The ASGI application beneath `/v1/models`."""

    def __init__(
        self,
        format: TfsFormat,
        supervisor: Supervisor,
        dispatcher: Dispatcher,
        metrics: Metrics,
        limits: BodyLimits,
        turns: Turns,
    ) -> None:
        self._supervisor = supervisor
        self._predict = Exchange(format.read, dispatcher, metrics, limits, turns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        asked = _PATH.fullmatch(scope["path"])
        if asked is None:
            await reply_error(send, InvalidInput(f"Malformed request: {scope['method']} {scope['path']}"))
        elif asked["rest"].startswith(":"):
            await self._predict(scope, receive, send)
        elif scope["method"] != "GET":
            await reply_not_allowed(scope, send, "GET")
        else:
            await self._describe(asked, send)

    async def _describe(self, asked: re.Match[str], send: Send) -> None:
        try:
            document = self._document(asked["model"], _version(asked), of_tensors=bool(asked["rest"]))
        except BatchdError as error:
            await reply_error(send, error)
        else:
            await send_reply(send, 200, orjson.dumps(document), [JSON])

    def _document(self, name: str, version: str, *, of_tensors: bool) -> dict[str, Any]:
        if of_tensors:
            return metadata(self._supervisor.find(name, version).ready())
        return status([self._supervisor.find(name, version)] if version else self._supervisor.versions(name))


_NO_VALUES = "Missing 'inputs' or 'instances' key"


def is_here(path: str) -> bool:
    """Whether a path lies beneath `/v1/models`."""
    return path[: len(PREFIX)].lower() == PREFIX


def _version(asked: re.Match[str]) -> str:
    return asked["version"] or asked["label"] or ""
