"""Seeing a caller leave while it waits for its answer, so that nothing runs for nobody.

The connection knows it first, and tells. To ask it by ASGI's `receive` would take a task for each request that waits:
some 15 µs, and twenty objects in a circle that only the collector of garbage finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from server.http.body import CallerLeft, Scope

LEAVING = "batchd.leaving"
"""Where a scope has its `Leaving`."""


class Leaving:
    """Whether the caller of one request has left. `go_on_reading`: an end is seen only where the connection is read."""

    def __init__(self, go_on_reading: Callable[[], None]) -> None:
        self.has_left = False
        self.go_on_reading = go_on_reading
        self.on_left: Callable[[], None] | None = None

    def tell(self) -> None:
        """The caller has left, or is refused by its connection."""
        self.has_left = True
        if self.on_left is not None:
            self.on_left()


class CallerWatch:
    """Cancels the current task when the caller leaves; a `with` block around the wait for an answer."""

    def __init__(self, scope: Scope) -> None:
        self._leaving: Leaving = scope[LEAVING]
        self._waiting_task = asyncio.current_task()
        self._has_cancelled = False

    def __enter__(self) -> None:
        if self._leaving.has_left:
            raise CallerLeft
        self._leaving.on_left = self._cancel
        self._leaving.go_on_reading()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._leaving.on_left = None
        task, self._waiting_task = self._waiting_task, None
        if self._has_cancelled and kind is asyncio.CancelledError and task is not None:
            task.uncancel()
            raise CallerLeft from None

    def _cancel(self) -> None:
        if self._waiting_task is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._waiting_task.cancel()
