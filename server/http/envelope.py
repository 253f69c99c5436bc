"""A body's outer form, read by msgspec: what doesn't fit becomes a sentence."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
import orjson

from server.errors import InvalidInput

T = TypeVar("T")
_TEXTS_AND_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_MOST_QUOTES = 2_000_000
"""Looking at each string of a body takes 0.3 µs; beyond this, tokens are not looked for."""


def read_envelope(decoder: msgspec.json.Decoder[T], body: bytes | memoryview, *, tokens: bool = False) -> T:
    """Returns the decoded body. Raises InvalidInput.

    `tokens`: NaN, Infinity and -Infinity may stand where a number does, though JSON has no such numbers.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the body doesn't fit: {_plain(str(error))}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        if tokens and (quoted := quote_tokens(bytes(body))) is not None:
            return read_envelope(decoder, quoted)
        raise InvalidInput(_explain_json(bytes(body), error)) from None


def quote_tokens(text: bytes) -> bytes | None:
    """Returns the text with NaN, Infinity and -Infinity in quotes, as batchd's own format has them; None without any.

    What stands inside of strings stays as it is.
    """
    if (b"NaN" not in text and b"Infinity" not in text) or text.count(b'"') > _MOST_QUOTES:
        return None
    return _TEXTS_AND_TOKENS.sub(lambda found: found[0] if found[0][:1] == b'"' else b'"' + found[0] + b'"', text)


def _plain(message: str) -> str:
    """Says "field" and "body" where msgspec speaks of its types and of `$`."""
    return message.replace(" - at `$.", " at `").replace("`$`", "the body").replace("Object ", "the body ")


def _explain_json(body: bytes, error: Exception) -> str:
    """Names the position of what isn't JSON."""
    if not body.strip():
        return 'the body is empty; expected JSON such as {"inputs": {"x": [1.0, 2.0]}}'
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as precise:
        near = body[precise.pos : precise.pos + 9] if precise.pos < len(body) else b""
        hint = '; write "NaN", "Infinity" and "-Infinity" as strings' if b"NaN" in near or b"Inf" in near else ""
        return f"the body is not valid JSON: {precise}{hint}"
    return f"the body is not valid JSON: {error}"
