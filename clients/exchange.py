"""What both clients share: requests as bytes, responses as results or exceptions. Pure: no network."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from os import PathLike
from typing import Any, NoReturn, TypeAlias
from urllib.parse import quote

import httpx
import orjson

from clients.errors import ClientError, ConnectionFailed, Overloaded, ServerError, error_of_status
from clients.prediction import Prediction, Provenance
from clients.wire import decode_output, encode_inputs, to_json

LONGEST_RETRY_WAIT_S = 30.0
Verify: TypeAlias = "bool | str | PathLike[str] | ssl.SSLContext"


def headers(token: str | None) -> dict[str, str]:
    """What goes with every request. Raises ValueError for a token that can't stand in a header, without showing it."""
    ours = {"user-agent": "batchd-client"}
    if token is None:
        return ours
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise ValueError("the token has characters that no token has; is there a line break at its end?")
    return ours | {"authorization": f"Bearer {token}"}


def trusted(verify: Verify) -> bool | ssl.SSLContext:
    """What httpx takes; a file of authorities becomes a context. Raises OSError if there is no such file."""
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    return ssl.create_default_context(cafile=verify)


def predict_path(model: str) -> str:
    return f"/predict/{quote(model, safe='')}"


def model_path(model: str) -> str:
    return f"/models/{quote(model, safe='')}"


def predict_body(
    inputs: Mapping[str, Any] | None,
    named_inputs: Mapping[str, Any],
    *,
    signature: str | None,
    timeout_ms: float | None,
) -> bytes:
    """The JSON body of one `POST /predict/{model}`."""
    twice = sorted(set(inputs or ()) & set(named_inputs))
    if twice:
        raise TypeError(f"input {twice[0]!r} is given twice: in the mapping and by keyword")
    document: dict[str, Any] = {"inputs": encode_inputs({**(inputs or {}), **named_inputs})}
    if signature is not None:
        document["signature"] = signature
    if timeout_ms is not None:
        document["timeout_ms"] = timeout_ms
    return to_json(document)


def read_json(response: httpx.Response) -> Any:
    """The parsed body of a success; raises the exception that belongs to any other reply."""
    if response.is_success:
        try:
            return orjson.loads(response.content)
        except orjson.JSONDecodeError as error:
            raise ServerError(
                f"{response.url} answered with something that isn't JSON ({error}); is this a batchd server?",
                status=response.status_code,
            ) from None
    raise_server_error(response)


def raise_server_error(response: httpx.Response) -> NoReturn:
    """Raise the exception that belongs to a reply that isn't a success."""
    retry_after = response.headers.get("retry-after")
    raise error_of_status(response.status_code, _server_sentence(response), retry_after)


def _server_sentence(response: httpx.Response) -> str:
    try:
        return str(orjson.loads(response.content)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return f"{response.url} answered {response.status_code} {response.reason_phrase}".rstrip()


def read_prediction(response: httpx.Response, declared: Mapping[str, Any]) -> Prediction:
    """A prediction from a reply to predict; `declared` is what `declared_outputs` returned."""
    document = read_json(response)
    outputs = {}
    for name, value in document["outputs"].items():
        output = declared.get(name, {})
        outputs[name] = decode_output(value, output.get("dtype"), output.get("shape"))
    return Prediction(
        model=document["model"],
        signature=document["signature"],
        outputs=outputs,
        provenance=Provenance.from_headers(response.headers),
    )


def declared_tensors(description: Mapping[str, Any], signature: str, kind: str) -> dict[str, Any]:
    """{name: {"dtype", "shape"}} of a signature's "inputs" or "outputs" (`kind`), from GET /models/{name}.

    Empty where the description has no such signature.
    """
    return _by_name(_by_name(description.get("signatures", ())).get(signature, {}).get(kind, ()))


def _by_name(records: Any) -> dict[str, Any]:
    if isinstance(records, Mapping):
        return dict(records)
    return {record["name"]: record for record in records}


def raise_unreachable(error: httpx.HTTPError, url: str, timeout_s: float) -> NoReturn:
    """Turn httpx's exception for a failed exchange into ours."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        raise ConnectionFailed(
            f"{url} isn't trusted: {error}; verify= takes the file of the authority that signed its certificate",
            request_was_sent=False,
        ) from error
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        raise ConnectionFailed(
            f"cannot reach {url}: {error or type(error).__name__}; is the server running there?",
            request_was_sent=False,
        ) from error
    if isinstance(error, httpx.TimeoutException):
        raise ConnectionFailed(f"no reply from {url} within {timeout_s:g} s; see timeout_s=") from error
    raise ConnectionFailed(f"the connection to {url} broke: {error or type(error).__name__}") from error


def wait_before_retry_s(error: ClientError, attempt: int, retries: int) -> float | None:
    """Seconds to wait before trying again, or None to give up.

    Only what certainly wasn't computed is sent again: a 503, and a connection that was never made. `attempt`
    counts from 0. The server's Retry-After is followed (up to 30 s); without one the waits double from 0.1 s.
    """
    if attempt >= retries:
        return None
    backoff_s = min(0.1 * 2.0**attempt, LONGEST_RETRY_WAIT_S)
    if isinstance(error, Overloaded):
        advised_s = backoff_s if error.retry_after_s is None else error.retry_after_s
        return advised_s if advised_s <= LONGEST_RETRY_WAIT_S else None
    if isinstance(error, ConnectionFailed) and not error.request_was_sent:
        return backoff_s
    return None
