"""Log lines: one JSON object a line whatever is logged, and text that says which request it is about."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.access_log import AccessLog
from server.errors import DeadlineExceeded, ExampleRejected
from server.logs import JsonFormatter, TextFormatter, log_lines
from server.request_context import RequestContext, begin_request, current_request
from tests.support.serving import ROOT, environment

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def record(message: object, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    return logging.getLogger("batchd.test").makeRecord("batchd.test", level, "", 0, message, (), None, extra=extra)


@given(st.text() | st.just("\ud800"), ANYTHING, st.text(min_size=1))
def test_whatever_is_logged_is_one_line_of_json(message: str, value: object, name: str) -> None:
    made = record(message)
    vars(made)[f"x_{name}"] = value
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert isinstance(json.loads(line, parse_constant=pytest.fail), dict)


def test_a_json_line_says_when_who_what_and_about_which_request() -> None:
    request = begin_request([(b"x-request-id", b"r1"), (b"traceparent", f"00-{'a' * 32}-{'b' * 16}-01".encode())])
    made = record("hello", model="m", time="never")
    made.created = 0.5
    entry = json.loads(JsonFormatter().format(made))
    assert list(entry)[:4] == ["time", "level", "logger", "message"]
    assert entry == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "info",
        "logger": "batchd.test",
        "message": "hello",
        "request_id": "r1",
        "trace_id": "a" * 32,
        "parent_span_id": "b" * 16,
        "model": "m",
    }
    request.ended = True
    assert "request_id" not in json.loads(JsonFormatter().format(made))
    current_request.set(None)


def test_a_traceback_is_within_the_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        made = logging.getLogger("x").makeRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    entry = json.loads(JsonFormatter().format(made))
    assert entry["exception"].startswith("Traceback")
    assert entry["exception"].endswith("ValueError: two\nlines")


def test_text_has_the_fields_behind_the_message() -> None:
    current_request.set(None)
    assert TextFormatter().format(record("plain")).endswith(" INFO batchd.test: plain")
    assert TextFormatter().format(record("a", requests=["r1", "r2"], n=1)).endswith(": a [requests=r1,r2 n=1]")


def test_lines_of_a_stream_are_logged_whatever_the_level(caplog, monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger("batchd.engine"), "level", logging.CRITICAL)
    stream = io.BytesIO(b"W0000 00:00:00 a warning\n\nI0000 00:00:00 a note\nplain \xff\nno end")
    log_lines(stream, "batchd.engine", {"model": "m"})
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("WARNING", "W0000 00:00:00 a warning"),
        ("INFO", "I0000 00:00:00 a note"),
        ("WARNING", "plain \ufffd"),
        ("WARNING", "no end"),
    ]
    assert {each.model for each in caplog.records} == {"m"}


def test_what_reaches_stderr_in_any_way_is_json() -> None:
    program = """if True:
        import logging, os, subprocess, sys, warnings
        from server.logs import set_up_logging
        set_up_logging("info", "json")
        logging.getLogger("uvicorn.error").warning("by the framework")
        os.write(2, b"by native code\\n")
        print("by print", file=sys.stderr)
        warnings.warn("by a library")
        subprocess.run([sys.executable, "-c", "raise SystemExit('by a child')"])
        raise ValueError("by nobody")
    """
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    found = {(entry["logger"], entry["message"].splitlines()[0].rpartition(": ")[2]) for entry in entries}
    assert done.returncode == 1
    assert found == {
        ("uvicorn.error", "by the framework"),
        ("stderr", "by native code"),
        ("stderr", "by print"),
        ("py.warnings", "by a library"),
        ("stderr", "by a child"),
        ("batchd", "the process ends by ValueError"),
    }


def ended(status: int, error: BaseException | None = None) -> RequestContext:
    request = RequestContext(b"r1", None)
    request.method, request.path, request.status, request.error = "POST", "/predict/m", status, error
    return request


def test_a_line_quotes_nothing_of_the_request(caplog) -> None:
    caplog.set_level(logging.INFO)
    log = AccessLog(every=False)
    log.write(ended(200))
    log.write(ended(400, ExampleRejected("password 1234 is wrong")))
    log.write(ended(504, DeadlineExceeded("no answer before the deadline: waited 9 ms")))
    refused, late = caplog.records
    assert (refused.message, refused.reason, refused.error) == ("POST /predict/m 400", "rejected", "ExampleRejected")
    assert not hasattr(refused, "detail")
    assert "1234" not in JsonFormatter().format(refused)
    assert (late.reason, late.detail) == ("expired", "no answer before the deadline: waited 9 ms")
    assert (refused.levelname, late.levelname) == ("INFO", "WARNING")


def test_a_storm_of_failures_is_counted_not_written(caplog) -> None:
    caplog.set_level(logging.INFO)
    now = [100.0]
    log = AccessLog(every=False, clock=lambda: now[0])
    for _ in range(1000):
        log.write(ended(503))
    assert len(caplog.records) == 50
    now[0] += 1
    log.write(ended(503))
    assert [each.message for each in caplog.records[50:]] == [
        "950 more requests failed and have no line",
        "POST /predict/m 503",
    ]


def test_with_all_nothing_is_left_out(caplog) -> None:
    caplog.set_level(logging.INFO)
    log = AccessLog(every=True)
    for _ in range(200):
        log.write(ended(200))
    assert len(caplog.records) == 200
