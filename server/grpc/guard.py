"""Which right each call needs, and the refusal of callers that don't have it, before their message is read.

A web page can't make these calls: a browser sends no HTTP/2 without TLS, and with it asks first for leave to send
gRPC's content type, which nobody grants.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from server.access import Access, Origin
from server.errors import BatchdError
from server.metrics import Metrics
from server.tokens import Right

RIGHTS: dict[str, Right | None] = {
    **dict.fromkeys(("ServerLive", "ServerReady", "ModelReady")),
    **dict.fromkeys(("ServerMetadata", "ModelMetadata", "ModelConfig", "RepositoryIndex"), "predict"),
    **dict.fromkeys(("ModelInfer", "ModelStreamInfer"), "predict"),
    "ModelStatistics": "metrics",
    **dict.fromkeys(("RepositoryModelLoad", "RepositoryModelUnload"), "admin"),
}
"""By the call's name; None is open to everybody. A call that isn't here needs `admin`."""

_CODES = {401: grpc.StatusCode.UNAUTHENTICATED, 403: grpc.StatusCode.PERMISSION_DENIED}
_PROXIED = {"forwarded", "via", "x-forwarded-for", "x-real-ip"}


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Refuses by the rules of `Access`; the token stands in the metadata, as `authorization`."""

    def __init__(self, access: Access, metrics: Metrics) -> None:
        self._access = access
        self._metrics = metrics

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Returns what handles a call: its own handler, or one that refuses it."""
        handler = await continuation(details)
        right = RIGHTS.get(details.method.rpartition("/")[2], "admin")
        if handler is None or right is None:
            return handler
        try:
            self._access.check(_authorization(details), right, _origin(details))
        except BatchdError as error:
            self._metrics.count_unplaced(error.status)
            return _refusal(error)
        return handler


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    values = [str(value) for key, value in details.invocation_metadata or () if key == "authorization"]
    return ", ".join(values) if values else None


def _origin(details: grpc.HandlerCallDetails) -> Origin:
    metadata = {key: str(value) for key, value in details.invocation_metadata or ()}
    return Origin(page=metadata.get("origin"), proxied=not _PROXIED.isdisjoint(metadata))


def _refusal(error: BatchdError) -> Any:
    async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(_CODES[error.status], error.message)

    return grpc.unary_unary_rpc_method_handler(refuse)
