"""A server for one engine, as a child process on a free port."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO

import httpx

from clients import Client, NotReady

BATCHD: tuple[str, ...] = (sys.executable, "-m", "server.command_line")
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0
LOG_LINES_SHOWN = 15


class ServerFailed(Exception):
    """A server didn't come up or didn't end; the message has the last lines of its log."""


@dataclass
class ServerUnderTest:
    """`batchd serve SOURCE --engine ENGINE`, from `start` to `stop`; usable in a `with` statement.

    command: what to run instead of the installed batchd; takes the arguments of `batchd`.
    """

    source: str
    engine: str
    command: Sequence[str] = BATCHD
    url: str = ""
    started_in_s: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the process and return when every model is warm. Raises ServerFailed."""
        started_at = time.monotonic()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        arguments = [
            "serve",
            self.source,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--engine",
            self.engine,
        ]
        self._process = subprocess.Popen(
            [*self.command, *arguments], stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )
        try:
            self._wait_ready(self._process, started_at + timeout_s)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self.started_in_s = time.monotonic() - started_at

    def _wait_ready(self, process: subprocess.Popen[bytes], give_up_at: float) -> None:
        with Client(self.url, timeout_s=5.0) as client:
            while time.monotonic() < give_up_at:
                if process.poll() is not None:
                    raise ServerFailed(self._sentence(f"ended with {process.returncode} before it was ready"))
                try:
                    client.wait_ready(timeout_s=1.0)
                    return
                except NotReady as error:
                    last = error
        raise ServerFailed(self._sentence(f"wasn't ready in time ({last})"))

    def stop(self) -> None:
        """SIGTERM, and wait for the drain. Raises ServerFailed if it had ended by itself, or won't end."""
        process, self._process = self._process, None
        if process is None:
            return
        died_alone = process.poll() is not None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(self._sentence(f"hadn't ended {STOP_TIMEOUT_S:g} s after SIGTERM")) from None
        if died_alone:
            raise ServerFailed(self._sentence(f"ended by itself with {process.returncode}"))

    def batches(self, model: str) -> BatchCount:
        """How many batches of `model` have run, with how many examples; zero where there are no metrics."""
        try:
            text = httpx.get(f"{self.url}/metrics", timeout=10).text
        except httpx.HTTPError as error:
            raise ServerFailed(self._sentence(f"doesn't answer at /metrics ({error})")) from error
        return BatchCount(
            batches=metric_total(text, "batchd_batch_size_count", model=model),
            examples=metric_total(text, "batchd_batch_size_sum", model=model),
        )

    def log_tail(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def _sentence(self, what: str) -> str:
        server = f"the server of {self.source} with engine {self.engine!r}"
        return f"{server} {what}; its log ends:\n{self.log_tail()}"

    def __enter__(self) -> ServerUnderTest:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


@dataclass(frozen=True)
class BatchCount:
    """Totals of one model since its server started."""

    batches: float
    examples: float

    def mean_since(self, earlier: BatchCount) -> float | None:
        batches = self.batches - earlier.batches
        return (self.examples - earlier.examples) / batches if batches else None


def metric_total(text: str, name: str, **labels: str) -> float:
    """Sum of a metric's samples that carry these labels, from the Prometheus text format."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    total = 0.0
    for match in re.finditer(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$", text, re.MULTILINE):
        if all(label in (match[1] or "") for label in wanted):
            total += float(match[2])
    return total


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
