"""A worker process, as its parent sees it: questions with a time limit."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import IO, Any

LOG_LINES_SHOWN = 3


class WorkerEnded(Exception):
    """The worker ended by itself; the message has the last lines that it wrote."""


class WorkerTooSlow(Exception):
    """The worker hadn't answered in time, and was ended."""


@dataclass
class WorkerProcess:
    """Starts at the first question, and again after it has ended.

    threads: cores it may use. ends: how often it has ended, and with it what it had built.
    """

    threads: int
    ends: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """The worker's reply. Raises WorkerTooSlow or WorkerEnded."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process, time.monotonic() + timeout_s)
        except (BrokenPipeError, EOFError):
            self.close()
            raise WorkerEnded(f"the worker ended with {process.returncode}: {self._log_tail()}") from None
        except WorkerTooSlow:
            self.close()
            raise
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """Ends the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            self.ends += 1
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "loadtest.bench.worker", str(self.threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0
        )
        return self._process

    def _line(self, process: subprocess.Popen[bytes], give_up_at: float) -> bytes:
        assert process.stdout is not None
        found = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(0.0, give_up_at - time.monotonic())):
                    raise WorkerTooSlow
                part = process.stdout.read(65536)
                if not part:
                    raise EOFError
                found += part
        return found

    def _log_tail(self) -> str:
        self._log.seek(0)
        return " / ".join(self._log.read().decode("utf-8", "replace").splitlines()[-LOG_LINES_SHOWN:])
