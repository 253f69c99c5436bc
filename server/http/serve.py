"""Running the server: puts the pieces together, listens, loads, and drains when told to stop.

    listen -> load all models -> ready -> SIGTERM -> not ready -> (delay) -> refuse -> empty -> exit 0

The port opens at once, so that probes get answers while models load; predictions get 503 until theirs is
ready. SIGINT does the same as SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from server.dispatcher import Dispatcher
from server.engines.settings import EngineSettings
from server.errors import BatchdError
from server.http.application import create_application, product_version
from server.http.protocol import Protocol
from server.loading_progress import loading_progress
from server.metrics import Metrics, new_registry
from server.process.host import EngineProcess
from server.settings import Settings, SettingsError
from server.supervisor import Supervisor

if TYPE_CHECKING:
    import grpc.aio

_log = logging.getLogger("batchd")
_BACKLOG = 2048
_CLOSE_TIMEOUT_S = 5
"""How long connections may outlive the drained queue: replies that are still being read, requests half sent."""


class _Listener(uvicorn.Server):
    """uvicorn without its signal handlers: stopping is ours, since the queue drains first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield


def serve(settings: Settings, locations: Sequence[str]) -> int:
    """Serves until told to stop; returns the exit status. Raises SettingsError if it can't listen."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for line in settings.lines():
        _log.info("setting %s", line)
    listening = _listen(settings)
    with listening:
        return uvloop.run(_serve(settings, locations, listening))


async def _serve(settings: Settings, locations: Sequence[str], listening: socket.socket) -> int:
    metrics = Metrics(new_registry(), triton_names=settings.triton_metrics)
    dispatcher = Dispatcher(
        queue_limit_examples=settings.queue_limit_examples,
        queue_limit_bytes=settings.queue_limit_bytes,
        batch_timeout_s=settings.batch_timeout_s,
        max_delay_s=settings.max_delay_ms / 1000,
        metrics=metrics,
    )
    supervisor = Supervisor(
        locations,
        start_engine=EngineProcess,
        engine_settings=_engine_settings(settings),
        dispatcher=dispatcher,
        metrics=metrics,
        progress=loading_progress(),
        models_loading_at_once=settings.models_loading_at_once,
        restart_backoff_s=settings.restart_backoff_s,
        restart_backoff_limit_s=settings.restart_backoff_limit_s,
    )
    application = create_application(
        supervisor,
        dispatcher,
        metrics,
        body_limit_bytes=settings.body_limit_bytes,
        request_timeout_s=settings.request_timeout_s,
        element_limit=settings.element_limit,
        nonfinite=settings.nonfinite,
    )
    listener = _Listener(
        uvicorn.Config(
            application,
            loop="uvloop",
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
        )
    )
    grpc_server = await _start_grpc(supervisor, dispatcher, metrics, settings)
    stop = _on_signals()
    answering = asyncio.create_task(listener.serve(sockets=[listening]))
    loading = asyncio.create_task(_load(supervisor, settings, listening))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([answering, loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and (status := loading.result()):
            return status
        await asyncio.wait([answering, stopping], return_when=asyncio.FIRST_COMPLETED)
        await _drain(supervisor, dispatcher, settings)
        return 0
    finally:
        loading.cancel()
        stopping.cancel()
        listener.should_exit = True
        if grpc_server is not None:
            await grpc_server.stop(_CLOSE_TIMEOUT_S)
        await answering
        await supervisor.close()


async def _start_grpc(
    supervisor: Supervisor, dispatcher: Dispatcher, metrics: Metrics, settings: Settings
) -> grpc.aio.Server | None:
    """Starts the gRPC server, if a port is set for it. Raises SettingsError if it can't listen."""
    if settings.grpc_port is None:
        return None
    from server.grpc.service import InferenceService, create_server

    service = InferenceService(
        supervisor,
        dispatcher,
        metrics,
        product_version=product_version(),
        request_timeout_s=settings.request_timeout_s,
        element_limit=settings.element_limit,
    )
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        server, port = create_server(service, f"{host}:{settings.grpc_port}", settings.body_limit_bytes)
    except OSError as error:
        raise SettingsError(f"cannot listen for gRPC on {host}, port {settings.grpc_port}: {error}") from None
    await server.start()
    _log.info("batchd %s listens for gRPC on %s:%d", product_version(), host, port)
    return server


async def _load(supervisor: Supervisor, settings: Settings, listening: socket.socket) -> int:
    """Loads all models; returns the exit status that a failure asks for, or 0."""
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    _log.info("batchd %s listens on %s; loading", product_version(), address)
    try:
        await supervisor.start()
    except BatchdError as error:
        _log.error("cannot serve: %s", error.message)
        return 1
    names = ", ".join(model.name for model in supervisor.models)
    _log.info("ready: %s on %s", names, address)
    return 0


async def _drain(supervisor: Supervisor, dispatcher: Dispatcher, settings: Settings) -> None:
    supervisor.draining = True
    _log.info("stopping: not ready any more; refusing requests in %g s", settings.drain_delay_s)
    await asyncio.sleep(settings.drain_delay_s)
    if await dispatcher.drain(settings.drain_timeout_s):
        _log.info("stopped: every queued request was answered")
    else:
        _log.warning("stopped after %g s with requests still queued", settings.drain_timeout_s)


def _on_signals() -> asyncio.Event:
    """Returns an event that SIGTERM and SIGINT set; a second signal ends the process as usual."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise SettingsError(f"cannot listen on {settings.host}, port {settings.port}: {reason}") from None


def _engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        engine=settings.engine,
        device=settings.device,
        xla=settings.xla,
        intra_op_threads=settings.intra_op_threads,
        inter_op_threads=settings.inter_op_threads,
        compile_budget_s=settings.compile_budget_s,
        compile_cache=settings.compile_cache,
        max_batch_size=settings.max_batch_size,
        seed=settings.seed,
        reproducible=settings.reproducible,
    )
