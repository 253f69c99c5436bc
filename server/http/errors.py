"""Every reply that isn't a 2xx is `{"error": "sentence"}`: ours, the framework's, and the unexpected."""

from __future__ import annotations

import logging
from http import HTTPStatus
from math import ceil

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from server.errors import BatchdError
from server.request_context import current_request

_log = logging.getLogger("batchd.http")


_LONGEST_MESSAGE = 2000


def error_body(message: str) -> bytes:
    """Returns the JSON of an error; a message that repeats much of a large request is cut."""
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}..."
    return orjson.dumps({"error": message})


def retry_after(error: BatchdError) -> str | None:
    """Returns the Retry-After header's whole seconds, or None for errors that don't pass by waiting."""
    return None if error.retry_after_s is None else str(max(1, ceil(error.retry_after_s)))


def install(app: FastAPI) -> None:
    """Makes the framework's own errors look like ours."""
    app.add_exception_handler(BatchdError, _deliberate)
    app.add_exception_handler(HTTPException, _by_framework)
    app.add_exception_handler(RequestValidationError, _by_validation)
    app.add_exception_handler(Exception, _unexpected)


async def _deliberate(request: Request, error: Exception) -> Response:
    assert isinstance(error, BatchdError)
    if current := current_request.get():
        current.error = error
    seconds = retry_after(error)
    return _reply(error.status, error.message, {"Retry-After": seconds} if seconds else {})


async def _by_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        message = f"nothing at {path}; POST /predict, GET /models, or see /docs"
    elif error.status_code == 405:
        message = f"{request.method} is not allowed at {path}"
    else:
        message = f"{HTTPStatus(error.status_code).phrase.lower()}: {error.detail}"
    return _reply(error.status_code, message, dict(error.headers or {}))


async def _by_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return _reply(422, "; ".join(problems), {})


async def _unexpected(request: Request, error: Exception) -> Response:
    return _reply(500, f"internal error: {type(error).__name__}; the server's log has the details", {})


def _reply(status: int, message: str, headers: dict[str, str]) -> Response:
    return Response(error_body(message), status, headers, media_type="application/json")
