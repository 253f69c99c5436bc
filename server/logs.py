"""Log lines: text for people, or one JSON object a line for machines. Both say which request they are about.

As JSON a line has `time` (ISO 8601, UTC), `level`, `logger`, `message`, what was given as `extra`, and while a
request is answered its `request_id` and trace. Then nothing else may reach stderr: what isn't logged (gRPC's native
code, an interpreter that gives up, engine processes) is read from pipes and logged line by line.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Any, Literal, TextIO, TypeAlias

import orjson

from server.request_context import current_request

LogFormat: TypeAlias = Literal["text", "json"]

_NO_FIELDS = frozenset(
    {*vars(logging.makeLogRecord({})), *("message", "asctime", "taskName"), "color_message"}  # the last: uvicorn's
)
_LONGEST_LINE = 65536
_LAST_LINES_S = 1.0
_GLOG_LEVELS = {b"E": logging.ERROR, b"F": logging.CRITICAL, b"W": logging.WARNING, b"I": logging.INFO}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Returns what belongs to a line besides its message: the current request's, and `extra`."""
    request = current_request.get()
    fields: dict[str, Any] = {} if request is None or request.ended else dict(request.fields())
    fields |= {name: value for name, value in vars(record).items() if name not in _NO_FIELDS}
    return fields


class TextFormatter(logging.Formatter):
    """Time, level, logger, message, and the fields in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Returns the line, without the traceback that may follow."""
        line = super().formatMessage(record)
        fields = " ".join(f"{name}={_as_text(value)}" for name, value in fields_of(record).items())
        return f"{line} [{fields}]" if fields else line


class JsonFormatter(logging.Formatter):
    """One JSON object, whatever the record holds."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the object on one line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = record.stack_info
        entry |= {name: value for name, value in fields_of(record).items() if name not in entry}
        try:
            return orjson.dumps(entry, default=str).decode()
        except TypeError:  # lone surrogates, keys that aren't text, integers beyond 64 bits
            return orjson.dumps({_printable(name): _printable(value) for name, value in entry.items()}).decode()


def set_up_logging(level: str, log_format: LogFormat) -> None:
    """Sends all log lines of this process to stderr. Does nothing where logging is set up already."""
    if logging.getLogger().handlers:
        return
    if log_format == "text":
        handler = logging.StreamHandler()
        handler.setFormatter(TextFormatter())
    else:
        handler = logging.StreamHandler(_keep_stderr())
        handler.setFormatter(JsonFormatter())
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_lines(stream: IO[bytes], logger: str, fields: Mapping[str, Any]) -> None:
    """Logs every line of a stream until it ends, at whatever level is set: nobody else would ever show it."""
    log = logging.getLogger(logger)
    while line := stream.readline(_LONGEST_LINE):
        text = line.rstrip(b"\r\n").decode("utf-8", "replace")
        if text.strip():
            level = _GLOG_LEVELS.get(line[:1], logging.WARNING) if line[1:5].isdigit() else logging.WARNING
            log.handle(log.makeRecord(log.name, level, "", 0, text, (), None, extra=fields))


def _keep_stderr() -> TextIO:
    """Returns the real stderr; what is written to its descriptor from now on is logged instead."""
    real = os.dup(2)
    readable, writable = os.pipe()
    os.dup2(writable, 2)
    os.close(writable)
    reader = threading.Thread(
        target=log_lines, args=(os.fdopen(readable, "rb"), "stderr", {}), name="stderr to log", daemon=True
    )
    reader.start()

    def give_back() -> None:
        """At the end of the process: the last lines, and then stderr as it was."""
        sys.stderr.flush()
        os.dup2(real, 2)
        reader.join(_LAST_LINES_S)

    atexit.register(give_back)
    return os.fdopen(os.dup(real), "w", buffering=1, encoding="utf-8", errors="replace")


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("batchd").critical("the process ends by %s", kind.__name__, exc_info=(kind, error, trace))


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _printable(value: Any) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode()
