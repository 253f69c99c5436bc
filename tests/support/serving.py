"""`batchd serve` as a real process on a free port, for tests that want to see what a user sees."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx

from loadtest.servers import metric_total

ROOT = Path(__file__).parents[2]
SERVICES = ROOT / "tests" / "services"
BATCHD = (sys.executable, "-m", "server.command_line")
READY_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 20.0


@dataclass
class Serving:
    """A server that is ready: where it is, its process, its log, and a client."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    client: httpx.Client

    @property
    def port(self) -> int:
        """The port that it took."""
        return int(self.url.rpartition(":")[2])

    def predict(self, model: str, inputs: dict[str, object]) -> httpx.Response:
        """POSTs one example."""
        return self.client.post(f"/predict/{model}", json={"inputs": inputs})

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels; 0 where there are none."""
        return metric_total(self.client.get("/metrics").text, name, **labels)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns when all models can answer; fails, with the log, when the process ends or the time is up."""
        give_up_at = time.monotonic() + timeout_s
        while not self._is_ready():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up_at, self.log.read_text()
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:  # it is about to end, and its log says why
            return False


def environment() -> dict[str, str]:
    """What child processes of the tests run with: this checkout, wherever they run."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}


@contextmanager
def serving(
    *arguments: str | Path,
    command: Sequence[str] = BATCHD,
    wait: bool = True,
    verify: ssl.SSLContext | bool = True,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Serving]:
    """Runs `batchd serve ARGUMENTS` and gives the server, when it is ready; ends it afterwards.

    `verify`: what the client trusts. `variables`: of the environment, besides the usual ones.
    With `wait=False` it is given as soon as it listens, so that several can load at the same time.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "serve", *map(str, arguments), "--port", "0"],
                stdin=subprocess.DEVNULL,
                stderr=file,
                env=environment() | dict(variables),
            )
        try:
            with httpx.Client(base_url=_listening_at(process, log), timeout=60, verify=verify) as client:
                server = Serving(str(client.base_url).rstrip("/"), process, log, client)
                if wait:
                    server.wait_ready()
                yield server
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listening_at(process: subprocess.Popen[bytes], log: Path) -> str:
    while not (found := re.search(r"listens on (https?://\S+);", log.read_text())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)
    return found[1]
