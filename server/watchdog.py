"""The watchdog: starts engine processes, and kills those that hang. The supervisor then starts them anew.

    hangs in         is noticed by                               killed after
    a batch          the dispatcher's timer, for each batch      batch_timeout_s
    nothing: idle    a ping that its main thread must answer     ping_interval_s + ping_timeout_s
    loading          no progress being reported                  load_timeout_s

Readiness says so earlier: when a batch has taken ten times its measured time and at least a second
(`Dispatcher.concern`), or a ping has been unanswered for a second. It comes back if the engine does.

Why a batch isn't killed by its measured time, too: the curve knows warm buckets. A batch that none of them holds, or
whose rows have to run alone, may well take a hundred times as long and be right; and loading the model again takes
longer than almost any batch. Not sending more work here costs little, so that is decided early; a kill costs much.

An engine at work isn't pinged: its one thread answers nothing else until the batch is done, whose own timer runs. A
process that even SIGKILL can't end (a driver that hangs) is given up: its callers get their errors, the device goes on
with other models, and its own stays not ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from server.engines.settings import EngineSettings
from server.metrics import Metrics
from server.process.host import EngineProcess
from server.process.messages import ModelSource

_log = logging.getLogger("batchd.watchdog")

LATE_S = 1.0
"""For this long nothing is said: a machine's hiccup."""

_SLICES = 4
"""A pause of this whole process (a debugger, a frozen container) uses up one slice of a timeout, not all of it."""


class Watched(Protocol):
    """What the watchdog needs of an engine process."""

    exited: asyncio.Future[str]

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether it is ready and runs no batch."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether it is about to end."""
        ...

    @property
    def batch_s(self) -> float:
        """Seconds that the running batch has taken; 0 without one."""
        ...

    async def ping(self) -> None:
        """Returns when the process has answered, or is gone."""
        ...

    def kill(self) -> None:
        """Ends it at once."""
        ...


StartEngine: TypeAlias = Callable[..., EngineProcess]


class Watchdog:
    """Starts engine processes (`start_engine`) and watches them while `run` runs."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        ping_interval_s: float,
        ping_timeout_s: float,
        batch_timeout_s: float,
        load_timeout_s: float,
        engine: StartEngine = EngineProcess,
    ) -> None:
        self._metrics = metrics
        self._engine = engine
        self._ping_interval_s = ping_interval_s
        self._ping_timeout_s = ping_timeout_s
        self._batch_timeout_s = batch_timeout_s
        self._load_timeout_s = load_timeout_s
        self._engines: set[EngineProcess] = set()
        self._pinged_at: dict[Watched, float] = {}
        self._pings: set[asyncio.Task[None]] = set()

    def start_engine(self, source: ModelSource, settings: EngineSettings) -> EngineProcess:
        """Returns an engine process, not started yet, that is watched from now on until it is gone and closed."""
        engine = self._engine(source, settings, self._load_timeout_s, self._on_load_hung)
        self._engines.add(engine)
        return engine

    async def run(self) -> None:
        """Watches, for ever."""
        while True:
            await asyncio.sleep(self._ping_interval_s)
            # One that has ended counts as lost until its deployment knows, or readiness would have a gap.
            self._engines = {each for each in self._engines if each.is_lost or not each.exited.done()}
            for engine in list(self._engines):
                self.check(engine)

    def check(self, engine: Watched) -> None:
        """Pings an engine that is idle; kills one whose batch nobody else has a timer for."""
        if engine.is_idle and engine not in self._pinged_at:
            task = asyncio.create_task(self._ping(engine))
            self._pings.add(task)
            task.add_done_callback(self._pings.discard)
        elif engine.batch_s > self._batch_timeout_s + LATE_S:
            self._kill(engine, "batch", f"a batch has run for {engine.batch_s:.0f} s")

    def concern(self) -> str | None:
        """Returns what speaks against sending more work here, or None."""
        now = asyncio.get_running_loop().time()
        silent = [engine.name for engine, at in self._pinged_at.items() if now - at > LATE_S]
        silent += [engine.name for engine in self._engines if engine.is_lost]
        return f"the engine of model {silent[0]!r} does not answer" if silent else None

    def kill_all(self) -> None:
        """Ends every engine process at once."""
        for engine in self._engines:
            engine.kill()

    async def _ping(self, engine: Watched) -> None:
        self._pinged_at[engine] = asyncio.get_running_loop().time()
        answered = asyncio.ensure_future(engine.ping())
        either: list[asyncio.Future[Any]] = [answered, engine.exited]
        try:
            for _ in range(_SLICES):
                done, _ = await asyncio.wait(either, timeout=self._ping_timeout_s / _SLICES)
                if done:
                    return
            self._kill(engine, "ping", f"it has not answered for {self._ping_timeout_s:g} s")
        finally:
            answered.cancel()
            del self._pinged_at[engine]

    def _kill(self, engine: Watched, where: str, why: str) -> None:
        _log.error("model %r: its engine hangs: %s; killing it", engine.name, why)
        self._metrics.hung_engines.labels(engine.name, where).inc()
        engine.kill()

    def _on_load_hung(self, engine: EngineProcess) -> None:
        self._metrics.hung_engines.labels(engine.name, "load").inc()
