"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import httpx

from clients import exchange
from clients.errors import ClientError, ConnectionFailed, NotReady, ServerError
from clients.prediction import Prediction

READY_PAUSE_S = 0.1


class Client:
    """Talks to one batchd server; may be shared between threads.

    url: where the server is, e.g. "http://127.0.0.1:8000".
    timeout_s: longest wait for a connection, and for a reply.
    retries: how many more times to send a request that was refused (503) or never reached the server; 0 by
        default. A request that may have been computed is never sent again.
    token: shown to the server with every request; it goes to no other host.
    verify: what an https server must show: True, a certificate that this machine trusts; the path of a PEM file, one
        signed by an authority in it; an SSLContext, e.g. with a certificate of your own for a server that wants one.
    transport: any httpx transport, e.g. one that calls an application in this process.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retries: int = 0,
        token: str | None = None,
        verify: exchange.Verify = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self.retries = retries
        self._http = httpx.Client(
            base_url=self.url,
            timeout=timeout_s,
            verify=exchange.trusted(verify),
            transport=transport,
            headers=exchange.headers(token),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._descriptions: dict[str, dict[str, Any]] = {}

    def predict(
        self,
        model: str,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        signature: str | None = None,
        timeout_ms: float | None = None,
        **named_inputs: Any,
    ) -> Prediction:
        """Outputs of `model` for one example.

        Inputs are given by keyword, or in a mapping where a name is taken (`signature`, `timeout_ms`). Each
        is a numpy array, a number, str, bytes, or nested lists of these, without a batch dimension.

        signature: "predict" unless said otherwise.
        timeout_ms: deadline that the server is to keep, counted from arrival there.

        Raises InvalidInput, NotFound, PayloadTooLarge, Overloaded, DeadlineExceeded, ServerError or
        ConnectionFailed (see `clients.errors`).
        """
        body = exchange.predict_body(inputs, named_inputs, signature=signature, timeout_ms=timeout_ms)
        response = self._send("POST", exchange.predict_path(model), body)
        return exchange.read_prediction(response, self._declared_outputs(model, signature or "predict"))

    def models(self) -> Any:
        """What the server serves, as `GET /models` states it."""
        return exchange.read_json(self._send("GET", "/models"))

    def model(self, name: str) -> dict[str, Any]:
        """One model's signatures, buckets and vectorization report, as `GET /models/{name}` states them."""
        description: dict[str, Any] = exchange.read_json(self._send("GET", exchange.model_path(name)))
        return description

    def ready(self) -> bool:
        """Whether the server can be reached and every model is warm."""
        try:
            return self._exchange_once("GET", "/readyz").is_success
        except ConnectionFailed:
            return False

    def wait_ready(self, timeout_s: float = 300.0) -> None:
        """Return as soon as the server is ready; NotReady, with its last answer, after `timeout_s`."""
        give_up_at = time.monotonic() + timeout_s
        while True:
            try:
                exchange.read_json(self._exchange_once("GET", "/readyz"))
                return
            except (ServerError, ConnectionFailed) as error:
                last = error
            if time.monotonic() + READY_PAUSE_S > give_up_at:
                raise NotReady(f"{self.url} isn't ready after {timeout_s:g} s: {last}") from last
            time.sleep(READY_PAUSE_S)

    def close(self) -> None:
        """Close the connections; the client can't be used afterwards."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _declared_outputs(self, model: str, signature: str) -> dict[str, Any]:
        if model not in self._descriptions:
            try:
                self._descriptions[model] = self.model(model)
            except ClientError:  # a reply has come; without the declared dtypes they are read off the JSON
                return {}
        return exchange.declared_tensors(self._descriptions[model], signature, "outputs")

    def _send(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        attempt = 0
        while True:
            try:
                response = self._exchange_once(method, path, body)
                if response.is_success:
                    return response
                exchange.raise_server_error(response)
            except ClientError as error:
                wait_s = exchange.wait_before_retry_s(error, attempt, self.retries)
                if wait_s is None:
                    raise
            time.sleep(wait_s)
            attempt += 1

    def _exchange_once(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        headers = {"content-type": "application/json"} if body is not None else None
        try:
            return self._http.request(method, path, content=body, headers=headers)
        except httpx.HTTPError as error:
            exchange.raise_unreachable(error, self.url, self.timeout_s)
