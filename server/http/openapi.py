"""The OpenAPI description of `/predict`, which is served in front of the framework."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "additionalProperties": False,
    "properties": {
        "inputs": {
            "type": "object",
            "additionalProperties": True,
            "description": "One example, by input name: nested lists, a number, a boolean or a string. Bytes "
            'that aren\'t UTF-8 go as {"b64": "..."}; "NaN", "Infinity" and "-Infinity" as strings.',
        },
        "model": {
            "type": "string",
            "description": "Not needed in the path form, or when only one is served.",
        },
        "signature": {"type": "string", "default": "predict"},
        "timeout_ms": {"type": "number", "exclusiveMinimum": 0, "description": "Milliseconds until 504."},
    },
}
_REPLY = {
    "type": "object",
    "required": ["model", "signature", "outputs"],
    "properties": {
        "model": {"type": "string"},
        "signature": {"type": "string"},
        "outputs": {"type": "object", "additionalProperties": True, "description": "By output name."},
    },
}
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_PROVENANCE = {
    "X-Batchd-Batch-Size": ("integer", "Examples in the batch that answered this request."),
    "X-Batchd-Bucket": ("string", "The padded shape: rows, and lengths, with x between them."),
    "X-Batchd-Padding": ("number", "Share of the batch's elements that was padding."),
    "X-Batchd-Queue-Ms": ("number", "Milliseconds in the queue."),
    "X-Batchd-Compute-Ms": ("number", "Milliseconds from sending the batch to having its answers."),
    "X-Batchd-Reason": ("string", "Why the batch was sent: full, idle, deadline, delay or drain."),
}
_ERRORS = {
    "400": "The inputs don't fit the signature, or the model's function rejects the example.",
    "404": "No such model or signature.",
    "413": "The body exceeds the limit.",
    "503": "Queue full, draining, loading or restarting; see Retry-After.",
    "504": "The deadline passed.",
}


def install(app: FastAPI) -> None:
    """Makes the schema at /openapi.json include the hot path."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            described.setdefault("components", {}).setdefault("schemas", {}).update(
                PredictRequest=_REQUEST, PredictReply=_REPLY, Error=_ERROR
            )
            in_path = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
            described["paths"] |= {
                "/predict": {"post": _operation("predict", [])},
                "/predict/{model}": {"post": _operation("predict_model", [in_path])},
            }
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]  # FastAPI documents this way


def _operation(operation_id: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    headers = {
        name: {"schema": {"type": kind}, "description": meaning} for name, (kind, meaning) in _PROVENANCE.items()
    }
    answered = {"description": "The outputs.", "headers": headers, "content": _json("PredictReply")}
    refused = {status: {"description": meaning, "content": _json("Error")} for status, meaning in _ERRORS.items()}
    return {
        "summary": "Answer one example",
        "operationId": operation_id,
        "parameters": parameters,
        "requestBody": {"required": True, "content": _json("PredictRequest")},
        "responses": {"200": answered, **refused},
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
