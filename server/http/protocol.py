"""One HTTP connection: uvicorn's, with limits on what its client may take, and an end that loses no reply.

What a connection waits for has a deadline, and it waits for one thing at a time:

    the head of a request      from its first byte             header_timeout_s     408
    the body                   for each further KiB            body_timeout_s       408
    the reply                  nothing here: the request's own deadline
    the client to read it      for each further 64 KiB         write_timeout_s      dropped
    the next request           from the end of the reply       keep_alive_s         closed
    the client's end           from our own                    LINGER_S             closed

There is one timer a connection. Deadlines move with every request, the timer doesn't: it goes off no later than the
deadline, and is set anew when it finds that it was early. A request that arrives whole and is answered touches none.

Requests that arrive behind an unanswered one wait, and no more is read. What can't be understood is answered in its
turn, behind the replies to what came before it; nothing that follows it is read as a request. Where more arrive than a
turn of the loop can answer in time (`turns.py`), the surplus is refused here, unread, and its connections stay.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from math import inf
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.http.connections import BUSY, LINGER_S, MALFORMED, STOPPING, Connection, Connections, Refusal
from server.http.cycle import AskingCycle, Cycle
from server.http.half_closed import HalfClosed
from server.http.leaving import LEAVING, Leaving
from server.http.lingering import LingeringTransport
from server.http.refused import REQUEST, refused_head
from server.http.turns import READ_AT
from server.request_context import RequestContext, request_of

_BODY_PROGRESS_BYTES = 1024
_WRITE_PROGRESS_BYTES = 64 * 1024
_PIPELINE_LIMIT = 64
"""Requests that wait behind one that is being answered; one chunk of the socket could hold thousands."""

_NONE, _HEAD, _BODY, _UNREAD = range(4)
"""How far the request that arrives last has come: there is none, or it is whole; its head; its body; or the body of
one that is refused whatever it says."""

_ADMIN = b"/v2/repository/"
"""Where requests go that are served however busy the server is; so is all that isn't a POST."""


class Protocol(HttpToolsProtocol):
    """`connections`: what the connections of the server share. `in_place_of`: what was counted for this one so far."""

    def __init__(self, connections: Connections, in_place_of: Connection | None = None, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._shared = connections
        self._in_place_of = in_place_of
        self._limits = connections.limits
        self._phase = _NONE
        self._deaf = False
        self._refusal: Refusal | None = None
        self._last_word: bytes | None = None
        self.cycle: Cycle
        self._running: Cycle | None = None
        self._held_open: Cycle | None = None
        self._header_limit = self._limits.header_count
        self._head_bytes = self._body_bytes = 0
        self._read_by = self._write_by = self._timer_at = inf
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._half_closed: HalfClosed | None = None
        self._socket: asyncio.Transport

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begins; or answers that there are too many."""
        self._socket = transport
        super().connection_made(LingeringTransport(transport, self._linger))  # type: ignore[arg-type]  # like one
        self._shared.add(self, self._in_place_of)
        self._in_place_of = None
        if self._shared.is_flooded:
            self.drop("limit")
        elif not self._shared.has_room:
            self._answer_and_end(self._shared.crowded, self._refused_request(self._shared.crowded))
        else:
            self._wait_until(self.loop.time() + self._limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells whoever waits for the client."""
        self._shared.discard(self)
        self._read_by = self._write_by = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._half_closed is not None:
            self._half_closed.stop()
        self._deaf = True
        self.transport.lose()  # type: ignore[attr-defined]  # our LingeringTransport
        self._abandon()
        super().connection_lost(exc)
        # Nothing that is left refers to it, so that it needn't wait for the collector of garbage.
        self.cycle = self._running = self._held_open = self._half_closed = None  # type: ignore[assignment]  # at its end

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn returns nothing
        """The client sends no more; True keeps the connection for the replies that it still waits for."""
        cut = self._phase == _BODY and not self.pipeline
        if cut or not self._is_answering() or self.transport.is_closing() or not self._socket.can_write_eof():
            return False
        if self._half_closed is None:
            self._half_closed = HalfClosed(self.loop, self._socket, self._awaits_reply)
            if self._phase != _NONE:
                self._refuse(MALFORMED)
            self.close_after_reply()
            self._deaf = True
        return True

    def _awaits_reply(self) -> bool:
        """Whether a 1xx may be written: nothing of a reply is, and the client knows such replies."""
        cycle = self.cycle
        is_next = not self.pipeline and self._last_word is None
        return is_next and not cycle.response_started and cycle.scope["http_version"] == "1.1"

    def data_received(self, data: bytes) -> None:
        """Parses what arrived, and notes what is waited for now."""
        if self._deaf:
            return
        began = self._phase
        self._head_bytes = len(data) + (self._head_bytes if began == _HEAD else 0)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nothing is spoken here but HTTP/1.1, so the request is answered as if it had not asked
        except httptools.HttpParserError:
            self._refuse(self._refusal or MALFORMED)
            return
        phase = self._phase
        if phase == _BODY:
            self._note_body()
        elif phase == _HEAD:
            self._note_head(began)
        elif phase == _NONE:
            if self._is_answering():
                self._read_by = inf
            elif began == _BODY:
                self._wait_until(self.loop.time() + self._limits.keep_alive_s)

    def _note_head(self, began: int) -> None:
        if began != _HEAD:
            self._wait_until(self.loop.time() + self._limits.header_timeout_s)
        # The parser keeps a name or a value to itself until it is whole.
        elif self._head_bytes > self._limits.url_bytes + self._limits.header_bytes:
            self._refuse(self._shared.head_too_large)

    def _note_body(self) -> None:
        if self._body_bytes >= _BODY_PROGRESS_BYTES and not self.cycle.response_complete:
            self._body_bytes = 0
            self._wait_until(self.loop.time() + self._limits.body_timeout_s)

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if not self._deaf:
            self._phase = _HEAD

    def on_url(self, url: bytes) -> None:
        """A piece of the URL, which may not grow for ever."""
        self.url += url
        if len(self.url) > self._limits.url_bytes and not self._deaf:
            self._stop_parsing(self._shared.url_too_long)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole header."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        headers = self.headers
        headers.append((name, value))
        if len(headers) > self._header_limit and not self._deaf:
            self._stop_parsing(self._shared.too_many_headers)

    def on_headers_complete(self) -> None:
        """Starts the application; or, behind a request that is being answered, waits for its turn."""
        if self._deaf:
            return
        if self._head_bytes > self._limits.header_bytes:  # with what else arrived, so it may be
            self._check_header_bytes()
        if self._is_surplus():
            self._phase = _UNREAD
            self._wait_until(self.loop.time() + self._limits.body_timeout_s)
            return
        parser, scope = self.parser, self.scope
        version: str = parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        keys: dict[str, Any] = scope  # type: ignore[assignment]  # uvicorn's own type allows no keys of ours
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before = self.cycle
        cycle = (AskingCycle if self.expect_100_continue else Cycle)(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        cycle.leaving = keys[LEAVING] = Leaving(self.flow.resume_reading)
        is_last = self._shared.closing
        self.cycle, self._phase = cycle, _BODY
        self._body_bytes = _BODY_PROGRESS_BYTES  # to have the head is progress
        if before is None or before.response_complete:
            self._running = cycle
            self._start_asgi_task(cycle, self.app)
        else:
            if self._held_open is before and not before.response_started:
                before.keep_alive = True  # the reply to this one is the last
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
            is_last = is_last or len(self.pipeline) >= _PIPELINE_LIMIT
        if is_last and cycle.keep_alive:
            self._close_after(cycle)

    def _is_surplus(self) -> bool:
        """Whether the request comes to be refused: only one whose connection waits for nothing else, and can go on."""
        if self.parser.get_method() != b"POST" or self.url.startswith(_ADMIN) or self.expect_100_continue:
            return False
        if self._is_answering() or self._shared.closing or not self.parser.should_keep_alive():
            return False
        if self.parser.get_http_version() != "1.1" or self.flow.write_paused:  # replies that nobody reads would heap up
            return False
        return not self._shared.turns.admits()

    def _check_header_bytes(self) -> None:
        if sum(len(name) + len(value) for name, value in self.headers) > self._limits.header_bytes:
            self._stop_parsing(self._shared.head_too_large)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        cycle = self.cycle
        if self._phase == _BODY and not cycle.response_complete:
            cycle.body += body
            self._body_bytes += len(body)  # and not what frames it
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._phase == _BODY:
            self._phase = _NONE
            self._deaf = len(self.pipeline) >= _PIPELINE_LIMIT
            cycle = self.cycle
            scope: Any = cycle.scope  # which uvicorn allows no keys of ours
            scope[READ_AT] = self._shared.turns.read()
            if not cycle.response_complete:
                cycle.more_body = False
                cycle.message_event.set()
        elif self._phase == _UNREAD:
            self._refuse_surplus()

    def _refuse_surplus(self) -> None:
        if self._shared.closing:
            self._refuse(STOPPING)
            return
        request = self._refused_request(BUSY)
        self._phase = _NONE
        self.transport.write(BUSY.reply(request.id))
        self._wait_until(self.loop.time() + self._limits.keep_alive_s)

    def on_response_complete(self) -> None:
        """Goes on to the next request, or waits for one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle: Any
            cycle, app = self.pipeline.pop()
            cycle.scope.pop(READ_AT, None)  # it has waited for the reply before its own, not for a turn
            self._running = cycle
            self._start_asgi_task(cycle, app)
        elif self._last_word is not None:
            self.transport.write(self._last_word)
            self.transport.close()
        elif self._phase == _NONE:
            self._wait_until(self.loop.time() + self._limits.keep_alive_s)
        elif self._phase == _BODY:  # what still arrives of a body that was refused is dropped, but not for ever
            self._wait_until(self.loop.time() + self._limits.body_timeout_s)

    def pause_writing(self) -> None:
        """The client reads more slowly than the reply is written."""
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        self._write_by = inf

    # Endings. See `server.http.connections`.

    def close_after_reply(self) -> None:
        """Makes the reply to what was read last the last one."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and cycle.keep_alive and self._last_word is None:
            self._close_after(cycle)

    def end_if_idle(self, last_word: Refusal) -> None:
        """Ends a connection on which nothing has begun."""
        if self._phase == _NONE and not self._is_answering() and not self.transport.is_closing():
            self._answer_and_end(last_word, request_of(()))

    def end_half_sent(self, last_word: Refusal) -> None:
        """Answers a request that isn't whole yet."""
        if self._phase != _NONE and not self.transport.is_closing():
            self._refuse(last_word)

    def drop(self, reason: str) -> None:
        """Ends the connection at once, whatever is on its way."""
        self._shared.count(reason)
        self._deaf = True
        self._read_by = self._write_by = inf
        self._abandon()
        self._socket.abort()

    def shutdown(self) -> None:
        """What uvicorn calls at its end: by then all connections are gone."""
        self.drop("stopping")

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _abandon(self) -> None:
        """What runs hears that nobody waits for it; what was to run behind it doesn't."""
        self.pipeline.clear()
        for cycle in {self._running, self.cycle}:
            if cycle is not None and not cycle.response_complete:
                cycle.leave()

    def _close_after(self, cycle: Cycle) -> None:
        cycle.keep_alive = False
        self._held_open = cycle

    def _stop_parsing(self, refusal: Refusal) -> None:
        self._refusal = refusal
        raise ValueError(refusal.message)

    def _refuse(self, refusal: Refusal) -> None:
        """Answers in turn what can't be served, and reads no further."""
        self._deaf = True
        cycle, is_its_own = self.cycle, self._phase == _BODY
        is_answered = is_its_own and cycle.response_started
        request = None if is_answered else self._refused_request(refusal)
        self._phase = _NONE
        if request is not None and (self.pipeline or (self._is_answering() and not is_its_own)):
            if is_its_own:
                self.pipeline.popleft()
            self._shared.count(refusal.reason)
            self._last_word = refusal.reply(request.id)
            self._read_by = inf
        else:
            if is_its_own:
                cycle.leave()
            self._answer_and_end(refusal, request)

    def _refused_request(self, refusal: Refusal) -> RequestContext:
        """Returns the request that arrives, and sees to it that it is counted and logged as refused, once."""
        scope: Any = self.cycle.scope if self._phase == _BODY else {}
        headers, url = (self.headers, self.url) if self._phase != _NONE else ([], b"")
        request: RequestContext | None = scope.get(REQUEST)
        is_running = request is not None  # then the application logs it at its end
        if request is None:
            method = self.parser.get_method() if url else b""
            request = scope[REQUEST] = refused_head(method, url[: self._limits.url_bytes], headers)
        request.refusal = refusal.status, refusal.reason
        self._shared.refused.count(refusal.status, refusal.reason)
        if not is_running:
            self._shared.refused.tell(request, headers)
        return request

    def _answer_and_end(self, refusal: Refusal, request: RequestContext | None) -> None:
        self._shared.count(refusal.reason)
        if request is not None:
            self.transport.write(refusal.reply(request.id))
        self.transport.close()

    def _linger(self) -> None:
        """Our half is ended; reads, for the other side's sake, until it has ended its own."""
        self._deaf = True
        if self._half_closed is not None:
            self._socket.close()
            return
        self.flow.resume_reading()
        self._wait_until(self.loop.time() + LINGER_S)

    # The timer.

    def _wait_until(self, read_by: float) -> None:
        self._read_by = read_by
        if read_by < self._timer_at:
            self._set_timer()

    def _watch_writing(self) -> None:
        self._unsent_bytes = self._socket.get_write_buffer_size()
        self._write_by = self.loop.time() + self._limits.write_timeout_s
        self._set_timer()

    def _set_timer(self) -> None:
        due = min(self._read_by, self._write_by)
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self.loop.time()
        if now >= self._write_by:
            self._on_write_late()
        if now >= self._read_by:
            self._read_by = inf
            self._on_read_late(now)
        self._set_timer()

    def _on_write_late(self) -> None:
        left = self._socket.get_write_buffer_size()
        if left and self._unsent_bytes - left < _WRITE_PROGRESS_BYTES:
            self._write_by = self._read_by = inf
            self.drop("write_timeout")
        elif left:
            self._watch_writing()
        else:
            self._write_by = inf

    def _on_read_late(self, now: float) -> None:
        if self.transport.is_closing():
            if self._socket.get_write_buffer_size():
                self._read_by = now + LINGER_S
                if self._write_by == inf:
                    self._watch_writing()
            else:
                self._socket.close()
        elif self._phase == _HEAD:
            self._refuse(self._shared.head_late)
        elif self._phase == _NONE:
            self.transport.close()
        elif self.flow.read_paused:
            self._read_by = now + self._limits.body_timeout_s
        else:
            self._refuse(self._shared.body_late)
