"""Reading a request's body, up to the limits."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from server.errors import InvalidInput, PayloadTooLarge, UnknownEncoding

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_ENCODINGS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""zlib's window bits of each Content-Encoding; `deflate` is the zlib format."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What one body may hold. `bytes`: as sent, and again when decompressed."""

    bytes: int


class CallerLeft(Exception):
    """The connection was closed before the reply."""


async def read_body(headers: Headers, receive: Receive, limits: BodyLimits) -> bytes:
    """Returns the whole body, decompressed.

    Raises PayloadTooLarge as soon as it is known to exceed the limit, UnknownEncoding, InvalidInput for what
    can't be decompressed, CallerLeft. What the caller still sends of a body that is too large, the HTTP server
    reads and drops, so the caller gets its reply and the connection stays in step.
    """
    limit, encoding = limits.bytes, b""
    for name, value in headers:
        if name == b"content-length":
            if value.isdigit() and int(value) > limit:
                raise _too_large(limit)
        elif name == b"content-encoding":
            encoding = value.strip().lower()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            break
        chunks.append(chunk)
    body = b"".join(chunks) + chunk if chunks else chunk
    return body if encoding in (b"", b"identity") else _decompress(body, encoding, limit)


def check_elements(json_text: bytes | memoryview, limit: int) -> None:
    """Raises PayloadTooLarge for JSON of more values than the limit: its commas, so that it needs no parsing."""
    if len(json_text) > 2 * limit and bytes(json_text).count(b",") >= limit:
        raise PayloadTooLarge(f"the request has more than {limit} values; send it in pieces, or send binary tensors")


def _decompress(body: bytes, encoding: bytes, limit: int) -> bytes:
    """Never holds more than the limit, however much the body would become."""
    window_bits = _ENCODINGS.get(encoding)
    if window_bits is None:
        raise UnknownEncoding(f"content-encoding {encoding.decode('latin-1')!r} is not known; use gzip or deflate")
    stream = zlib.decompressobj(window_bits)
    try:
        content = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body can't be decompressed as {encoding.decode()}: {error}") from None
    if len(content) > limit:
        raise PayloadTooLarge(f"the decompressed body is larger than the limit of {limit} bytes")
    if not stream.eof or stream.unused_data:
        problem = "something follows its end" if stream.eof else "its end is missing"
        raise InvalidInput(f"the body can't be decompressed as {encoding.decode()}: {problem}")
    return content


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the request body is larger than the limit of {limit_bytes} bytes")
