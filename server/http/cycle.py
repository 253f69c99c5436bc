"""One request and its reply, as uvicorn runs them; with our form for the reply that is missing."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from server.http.errors import error_body
from server.http.leaving import Leaving
from server.request_context import REQUEST_ID, current_request, new_request_id


class Cycle(RequestResponseCycle):
    """One request and its reply."""

    leaving: Leaving

    def leave(self) -> None:
        """Its caller has left, or has its reply from the connection: whoever works for it is told."""
        self.disconnected = True
        self.message_event.set()
        self.leaving.tell()

    async def send_500_response(self) -> None:
        """Answers for an application that failed without an answer."""
        body = error_body("internal error; the server's log has the details")
        request = current_request.get()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        headers.append((REQUEST_ID, request.id if request else new_request_id()))
        await self.send(
            {"type": "http.response.start", "status": 500, "headers": [*headers, (b"connection", b"close")]}
        )
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


class AskingCycle(Cycle):
    """One whose client waits to be asked for the body (`Expect: 100-continue`)."""

    async def send(self, message: Any) -> None:
        """Closes after a reply without having asked: whether the body comes all the same can't be known."""
        if self.waiting_for_100_continue and self.more_body:
            self.keep_alive = False
        await super().send(message)
