"""The engine process: `python -m server.process.child SOCKET INPUTS OUTPUTS` (three inherited descriptors).

It sets the environment that TensorFlow reads when imported, loads one model, reports, and then answers `Run`
messages on its main thread until the parent closes the socket. A second thread waits for nothing but that, so
that the process ends at once with its parent, even in the middle of a batch or a compile. SIGINT and SIGTERM
are the parent's to act on: it drains, then closes the socket.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec

from server.engines.batch_result import BatchResult, Outputs, RowError
from server.engines.compile_cache import cache_directory, enable_cache, open_private_copy, publish
from server.errors import BatchdError
from server.process.framing import Unframer, frame
from server.process.messages import Done, Failed, FromChild, Load, Ping, Pong, Ready, Run, RunFailed, Tensors, ToChild
from server.process.wire import Arena, read_owned_rows, write_owned_rows
from server.process.worker import ModelWorker, as_load_error

_decode = msgspec.msgpack.Decoder(ToChild).decode


def main(arguments: list[str]) -> None:
    """Serves the parent until it closes the socket."""
    descriptors = [int(argument) for argument in arguments]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptors[0])
    threading.Thread(target=_end_with_parent, args=(connection.fileno(),), daemon=True).start()
    inputs, outputs = Arena(descriptors[1]), Arena(descriptors[2])
    messages = _receive(connection)
    load = next(messages)
    assert isinstance(load, Load)
    worker = _load(load, connection)
    if worker is None:
        _flush_and_exit(1)
    for message in messages:
        if isinstance(message, Run):
            connection.sendall(frame(_answer(worker, message, inputs, outputs)))
        elif isinstance(message, Ping):
            connection.sendall(frame(Pong()))
    _flush_and_exit(0)


def _load(load: Load, connection: socket.socket) -> ModelWorker | None:
    """Makes the worker and reports it ready; or reports why not, and returns None."""

    def send(message: FromChild) -> None:
        connection.sendall(frame(message))

    cache = _set_environment(load)
    try:
        worker = ModelWorker(load.source, load.settings, send, cache and cache[0], importing=_quiet_stderr())
    except BatchdError as error:
        send(Failed(type(error).__name__, error.message))
        return None
    except Exception as error:
        traceback.print_exc()
        failure = as_load_error(error, load.source.location)
        send(Failed(type(failure).__name__, failure.message))
        return None
    send(Ready(worker.description))
    if cache:
        publish(*cache)
    return worker


def _set_environment(load: Load) -> tuple[Path, Path] | None:
    """Sets what TensorFlow reads when it is imported; returns this process's compile cache and the model's."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if load.settings.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if not load.settings.compile_cache:
        return None
    directory = cache_directory(load.source.location, load.source.model)
    try:
        private = open_private_copy(directory)
    except OSError:
        return None
    return (private, directory) if enable_cache(private, os.environ) else None


def _answer(worker: ModelWorker, run: Run, inputs: Arena, outputs: Arena) -> Done | RunFailed:
    try:
        rows, owners = read_owned_rows(inputs, run.tensors)
        result = worker.run(run.signature, rows, run.bucket)
        tensors, errors = _write_result(worker, result, owners, outputs)
        return Done(run.id, tensors, errors, result.stats)
    except Exception as error:
        if not isinstance(error, BatchdError):
            traceback.print_exc()
        return RunFailed(run.id, f"{type(error).__name__}: {error}")


def _write_result(
    worker: ModelWorker, result: BatchResult, owners: list[int], outputs: Arena
) -> tuple[Tensors, dict[int, tuple[int, str]]]:
    """Writes the answers with their owners; returns where, and the errors with theirs."""
    answers: list[Outputs] = []
    theirs: list[int] = []
    errors: dict[int, tuple[int, str]] = {}
    for index, (row, owner) in enumerate(zip(result.rows, owners, strict=True)):
        if isinstance(row, RowError):
            errors[index] = (owner, row.message)
        else:
            answers.append(row)
            theirs.append(owner)
    dtypes = [tensor.dtype for tensor in worker.description.signatures[0].outputs]
    return write_owned_rows(outputs, answers, dtypes, theirs), errors


def _receive(connection: socket.socket) -> Iterator[ToChild]:
    """Yields the parent's messages until it closes the socket."""
    unframer = Unframer()
    while data := connection.recv(1 << 16):
        for body in unframer.feed(data):
            yield _decode(body)


def _end_with_parent(descriptor: int) -> None:
    """Waits until the other end of the socket is closed, then ends the process."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    _flush_and_exit(0)


def _flush_and_exit(status: int) -> NoReturn:
    """Ends at once: TensorFlow's own clean-up takes long and can hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Holds back what native code prints (notes on missing GPU drivers); shows it where the body raises."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            file.seek(0)
            os.write(kept, file.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


if __name__ == "__main__":
    main(sys.argv[1:])
