"""A delivery log as a stream: Server-Sent Events, or messages of a WebSocket.

Every message is a CloudEvent. The broker's own messages are CloudEvents too, with types of their own:

    catchment.lost   deliveries were not read in time and are gone: {"count": 12}
    catchment.gap    the broker does not know the place that the reader named: it may have missed deliveries. Or
                     brokers have lost notifications: {"since": "…", "until": "…", "missed": 3, "link": ["a", "b"]}
    catchment.end    the stream ends, and why: {"reason": "…"}

In Server-Sent Events the broker's messages are events named lost, gap and end. Deliveries have no event name; the id of
each is its place, which a browser sends back as `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from catchment.broker.http.delivery_log import LogEntry, Portion
from catchment.broker.http.subscriptions import IDS_MEMBER, PLACE_MEMBER

# A stream is written to at least this often. So the broker notices a reader that is gone, and proxies keep the stream.
HEARTBEAT_S: Final = 15.0
# When a browser tries again after a stream has ended.
RETRY_MS: Final = 1_000
# When a reader comes back that must acknowledge what it has read: at once, for there is more.
RETURN_MS: Final = 20
# CloudEvents' own name for JSON over WebSockets.
SUBPROTOCOL: Final = "cloudevents.json"

# Codes that close a WebSocket (RFC 6455 §7.4.1).
_GOING_AWAY: Final = 1001
_UNACCEPTABLE_DATA: Final = 1003


class StreamLog(Protocol):
    """What a stream needs of a log."""

    last_number: int
    end_reason: str | None

    def place(self, number: int) -> str: ...


class StreamReader(Protocol):
    """What a stream needs of a reader: `Reader` and `DurableReader` have it. `is_pass_over`: the reader should come
    back at once."""

    has_gap: bool
    is_pass_over: bool

    @property
    def log(self) -> StreamLog: ...

    async def take(self, timeout_s: float) -> Portion | None: ...


def delivery_json(entry: LogEntry, log: StreamLog) -> bytes:
    """The CloudEvent of an entry, with the ids of the subscriptions that match it and its place."""
    ids = ",".join(entry.subscriptions)
    return b'%b,"%b":"%b","%b":"%b"}' % (
        entry.open_json,
        IDS_MEMBER.encode(),
        ids.encode("ascii"),
        PLACE_MEMBER.encode(),
        log.place(entry.number).encode("ascii"),
    )


class BrokerMessages:
    """Makes the broker's own messages in one stream. They are counted, so that no two have the same id."""

    def __init__(self, source: str, log: StreamLog) -> None:
        self._source, self._log = source, log
        self._count = 0

    def json(self, name: str, **data: object) -> bytes:
        self._count += 1
        members = {
            "specversion": "1.0",
            "id": f"{self._log.place(self._log.last_number)}.{name}.{self._count}",
            "source": self._source,
            "type": f"catchment.{name}",
            "datacontenttype": "application/json",
            "data": data,
        }
        return msgspec.json.encode(members)


# --- Server-Sent Events -------------------------------------------------------------------------


async def server_sent_events(
    reader: StreamReader, source: str, heartbeat_s: float = HEARTBEAT_S
) -> AsyncIterator[bytes]:
    log, messages = reader.log, BrokerMessages(source, reader.log)
    # No empty line after `retry`, nor after a comment: some readers take every block of lines for an event.
    yield b"retry: %d\n" % RETRY_MS
    if reader.has_gap:
        yield _block(messages.json("gap"), "gap")
    while (portion := await reader.take(heartbeat_s)) is not None:
        blocks = []
        if portion.lost:
            # The id is the place of the last delivery lost: a reader that comes back after it does not hear of the
            # same loss again.
            place = log.place(portion.entries[0].number - 1)
            blocks.append(_block(messages.json("lost", count=portion.lost), "lost", place))
        blocks += [_entry_block(entry, log, messages) for entry in portion.entries]
        yield b"".join(blocks) or b": still here\n"
    if reader.is_pass_over:
        yield b"retry: %d\n" % RETURN_MS
    yield _block(messages.json("end", reason=log.end_reason), "end")


def _entry_block(entry: LogEntry, log: StreamLog, messages: BrokerMessages) -> bytes:
    event = "" if entry.gap is None else "gap"
    return _block(_entry_json(entry, log, messages), event, log.place(entry.number))


def _entry_json(entry: LogEntry, log: StreamLog, messages: BrokerMessages) -> bytes:
    return delivery_json(entry, log) if entry.gap is None else messages.json("gap", **entry.gap)


def _block(json: bytes, event: str = "", place: str = "") -> bytes:
    """One event of the stream. msgspec writes JSON without line ends, so one `data:` line holds it."""
    event_line = f"event: {event}\n" if event else ""
    id_line = f"id: {place}\n" if place else ""
    return f"{event_line}{id_line}data: ".encode("ascii") + json + b"\n\n"


# --- WebSocket ----------------------------------------------------------------------------------


async def serve_websocket(
    websocket: WebSocket, reader: StreamReader, source: str, hear: Callable[[str], bool] | None = None
) -> None:
    """Returns when either side has ended the connection. uvicorn sends the pings that detect a client that is gone.
    `hear` gets each message of the client; a message that it returns False for ends the connection, and so does every
    message if there is no `hear`."""
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    sending = asyncio.ensure_future(_send(websocket, reader, source))
    listening = asyncio.ensure_future(_listen(websocket, hear))
    try:
        await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, listening):
            task.cancel()
        await asyncio.gather(sending, listening, return_exceptions=True)
    if websocket.application_state is WebSocketState.CONNECTED:
        has_spoken = not listening.cancelled() and listening.exception() is None and listening.result()
        # The client may be gone by now: then nobody needs the code.
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, OSError):
            await websocket.close(_UNACCEPTABLE_DATA if has_spoken else _GOING_AWAY)


async def _send(websocket: WebSocket, reader: StreamReader, source: str) -> None:
    log, messages = reader.log, BrokerMessages(source, reader.log)
    if reader.has_gap:
        await websocket.send_text(messages.json("gap").decode("utf-8"))
    while (portion := await reader.take(HEARTBEAT_S)) is not None:
        if portion.lost:
            await websocket.send_text(messages.json("lost", count=portion.lost).decode("utf-8"))
        for entry in portion.entries:
            await websocket.send_text(_entry_json(entry, log, messages).decode("utf-8"))
    await websocket.send_text(messages.json("end", reason=log.end_reason).decode("utf-8"))


async def _listen(websocket: WebSocket, hear: Callable[[str], bool] | None) -> bool:
    """Waits until the client sends a message that it should not (true) or leaves (false)."""
    while True:
        message = await websocket.receive()
        if message["type"] != "websocket.receive":
            return False
        if hear is None or not hear(message.get("text") or ""):
            return True
