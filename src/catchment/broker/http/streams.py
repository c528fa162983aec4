"""Streams of a log's deliveries: Server-Sent Events, and messages of a WebSocket.

Every message is a CloudEvent. What the broker has to say itself is one too, of a type of its own:

    catchment.lost   so many were not read in time and are gone: {"count": 12}
    catchment.gap    the place to go on after is not known here: others may have been missed
    catchment.end    the stream ends, and why: {"reason": "…"}

In a stream of Server-Sent Events these are events named lost, gap and end; deliveries have no name. The id of each is
its place, which a browser sends back as `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from catchment.broker.http.delivery_log import Entry, Log, Reader
from catchment.broker.http.subscriptions import IDS_MEMBER, PLACE_MEMBER

# Something is written at least so often: who is gone is found out, and proxies keep the stream open.
HEARTBEAT_S: Final = 15.0
# When a browser tries again after a stream has ended.
RETRY_MS: Final = 1_000
# CloudEvents' own name for JSON over WebSockets.
SUBPROTOCOL: Final = "cloudevents.json"

_ENDED: Final = 1001  # going away
_UNWELCOME: Final = 1003  # what it sent cannot be taken


def delivered(entry: Entry, log: Log) -> bytes:
    ids = ",".join(entry.subscriptions)
    return b'%b,"%b":"%b","%b":"%b"}' % (
        entry.opened,
        IDS_MEMBER.encode(),
        ids.encode("ascii"),
        PLACE_MEMBER.encode(),
        log.place(entry.number).encode("ascii"),
    )


class Told:
    """What the broker says itself, numbered, so that no two have one id."""

    def __init__(self, source: str, log: Log) -> None:
        self._source, self._log = source, log
        self._count = 0

    def __call__(self, what: str, **data: object) -> bytes:
        self._count += 1
        members = {
            "specversion": "1.0",
            "id": f"{self._log.place(self._log.last)}.{what}.{self._count}",
            "source": self._source,
            "type": f"catchment.{what}",
            "datacontenttype": "application/json",
            "data": data,
        }
        return msgspec.json.encode(members)


# --- Server-Sent Events -------------------------------------------------------------------------


async def server_sent(reader: Reader, source: str, heartbeat_s: float = HEARTBEAT_S) -> AsyncIterator[bytes]:
    log, told = reader.log, Told(source, reader.log)
    # No empty line after it, nor after a comment: some readers take any block for an event.
    yield b"retry: %d\n" % RETRY_MS
    if reader.has_gap:
        yield _sent(told("gap"), "gap")
    while (taken := await reader.take(heartbeat_s)) is not None:
        chunks = []
        if taken.lost:
            # Its place is that of the last that was lost: who comes back after it is not told again.
            before = log.place(taken.entries[0].number - 1)
            chunks.append(_sent(told("lost", count=taken.lost), "lost", before))
        chunks += [_sent(delivered(one, log), place=log.place(one.number)) for one in taken.entries]
        yield b"".join(chunks) or b": still here\n"
    yield _sent(told("end", reason=log.ended), "end")


def _sent(body: bytes, name: str = "", place: str = "") -> bytes:
    """JSON as msgspec writes it has no line ends."""
    first = f"event: {name}\n" if name else ""
    second = f"id: {place}\n" if place else ""
    return f"{first}{second}data: ".encode("ascii") + body + b"\n\n"


# --- WebSocket ----------------------------------------------------------------------------------


async def over_websocket(websocket: WebSocket, reader: Reader, source: str) -> None:
    """Until it ends at either side. Pings, which find out who is gone, are the server's."""
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    sending = asyncio.ensure_future(_send(websocket, reader, source))
    listening = asyncio.ensure_future(_listen(websocket))
    try:
        await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (sending, listening):
            one.cancel()
        await asyncio.gather(sending, listening, return_exceptions=True)
    if websocket.application_state is WebSocketState.CONNECTED:
        unwelcome = not listening.cancelled() and listening.exception() is None and listening.result()
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, OSError):
            await websocket.close(_UNWELCOME if unwelcome else _ENDED)


async def _send(websocket: WebSocket, reader: Reader, source: str) -> None:
    log, told = reader.log, Told(source, reader.log)
    if reader.has_gap:
        await websocket.send_text(told("gap").decode("utf-8"))
    while (taken := await reader.take(HEARTBEAT_S)) is not None:
        if taken.lost:
            await websocket.send_text(told("lost", count=taken.lost).decode("utf-8"))
        for one in taken.entries:
            await websocket.send_text(delivered(one, log).decode("utf-8"))
    await websocket.send_text(told("end", reason=log.ended).decode("utf-8"))


async def _listen(websocket: WebSocket) -> bool:
    """Whether something came: this stream goes one way."""
    message = await websocket.receive()
    return bool(message["type"] == "websocket.receive")
