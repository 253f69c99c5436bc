"""Running the server: puts the pieces together, listens, loads, and drains when told to stop.

    listen -> load all models -> ready -> SIGTERM -> not ready -> (delay) -> refuse -> empty -> close -> exit 0

The port opens at once, so that probes get answers while models load; predictions get 503 until theirs is
ready. SIGINT does the same as SIGTERM. How connections end is told in `connections.py`; a second signal ends
everything at once. `docs/operations.md` has the bounds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import uvloop

from server.access import Access
from server.dispatcher import Dispatcher
from server.engines.settings import EngineSettings
from server.errors import BatchdError, Draining
from server.http.application import create_application, product_version
from server.http.connections import ConnectionLimits, Connections
from server.http.listener import Listener, allow_descriptors
from server.http.refused import RefusedRequests
from server.http.turns import Turns
from server.loading_progress import loading_progress
from server.logs import log_lines, set_up_logging
from server.metrics import Metrics, new_registry
from server.observer import Observer, create_observer
from server.process.host import EngineProcess
from server.settings import Settings, SettingsError
from server.supervisor import Supervisor
from server.tls import Tls, read_tls, uvicorn_options
from server.tokens import TokenFile
from server.tracing import start_tracing
from server.watchdog import Watchdog

_log = logging.getLogger("batchd")
_BACKLOG = 2048
_ENGINES_END_S = 3.0
"""After this, engine processes that have not ended by themselves are killed."""
_UNCOLLECTED = 20_000
"""So many objects more than before, and the collector looks at the new ones; left alone it does so at 700."""


def serve(settings: Settings, locations: Sequence[str]) -> int:
    """Serves until told to stop; returns the exit status. Raises SettingsError if it can't listen."""
    set_up_logging(settings.log_level, settings.log_format)
    for line in settings.lines():
        _log.info("setting %s", line)
    if warning := allow_descriptors(settings.connection_limit):
        _log.warning(warning)
    tls = read_tls(settings)
    tokens = TokenFile(settings.token_file) if settings.token_file else None
    listening = _listen(settings)
    access = Access(address=listening.getsockname()[0], admin=settings.admin, tokens=tokens)
    access.warn(with_tls=tls is not None)
    with listening:
        return uvloop.run(_serve(settings, locations, listening, access, tls))


def _spare_what_stays() -> None:
    """Keeps the collector away from all modules: to look through them takes a tenth of a second each time.

    And lets it come seldom: what is on its way through a busy server is no garbage, and requests leave none behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_UNCOLLECTED, 20, 20)


async def _serve(
    settings: Settings, locations: Sequence[str], listening: socket.socket, access: Access, tls: Tls | None
) -> int:
    metrics = Metrics(new_registry(), triton_names=settings.triton_metrics)
    tracing = start_tracing(settings.tracing, product_version())
    observer = create_observer(settings.access_log, tracing)
    dispatcher = Dispatcher(
        queue_limit_examples=settings.queue_limit_examples,
        queue_limit_bytes=settings.queue_limit_bytes,
        batch_timeout_s=settings.batch_timeout_s,
        max_delay_s=settings.max_delay_ms / 1000,
        metrics=metrics,
        tracing=tracing,
    )
    watchdog = Watchdog(
        metrics,
        ping_interval_s=settings.ping_interval_s,
        ping_timeout_s=settings.ping_timeout_s,
        batch_timeout_s=settings.batch_timeout_s,
        load_timeout_s=settings.load_timeout_s,
        engine=partial(EngineProcess, on_stderr=log_lines) if settings.log_format == "json" else EngineProcess,
    )
    supervisor = Supervisor(
        locations,
        start_engine=watchdog.start_engine,
        engine_settings=_engine_settings(settings),
        dispatcher=dispatcher,
        metrics=metrics,
        progress=loading_progress(),
        models_loading_at_once=settings.models_loading_at_once,
        restart_backoff_s=settings.restart_backoff_s,
        restart_backoff_limit_s=settings.restart_backoff_limit_s,
        drain_timeout_s=settings.drain_timeout_s,
    )
    supervisor.concerns = (dispatcher.concern, watchdog.concern)
    refused = RefusedRequests(metrics, observer)
    turns = Turns()
    connections = Connections(_connection_limits(settings), metrics.count_ended_connection, refused, turns)
    metrics.connections.set_function(lambda: len(connections))
    application = create_application(
        supervisor,
        dispatcher,
        metrics,
        access=access,
        body_limit_bytes=settings.body_limit_bytes,
        request_timeout_s=settings.request_timeout_s,
        element_limit=settings.element_limit,
        nonfinite=settings.nonfinite,
        observer=observer,
        turns=turns,
    )
    listener = Listener(application, connections, **uvicorn_options(tls))
    stop_grpc = await _start_grpc(supervisor, dispatcher, metrics, settings, access, tls, observer)
    stop = _on_signals(watchdog.kill_all)
    _spare_what_stays()
    answering = asyncio.create_task(listener.serve(sockets=[listening]))
    loading = asyncio.create_task(_load(supervisor, settings, listening))
    stopping = asyncio.create_task(stop.wait())
    watching = asyncio.create_task(watchdog.run())
    try:
        await asyncio.wait([answering, loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and (status := loading.result()):
            return status
        await asyncio.wait([answering, stopping], return_when=asyncio.FIRST_COMPLETED)
        connections.close_with_replies()
        await _drain(supervisor, dispatcher, settings)
        return 0
    finally:
        for task in (loading, stopping, watching):
            task.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        closing = [listener.stop(listening, settings.close_timeout_s), supervisor.close()]
        if stop_grpc is not None:
            closing.append(stop_grpc())
        asyncio.get_running_loop().call_later(_ENGINES_END_S, watchdog.kill_all)
        await asyncio.gather(*closing)
        await answering
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


async def _start_grpc(
    supervisor: Supervisor,
    dispatcher: Dispatcher,
    metrics: Metrics,
    settings: Settings,
    access: Access,
    tls: Tls | None,
    observer: Observer | None,
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Starts the gRPC server, if a port is set for it, and returns what stops it.

    Raises SettingsError if it can't listen.
    """
    if settings.grpc_port is None:
        return None
    from server.grpc import closing
    from server.grpc.guard import Guard
    from server.grpc.service import InferenceService, create_server

    service = InferenceService(
        supervisor,
        dispatcher,
        metrics,
        product_version=product_version(),
        request_timeout_s=settings.request_timeout_s,
        element_limit=settings.element_limit,
        observer=observer,
    )
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        address = f"{host}:{settings.grpc_port}"
        server, port = create_server(service, address, settings.body_limit_bytes, Guard(access, metrics, observer), tls)
    except OSError as error:
        raise SettingsError(f"cannot listen for gRPC on {host}, port {settings.grpc_port}: {error}") from None
    await server.start()
    _log.info("batchd %s listens for gRPC on %s:%d", product_version(), host, port)
    return partial(closing.stop, server, port)


async def _load(supervisor: Supervisor, settings: Settings, listening: socket.socket) -> int:
    """Loads all models; returns the exit status that a failure asks for, or 0."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
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
    delay_s = 0.0 if supervisor.loading else settings.drain_delay_s  # what was never ready gets no traffic to wait for
    supervisor.draining = True
    _log.info("stopping: not ready any more; refusing requests in %g s", delay_s)
    await asyncio.sleep(delay_s)
    if await dispatcher.drain(settings.drain_timeout_s):
        _log.info("stopped: every queued request was answered")
    else:
        _log.warning("stopped after %g s with requests still queued; they get 503", settings.drain_timeout_s)
        dispatcher.abandon(Draining("the server is shutting down, and the request's turn did not come; try again"))


def _on_signals(kill_engines: Callable[[], None]) -> asyncio.Event:
    """Returns an event that SIGTERM and SIGINT set; a second one ends all processes at once, status 128 + signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if not stop.is_set():
            stop.set()
            return
        _log.warning("a second signal: ending at once")
        kill_engines()
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise SettingsError(f"cannot listen on {settings.host}, port {settings.port}: {reason}") from None


def _connection_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        connections=settings.connection_limit,
        url_bytes=settings.url_limit_bytes,
        header_bytes=settings.header_limit_bytes,
        header_count=settings.header_limit,
        header_timeout_s=settings.header_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        write_timeout_s=settings.write_timeout_s,
        keep_alive_s=settings.keep_alive_s,
    )


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
