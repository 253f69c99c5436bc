"""Everything of the protocol but inference: health, metadata, configuration, statistics, repository."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request

from server.errors import ModelUnavailable
from server.http.body import BodyLimits, read_body
from server.http.envelope import read_envelope
from server.http.openapi import ERRORS
from server.metrics import Metrics
from server.open_inference import metadata
from server.supervisor import Supervisor

_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"
_INDEX_BODY = {
    "content": {"application/json": {"schema": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}
}
_CHANGE_BODY = {
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"parameters": {"type": ["object", "null"]}}},
        }
    }
}
_CHANGE: dict[str, Any] = {
    "tags": ["v2"],
    "responses": {status: ERRORS[status] for status in (400, 404, 413, 415, 501, 503)},
    "openapi_extra": {"requestBody": _CHANGE_BODY},
}
_UNKNOWN: dict[int | str, dict[str, Any]] = {status: ERRORS[status] for status in (404, 503)}


class IndexWish(msgspec.Struct):
    """Body of the repository index: whether only models that can answer are meant."""

    ready: bool = False


class ChangeWish(msgspec.Struct):
    """Body of a load or an unload."""

    parameters: dict[str, Any] | None = None


_CHANGE_DECODER = msgspec.json.Decoder(ChangeWish)
_INDEX_DECODER = msgspec.json.Decoder(IndexWish)


def add_routes(app: FastAPI, supervisor: Supervisor, metrics: Metrics, limits: BodyLimits) -> None:
    """Adds the routes, in the form without and with a version."""
    _add_server(app, supervisor)
    _add_models(app, supervisor, metrics)
    _add_repository(app, supervisor, limits)


def _add_server(app: FastAPI, supervisor: Supervisor) -> None:
    @app.get("/v2", summary="Open Inference Protocol: the server and its extensions", tags=["v2"])
    async def server() -> dict[str, Any]:
        return metadata.server_metadata(app.version)

    @app.get("/v2/health/live", summary="Whether the process answers", tags=["v2"])
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Whether all models can answer", tags=["v2"], responses={503: ERRORS[503]})
    async def ready() -> dict[str, bool]:
        if reason := supervisor.not_ready():
            raise ModelUnavailable(f"not ready: {reason}")
        return {"ready": True}


def _add_models(app: FastAPI, supervisor: Supervisor, metrics: Metrics) -> None:
    @app.get("/v2/models/stats", summary="Statistics of all models", tags=["v2"])
    async def all_statistics() -> dict[str, Any]:
        return metadata.statistics(supervisor.models, metrics)

    @app.get(f"{_MODEL}/ready", summary="Whether a model can answer", tags=["v2"], responses=_UNKNOWN)
    @app.get(f"{_VERSION}/ready", summary="Whether a version can answer", tags=["v2"], responses=_UNKNOWN)
    async def model_ready(model: str, version: str = "") -> dict[str, Any]:
        ready = supervisor.find(model, version).ready()
        if supervisor.draining:
            raise ModelUnavailable("the server is shutting down")
        return {"name": ready.name, "ready": True}

    @app.get(_MODEL, summary="A model's tensors", tags=["v2"], responses=_UNKNOWN)
    @app.get(_VERSION, summary="A version's tensors", tags=["v2"], responses=_UNKNOWN)
    async def model_metadata(model: str, version: str = "") -> dict[str, Any]:
        return metadata.model_metadata(supervisor, model, version)

    @app.get(f"{_MODEL}/config", summary="A model's configuration", tags=["v2"], responses=_UNKNOWN)
    @app.get(f"{_VERSION}/config", summary="A version's configuration", tags=["v2"], responses=_UNKNOWN)
    async def model_config(model: str, version: str = "") -> dict[str, Any]:
        return metadata.model_config(supervisor.find(model, version).ready())

    @app.get(f"{_MODEL}/stats", summary="A model's statistics", tags=["v2"], responses=_UNKNOWN)
    @app.get(f"{_VERSION}/stats", summary="A version's statistics", tags=["v2"], responses=_UNKNOWN)
    async def model_statistics(model: str, version: str = "") -> dict[str, Any]:
        return metadata.statistics(metadata.chosen(supervisor, model, version), metrics)


def _add_repository(app: FastAPI, supervisor: Supervisor, limits: BodyLimits) -> None:
    @app.post(
        "/v2/repository/index",
        summary="All models and their states",
        tags=["v2"],
        responses={status: ERRORS[status] for status in (400, 413)},
        openapi_extra={"requestBody": _INDEX_BODY},
    )
    async def index(request: Request) -> list[dict[str, str]]:
        body = await read_body(request.scope["headers"], request.receive, limits)
        wish = read_envelope(_INDEX_DECODER, body) if body.strip() else IndexWish()
        return metadata.repository_index(supervisor, ready_only=wish.ready)

    async def read_change(request: Request) -> ChangeWish:
        body = await read_body(request.scope["headers"], request.receive, limits)
        return read_envelope(_CHANGE_DECODER, body) if body.strip() else ChangeWish()

    @app.post("/v2/repository/models/{model}/load", summary="Load a model, or load it anew", **_CHANGE)
    async def load(model: str, request: Request) -> dict[str, Any]:
        wish = await read_change(request)
        metadata.refuse_load_parameters(wish.parameters or ())
        await supervisor.load(model)
        return {}

    @app.post("/v2/repository/models/{model}/unload", summary="Stop serving a model", **_CHANGE)
    async def unload(model: str, request: Request) -> dict[str, Any]:
        await read_change(request)
        await supervisor.unload(model)
        return {}
