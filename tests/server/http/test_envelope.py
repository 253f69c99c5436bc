"""Tokens that aren't JSON become strings, wherever they don't stand in one."""

from __future__ import annotations

import json
import math
import time

from hypothesis import given
from hypothesis import strategies as st

from server.http.envelope import quote_tokens

VALUES = st.recursive(
    st.floats() | st.text() | st.sampled_from(['NaN "', "\\", '\\"Infinity', "-Infinity", "[NaN]"]) | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def with_names(value: object) -> object:
    """What is not finite, as the strings of batchd's own format."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [with_names(each) for each in value]
    if isinstance(value, dict):
        return {key: with_names(each) for key, each in value.items()}
    return value


@given(VALUES, st.booleans())
def test_whatever_python_writes_reads_back_with_names(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    quoted = quote_tokens(text)
    assert json.loads((text if quoted is None else quoted).decode("utf-8", "surrogatepass")) == with_names(value)


def test_no_text_takes_long():
    for piece in (b'"', b'\\"', b'"NaN', b"-", b"NaN", b'" ', b"\\", b'"\\'):
        text = b"[NaN," + piece * (2_000_000 // len(piece))
        started_at = time.perf_counter()
        quote_tokens(text)
        assert time.perf_counter() - started_at < 10, piece
