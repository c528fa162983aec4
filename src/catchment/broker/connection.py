"""A connection of a broker: the driver of a session (`wire/session.py`) on an asyncio transport.

What is read goes to the session, and the owner gets the events as they come, all publications of one read together.
Frames that are put are written once in a turn of the loop. What waits to be written is bounded: a client that is behind
loses notifications, and the broker tells it how many as soon as it has caught up. A client that does not even read its
answers, and a neighbor that is behind for long, lose the connection.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from catchment.errors import shown
from catchment.routing.messages import Client, Neighbor, Said
from catchment.wire.session import BrokerSession, Ended, Event, Write

# What waits for a client: past it, the client is behind. Some seconds of a busy stream.
CLIENT_OUTBOX_BYTES_MAX: Final = 8 * 1_048_576
# The same with the answers to its requests: past it, the client does not read at all, and the broker closes.
CLIENT_OUTBOX_BYTES_MOST: Final = 2 * CLIENT_OUTBOX_BYTES_MAX
# What waits for a neighbor: past it, the broker gives the link up.
LINK_OUTBOX_BYTES_MAX: Final = 64 * 1_048_576
# What waits for a neighbor: past it, the broker gives no credit to its publishers.
CONGESTED_BYTES: Final = 4 * 1_048_576
# What waits for a neighbor: past it, the broker does not read from its publishers. Credit counts notifications, which
# may be large, and many publishers may have some left. The rest of the outbox is for what other neighbors send.
FULL_BYTES: Final = 40 * 1_048_576


class Owner(Protocol):
    """Whom a connection tells what happens to it."""

    def heard(self, connection: Connection, event: Event) -> None:
        """Any event but `Write`. After `Ended` the connection closes by itself."""
        ...

    def closed(self, connection: Connection, reason: str) -> None: ...

    def congested(self, connection: Connection) -> None:
        """Much waits to be written."""
        ...

    def drained(self, connection: Connection) -> None:
        """It no longer does."""
        ...


class Connection(asyncio.Protocol):
    """The owner sets `who` when it has welcomed the other side, by `known_as`."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, session: BrokerSession) -> None:
        self.owner = owner
        self.session = session
        self.who: Client | Neighbor | None = None
        self.instance = ""
        # Why it is refused before anything was said.
        self.refusal = ""
        # How much waited when it was given up because too much did.
        self.overflow_bytes = 0
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        # At least as much as waits to be written: what was left after the last write, and what was put since. Asking
        # the transport with each frame would cost as much as making the frame.
        self._outbox_bytes_most = 0
        self._outbox_bytes_max = CLIENT_OUTBOX_BYTES_MOST
        self._is_paused = False
        # Why nothing is read from it now.
        self._held_for: set[str] = set()
        self._was_held = False
        self._was_behind = False
        self._handshake: asyncio.TimerHandle | None = None
        self._put_bytes = 0
        # At the last tick: what waited, and what the other side had taken since the start.
        self._left_bytes = 0
        self._taken_bytes = 0

    @property
    def peer(self) -> str:
        address = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if isinstance(address, tuple) and len(address) >= 2 else "somebody"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.session.is_ended

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # With uvloop it is no instance of asyncio.Transport, but it has all of its methods.
        self._transport = cast("asyncio.Transport", transport)
        # The buffer of the transport is the outbox; `pause_writing` tells when much waits in it.
        self._transport.set_write_buffer_limits(high=CONGESTED_BYTES, low=CONGESTED_BYTES // 4)
        if self.session.is_ended:
            # The broker has begun to stop after the system had accepted the connection.
            self._transport.abort()
            return
        if self.refusal:
            self.end(self.refusal)
            return
        if hello := self.session.begin(self._loop.time()):
            self.put(hello)
        self._handshake = self._loop.call_at(self.session.deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        # The loop may be early by the resolution of its clock.
        self.tick(self.session.deadline)

    def data_received(self, data: bytes) -> None:
        for event in self.session.receive(data):
            if isinstance(event, Write):
                self.put(event.frame)
                continue
            self.owner.heard(self, event)
            if isinstance(event, Ended):
                self._close(event.goodbye)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self.session.lose(self.session.reason if problem is None else str(problem) or type(problem).__name__)
        # If a flush is due in this turn, it finds nothing: uvloop refuses to write to a closed transport.
        self._waiting.clear()
        self._stop_handshake()
        self.owner.closed(self, self.session.reason)

    def pause_writing(self) -> None:
        self._is_paused = True
        self.owner.congested(self)

    def resume_writing(self) -> None:
        self._is_paused = self._was_behind = False
        self.owner.drained(self)

    # --- who is there ---

    def welcome(self, credit: int = 0) -> None:
        """Answers the greeting that has come; `credit` is for a client."""
        self.put(self.session.welcome(credit))

    def known_as(self, who: Client | Neighbor) -> None:
        """The session is established, and the owner keeps it."""
        assert self.session.is_established
        self.who = who
        self._stop_handshake()
        if isinstance(who, Neighbor):
            self._outbox_bytes_max = LINK_OUTBOX_BYTES_MAX

    def _stop_handshake(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()

    def tick(self, now: float) -> None:
        """Called every TICK_S: pings, and gives up a connection whose other side is silent."""
        match self.session.on_tick(now, self._shows_life()):
            case Write(frame=frame):
                self.put(frame)
            case Ended(goodbye=b"") as ended:
                # Nothing that waits would be read.
                self.abort(ended.reason)
            case Ended(goodbye=goodbye):
                self._close(goodbye)
            case None:
                pass

    def _shows_life(self) -> bool:
        """Whether the other side has taken some of what waited for it at the last tick, however long an answer takes to
        come behind all that; or whether we did not read since then."""
        left = self.outbox_bytes
        taken = self._put_bytes - left
        has_taken = self._left_bytes > 0 and taken > self._taken_bytes
        self._left_bytes, self._taken_bytes = left, taken
        was_held, self._was_held = self._was_held, bool(self._held_for)
        return has_taken or was_held

    def is_alive(self) -> bool:
        """Asks the other side whether it is there, and does not wait. It counts as alive until it has neither answered
        for ANSWER_S_MAX nor taken anything of what waits for it."""
        now = self._loop.time()
        if question := self.session.ask_life(now, self.outbox_bytes):
            self.put(question)
        return self.session.is_answering(now)

    # --- sending ---

    def send(self, message: Said) -> None:
        """Puts a message. LimitError if it is too long. Frames that are made faster elsewhere are `put`."""
        if not self.session.is_ended:
            self.put(self.session.say(message))

    def put(self, frame: bytes) -> None:
        if self.session.is_ended:
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
            self.overflow_bytes = self._outbox_bytes_most
            self.abort(f"more than {self._outbox_bytes_max:,} bytes wait for it")

    def _flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._transport is not None and waiting:
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))
            self._outbox_bytes_most = self._transport.get_write_buffer_size()
        if self._was_behind and not self._is_paused:
            self._was_behind = False
            self.owner.drained(self)

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

    def is_behind(self) -> bool:
        """Whether so much waits for a client that it loses what comes now. `drained` tells when it no longer is."""
        # The first comparison is cheap and nearly always enough.
        if self._outbox_bytes_most <= CLIENT_OUTBOX_BYTES_MAX or self.outbox_bytes <= CLIENT_OUTBOX_BYTES_MAX:
            return False
        self._was_behind = True
        return True

    # --- reading ---

    def hold(self, reason: str = "links") -> None:
        """Reads nothing more until `release` for the same reason: the other side waits when the system's buffers are
        full."""
        if self._transport is not None and self.is_open:
            if not self._held_for:
                self._transport.pause_reading()
            self._held_for.add(reason)
            self._was_held = True

    def release(self, reason: str = "links") -> None:
        if self._transport is not None and self.is_open and reason in self._held_for:
            self._held_for.remove(reason)
            if not self._held_for:
                self._transport.resume_reading()

    # --- ending ---

    def end(self, reason: str, is_final: bool = False) -> None:
        """Says goodbye, and closes when what waits is written."""
        if not self.session.is_ended:
            self._close(self.session.end(reason, is_final))

    def _close(self, goodbye: bytes = b"") -> None:
        # Not by `put`, which takes nothing any more.
        self._waiting += (goodbye,) if goodbye else ()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def leave(self, reason: str) -> None:
        """Says goodbye, and lets the other side close when it has read that. Until then what comes is read and dropped:
        if we closed with something unread, the system would throw away what it has still to send."""
        if self.session.is_ended:
            return
        for held_for in list(self._held_for):
            self.release(held_for)
        self._waiting.append(self.session.end(reason))
        self._flush()
        # If writing has failed, the transport is closing already.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def abort(self, reason: str) -> None:
        """Closes at once: what waits is lost."""
        self.session.lose(reason)
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._transport is not None:
            self._transport.abort()

    def __str__(self) -> str:
        return f"{self.who or shown(self.peer)}"
