"""`POST /predict` and `/predict/{model}`: the hot path, a bare ASGI endpoint in front of the framework.

body -> envelope -> model, signature -> arrays -> dispatcher -> outputs -> JSON
"""

from __future__ import annotations

import logging
import time

import msgspec
import orjson

from server.dispatcher import Dispatcher, PredictReply, PredictRequest
from server.errors import BatchdError, InvalidInput, UnknownModel
from server.http.body import CallerLeft, CallerWatch, Headers, Receive, Scope, Send, read_body
from server.http.codec import SignatureCodec
from server.http.errors import error_body, retry_after
from server.metrics import LaneMetrics, Metrics
from server.model_description import ModelDescription, SignatureDescription
from server.supervisor import Supervisor

_log = logging.getLogger("batchd.http")

PATH = "/predict"
DEFAULT_SIGNATURE = "predict"
CLIENT_CLOSED_REQUEST = 499
_JSON = (b"content-type", b"application/json")


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """A request's body. `inputs` stay JSON text until the signature is known."""

    inputs: dict[str, msgspec.Raw]
    model: str | None = None
    signature: str | None = None
    timeout_ms: float | None = None


class _Lane:
    """A signature of a model that is ready: how to read and write it, and where to count."""

    def __init__(self, model: ModelDescription, signature: SignatureDescription, metrics: Metrics) -> None:
        self.model = model
        self.signature = signature
        self.codec = SignatureCodec(signature)
        self.metrics = metrics.lane(model.name, signature.name, model.engine, model.version)


class PredictEndpoint:
    """The ASGI application of the hot path."""

    def __init__(
        self,
        supervisor: Supervisor,
        dispatcher: Dispatcher,
        metrics: Metrics,
        *,
        body_limit_bytes: int,
        request_timeout_s: float,
    ) -> None:
        self._supervisor = supervisor
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._body_limit_bytes = body_limit_bytes
        self._request_timeout_s = request_timeout_s
        self._decoder = msgspec.json.Decoder(Envelope)
        self._lanes: dict[tuple[str, str], _Lane] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            if scope["method"] != "POST":
                message = f"{scope['method']} is not allowed at {scope['path']}; POST the inputs"
                await _reply(send, 405, error_body(message), [(b"allow", b"POST")])
                return
            body = await read_body(scope["headers"], receive, self._body_limit_bytes)
        except CallerLeft:
            return
        except BatchdError as error:
            self._metrics.count_unplaced(error.status)
            await _reply_error(send, error)
            return
        await self._answer(body, scope["path"][len(PATH) + 1 :], receive, send)

    async def _answer(self, body: bytes, name_in_path: str, receive: Receive, send: Send) -> None:
        arrived_at = time.monotonic()
        counted: LaneMetrics | None = None
        try:
            envelope = self._read_envelope(body)
            lane = self._find_lane(name_in_path, envelope)
            counted = lane.metrics
            deadline = arrived_at + self._timeout_s(envelope)
            example = lane.codec.read(envelope.inputs)
            request = PredictRequest(lane.model.name, lane.signature.name, (example,), deadline)
            with CallerWatch(receive):
                reply = await self._dispatcher.predict(request)
            answer = self._write(lane, reply)
        except CallerLeft:
            self._count(counted, CLIENT_CLOSED_REQUEST, arrived_at)
        except BatchdError as error:
            self._count(counted, error.status, arrived_at)
            await _reply_error(send, error)
        except Exception as error:
            _log.exception("a request failed unexpectedly")
            self._count(counted, 500, arrived_at)
            message = f"internal error: {type(error).__name__}; the server's log has the details"
            await _reply(send, 500, error_body(message), [])
        else:
            self._count(counted, 200, arrived_at)
            await _reply(send, 200, answer, _provenance(reply))

    def _read_envelope(self, body: bytes) -> Envelope:
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the body doesn't fit: {_plain(str(error))}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(_explain_json(body, error)) from None

    def _find_lane(self, name_in_path: str, envelope: Envelope) -> _Lane:
        name = name_in_path or envelope.model
        if name_in_path and envelope.model not in (None, name_in_path):
            raise InvalidInput(f'"model" is {envelope.model!r}, but the path says {name_in_path!r}')
        served = self._supervisor.find(name) if name else self._supervisor.only()
        model = served.ready()
        key = (model.name, envelope.signature or DEFAULT_SIGNATURE)
        lane = self._lanes.get(key)
        if lane is None or lane.model is not model:
            signature = model.signature(key[1])
            if signature is None:
                names = ", ".join(each.name for each in model.signatures)
                raise UnknownModel(f"model {model.name!r} has no signature {key[1]!r}; it has: {names}")
            lane = self._lanes[key] = _Lane(model, signature, self._metrics)
        return lane

    def _timeout_s(self, envelope: Envelope) -> float:
        if envelope.timeout_ms is None:
            return self._request_timeout_s
        if envelope.timeout_ms <= 0:
            raise InvalidInput(f'"timeout_ms" must be above 0 milliseconds, got {envelope.timeout_ms:g}')
        return envelope.timeout_ms / 1000

    def _write(self, lane: _Lane, reply: PredictReply) -> bytes:
        outputs = lane.codec.write(reply.rows[0])
        answer = {"model": lane.model.name, "signature": lane.signature.name, "outputs": outputs}
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)

    def _count(self, metrics: LaneMetrics | None, status: int, arrived_at: float) -> None:
        if metrics is None:
            self._metrics.count_unplaced(status)
            return
        metrics.requests(status).inc()
        metrics.request_duration.observe(time.monotonic() - arrived_at)


def _provenance(reply: PredictReply) -> list[tuple[bytes, bytes]]:
    """How the request was served, as reply headers."""
    how = reply.provenance
    bucket = "x".join(map(str, (how.bucket.rows, *how.bucket.lengths)))
    return [
        (b"x-batchd-batch-size", b"%d" % how.batch_size),
        (b"x-batchd-bucket", bucket.encode()),
        (b"x-batchd-padding", b"%.3f" % how.padding_ratio),
        (b"x-batchd-queue-ms", b"%.3f" % (how.queue_s * 1000)),
        (b"x-batchd-compute-ms", b"%.3f" % (how.compute_s * 1000)),
        (b"x-batchd-reason", how.reason.encode()),
    ]


async def _reply_error(send: Send, error: BatchdError) -> None:
    seconds = retry_after(error)
    headers = [(b"retry-after", seconds.encode())] if seconds else []
    await _reply(send, error.status, error_body(error.message), headers)


async def _reply(send: Send, status: int, body: bytes, headers: Headers) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


def _plain(message: str) -> str:
    """Says "field" and "body" where msgspec speaks of its types and of `$`."""
    return message.replace(" - at `$.", " at `").replace("`$`", "the body").replace("Object ", "the body ")


def _explain_json(body: bytes, error: Exception) -> str:
    """Names the position of what isn't JSON."""
    if not body.strip():
        return 'the body is empty; expected JSON such as {"inputs": {"x": [1.0, 2.0]}}'
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as precise:
        near = body[precise.pos : precise.pos + 9] if precise.pos < len(body) else b""
        hint = '; write "NaN", "Infinity" and "-Infinity" as strings' if b"NaN" in near or b"Inf" in near else ""
        return f"the body is not valid JSON: {precise}{hint}"
    return f"the body is not valid JSON: {error}"
