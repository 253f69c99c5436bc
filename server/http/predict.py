"""`POST /predict` and `/predict/{model}`: batchd's own format, one example a request.

body -> envelope -> model, signature -> arrays -> dispatcher -> outputs -> JSON
"""

from __future__ import annotations

from functools import partial

import msgspec
import orjson

from server.errors import InvalidInput
from server.http.body import check_elements
from server.http.codec import SignatureCodec
from server.http.envelope import read_envelope
from server.http.exchange import JSON, Arrival, Write
from server.lanes import DEFAULT_SIGNATURE, Lane, Lanes
from server.metrics import Metrics
from server.prediction import PredictReply, PredictRequest
from server.supervisor import Supervisor

PATH = "/predict"


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """A request's body. `inputs` stay JSON text until the signature is known."""

    inputs: dict[str, msgspec.Raw]
    model: str | None = None
    version: str | None = None
    signature: str | None = None
    timeout_ms: float | None = None


class PredictFormat:
    """Reads and writes batchd's own format."""

    def __init__(
        self, supervisor: Supervisor, metrics: Metrics, *, request_timeout_s: float, element_limit: int
    ) -> None:
        self._lanes = Lanes(supervisor, metrics, SignatureCodec)
        self._request_timeout_s = request_timeout_s
        self._element_limit = element_limit
        self._decoder = msgspec.json.Decoder(Envelope)

    def read(self, arrival: Arrival) -> tuple[PredictRequest, Write]:
        """Returns the request and how to answer it. Raises InvalidInput, UnknownModel, ModelUnavailable."""
        check_elements(arrival.body, self._element_limit)
        envelope = read_envelope(self._decoder, arrival.body)
        lane = self._find_lane(arrival.path[len(PATH) + 1 :], envelope)
        arrival.metrics = lane.metrics
        deadline = arrival.deadline(self._timeout_s(envelope))
        example = lane.codec.read(envelope.inputs)
        request = PredictRequest(lane.model.name, lane.signature.name, (example,), deadline, attachment=lane.attachment)
        return request, partial(self._write, lane)

    def _find_lane(self, name_in_path: str, envelope: Envelope) -> Lane[SignatureCodec]:
        if name_in_path and envelope.model not in (None, name_in_path):
            raise InvalidInput(f'"model" is {envelope.model!r}, but the path says {name_in_path!r}')
        name, signature = name_in_path or envelope.model, envelope.signature or DEFAULT_SIGNATURE
        return self._lanes.find(name, envelope.version or "", signature)

    def _timeout_s(self, envelope: Envelope) -> float:
        if envelope.timeout_ms is None:
            return self._request_timeout_s
        if envelope.timeout_ms <= 0:
            raise InvalidInput(f'"timeout_ms" must be above 0 milliseconds, got {envelope.timeout_ms:g}')
        return envelope.timeout_ms / 1000

    def _write(self, lane: Lane[SignatureCodec], reply: PredictReply) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        outputs = lane.codec.write(reply.rows[0])
        answer = {"model": lane.model.name, "signature": lane.signature.name, "outputs": outputs}
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), [JSON]
