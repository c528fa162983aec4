"""A connection of a broker: the driver of a session (`wire/session.py`) on an asyncio transport.

What is read goes to the session, and the owner gets the events as they come, publications of one read together. A
connection handles what it has read in slices (`turns.py`), and reads no further until it has handled all of it. One
that pings or is refused too often rests for a while (`allowance.py`): it is neither handled nor read. What has come of
a frame that is not whole is bounded in time by the session, and in bytes over all connections (`half_sent.py`).
Frames that are put are written once in a turn of the loop. What waits to be written is bounded: a client that is behind
loses notifications, and the broker tells it how many as soon as it has caught up. A client that does not even read its
answers, and a neighbor that is behind for long, lose the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol, cast

from catchment.broker.allowance import PINGS_PER_S, REFUSALS_PER_S, Allowance
from catchment.broker.half_sent import HalfSent
from catchment.broker.outboxes import Outboxes
from catchment.broker.turns import Slice, Turns
from catchment.errors import shown
from catchment.routing.messages import Client, Neighbor, Said
from catchment.wire.messages import Pong, Refused
from catchment.wire.session import BrokerSession, Ended, Event, Write

# What waits for a client: past it, the client is behind. Some seconds of a busy stream.
CLIENT_OUTBOX_BYTES_MAX: Final = 8 * 1_048_576
# The same with the answers to its requests: past it, the client does not read at all, and the broker closes.
CLIENT_OUTBOX_BYTES_MOST: Final = 2 * CLIENT_OUTBOX_BYTES_MAX
# What waits for a client while all outboxes together are tight (`outboxes.py`): past it, the client is behind.
CLIENT_OUTBOX_BYTES_TIGHT: Final = 1_048_576
# What is put before the broker writes at all: so large notifications for many do not pile up within one turn.
PUT_BYTES_MAX: Final = 262_144
# What waits for a neighbor: past it, the broker gives the link up.
LINK_OUTBOX_BYTES_MAX: Final = 64 * 1_048_576
# What waits for a neighbor: past it, the broker gives no credit to its publishers.
CONGESTED_BYTES: Final = 4 * 1_048_576
# What waits for a neighbor: past it, the broker does not read from its publishers. Credit counts notifications, which
# may be large, and many publishers may have some left. The rest of the outbox is for what other neighbors send.
FULL_BYTES: Final = 40 * 1_048_576


# How long the other side may take to read why the connection ends, and close it.
READ_GOODBYE_S_MAX: Final = 2.0


class Owner(Protocol):
    """Whom a connection tells what happens to it. It has what all its connections share."""

    turns: Turns
    half_sent: HalfSent
    outboxes: Outboxes

    def heard(self, connection: Connection, event: Event) -> None:
        """Any event but `Write` and `Pong`. After `Ended` the connection closes by itself."""
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
        self._has_left = False
        self._is_paused = False
        # Why nothing is read: reasons of others, it rests, or what was read is not handled yet.
        self._held_for: set[str] = set()
        self._is_resting = False
        self._events: Iterator[Event] | None = None
        # What was read besides that.
        self._reads: deque[bytes] = deque()
        self._is_reading = True
        # Whether there was a time since the last tick when nothing was read.
        self._was_unread = False
        self._pings = Allowance(PINGS_PER_S, loop.time)
        self._refusals = Allowance(REFUSALS_PER_S, loop.time)
        # Why it is gone, when it is.
        self._loss: str | None = None
        self._is_finished = False
        self._was_behind = False
        self._handshake: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
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
        return self._transport is not None and self._loss is None and not self.session.is_ended

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
        if self.session.is_ended:
            return
        if self._events is not None:
            # The loop had read it before it was told to pause.
            self._reads.append(data)
            return
        self._events = self.session.receive(data)
        self.owner.turns.take(self, len(data))
        self._set_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self._loss = self.session.reason if problem is None else str(problem) or type(problem).__name__
        self._stop_handshake()
        # What was read before is still handled, and after that the owner hears that the connection is gone.
        if self._events is None or self.session.is_ended:
            self._finish()

    def _finish(self) -> None:
        """The connection is gone, and all is handled that was read."""
        if self._is_finished:
            return
        self._is_finished = True
        assert self._loss is not None
        self._events = None
        self._reads.clear()
        self.session.lose(self._loss)
        # If a flush is due in this turn, it finds nothing: uvloop refuses to write to a closed transport.
        self._waiting.clear()
        if self._closing is not None:
            self._closing.cancel()
        self.owner.turns.leave(self)
        self.owner.closed(self, self.session.reason)

    def pause_writing(self) -> None:
        self._is_paused = True
        self.owner.congested(self)

    def resume_writing(self) -> None:
        self._is_paused = self._was_behind = False
        self.owner.outboxes.has(self, self.outbox_bytes)
        self.owner.drained(self)

    # --- who is there ---

    def welcome(
        self, credit: int = 0, now: int = 0, last_seq: int | None = None, session: int = 0, storage: str = ""
    ) -> None:
        """Answers the greeting that has come; the arguments are for a client."""
        self.put(self.session.welcome(credit, now, last_seq, session, storage))

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
        was_unread, self._was_unread = self._was_unread, not self._is_reading
        has_taken = self._has_taken()
        match self.session.on_tick(now, has_taken or was_unread, not was_unread):
            case Write(frame=frame):
                self.put(frame)
            case Ended(goodbye=b"") as ended:
                # Nothing that waits would be read.
                self.abort(ended.reason)
            case Ended(goodbye=goodbye):
                self._close(goodbye)
            case None:
                pass

    def _has_taken(self) -> bool:
        """Whether the other side has taken some of what waited for it at the last tick, however long an answer takes to
        come behind all that."""
        left = self.outbox_bytes
        taken = self._put_bytes - left
        has_taken = self._left_bytes > 0 and taken > self._taken_bytes
        self._left_bytes, self._taken_bytes = left, taken
        return has_taken

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
            if type(message) is Refused and (rest_s := self._refusals.take()):
                self._rest(rest_s)

    def put(self, frame: bytes) -> None:
        if self.session.is_ended or self._loss is not None:
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        size = len(frame)
        self._waiting.append(frame)
        self._waiting_bytes += size
        self._put_bytes += size
        self._outbox_bytes_most += size
        if self._waiting_bytes > PUT_BYTES_MAX:
            self._write_waiting()
        if self._outbox_bytes_most > self._outbox_bytes_max:
            self._check_outbox()

    def _check_outbox(self) -> None:
        self._outbox_bytes_most = self.outbox_bytes
        if self._outbox_bytes_most > self._outbox_bytes_max:
            self.overflow(f"more than {self._outbox_bytes_max:,} bytes wait for it")

    def overflow(self, reason: str) -> None:
        """Too much waits for it: gives it up, and what waits is lost."""
        self.overflow_bytes = self.outbox_bytes
        self.abort(reason)

    def _flush(self) -> None:
        self._write_waiting()
        if self._was_behind and not self._is_paused:
            self._was_behind = False
            self.owner.drained(self)

    def _write_waiting(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._transport is not None and self._loss is None and waiting:
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))
            left = self._outbox_bytes_most = self._transport.get_write_buffer_size()
            # Nearly always nothing is left, and nothing was.
            if left or self._has_left:
                self._has_left = bool(left)
                self.owner.outboxes.has(self, left)

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
        bytes_max = CLIENT_OUTBOX_BYTES_TIGHT if self.owner.outboxes.is_tight else CLIENT_OUTBOX_BYTES_MAX
        if self._outbox_bytes_most <= bytes_max or self.outbox_bytes <= bytes_max:
            return False
        self._was_behind = True
        return True

    # --- reading ---

    def work(self, slice: Slice) -> bool:
        """Handles what was read, until the slice ends; whether something is left that can be handled now."""
        while self._events is not None and not self._is_resting:
            for event in self._events:
                self._handle(event)
                if slice.is_over() or self._is_resting:
                    return self._can_go_on
            self._has_handled()
        return False

    @property
    def _can_go_on(self) -> bool:
        return self._events is not None and not self._is_resting

    def crash(self) -> None:
        self.abort("an internal error of the broker: see its log")

    def _handle(self, event: Event) -> None:
        if isinstance(event, Write | Pong):
            if isinstance(event, Write):
                self.put(event.frame)
            if rest_s := self._pings.take():
                self._rest(rest_s)
            return
        self.owner.heard(self, event)
        if isinstance(event, Ended):
            self._close(event.goodbye)

    def _has_handled(self) -> None:
        """All of one read is handled: goes on with the next one, or reads."""
        self._events = self.session.receive(self._reads.popleft()) if self._reads else None
        if self._events is None and self._loss is not None:
            self._finish()
        elif self._events is None and not self.session.is_ended:
            self.owner.half_sent.has(self, *self.session.unfinished)
            self._set_reading()

    def _drop_reads(self) -> None:
        """After the end nothing is handled any more."""
        self._events = None
        self._reads.clear()
        if self._loss is not None:
            self._finish()

    def _rest(self, rest_s: float) -> None:
        if not self._is_resting:
            self._is_resting = True
            self._loop.call_later(rest_s, self._has_rested)
            self._set_reading()

    def _has_rested(self) -> None:
        self._is_resting = False
        self._set_reading()
        if self._events is not None:
            self.owner.turns.take(self)

    def hold(self, reason: str = "links") -> None:
        """Reads nothing more until `release` for the same reason: the other side waits when the system's buffers are
        full."""
        self._held_for.add(reason)
        self._set_reading()

    def release(self, reason: str = "links") -> None:
        self._held_for.discard(reason)
        self._set_reading()

    def _read_on(self) -> None:
        """From now on what comes is dropped at once, so there is no reason not to read it."""
        self._held_for.clear()
        self._is_resting = False
        self._events = None
        self._set_reading()

    def _set_reading(self) -> None:
        """Reads, unless there is a reason not to."""
        reads = not self._held_for and not self._is_resting and self._events is None
        if reads == self._is_reading or not self.is_open or cast("asyncio.Transport", self._transport).is_closing():
            return
        self._is_reading = reads
        if reads:
            cast("asyncio.Transport", self._transport).resume_reading()
        else:
            self._was_unread = True
            cast("asyncio.Transport", self._transport).pause_reading()

    def give_up(self, reason: str) -> None:
        """Of all half-sent frames this one was begun first, and there are too many bytes of them."""
        self.end(reason)

    # --- ending ---

    def end(self, reason: str, is_final: bool = False) -> None:
        """Says goodbye, and closes when what waits is written."""
        if not self.session.is_ended:
            self._close(self.session.end(reason, is_final))

    def _close(self, goodbye: bytes = b"") -> None:
        # Not by `put`, which takes nothing any more.
        self._waiting += (goodbye,) if goodbye else ()
        self._flush()
        if self._transport is None:
            return
        if not goodbye or not isinstance(self.who, Neighbor) or self._transport.is_closing():
            self._transport.close()
        else:
            # A neighbor tells all that it knows at once. If we closed while that is unread, the system would reset the
            # connection, and the neighbor would see that and not our reason. So it may read, and close; what it still
            # sends is dropped, also if nothing was to be read for now.
            if not self._is_reading:
                self._is_reading = True
                self._transport.resume_reading()
            self._transport.write_eof()
            self._closing = self._loop.call_later(READ_GOODBYE_S_MAX, self._transport.abort)
        self._drop_reads()

    def leave(self, reason: str) -> None:
        """Says goodbye, and lets the other side close when it has read that. Until then what comes is read and dropped:
        if we closed with something unread, the system would throw away what it has still to send."""
        if self.session.is_ended:
            return
        self._read_on()
        self._waiting.append(self.session.end(reason))
        self._flush()
        self._drop_reads()
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
        self._drop_reads()

    def __str__(self) -> str:
        return f"{self.who or shown(self.peer)}"
