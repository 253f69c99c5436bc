"""The ASGI application: the hot path in front, FastAPI for everything else."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from fastapi import FastAPI, Response
from fastapi_offline import FastAPIOffline

from server.dispatcher import Dispatcher
from server.errors import ModelUnavailable
from server.http import errors, openapi
from server.http.body import Receive, Scope, Send
from server.http.predict import PATH, PredictEndpoint
from server.metrics import CONTENT_TYPE, Metrics
from server.supervisor import ServedModel, Supervisor

_DESCRIPTION = "Write a TensorFlow function for one example; serve it at batched speed."


class Application:
    """Sends `/predict` and `/predict/{model}` past the framework."""

    def __init__(self, predict: PredictEndpoint, rest: FastAPI) -> None:
        self._predict = predict
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "http" and _is_hot(scope["path"]):
            await self._predict(scope, receive, send)
        else:
            await self._rest(scope, receive, send)


def create_application(
    supervisor: Supervisor,
    dispatcher: Dispatcher,
    metrics: Metrics,
    *,
    body_limit_bytes: int,
    request_timeout_s: float,
) -> Application:
    """Returns the whole HTTP application for the models of a supervisor."""
    predict = PredictEndpoint(
        supervisor,
        dispatcher,
        metrics,
        body_limit_bytes=body_limit_bytes,
        request_timeout_s=request_timeout_s,
    )
    app = FastAPIOffline(title="batchd", version=product_version(), description=_DESCRIPTION, redoc_url=None)
    errors.install(app)
    openapi.install(app)
    _add_routes(app, supervisor, metrics)
    return Application(predict, app)


def product_version() -> str:
    """Returns the version of the installed distribution."""
    try:
        return version("batchd")
    except PackageNotFoundError:
        return "0 (not installed)"


def _is_hot(path: str) -> bool:
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
            "see": ["/models", "/docs", "/metrics", "/healthz", "/readyz"],
        }

    @app.get("/healthz", summary="Whether the process answers")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Whether all models can answer (200) or not (503)")
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

    @app.get("/models/{name}", summary="Signatures, buckets and the vectorization report")
    async def model(name: str) -> dict[str, Any]:
        served = supervisor.find(name)
        details = msgspec.to_builtins(served.description) if served.description else {}
        return _summary(served) | details


def _summary(model: ServedModel) -> dict[str, Any]:
    description = model.description
    return {
        "name": model.name,
        "state": model.state,
        "source": model.source.location,
        "restarts": model.restarts,
        **({"version": description.version, "engine": description.engine} if description else {}),
    }
