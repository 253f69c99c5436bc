"""The whole HTTP process on a free port, in this event loop, with engines in memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from prometheus_client import CollectorRegistry

from server.access import Access
from server.access_log import AccessLogMode
from server.dispatcher import Dispatcher
from server.engines.settings import EngineSettings
from server.http.application import Application, create_application
from server.http.connections import ConnectionLimits, Connections
from server.http.listener import Listener
from server.http.nonfinite import Nonfinite
from server.http.refused import RefusedRequests
from server.http.turns import Turns
from server.loading_progress import ProgressLines
from server.metrics import Metrics
from server.observer import create_observer
from server.supervisor import Supervisor
from server.tls import Tls, uvicorn_options
from server.tracing import Tracing
from tests.support.fake_engine import FakeEngine, FakeEngines
from tests.support.fake_files import FakeFiles


@dataclass
class Service:
    """A running server: where it is, what it is made of, and a client."""

    port: int
    client: httpx.AsyncClient
    supervisor: Supervisor
    dispatcher: Dispatcher
    engines: FakeEngines | FakeFiles
    registry: CollectorRegistry
    metrics: Metrics
    connections: Connections
    listener: Listener
    listening: socket.socket
    application: Application

    async def predict(self, model: str = "", **body) -> httpx.Response:
        """POSTs a body of these fields."""
        return await self.client.post(f"/predict/{model}" if model else "/predict", json=body)


@asynccontextmanager
async def running(
    *,
    wait: bool = True,
    body_limit_bytes: int = 16 * 1024 * 1024,
    request_timeout_s: float = 10.0,
    element_limit: int = 4 * 1024 * 1024,
    nonfinite: Nonfinite = "token",
    restart_backoff_s: float = 0.01,
    access_log: AccessLogMode = "errors",
    triton_metrics: bool = False,
    tracing: Tracing | None = None,
    drain_timeout_s: float = 10.0,
    engines: FakeEngines | FakeFiles | None = None,
    limits: ConnectionLimits | None = None,
    access: Access | None = None,
    tls: Tls | None = None,
    **prepared: Callable[[], FakeEngine],
) -> AsyncIterator[Service]:
    """Serves the prepared engines, or those of `engines`; with `wait`, once they are ready.

    With `tls`, the service's own client is of no use.
    """
    registry = CollectorRegistry()
    metrics = Metrics(registry, triton_names=triton_metrics)
    dispatcher = Dispatcher(
        queue_limit_examples=100, queue_limit_bytes=10**8, batch_timeout_s=10.0, metrics=metrics, tracing=tracing
    )
    engines = engines or FakeEngines(**prepared)
    supervisor = Supervisor(
        list(engines.prepared),
        start_engine=engines,
        engine_settings=EngineSettings(),
        dispatcher=dispatcher,
        metrics=metrics,
        progress=ProgressLines(),
        restart_backoff_s=restart_backoff_s,
        drain_timeout_s=drain_timeout_s,
    )
    observer = create_observer(access_log, tracing)
    turns = Turns()
    application = create_application(
        supervisor,
        dispatcher,
        metrics,
        access=access or Access(),
        body_limit_bytes=body_limit_bytes,
        request_timeout_s=request_timeout_s,
        element_limit=element_limit,
        nonfinite=nonfinite,
        observer=observer,
        turns=turns,
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # As uvloop does; asyncio doesn't, for a socket that it didn't make, and then each reply takes 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        refused = RefusedRequests(metrics, observer)
        connections = Connections(limits or ConnectionLimits(), metrics.count_ended_connection, refused, turns)
        listener = Listener(application, connections, **uvicorn_options(tls))
        answering = asyncio.create_task(listener.serve(sockets=[listening]))
        loading = asyncio.create_task(supervisor.start())
        port = listening.getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            try:
                if wait:
                    await loading
                yield Service(
                    port,
                    client,
                    supervisor,
                    dispatcher,
                    engines,
                    registry,
                    metrics,
                    connections,
                    listener,
                    listening,
                    application,
                )
            finally:
                loading.cancel()
                await client.aclose()
                await listener.stop(listening, 0.2)
                await answering
                await supervisor.close()
