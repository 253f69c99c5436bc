"""The OpenAPI description of what is served in front of the framework: the hot paths, and all beneath `/v1/models`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.http.guard import right_of

_ANY = {"type": "object", "additionalProperties": True}
_PARAMETERS = _ANY | {
    "description": "timeout (µs), priority (1 first), binary_data_output, signature; of a tensor: "
    "binary_data_size or binary_data."
}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "description": "[n, ...]"},
        "datatype": {"type": "string", "description": "BOOL, UINT8 to UINT64, INT8 to INT64, FP16 to FP64, BYTES."},
        "parameters": _PARAMETERS,
        "data": {"type": "array", "items": {}, "description": "Flat or nested; left out where the bytes follow."},
    },
}
_SCHEMAS: dict[str, Any] = {
    "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    "PredictRequest": {
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
            "version": {"type": "string", "description": "Without it, the latest."},
            "signature": {"type": "string", "default": "predict"},
            "timeout_ms": {"type": "number", "exclusiveMinimum": 0, "description": "Milliseconds until 504."},
        },
    },
    "PredictReply": {
        "type": "object",
        "required": ["model", "signature", "outputs"],
        "properties": {
            "model": {"type": "string"},
            "signature": {"type": "string"},
            "outputs": _ANY | {"description": "By output name."},
        },
    },
    "InferRequest": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "parameters": _PARAMETERS,
            "inputs": {"type": "array", "items": _TENSOR},
            "outputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "parameters": _PARAMETERS},
                },
            },
        },
    },
    "InferReply": {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": _TENSOR},
        },
    },
    "TfsRequest": {
        "type": "object",
        "description": "One of `instances` (a list of examples) and `inputs` (a list, or a list for each input).",
        "properties": {
            "signature_name": {"type": "string", "default": "serving_default"},
            "instances": {"type": "array", "items": {}},
            "inputs": {},
        },
    },
    "TfsReply": {
        "type": "object",
        "description": "`predictions` for `instances`, `outputs` for `inputs`.",
        "properties": {"predictions": {"type": "array", "items": {}}, "outputs": {}},
    },
    "TfsStatus": {
        "type": "object",
        "required": ["model_version_status"],
        "properties": {"model_version_status": {"type": "array", "items": _ANY}},
    },
    "TfsMetadata": {
        "type": "object",
        "required": ["model_spec", "metadata"],
        "properties": {"model_spec": _ANY, "metadata": _ANY},
    },
}
_PROVENANCE = {
    "X-Batchd-Batch-Size": ("integer", "Examples in the batch that answered this request."),
    "X-Batchd-Bucket": ("string", "The padded shape: rows, and lengths, with x between them."),
    "X-Batchd-Padding": ("number", "Share of the batch's elements that was padding."),
    "X-Batchd-Queue-Ms": ("number", "Milliseconds in the queue."),
    "X-Batchd-Compute-Ms": ("number", "Milliseconds from sending the batch to having its answers."),
    "X-Batchd-Reason": ("string", "Why the batch was sent: full, idle, deadline, delay or drain."),
}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "content": _json("Error")}
    for status, meaning in {
        400: "The request doesn't fit the signature, the model's function rejects an example, or a load failed.",
        401: "No token, or one that isn't known.",
        403: "The caller may not do this.",
        404: "No such model, version or signature, or it is unloaded.",
        405: "Not with this method.",
        413: "The body exceeds a limit, or there are more examples than may wait.",
        415: "The body's Content-Encoding is not known.",
        422: "A parameter of the path doesn't fit.",
        501: "batchd doesn't do this.",
        503: "Queue full, draining, loading or restarting; see Retry-After.",
        504: "The deadline passed.",
    }.items()
}
"""Every reply that isn't a 2xx, by status."""

_PREDICT_ERRORS = (400, 404, 413, 415, 503, 504)
_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_TFS = ("/v1/models/{model}", "/v1/models/{model}/versions/{version}", "/v1/models/{model}/labels/{label}")


def install(app: FastAPI, *, with_tokens: bool) -> None:
    """Makes the schema at /openapi.json include the hot paths, and what each path asks of its callers."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            described.setdefault("components", {}).setdefault("schemas", {}).update(_SCHEMAS)
            described["paths"] |= _hot_paths()
            _add_rights(described, with_tokens)
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]  # FastAPI documents this way


def _add_rights(described: dict[str, Any], with_tokens: bool) -> None:
    """Adds the token that an operation needs, and the refusals; without tokens, only admin calls can be refused."""
    if with_tokens:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in described["paths"].items():
        right = right_of(path)
        for operation in operations.values():
            if with_tokens and right is not None:
                operation["security"] = [{"token": []}]
                operation["description"] = f"Needs a token with the right `{right}`."
                operation["responses"] |= _errors((401, 403))
            elif right == "admin":
                operation["responses"] |= _errors((403,))


def _hot_paths() -> dict[str, Any]:
    paths = {
        path: {"post": _predict(path, "Answer one example", "Predict")} for path in ("/predict", "/predict/{model}")
    }
    for path in ("/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer"):
        operation = _predict(path, "Answer examples (Open Inference Protocol)", "Infer", "v2")
        operation["responses"]["200"]["content"] |= _OCTETS
        paths[path] = {"post": operation}
    for path in _TFS:
        summary = "Answer examples (TensorFlow Serving)"
        paths[f"{path}:predict"] = {"post": _predict(path, summary, "Tfs", "tfs")}
        paths[path] = {"get": _describe(path, "The state of a model", "TfsStatus")}
        paths[f"{path}/metadata"] = {"get": _describe(path, "A model's signatures", "TfsMetadata")}
    return paths


def _predict(path: str, summary: str, kind: str, *tags: str) -> dict[str, Any]:
    headers = {
        name: {"schema": {"type": kind}, "description": meaning} for name, (kind, meaning) in _PROVENANCE.items()
    }
    answered = {"description": "The outputs.", "headers": headers, "content": _json(f"{kind}Reply")}
    return {
        "summary": summary,
        "tags": list(tags),
        "parameters": _parameters(path),
        "requestBody": {"required": True, "content": _json(f"{kind}Request")},
        "responses": {"200": answered, **_errors(_PREDICT_ERRORS)},
    }


def _describe(path: str, summary: str, schema: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "tags": ["tfs"],
        "parameters": _parameters(path),
        "responses": {
            "200": {"description": summary, "content": _json(schema)},
            **_errors((400, 404, 503)),
        },
    }


def _parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in ("model", "version", "label")
        if f"{{{name}}}" in path
    ]


def _errors(statuses: tuple[int, ...]) -> dict[str, Any]:
    return {str(status): ERRORS[status] for status in statuses}
