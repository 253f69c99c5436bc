"""`inference.GRPCInferenceService` on grpc.aio, in the event loop of the HTTP server: the same queue, the same words.

grpcio is imported with this file only, which is when a port is asked for. (TensorFlow brings grpcio and protobuf.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from server.dispatcher import Dispatcher
from server.errors import BatchdError, InvalidInput, Unsupported
from server.grpc.credentials import server_credentials
from server.grpc.guard import Guard
from server.grpc.infer import InferCall
from server.grpc.messages import MESSAGES
from server.lanes import Lanes
from server.metrics import Metrics
from server.open_inference import metadata
from server.open_inference.request import InferSignature
from server.provenance import headers_of
from server.supervisor import Supervisor
from server.tls import Tls

_log = logging.getLogger("batchd.grpc")

SERVICE = "inference.GRPCInferenceService"
_CLIENT_CLOSED_REQUEST = 499
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_LONGEST_MESSAGE = 2000
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class InferenceService:
    """Answers the protocol's calls. What they tell is `open_inference.metadata`; here it becomes messages."""

    def __init__(
        self,
        supervisor: Supervisor,
        dispatcher: Dispatcher,
        metrics: Metrics,
        *,
        product_version: str,
        request_timeout_s: float,
        element_limit: int,
    ) -> None:
        self._supervisor = supervisor
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._version = product_version
        self._request_timeout_s = request_timeout_s
        self._lanes = Lanes(supervisor, metrics, partial(InferSignature, text_limit=element_limit))

    def handler(self) -> Any:
        """Returns what a grpc.aio server takes."""
        calls: dict[str, Callable[[Any], dict[str, Any]]] = {
            "ServerLive": lambda _: {"live": True},
            "ServerReady": lambda _: {"ready": self._supervisor.not_ready() is None},
            "ModelReady": self._model_ready,
            "ServerMetadata": lambda _: metadata.server_metadata(self._version),
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._repository_index,
        }
        handlers = {name: _unary(name, partial(self._tell, name, answer)) for name, answer in calls.items()}
        for name, change in {"RepositoryModelLoad": self._load, "RepositoryModelUnload": self._unload}.items():
            handlers[name] = _unary(name, partial(self._change, name, change))
        handlers["ModelInfer"] = _unary("ModelInfer", self._infer)
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            _refuse_streams,
            request_deserializer=MESSAGES["ModelInferRequest"].FromString,
            response_serializer=MESSAGES["ModelStreamInferResponse"].SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _tell(self, name: str, answer: Callable[[Any], dict[str, Any]], message: Any, context: Context) -> Any:
        try:
            return json_format.ParseDict(answer(message), MESSAGES[f"{name}Response"]())
        except BatchdError as error:
            await _abort(context, error)

    async def _change(self, name: str, change: Callable[[Any], Awaitable[None]], message: Any, context: Context) -> Any:
        try:
            await change(message)
        except BatchdError as error:
            await _abort(context, error)
        return MESSAGES[f"{name}Response"]()

    async def _infer(self, message: Any, context: Context) -> Any:
        arrived_at = time.monotonic()
        call = InferCall(message, arrived_at)
        remaining_s = context.time_remaining()
        timeout_s = self._request_timeout_s if remaining_s is None else min(remaining_s, self._request_timeout_s)
        status = _CLIENT_CLOSED_REQUEST
        try:
            reply = await self._dispatcher.predict(call.read(self._lanes, timeout_s))
            answered_at = time.monotonic()
            answer = call.write(reply)
            status = 200
        except BatchdError as error:
            status = error.status
            await _abort(context, error)
        except Exception as error:
            status = 500
            _log.exception("a request failed unexpectedly")
            sentence = f"internal error: {type(error).__name__}; the server's log has the details"
            await context.abort(grpc.StatusCode.INTERNAL, sentence)
        finally:
            seconds = time.monotonic() - arrived_at
            if call.metrics is None:
                self._metrics.count_unplaced(status)
            elif status != 200:
                call.metrics.count(status, seconds)
        how = reply.provenance
        context.set_trailing_metadata(tuple((name.decode(), value.decode()) for name, value in headers_of(how)))
        assert call.metrics is not None
        call.metrics.serialise_duration.observe(arrived_at + seconds - answered_at)
        call.metrics.count_answer(seconds, len(reply.rows), how.queue_s, how.compute_s)
        return answer

    def _model_ready(self, message: Any) -> dict[str, Any]:
        model = self._supervisor.find(message.name, message.version)
        return {"ready": model.state == "ready" and not self._supervisor.draining}

    def _model_metadata(self, message: Any) -> dict[str, Any]:
        return metadata.model_metadata(self._supervisor, message.name, message.version)

    def _model_config(self, message: Any) -> dict[str, Any]:
        model = self._supervisor.find(message.name, message.version).ready()
        return {"config": metadata.model_config(model)}

    def _model_statistics(self, message: Any) -> dict[str, Any]:
        if not message.name:
            return metadata.statistics(self._supervisor.models, self._metrics)
        return metadata.statistics(metadata.chosen(self._supervisor, message.name, message.version), self._metrics)

    async def _load(self, message: Any) -> None:
        metadata.refuse_load_parameters(message.parameters)
        await self._supervisor.load(message.model_name)

    async def _unload(self, message: Any) -> None:
        await self._supervisor.unload(message.model_name)

    def _repository_index(self, message: Any) -> dict[str, Any]:
        return {"models": metadata.repository_index(self._supervisor, ready_only=message.ready)}


def create_server(
    service: InferenceService, address: str, body_limit_bytes: int, guard: Guard, tls: Tls | None = None
) -> tuple[grpc.aio.Server, int]:
    """Returns a server, not started, and the port that it took. Raises OSError if it can't listen there."""
    options = [
        ("grpc.max_receive_message_length", body_limit_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(interceptors=(guard,), options=options)
    server.add_generic_rpc_handlers((service.handler(),))
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, server_credentials(tls))
    except RuntimeError as error:
        raise OSError(str(error)) from None
    if port == 0:
        raise OSError("the address can't be listened on")
    return server, port


def _unary(name: str, behaviour: Callable[[Any, Context], Awaitable[Any]]) -> Any:
    """gRPC itself would answer a message that can't be read with INTERNAL, as if it were our fault."""

    async def answer(message: Any, context: Context) -> Any:
        if isinstance(message, DecodeError):
            await _abort(context, InvalidInput(f"the message is not a {name}Request: {message}"))
        return await behaviour(message, context)

    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=partial(_parse, MESSAGES[f"{name}Request"]),
        response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
    )


def _parse(message_class: Any, raw: bytes) -> Any:
    try:
        return message_class.FromString(raw)
    except DecodeError as error:
        return error


async def _refuse_streams(messages: Any, context: Context) -> None:
    await _abort(context, Unsupported("streams aren't served: each request has one answer; call ModelInfer"))


async def _abort(context: Context, error: BatchdError) -> NoReturn:
    code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
    wait_s = error.retry_after_s
    trailing = () if wait_s is None else (("retry-after", str(max(1, ceil(wait_s)))),)
    await context.abort(code, error.message[:_LONGEST_MESSAGE], trailing)
    raise AssertionError("abort raises")
