"""The W3C's `traceparent` header: which trace a request belongs to. https://www.w3.org/TR/trace-context/"""

from __future__ import annotations

import re
from typing import NamedTuple

_PARENT = re.compile(
    rb"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})"
    rb"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.DOTALL,
)


class TraceParent(NamedTuple):
    """The caller's trace and span, as lower-case hexadecimal digits, and whether the caller records them."""

    trace_id: str
    span_id: str
    sampled: bool


def parse_traceparent(value: bytes) -> TraceParent | None:
    """Returns what the header says; None for one that the specification calls invalid, which is to be ignored.

    Of a version that isn't known yet, what version 00 has is read, and what follows it is left alone.
    """
    found = _PARENT.fullmatch(value.strip(b" \t"))
    if found is None or (found["version"] == b"00" and found["more"] is not None):
        return None
    return TraceParent(found["trace"].decode(), found["span"].decode(), bool(int(found["flags"], 16) & 1))
