"""The ASGI application: the hot path in front, FastAPI for everything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

import msgspec
from fastapi import FastAPI, Response
from fastapi_offline import FastAPIOffline
from starlette.routing import BaseRoute

from server.access import Access
from server.catalogue import ServedModel
from server.dispatcher import Dispatcher
from server.errors import ModelUnavailable
from server.http import errors, openapi
from server.http.body import BodyLimits, CallerLeft, Message, Receive, Scope, Send
from server.http.exchange import CLIENT_CLOSED_REQUEST, Exchange
from server.http.guard import Guard, right_of_request
from server.http.nonfinite import Nonfinite
from server.http.openapi import ERRORS
from server.http.predict import PATH, PredictFormat
from server.http.refused import REQUEST
from server.http.tfs import service as tfs
from server.http.turns import Turns
from server.http.v2 import infer, routes
from server.metrics import CONTENT_TYPE, Metrics
from server.observer import Observer
from server.request_context import REQUEST_ID, RequestContext, begin_request
from server.supervisor import Supervisor
from server.tokens import Right

ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
_DESCRIPTION = "Write a TensorFlow function for one example; serve it at batched speed."


class Application:
    """Sends what asks for predictions past the framework, and all of TensorFlow Serving's paths."""

    def __init__(
        self,
        predict: Exchange,
        infer: Exchange,
        tfs: tfs.TfsService,
        rest: FastAPI,
        guard: Guard,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer
        self._predict = predict
        self._infer = infer
        self._tfs = tfs
        self._rest = rest
        self._guard = guard

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Those that the framework answers."""
        return self._rest.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or refuses it."""
        if REQUEST in scope:
            return  # its connection has refused it since it asked for this call
        request = scope[REQUEST] = begin_request(scope["headers"])
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the HTTP server knows what was asked, and leaves the body out
        answer, right = self._choose(scope)
        observer = self._observer
        if observer is not None and observer.sees_all:
            _describe(request, scope)
            observer.request_began(request, scope["headers"])
        try:
            if right is None or not await self._guard.refuses(right, scope, send):
                await answer(scope, receive, _with_request_id(send, request) if answer is self._rest else send)
        except CallerLeft:
            request.status = CLIENT_CLOSED_REQUEST
        except BaseException as error:
            # The context stays open: the HTTP server is about to log the error.
            request.error, request.status = error, request.status or 500
            self._tell_end(request, scope)
            raise
        self._tell_end(request, scope)
        request.ended = True

    def _tell_end(self, request: RequestContext, scope: Scope) -> None:
        request.settle()
        observer = self._observer
        if observer is not None and (observer.sees_all or request.status >= 400):
            _describe(request, scope)
            observer.request_ended(request)

    def _choose(self, scope: Scope) -> tuple[ASGI, Right | None]:
        """Returns who answers, and the right that a caller needs for it."""
        if scope["type"] != "http":
            return self._rest, None
        path: str = scope["path"]
        if _is_predict(path):
            return self._predict, "predict"
        if path.endswith("/infer") and infer.PATH.fullmatch(path):
            return self._infer, "predict"
        if tfs.is_here(path):
            return self._tfs, "predict"
        return self._rest, right_of_request(self._rest.routes, scope)


def create_application(
    supervisor: Supervisor,
    dispatcher: Dispatcher,
    metrics: Metrics,
    *,
    access: Access,
    body_limit_bytes: int,
    request_timeout_s: float,
    element_limit: int = 4 * 1024 * 1024,
    nonfinite: Nonfinite = "token",
    observer: Observer | None = None,
    turns: Turns | None = None,
) -> Application:
    """Returns the whole HTTP application for the models of a supervisor.

    `access`: who may do what. `turns`: those of the connections that requests come by.
    """
    limits, turns = BodyLimits(body_limit_bytes), turns or Turns()
    own = PredictFormat(supervisor, metrics, request_timeout_s=request_timeout_s, element_limit=element_limit)
    foreign: dict[str, Any] = {
        "request_timeout_s": request_timeout_s,
        "element_limit": element_limit,
        "nonfinite": nonfinite,
    }
    v2 = infer.InferFormat(supervisor, metrics, **foreign)
    v1 = tfs.TfsFormat(supervisor, metrics, example_limit=dispatcher.queue_limit_examples, **foreign)
    app = FastAPIOffline(
        title="batchd", version=product_version(), description=_DESCRIPTION, redoc_url=None, redirect_slashes=False
    )
    errors.install(app)
    openapi.install(app, with_tokens=access.has_tokens)
    _add_routes(app, supervisor, metrics)
    routes.add_routes(app, supervisor, metrics, limits)
    return Application(
        Exchange(own.read, dispatcher, metrics, limits, turns),
        Exchange(v2.read, dispatcher, metrics, limits, turns, compresses=True),
        tfs.TfsService(v1, supervisor, dispatcher, metrics, limits, turns),
        app,
        Guard(access, metrics),
        observer,
    )


def product_version() -> str:
    """Returns the version of the installed distribution."""
    try:
        return version("batchd")
    except PackageNotFoundError:
        return "0 (not installed)"


def _describe(request: RequestContext, scope: Scope) -> None:
    request.method, request.path = scope["method"], (scope.get("raw_path") or b"").decode("ascii", "replace")


def _with_request_id(send: Send, request: RequestContext) -> Send:
    """Replies of the framework carry the id, too."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            request.status = message["status"]
            message["headers"] = [*message["headers"], (REQUEST_ID, request.id)]
        await send(message)

    return sending


def _is_predict(path: str) -> bool:
    if not path.startswith(PATH):
        return False
    rest = path[len(PATH) :]
    return not rest or (rest[0] == "/" and len(rest) > 1 and "/" not in rest[1:])


def _add_routes(app: FastAPI, supervisor: Supervisor, metrics: Metrics) -> None:
    @app.get("/", summary="Where things are")
    async def index() -> dict[str, Any]:
        return {
            "name": "batchd",
            "version": app.version,
            "predict": "POST /predict, POST /predict/{model}",
            "protocols": ["/v2 (Open Inference Protocol)", "/v1/models/{model} (TensorFlow Serving)"],
            "see": ["/models", "/docs", "/metrics", "/healthz", "/readyz"],
        }

    @app.get("/healthz", summary="Whether the process answers")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Whether all models can answer (200) or not (503)", responses={503: ERRORS[503]})
    async def readyz() -> dict[str, str]:
        if reason := supervisor.not_ready():
            raise ModelUnavailable(f"not ready: {reason}")
        return {"status": "ready"}

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def exposition() -> Response:
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    @app.get("/models", summary="What is served")
    async def models() -> dict[str, Any]:
        return {"models": [_summary(model) for model in supervisor.models]}

    @app.get(
        "/models/{name}",
        summary="Signatures, buckets and the vectorization report",
        responses={status: ERRORS[status] for status in (404, 503)},
    )
    async def model(name: str, version: str = "") -> dict[str, Any]:
        served = supervisor.find(name, version)
        details = msgspec.to_builtins(served.description) if served.description else {}
        return _summary(served) | details


def _summary(model: ServedModel) -> dict[str, Any]:
    description = model.description
    return {
        "name": model.name,
        "state": model.state,
        "source": model.source.location,
        "restarts": model.restarts,
        **({"version": model.version} if model.version else {}),
        **({"engine": description.engine} if description else {}),
        **({"being_loaded": True} if model.being_loaded else {}),
        **({"last_failure": model.failure} if model.failure else {}),
    }
