"""The parent's side of an engine process: one child for one model version. No TensorFlow.

The child inherits three descriptors: its end of a socket pair for messages, and the two arenas that batches
cross in. End of file on the socket is how either side learns, at once, that the other is gone.

A file may register several models, and the parent never loads files. So the child that is started for a file
reports every name that it found (`models_found`, early in `start`) and serves one; the parent starts another
`EngineProcess` for each of the others, `ModelSource(location, name)`. That costs a second run of the file, in
the process that needs it anyway, and no process only for listing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from server import errors
from server.engines.batch_result import BatchResult, Example, OnBatch, Outputs, RowError
from server.engines.settings import EngineSettings
from server.model_description import Bucket, ModelDescription
from server.process.framing import Unframer, frame
from server.process.messages import (
    Done,
    Failed,
    FromChild,
    Load,
    Loaded,
    ModelSource,
    Ping,
    Pong,
    Progress,
    Ready,
    Run,
    RunFailed,
)
from server.process.wire import Arena, read_owned_rows, write_owned_rows

OnProgress = Callable[[Progress], None]
OnStderr = Callable[[IO[bytes], str, Mapping[str, Any]], None]

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
CHILD_MODULE = "server.process.child"
_END_S = 2.0
_LAST_LINES_S = 0.5
_READ_BYTES = 1 << 16
_decode = msgspec.msgpack.Decoder(FromChild).decode


class EngineProcess:
    """One engine process: start it once, run batches one at a time, close it. Make it inside a running loop.

    `exited` resolves with the reason as soon as the child is gone; `models_found`, early in `start`, with the
    names of all models that the file registers. `pid` is None before `start`. Loading that reports no progress
    for `load_timeout_s` counts as hung: the child is killed, and `on_load_hung` called. `on_stderr(stream, logger,
    fields)`, in a thread of its own, reads what the child prints to stderr until it ends; without it, that is this
    process's stderr.
    """

    def __init__(
        self,
        source: ModelSource,
        settings: EngineSettings,
        load_timeout_s: float | None = None,
        on_load_hung: Callable[[EngineProcess], None] | None = None,
        on_stderr: OnStderr | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.source, self.settings = source, settings
        self.exited: asyncio.Future[str] = loop.create_future()
        self.models_found: asyncio.Future[tuple[str, ...]] = loop.create_future()
        self.pid: int | None = None
        self.description: ModelDescription | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._inputs, self._outputs = Arena.create(), Arena.create()
        self._ready: asyncio.Future[ModelDescription] = loop.create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self._socket: socket.socket | None = None
        self._connection = _Connection(self)
        self._done: OnBatch | None = None
        self._runs_since = 0.0
        self._pong: asyncio.Future[None] | None = None
        self._load_timeout_s = load_timeout_s
        self._on_load_hung = on_load_hung
        self._load_timer: asyncio.TimerHandle | None = None
        self._reaper: asyncio.Task[None] | None = None
        self._run_lock = asyncio.Lock()
        self._run_id = 0
        self._phase = "starting"
        self._on_progress: OnProgress | None = None
        self._on_stderr = on_stderr
        self._stderr_reader: threading.Thread | None = None
        self._closed = False

    async def start(self, on_progress: OnProgress | None = None) -> ModelDescription:
        """Spawns the child and waits until the model is certified and warm.

        Raises ModelLoadError or CertificationError, with the child's own sentence; ModelLoadError also where
        the child ends without one. The child is gone then.
        """
        self._on_progress = on_progress
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = self._spawn(theirs)
        self.pid = self._child.pid
        self._read_stderr(self._child)
        loop = asyncio.get_running_loop()
        self._socket = ours
        self._transport, _ = await loop.create_unix_connection(lambda: self._connection, sock=ours)
        self._send(Load(self.source, self.settings))
        self._expect_progress()
        try:
            self.description = await asyncio.shield(self._ready)
        except BaseException:
            await self.close()
            raise
        finally:
            if self._load_timer is not None:
                self._load_timer.cancel()
        return self.description

    @property
    def name(self) -> str:
        """The model's name; the location until it is loaded."""
        return self.description.name if self.description else self.source.location

    @property
    def is_idle(self) -> bool:
        """Whether it is ready and runs no batch."""
        return self.description is not None and not self.exited.done() and self._done is None

    @property
    def is_lost(self) -> bool:
        """Whether it is gone, or about to be, unasked, and nobody has closed it yet."""
        is_cut = self._transport is not None and self._transport.is_closing()
        return is_cut and not self._closed

    @property
    def batch_s(self) -> float:
        """Seconds that the running batch has taken; 0 without one."""
        return asyncio.get_running_loop().time() - self._runs_since if self._done is not None else 0.0

    async def ping(self) -> None:
        """Returns when the child's main thread has answered, or the child is gone."""
        if self._pong is None:
            self._pong = asyncio.get_running_loop().create_future()
            self._send(Ping())
        either: list[asyncio.Future[Any]] = [self._pong, self.exited]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    def submit(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int], done: OnBatch
    ) -> None:
        """Starts one batch, when none runs; `done` gets its result, or EngineDied: once, and not from within.

        `owners` (row by row; else 0, 1, ...) lie beside the rows all the way, and come back beside the answers.
        """
        described = self.description.signature(signature) if self.description is not None else None
        if described is None:
            raise errors.UnknownModel(f"there is no signature '{signature}' of {self.source.location} to run")
        if self._done is not None:
            raise RuntimeError("a batch runs already")
        loop = asyncio.get_running_loop()
        # The socket closes before `exited` resolves; what is sent in between would wait for ever.
        if self.exited.done() or self._transport is None or self._transport.is_closing():
            loop.call_soon(done, self._died())
            return
        dtypes = [tensor.dtype for tensor in described.inputs]
        tensors = write_owned_rows(self._inputs, rows, dtypes, owners or range(len(rows)))
        self._run_id += 1
        self._done, self._runs_since = done, loop.time()
        self._send(Run(self._run_id, signature, bucket, tensors))

    def poll(self) -> None:
        """Reads what the child has sent, without waiting for the loop to find out."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except OSError:  # nothing yet, or closed
            return
        if data:
            try:
                self._connection.data_received(data)
            except Exception:  # then the loop would end the connection, too: what was read is lost
                if self._transport is not None:
                    self._transport.abort()
                raise

    async def run(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int] = ()
    ) -> BatchResult:
        """Runs one batch; a second call waits for the first. Raises EngineDied where the child ends first."""
        async with self._run_lock:
            ran: asyncio.Future[BatchResult] = asyncio.get_running_loop().create_future()
            self.submit(signature, rows, bucket, owners, partial(_settle, ran))
            # A caller that gives up must not leave the arena to the next batch while the child reads it.
            try:
                return await asyncio.shield(ran)
            except asyncio.CancelledError:
                await asyncio.wait([ran])
                raise

    def kill(self) -> None:
        """Ends the child at once (SIGKILL); `exited` resolves when it is gone.

        Its batch fails even if the child stays, as one that hangs in a driver may.
        """
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
        if self._transport is not None:
            self._transport.close()

    async def close(self) -> None:
        """Ends the child and frees what it shared; may be called twice, and after the child's death."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._transport is not None:
                self._transport.close()
                done, _ = await asyncio.wait([self.exited], timeout=_END_S)
                if not done:
                    self.kill()
                    await asyncio.wait([self.exited], timeout=_END_S)
            elif not self.exited.done():
                self.exited.set_result("the engine process was not started")
            if self._stderr_reader is not None:
                await asyncio.to_thread(self._stderr_reader.join, _LAST_LINES_S)
        finally:
            self._inputs.close()
            self._outputs.close()

    def _spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        descriptors = (theirs.fileno(), self._inputs.descriptor, self._outputs.descriptor)
        environment = dict(os.environ)
        if _PACKAGE_ROOT.name not in ("site-packages", "dist-packages"):
            path = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = f"{_PACKAGE_ROOT}{os.pathsep}{path}" if path else str(_PACKAGE_ROOT)
        # -P: the current folder is not put on the import path, where a user's own `server/` could hide ours.
        command = [sys.executable, "-P", "-m", CHILD_MODULE, *map(str, descriptors)]
        stderr = subprocess.PIPE if self._on_stderr else None
        return subprocess.Popen(command, pass_fds=descriptors, env=environment, stdin=subprocess.DEVNULL, stderr=stderr)

    def _read_stderr(self, child: subprocess.Popen[bytes]) -> None:
        if self._on_stderr is not None and child.stderr is not None:
            fields = {"model": self.source.model or self.source.location, "engine_pid": child.pid}
            arguments = (child.stderr, "batchd.engine", fields)
            self._stderr_reader = threading.Thread(target=self._on_stderr, args=arguments, daemon=True)
            self._stderr_reader.start()

    def _send(self, message: Load | Run | Ping) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def _receive(self, message: FromChild) -> None:
        """Acts on one message of the child."""
        match message:
            case Progress():
                self._phase = message.phase
                self._expect_progress()
                if self._on_progress is not None:
                    self._on_progress(message)
            case Loaded():
                self.models_found.set_result(message.models)
            case Ready():
                self._ready.set_result(message.description)
            case Failed():
                kind = getattr(errors, message.kind, errors.ModelLoadError)
                self._ready.set_exception(kind(message.message))
            case Done():
                self._finish(message.id, self._result(message))
            case RunFailed():
                self._finish(message.id, errors.BatchdError(message.message))
            case Pong():
                if self._pong is not None and not self._pong.done():
                    self._pong.set_result(None)
                self._pong = None

    def _expect_progress(self) -> None:
        """Starts, or starts anew, the time in which loading has to get on."""
        if self._load_timer is not None:
            self._load_timer.cancel()
        if self._load_timeout_s is not None and not self._ready.done():
            loop = asyncio.get_running_loop()
            self._load_timer = loop.call_later(self._load_timeout_s, self._end_hung_load, self._load_timeout_s)

    def _end_hung_load(self, timeout_s: float) -> None:
        if self._ready.done():
            return
        self._ready.set_exception(
            errors.ModelLoadError(
                f"loading {self.source.location} has hung: no progress for {timeout_s:g} s (phase: {self._phase}); "
                "if it only takes that long, raise load_timeout_s"
            )
        )
        if self._on_load_hung is not None:
            self._on_load_hung(self)
        self.kill()

    def _result(self, done: Done) -> BatchResult:
        answers = zip(*read_owned_rows(self._outputs, done.tensors), strict=True)
        rows: list[Outputs | RowError] = []
        owners: list[int] = []
        for index in range(done.tensors.rows + len(done.errors)):
            answer: Outputs | RowError
            if index in done.errors:
                owner, message = done.errors[index]
                answer = RowError(message)
            else:
                answer, owner = next(answers)
            rows.append(answer)
            owners.append(owner)
        return BatchResult(rows, done.stats, owners)

    def _finish(self, run_id: int, result: BatchResult | Exception) -> None:
        done = self._done
        if done is not None and run_id == self._run_id:
            self._done = None
            done(result)

    def _lost(self) -> None:
        """The socket is closed: the child is gone, or about to be."""
        self._finish(self._run_id, self._died())
        self._reaper = asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        """Waits for the child's end, not blocking the loop, and says why it ended."""
        assert self._child is not None
        child = self._child
        try:
            status = await asyncio.to_thread(child.wait, _END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            status = await asyncio.to_thread(child.wait)
        reason = _reason(status)
        if not self._ready.done():
            self._ready.set_exception(
                errors.ModelLoadError(f"the engine process of {self.source.location} {reason} (phase: {self._phase})")
            )
        for future in (self._ready, self.models_found):
            if not future.done():
                future.cancel()
        if not self.exited.done():
            self.exited.set_result(reason)

    def _died(self) -> errors.EngineDied:
        return errors.EngineDied(f"the engine of model '{self.name}' ended while it held the request; try again")


class _Connection(asyncio.Protocol):
    """Cuts the child's bytes into messages for its owner."""

    def __init__(self, owner: EngineProcess) -> None:
        self._owner, self._unframer = owner, Unframer()

    def data_received(self, data: bytes) -> None:
        for body in self._unframer.feed(data):
            self._owner._receive(_decode(body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner._lost()


def _settle(ran: asyncio.Future[BatchResult], outcome: BatchResult | Exception) -> None:
    if isinstance(outcome, BatchResult):
        ran.set_result(outcome)
    else:
        ran.set_exception(outcome)


def _reason(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
