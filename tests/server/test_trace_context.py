"""`traceparent` as the W3C defines it: what is invalid is ignored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.request_context import begin_request, current_request, new_request_id
from server.trace_context import TraceParent, parse_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (VALID, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"  {VALID}\t", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
        (f"01-{TRACE}-{SPAN}-01-", True),
    ],
)
def test_valid(value: str, sampled: bool) -> None:
    assert parse_traceparent(value.encode()) == TraceParent(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}a-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"0-{TRACE}-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE}-{SPAN}",
        f"{VALID}\n",
        f"{VALID}, {VALID}",
    ],
)
def test_invalid(value: str) -> None:
    assert parse_traceparent(value.encode()) is None


@given(st.binary(max_size=80))
def test_anything_is_valid_or_ignored(value: bytes) -> None:
    parsed = parse_traceparent(value)
    if parsed is not None:
        assert set(parsed.trace_id + parsed.span_id) <= set("0123456789abcdef")


def test_two_of_them_are_none() -> None:
    header = (b"traceparent", VALID.encode())
    assert begin_request([header]).trace == TraceParent(TRACE, SPAN, True)
    assert begin_request([header, header]).trace is None


@pytest.mark.parametrize("id", ["a", "order-4711", "A.b_c:d/e+f=g@h", "x" * 128])
def test_a_short_plain_id_is_the_callers_own(id: str) -> None:
    assert begin_request([(b"host", b"h"), (b"x-request-id", id.encode())]).id == id.encode()


@pytest.mark.parametrize("id", ["", "x" * 129, "two words", "a\nb", 'a"b', "é", "<script>", "a,b", "a\x00"])
def test_any_other_is_replaced(id: str) -> None:
    made = begin_request([(b"x-request-id", id.encode())])
    assert made.id != id.encode()
    assert made.fields() == {"request_id": made.id.decode()}
    assert current_request.get() is made


def test_made_ids_differ() -> None:
    assert len({new_request_id() for _ in range(1000)}) == 1000
