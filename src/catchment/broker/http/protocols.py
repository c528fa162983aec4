"""uvicorn's protocols, with bounds: a connection for HTTP and one for a WebSocket.

uvicorn and its libraries read HTTP. What these classes add is when they read, and for how long:

Slices    What comes is handled in turns with all other connections of the broker (`broker/turns.py`): events of h11, or
          some bytes of a WebSocket, until a slice is over. Meanwhile the connection reads nothing more.
Headers   A request that has begun, or a connection that has brought none, has HEADER_S_MAX to bring all headers. Of all
          connections that are waited for, the oldest is closed when there are more than HEADERS_WAITING_MAX, or more
          connections than HTTP_CONNECTIONS_MOST.
Bodies    A body that has begun has BODY_S_MAX. Bodies that are not whole are bounded over all connections
          (`broker/half_sent.py`). If the answer is given before the body has come, little more of the body is read:
          LINGER_BYTES_MAX, LINGER_S_MAX. So the other side can read the answer, and then must stop.
Pings     A WebSocket that pings too often rests (`broker/allowance.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from catchment.broker.allowance import PINGS_PER_S, Allowance
from catchment.broker.half_sent import HalfSent
from catchment.broker.http.binding import BODY_BYTES_MAX
from catchment.broker.http.gate import HTTP_CONNECTIONS_MAX
from catchment.broker.turns import Slice, Turns

# How long the headers of a request may take to arrive.
HEADER_S_MAX: Final = 10.0
# How long the body of a request may take to arrive. What has arrived waits in memory meanwhile.
BODY_S_MAX: Final = 30.0
# Connections whose headers have not arrived: more than a busy broker has at any time, and a quarter of all.
HEADERS_WAITING_MAX: Final = 500
# Connections in all: some more than may ask for anything, so that /healthz is answered when the broker is full.
HTTP_CONNECTIONS_MOST: Final = HTTP_CONNECTIONS_MAX + 200
# What is read of a body that nobody wants, and for how long: enough for a client to notice the answer.
LINGER_BYTES_MAX: Final = 1_048_576
LINGER_S_MAX: Final = 2.0
# Bytes that wait to be sent to one WebSocket. Deliveries wait in their log, so these are one message and pongs.
WEBSOCKET_OUTBOX_BYTES_MAX: Final = 16 * 1_048_576
# Bytes of a WebSocket between two looks at the clock: at most 43 frames.
_PIECE_BYTES: Final = 256

_TOO_MANY_HEADERS: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


class Edge:
    """What all HTTP connections of a broker share."""

    def __init__(self, turns: Turns, half_sent: HalfSent) -> None:
        self.turns, self.half_sent = turns, half_sent
        # Connections that the broker has closed because somebody took too long or there was no room.
        self.closed_count = 0
        # Those whose headers have not arrived, the oldest first.
        self._waiting: dict[HttpConnection, None] = {}

    def wait(self, connection: HttpConnection, connections_count: int) -> None:
        """The headers of a request are awaited. Makes room by closing whoever is waited for longest."""
        self._waiting[connection] = None
        if len(self._waiting) > HEADERS_WAITING_MAX or connections_count > HTTP_CONNECTIONS_MOST:
            next(iter(self._waiting)).drop()

    def wait_no_more(self, connection: HttpConnection) -> None:
        self._waiting.pop(connection, None)


# --- requests -----------------------------------------------------------------------------------


class _Events(h11.Connection):
    """Events until the slice is over: then it says that it needs data, though it may have more."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self.slice: Slice | None = None
        self.is_cut = False
        self.requests_count = 0
        self.body_bytes = 0

    def next_event(self) -> Any:
        assert self.slice is not None
        if self.is_cut:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.requests_count += 1
            self.body_bytes = 0
        elif isinstance(event, h11.Data):
            self.body_bytes += len(event.data)
        if event is not h11.NEED_DATA and event is not h11.PAUSED:
            self.is_cut = self.slice.is_over()
        return event


class _Flow(FlowControl):
    """Reads unless uvicorn, or the connection, has a reason not to."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_busy = False

    def pause_reading(self) -> None:
        self.read_paused = True
        self._apply()

    def resume_reading(self) -> None:
        self.read_paused = False
        self._apply()

    def set_busy(self, is_busy: bool) -> None:
        """What was read is not handled yet."""
        self._is_busy = is_busy
        self._apply()

    def _apply(self) -> None:
        _set_reading(self._transport, not self.read_paused and not self._is_busy)


def _set_reading(transport: asyncio.Transport, reads: bool) -> None:
    if not transport.is_closing() and transport.is_reading() != reads:
        (transport.resume_reading if reads else transport.pause_reading)()


class _Phase(Enum):
    """What is awaited."""

    HEADERS = "headers"
    BODY = "body"
    LINGERING = "the rest of a body that nobody wants"
    NOTHING = "nothing"

    @property
    def seconds(self) -> float:
        """How long it may take."""
        # The page that reads a body gives up first, and says so.
        return {_Phase.HEADERS: HEADER_S_MAX, _Phase.BODY: BODY_S_MAX + LINGER_S_MAX}.get(self, LINGER_S_MAX)


class HttpConnection(H11Protocol):
    """Made by uvicorn for each connection."""

    conn: _Events
    flow: _Flow

    def __init__(self, edge: Edge, **given: Any) -> None:
        super().__init__(**given)
        self.conn = _Events()
        self._edge = edge
        self._phase = _Phase.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        # Whether it has asked for a turn that has not come.
        self._is_waiting = False
        self._read_bytes = 0
        self._has_spoken = False
        self._is_upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        self._stop_watching()
        self._edge.half_sent.gone(self)
        self._edge.turns.leave(self)

    # --- slices ---

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        super().data_received(data)

    def handle_events(self) -> None:
        """uvicorn calls this when there may be events: when data came, and when an answer is complete."""
        if not self._is_waiting:
            self._is_waiting = True
            self._edge.turns.take(self, self._read_bytes)
            self.flow.set_busy(self._is_waiting)

    def work(self, slice: Slice) -> bool:
        self._is_waiting = False
        self._read_bytes = 0
        if self.transport.is_closing():
            return False
        self._has_spoken = True
        self.conn.slice, self.conn.is_cut = slice, False
        super().handle_events()
        if self._is_upgraded:
            return False
        self._is_waiting = self.conn.is_cut and not self.transport.is_closing()
        self.flow.set_busy(self._is_waiting)
        self._watch()
        return self._is_waiting

    def crash(self) -> None:
        self.transport.abort()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From now on another protocol has the connection."""
        self._is_upgraded = True
        self._leave()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    # --- what is awaited ---

    def _awaited(self) -> _Phase:
        if self.conn.their_state is h11.SEND_BODY:
            return _Phase.BODY if self._unanswered() is not None else _Phase.LINGERING
        # While a connection rests between two requests, uvicorn's own timer runs.
        is_resting = self.timeout_keep_alive_task is not None
        return _Phase.HEADERS if self.conn.their_state is h11.IDLE and not is_resting else _Phase.NOTHING

    def _unanswered(self) -> RequestResponseCycle | None:
        """The request that is being answered."""
        # uvicorn says that there always is one, but before the first request there is not.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return None if cycle is None or cycle.response_complete else cycle

    def _watch(self) -> None:
        """Looks what is awaited now, sets the timer for it, and checks how much of a body has come."""
        if self.transport.is_closing():
            self._stop_watching()
            return
        phase = self._awaited()
        if phase is not self._phase:
            self._stop_watching()
            self._phase = phase
            if phase is not _Phase.NOTHING:
                self._timer = self.loop.call_later(phase.seconds, self._on_late)
            if phase is _Phase.HEADERS:
                self._edge.wait(self, len(self.connections))
        held_bytes = self.conn.body_bytes if phase is _Phase.BODY else 0
        self._edge.half_sent.has(self, self.conn.requests_count, held_bytes)
        if self.conn.body_bytes > BODY_BYTES_MAX + LINGER_BYTES_MAX:
            self.drop()

    def _stop_watching(self) -> None:
        self._phase = _Phase.NOTHING
        self._edge.wait_no_more(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_late(self) -> None:
        if self._phase is _Phase.HEADERS and self._has_spoken:
            self._refuse(408, f"HEADER_S_MAX is {HEADER_S_MAX:.0f}: the headers did not arrive in time")
        self.drop()

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this when h11 cannot read what came. That may be a body whose request is being answered."""
        if (cycle := self._unanswered()) is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self._refuse(400, msg)
        self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        """Answers, if nothing was answered yet. After a request there is no text: to HEAD none may be said."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        data = text.encode() if self.conn.our_state is h11.IDLE else b""
        headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
        length = ("content-length", str(len(data)))
        events = h11.Response(status_code=status, headers=[*headers, length]), h11.Data(data=data), h11.EndOfMessage()
        for event in events:
            self.transport.write(self.conn.send(event) or b"")

    def drop(self) -> None:
        self._edge.closed_count += 1
        self._stop_watching()
        self.transport.close()

    def give_up(self, reason: str) -> None:
        """Of all bodies that are not whole this one was begun first. There is nobody to tell: it is still sending."""
        self.drop()


# --- WebSockets ---------------------------------------------------------------------------------


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Made by uvicorn when a request asks for a WebSocket."""

    def __init__(self, edge: Edge, **given: Any) -> None:
        super().__init__(**given)
        self._edge = edge
        self._unhandled = bytearray()
        self._is_waiting = False
        self._is_resting = False
        self._pings = Allowance(PINGS_PER_S, self.loop.time)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unhandled.clear()
        self._edge.turns.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            # The request, which h11 has read already. The library for WebSockets takes fewer and shorter headers, and
            # uvicorn would wait for ever.
            super().data_received(data)
            if not self.handshake_initiated:
                self.transport.write(_TOO_MANY_HEADERS)
                self.transport.close()
            return
        self._unhandled += data
        self._take_turn(len(data))
        if self._unhandled or self._is_resting:
            _set_reading(self.transport, False)

    def _take_turn(self, read_bytes: int = 0) -> None:
        if not self._is_waiting and not self._is_resting:
            self._is_waiting = True
            self._edge.turns.take(self, read_bytes)

    def work(self, slice: Slice) -> bool:
        self._is_waiting = False
        while self._unhandled and not self._is_resting and not self.transport.is_closing():
            piece = bytes(self._unhandled[:_PIECE_BYTES])
            del self._unhandled[:_PIECE_BYTES]
            super().data_received(piece)
            if slice.is_over():
                break
        if self.transport.is_closing():
            self._unhandled.clear()
        self._is_waiting = bool(self._unhandled) and not self._is_resting
        if not self._unhandled and not self._is_resting and not self.read_paused:
            _set_reading(self.transport, True)
        return self._is_waiting

    def crash(self) -> None:
        self._unhandled.clear()
        self.transport.abort()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # A refusal is an answer too. Without this uvicorn logs an error for each.
            self.handshake_complete = True

    def handle_ping(self) -> None:
        """Answers a ping. A client that pings and never reads would fill our memory with pongs: its connection ends."""
        super().handle_ping()
        if self.transport.get_write_buffer_size() > WEBSOCKET_OUTBOX_BYTES_MAX:
            self.transport.abort()
        self._count_ping()

    def handle_pong(self, event: Frame) -> None:
        super().handle_pong(event)
        self._count_ping()

    def _count_ping(self) -> None:
        if (rest_s := self._pings.take()) and not self._is_resting:
            self._is_resting = True
            self.loop.call_later(rest_s, self._has_rested)

    def _has_rested(self) -> None:
        self._is_resting = False
        self._take_turn()


def makers(edge: Edge) -> tuple[Callable[..., HttpConnection], Callable[..., WebSocketConnection]]:
    """What uvicorn calls to make connections."""

    def http(**given: Any) -> HttpConnection:
        return HttpConnection(edge, **given)

    def websocket(**given: Any) -> WebSocketConnection:
        return WebSocketConnection(edge, **given)

    return http, websocket
