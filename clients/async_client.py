"""The client for asyncio: the same methods as `Client`, awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import httpx

from clients import exchange
from clients.errors import ClientError, ConnectionFailed, NotReady, ServerError
from clients.prediction import Prediction
from clients.sync_client import READY_PAUSE_S


class AsyncClient:
    """Talks to one batchd server from one event loop; arguments as for `Client`."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retries: int = 0,
        token: str | None = None,
        verify: exchange.Verify = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self.retries = retries
        self._http = httpx.AsyncClient(
            base_url=self.url,
            timeout=timeout_s,
            verify=exchange.trusted(verify),
            transport=transport,
            headers=exchange.headers(token),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._descriptions: dict[str, dict[str, Any]] = {}

    async def predict(
        self,
        model: str,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        signature: str | None = None,
        timeout_ms: float | None = None,
        **named_inputs: Any,
    ) -> Prediction:
        """Outputs of `model` for one example; see `Client.predict`."""
        body = exchange.predict_body(inputs, named_inputs, signature=signature, timeout_ms=timeout_ms)
        response = await self._send("POST", exchange.predict_path(model), body)
        return exchange.read_prediction(response, await self._declared_outputs(model, signature or "predict"))

    async def models(self) -> Any:
        """What the server serves, as `GET /models` states it."""
        return exchange.read_json(await self._send("GET", "/models"))

    async def model(self, name: str) -> dict[str, Any]:
        """One model's signatures, buckets and vectorization report, as `GET /models/{name}` states them."""
        description: dict[str, Any] = exchange.read_json(await self._send("GET", exchange.model_path(name)))
        return description

    async def ready(self) -> bool:
        """Whether the server can be reached and every model is warm."""
        try:
            return (await self._exchange_once("GET", "/readyz")).is_success
        except ConnectionFailed:
            return False

    async def wait_ready(self, timeout_s: float = 300.0) -> None:
        """Return as soon as the server is ready; NotReady, with its last answer, after `timeout_s`."""
        give_up_at = time.monotonic() + timeout_s
        while True:
            try:
                exchange.read_json(await self._exchange_once("GET", "/readyz"))
                return
            except (ServerError, ConnectionFailed) as error:
                last = error
            if time.monotonic() + READY_PAUSE_S > give_up_at:
                raise NotReady(f"{self.url} isn't ready after {timeout_s:g} s: {last}") from last
            await asyncio.sleep(READY_PAUSE_S)

    async def close(self) -> None:
        """Close the connections; the client can't be used afterwards."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _declared_outputs(self, model: str, signature: str) -> dict[str, Any]:
        if model not in self._descriptions:
            try:
                self._descriptions[model] = await self.model(model)
            except ClientError:  # a reply has come; without the declared dtypes they are read off the JSON
                return {}
        return exchange.declared_tensors(self._descriptions[model], signature, "outputs")

    async def _send(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        attempt = 0
        while True:
            try:
                response = await self._exchange_once(method, path, body)
                if response.is_success:
                    return response
                exchange.raise_server_error(response)
            except ClientError as error:
                wait_s = exchange.wait_before_retry_s(error, attempt, self.retries)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
            attempt += 1

    async def _exchange_once(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        headers = {"content-type": "application/json"} if body is not None else None
        try:
            return await self._http.request(method, path, content=body, headers=headers)
        except httpx.HTTPError as error:
            exchange.raise_unreachable(error, self.url, self.timeout_s)
