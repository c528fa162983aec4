"""One connection of a broker: bytes in, frames out, and who is at the other end.

Reads are decoded and handed over as they come, all publications of one read together. Frames that are put are written
once in a turn of the loop. What waits to be written is bounded: a client that is behind loses notifications and is told
how many as soon as it has caught up; one that does not even read its answers, and a neighbor that is behind for long,
lose the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from catchment.errors import shown
from catchment.routing.messages import Client, Neighbor
from catchment.wire.frames import (
    HELLO_BYTES_MAX,
    LINK_FRAME_BYTES_MAX,
    REASON_CODEPOINTS_MAX,
    Decoder,
    WireError,
    frame,
)
from catchment.wire.messages import (
    Answer,
    Batch,
    Beginning,
    Goodbye,
    Hello,
    Look,
    Ping,
    Pong,
    Publish,
    Request,
    ToBroker,
    Unfit,
    Welcome,
)

# What waits for a client: past it, it is behind. Some seconds of a busy stream.
CLIENT_OUTBOX_BYTES_MAX: Final = 8 * 1_048_576
# With the answers to its requests: past it, it does not read at all, and the connection is given up.
CLIENT_OUTBOX_BYTES_MOST: Final = 2 * CLIENT_OUTBOX_BYTES_MAX
# What waits for a neighbor: past it, the link is given up.
LINK_OUTBOX_BYTES_MAX: Final = 64 * 1_048_576
# What waits for a neighbor: past it, publishers here are not given credit.
CONGESTED_BYTES: Final = 4 * 1_048_576
# What waits for a neighbor: past it, nothing is read from who publishes here. Credit counts notifications, which may be
# large, and many may have some left. What is left of the outbox is for what other neighbors send.
FULL_BYTES: Final = 40 * 1_048_576
HANDSHAKE_S: Final = 10.0
# How long an answer may take when somebody else claims to be who is at the other end.
ANSWER_S_MAX: Final = 2.0
# Looks, one each ping, that may find nothing new from the other side before it is taken for dead.
SILENT_LOOKS_MAX: Final = 3

_PING: Final = frame(Ping())
_PONG: Final = frame(Pong())


class Owner(Protocol):
    """What a connection tells of itself."""

    def greeted(self, connection: Connection, hello: Hello) -> None: ...

    def welcomed(self, connection: Connection, welcome: Welcome) -> None: ...

    def requested(self, connection: Connection, request: Request) -> None: ...

    def published(self, connection: Connection, publications: list[Publish]) -> None: ...

    def misasked(self, connection: Connection, unfit: Unfit) -> None: ...

    def looked(self, connection: Connection, look: Look) -> None: ...

    def told(self, connection: Connection, message: Any) -> None: ...

    def arrived(self, connection: Connection, batch: Batch[Any]) -> None: ...

    def closed(self, connection: Connection, reason: str) -> None: ...

    def congested(self, connection: Connection) -> None:
        """Much waits to be written."""
        ...

    def drained(self, connection: Connection) -> None:
        """What was too much is on its way."""
        ...


class Connection(asyncio.Protocol):
    """`who` is set once it is known. `hello` is sent first by who has connected."""

    def __init__(
        self, owner: Owner, loop: asyncio.AbstractEventLoop, between_brokers: Any, hello: Hello | None = None
    ) -> None:
        self.owner = owner
        self._between_brokers = between_brokers
        self.who: Client | Neighbor | None = None
        self.instance = ""
        self.is_outgoing = hello is not None
        self.reason = "the other side has closed it"
        # Why it is refused before anything was said.
        self.refusal = ""
        # What waited when that was too much.
        self.overflow_bytes = 0
        self._loop = loop
        self._hello = hello
        self._decoder: Decoder[Any] = Decoder(Beginning if hello is None else Answer, HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        # No fewer than wait to be written: what was left after the last write, and what was put since. To ask the
        # transport with each frame costs as much as to make the frame.
        self._outbox_bytes_most = 0
        self._outbox_bytes_max = CLIENT_OUTBOX_BYTES_MOST
        self._is_paused = False
        self._is_held = False
        self._was_behind = False
        self._is_ended = False
        self._handshake: asyncio.TimerHandle | None = None
        self._looks_silent = 0
        self._asked_at: float | None = None
        self._left_when_asked = 0
        self._put_bytes = 0
        self._left_at_look = 0
        self._taken_at_look = 0

    @property
    def peer(self) -> str:
        found = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"{found[0]}:{found[1]}" if isinstance(found, tuple) and len(found) >= 2 else "somebody"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._is_ended

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of it with uvloop.
        self._transport = cast("asyncio.Transport", transport)
        # The buffer of the transport is the outbox: `pause_writing` when it is no longer empty for the system.
        self._transport.set_write_buffer_limits(high=CONGESTED_BYTES, low=CONGESTED_BYTES // 4)
        if self.refusal:
            self.end(self.refusal)
            return
        if self._hello is not None:
            self.put(frame(self._hello))
        self._handshake = self._loop.call_later(HANDSHAKE_S, self._check_handshake)

    def _check_handshake(self) -> None:
        if self.who is None and self.is_open:
            self.end(f"no greeting within {HANDSHAKE_S:.0f} s")

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self._looks_silent = 0
        publications: list[Publish] = []
        try:
            for body in self._decoder.bodies(data):
                if self._is_ended:
                    return
                message = self._decoder.decoded(body)
                if isinstance(message, Publish):
                    publications.append(message)
                    continue
                if publications:
                    self.owner.published(self, publications)
                    publications = []
                self._handle(message)
        except WireError as problem:
            if publications:
                self.owner.published(self, publications)
                publications = []
            self.end(str(problem))
        if publications and not self._is_ended:
            self.owner.published(self, publications)

    def _handle(self, message: Any) -> None:
        match message:
            case Batch():
                self.owner.arrived(self, message)
            case Request():
                self.owner.requested(self, message)
            case Hello() if self.who is None and not self.is_outgoing:
                self.owner.greeted(self, message)
            case Welcome() if self.who is None and self.is_outgoing:
                self.owner.welcomed(self, message)
            case Ping():
                self.put(_PONG)
            case Pong():
                self._asked_at = None
            case Look():
                self.owner.looked(self, message)
            case Unfit():
                self.owner.misasked(self, message)
            case Goodbye():
                self.reason = message.reason[:REASON_CODEPOINTS_MAX]
                self.close()
            case Hello() | Welcome():
                self.end(f"{type(message).__name__} out of place")
            case _ if isinstance(self.who, Neighbor):
                self.owner.told(self, message)
            case _:
                self.end(f"{type(message).__name__} before Welcome")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self._is_ended = True
        # A flush that is due finds nothing: uvloop refuses to write to what is closed.
        self._waiting.clear()
        if self._handshake is not None:
            self._handshake.cancel()
        if problem is not None:
            self.reason = str(problem) or type(problem).__name__
        self.owner.closed(self, self.reason)

    def pause_writing(self) -> None:
        self._is_paused = True
        self.owner.congested(self)

    def resume_writing(self) -> None:
        self._is_paused = self._was_behind = False
        self.owner.drained(self)

    # --- sending ---

    def known_as(self, who: Client | Neighbor) -> None:
        self.who = who
        if self._handshake is not None:
            self._handshake.cancel()
        if isinstance(who, Client):
            self._decoder.expect(ToBroker)
        else:
            self._decoder.expect(self._between_brokers, LINK_FRAME_BYTES_MAX)
            self._outbox_bytes_max = LINK_OUTBOX_BYTES_MAX

    def put(self, frame: bytes) -> None:
        if self._is_ended:
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        size = len(frame)
        self._waiting.append(frame)
        self._waiting_bytes += size
        self._put_bytes += size
        self._outbox_bytes_most += size
        if self._outbox_bytes_most > self._outbox_bytes_max:
            self._check_outbox()

    def _check_outbox(self) -> None:
        self._outbox_bytes_most = self.outbox_bytes
        if self._outbox_bytes_most > self._outbox_bytes_max:
            self.reason = f"more than {self._outbox_bytes_max:,} bytes wait for it"
            self.overflow_bytes = self._outbox_bytes_most
            self.abort()

    def _flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._transport is not None and waiting:
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))
            self._outbox_bytes_most = self._transport.get_write_buffer_size()
        if self._was_behind and not self._is_paused:
            self._was_behind = False
            self.owner.drained(self)

    def is_silent(self) -> bool:
        """Asked with each ping: whether the other side has been silent for too many of them. Who takes what has
        waited for it is not silent, however long an answer takes to come behind all that. Looks are counted, not
        seconds: when we are late ourselves, what came meanwhile is not read yet."""
        if self._is_held:
            return False
        left = self.outbox_bytes
        if self._left_at_look and self._put_bytes - left > self._taken_at_look:
            self._looks_silent = 0
        self._left_at_look, self._taken_at_look = left, self._put_bytes - left
        self._looks_silent += 1
        return self._looks_silent > SILENT_LOOKS_MAX

    def is_alive(self) -> bool:
        """Asks the other side whether it is there, and does not wait: it is, until it has not answered for
        ANSWER_S_MAX, nor taken anything of what waits for it."""
        now, left = self._loop.time(), self.outbox_bytes
        if self._asked_at is None or left < self._left_when_asked:
            self._asked_at, self._left_when_asked = now, left
            self.put(_PING)
        return now - self._asked_at < ANSWER_S_MAX

    @property
    def outbox_bytes(self) -> int:
        below = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._waiting_bytes + below

    @property
    def is_congested(self) -> bool:
        return self._is_paused

    @property
    def is_full(self) -> bool:
        return self._is_paused and self.outbox_bytes > FULL_BYTES

    def hold(self) -> None:
        """Reads nothing more until `release`: the other side waits when the system's buffers are full."""
        if self._transport is not None and self.is_open and not self._is_held:
            self._is_held = True
            self._transport.pause_reading()

    def release(self) -> None:
        if self._transport is not None and self.is_open and self._is_held:
            self._is_held = False
            self._looks_silent = 0
            self._transport.resume_reading()

    def is_behind(self) -> bool:
        if self._outbox_bytes_most <= CLIENT_OUTBOX_BYTES_MAX or self.outbox_bytes <= CLIENT_OUTBOX_BYTES_MAX:
            return False
        self._was_behind = True
        return True

    def end(self, reason: str, is_final: bool = False) -> None:
        if not self._is_ended:
            self.reason = reason
            self.put(frame(Goodbye(reason, is_final)))
            self.close()

    def leave(self, reason: str) -> None:
        """Says goodbye, and is closed by the other side when that has read it. Until then what comes is read and
        dropped: to close with something unread would have the system throw away what it has still to send."""
        if not self._is_ended:
            self.reason = reason
            self.release()
            self.put(frame(Goodbye(reason)))
            self._flush()
            if self._transport is not None and self.is_open:
                self._transport.write_eof()
            self._is_ended = True

    def close(self) -> None:
        """Closes once what waits is written."""
        self._flush()
        self._is_ended = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._is_ended = True
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._transport is not None:
            self._transport.abort()

    def __str__(self) -> str:
        return f"{self.who or shown(self.peer)}"


MakeConnection = Callable[[], Connection]
