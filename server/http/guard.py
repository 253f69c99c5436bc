"""Which right each path needs, and the refusal of callers that don't have it, before their body is read.

`/predict`, v2's `infer` and all of `/v1/models` need `predict` (they are found as the application finds them); the rest
is in the table, by the routes' own patterns. A route that isn't in it needs `admin`, so that forgetting one opens
nothing; a test wants each in it. What is no route needs no right, and is answered 404.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match

from server.access import Access, Origin
from server.errors import BatchdError, Forbidden, Unauthenticated
from server.http.body import Headers, Scope, Send
from server.http.errors import error_body
from server.http.exchange import JSON, send_reply
from server.metrics import Metrics
from server.tokens import Right

_V2 = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
_TFS = ("/v1/models/{model}", "/v1/models/{model}/versions/{version}", "/v1/models/{model}/labels/{label}")

RIGHTS: dict[str, Right | None] = {
    # Open to everybody: probes, and what is the same on every server of this version.
    **dict.fromkeys(("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")),
    **{f"{path}/ready": None for path in _V2},
    **dict.fromkeys(("/docs", "/docs/oauth2-redirect", "/openapi.json", "/static-offline-docs")),
    "/metrics": "metrics",
    "/v2/models/stats": "metrics",
    **{f"{path}/stats": "metrics" for path in _V2},
    **dict.fromkeys(("/predict", "/predict/{model}", "/models", "/models/{name}", "/v2"), "predict"),
    **{f"{path}{rest}": "predict" for path in _V2 for rest in ("", "/config", "/infer")},
    **{f"{path}{rest}": "predict" for path in _TFS for rest in ("", "/metadata", ":predict")},
    "/v2/repository/index": "predict",
    **{f"/v2/repository/models/{{model}}/{change}": "admin" for change in ("load", "unload")},
}

_PROXIED = {b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"}


def right_of(path: str) -> Right | None:
    """Returns the right that a route needs, by its pattern; None for what is open."""
    return RIGHTS.get(path, "admin")


def right_of_request(routes: Sequence[BaseRoute], scope: Scope) -> Right | None:
    """Returns the right that the route which will answer needs; None for what is open, or no route."""
    partly: BaseRoute | None = None
    for route in routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            return right_of(_pattern_of(route))
        if match is Match.PARTIAL and partly is None:
            partly = route
    return None if partly is None else right_of(_pattern_of(partly))


def _pattern_of(route: BaseRoute) -> str:
    return getattr(route, "path", "")


class Guard:
    """Refuses by the rules of `Access`."""

    def __init__(self, access: Access, metrics: Metrics) -> None:
        self._access = access
        self._metrics = metrics

    async def refuses(self, right: Right, scope: Scope, send: Send) -> bool:
        """Answers a caller that doesn't have the right, and says so."""
        if right != "admin" and not self._access.has_tokens:
            return False
        try:
            self._access.check(_authorization(scope["headers"]), right, _origin(scope["headers"]))
        except BatchdError as error:
            self._metrics.count_unplaced(error.status)
            await _reply(send, error)
            return True
        return False


async def _reply(send: Send, error: BatchdError) -> None:
    headers = [JSON]
    if isinstance(error, Unauthenticated | Forbidden) and error.challenge:
        headers.append((b"www-authenticate", error.challenge.encode()))
    await send_reply(send, error.status, error_body(error.message), headers)


def _authorization(headers: Headers) -> str | None:
    values = [value for name, value in headers if name == b"authorization"]
    return ", ".join(value.decode("latin-1") for value in values) if values else None


def _origin(headers: Headers) -> Origin:
    page = host = None
    proxied = False
    for name, value in headers:
        if name == b"origin" or (name == b"sec-fetch-site" and value not in (b"none", b"same-origin")):
            page = value.decode("latin-1")
        elif name == b"host":
            host = value.decode("latin-1")
        elif name in _PROXIED:
            proxied = True
    return Origin(page, host, proxied)
