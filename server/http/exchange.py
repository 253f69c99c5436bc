"""The hot path that the protocols share, a bare ASGI application in front of the framework.

    body -> (protocol) -> PredictRequest -> dispatcher -> PredictReply -> (protocol) -> reply

A protocol is a function from what arrived to a request and to the function that writes its reply. Here is the rest:
limits, errors, callers that leave, metrics, compressed replies, and the headers that say how it was served.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from server.dispatcher import Dispatcher
from server.errors import BatchdError, DeadlineUnreachable
from server.http.body import BodyLimits, CallerLeft, Headers, Receive, Scope, Send, read_body
from server.http.errors import error_body, retry_after
from server.http.leaving import CallerWatch
from server.http.turns import Turns
from server.metrics import LaneMetrics, Metrics
from server.prediction import PredictReply, PredictRequest
from server.provenance import headers_of
from server.request_context import REQUEST_ID, current_request

_log = logging.getLogger("batchd.http")

CLIENT_CLOSED_REQUEST = 499
JSON = (b"content-type", b"application/json")
_COMPRESSED_FROM_BYTES = 1024
_IN_A_THREAD_FROM_BYTES = 64 * 1024
_ENCODERS = {b"gzip": 31, b"deflate": 15}
_SOON_S = 0.02
"""Where reading and replying takes less, a deadline that is missed by it has been next to none."""


@dataclass(slots=True)
class Arrival:
    """A request that has arrived whole. The protocol sets `metrics` as soon as it knows who is asked.

    `at`: when it was read; `waits_since`: since when it may have waited for that.
    """

    path: str
    headers: Headers
    body: bytes
    at: float
    waits_since: float
    turns: Turns
    metrics: LaneMetrics | None = None

    def deadline(self, timeout_s: float) -> float:
        """Returns by when its answer must be there. Raises DeadlineUnreachable if that can't be, whoever is asked."""
        self.turns.allow(timeout_s)
        lost_s = self.at - self.waits_since + self.turns.reply_s(self.at)
        if lost_s < timeout_s or lost_s < _SOON_S:
            return self.at + timeout_s - lost_s
        if self.metrics is not None:
            self.metrics.outcomes(DeadlineUnreachable.outcome).inc()
        raise DeadlineUnreachable(
            f"the server is too busy for this deadline: reading the request and replying takes {lost_s:.3g} s of its "
            f"{timeout_s:.3g} s; come later, or allow more time"
        )

    def header(self, name: bytes) -> bytes | None:
        """Returns the value of a header, by its lower-case name."""
        return next((value for key, value in self.headers if key == name), None)


Write: TypeAlias = Callable[[PredictReply], tuple[bytes, list[tuple[bytes, bytes]]]]
"""Returns the body and the headers of the reply."""

Read: TypeAlias = Callable[[Arrival], tuple[PredictRequest, Write]]
"""Raises BatchdError for what can't be answered."""


class Exchange:
    """Answers POST requests of one protocol. `compresses`: replies, for callers that accept it."""

    def __init__(
        self,
        read: Read,
        dispatcher: Dispatcher,
        metrics: Metrics,
        limits: BodyLimits,
        turns: Turns,
        *,
        compresses: bool = False,
    ) -> None:
        self._read = read
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._limits = limits
        self._turns = turns
        self._compresses = compresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            if scope["method"] != "POST":
                self._metrics.count_unplaced(405, "method")
                await reply_not_allowed(scope, send, "POST")
                return
            body = await read_body(scope["headers"], receive, self._limits)
        except CallerLeft:
            _note_status(CLIENT_CLOSED_REQUEST)
            return
        except BatchdError as error:
            self._metrics.count_unplaced(error.status, error.outcome)
            await reply_error(send, error)
            return
        now = time.monotonic()
        waits_since = self._turns.waits_since(scope, now)
        arrival = Arrival(scope["path"], scope["headers"], body, now, waits_since, self._turns)
        await self._answer(arrival, scope, send)

    async def _answer(self, arrival: Arrival, scope: Scope, send: Send) -> None:
        try:
            request, write = self._read(arrival)
            with CallerWatch(scope):
                reply = await self._dispatcher.predict(request)
            answered_at = time.monotonic()
            body, headers = write(reply)
            if self._compresses and len(body) >= _COMPRESSED_FROM_BYTES:
                body = await _compressed(body, arrival.header(b"accept-encoding"), headers)
        except CallerLeft:
            self._count_failure(arrival, CLIENT_CLOSED_REQUEST, "cancelled")
            _note_status(CLIENT_CLOSED_REQUEST)
        except BatchdError as error:
            self._count_failure(arrival, error.status, error.outcome)
            await reply_error(send, error)
        except Exception as error:
            _log.exception("a request failed unexpectedly")
            self._count_failure(arrival, 500, "internal")
            note_error(error)
            message = f"internal error: {type(error).__name__}; the server's log has the details"
            await send_reply(send, 500, error_body(message), [JSON])
        else:
            written_at = time.monotonic()
            how = reply.provenance
            if arrival.metrics is not None:
                arrival.metrics.count_answer(written_at - arrival.at, len(reply.rows), how, written_at - answered_at)
            if request_context := current_request.get():
                request_context.lane, request_context.how = arrival.metrics, how
                request_context.answered_at, request_context.written_at = answered_at, written_at
            await send_reply(send, 200, body, [*headers, *headers_of(how)])

    def _count_failure(self, arrival: Arrival, status: int, reason: str) -> None:
        if arrival.metrics is None:
            self._metrics.count_unplaced(status, reason)
        else:
            arrival.metrics.count(status, time.monotonic() - arrival.at, reason)
            if request_context := current_request.get():
                request_context.lane = arrival.metrics


def _note_status(status: int) -> None:
    if request := current_request.get():
        request.status = status


def note_error(error: BaseException) -> None:
    """Keeps, for the log, why the current request gets no answer."""
    if request := current_request.get():
        request.error = error


async def reply_not_allowed(scope: Scope, send: Send, allowed: str) -> None:
    """Answers 405."""
    message = f"{scope['method']} is not allowed at {scope['path']}; {allowed} is"
    await send_reply(send, 405, error_body(message), [JSON, (b"allow", allowed.encode())])


async def reply_error(send: Send, error: BatchdError) -> None:
    """Answers with an error's status and sentence."""
    note_error(error)
    seconds = retry_after(error)
    headers = [(b"retry-after", seconds.encode())] if seconds else []
    await send_reply(send, error.status, error_body(error.message), [JSON, *headers])


async def send_reply(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Sends a whole reply, with the id of its request. `headers`: the content type, and others."""
    content_type, *others = headers
    sent = [content_type, (b"content-length", b"%d" % len(body)), *others]
    if request := current_request.get():
        request.status = status
        sent.append((REQUEST_ID, request.id))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


async def _compressed(body: bytes, accepted: bytes | None, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the body as its caller takes it, and adds the header that says so."""
    encoding = _encoding(accepted or b"")
    if encoding is None:
        return body
    headers += [(b"content-encoding", encoding), (b"vary", b"accept-encoding")]
    if len(body) < _IN_A_THREAD_FROM_BYTES:
        return _compress(body, encoding)
    return await asyncio.to_thread(_compress, body, encoding)


def _encoding(accepted: bytes) -> bytes | None:
    for offer in accepted.lower().split(b","):
        name, _, quality = offer.strip().partition(b";")
        if name.strip() in _ENCODERS and quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"):
            return name.strip()
    return None


def _compress(body: bytes, encoding: bytes) -> bytes:
    stream = zlib.compressobj(1, zlib.DEFLATED, _ENCODERS[encoding])
    return stream.compress(body) + stream.flush()
