"""The protocol of one end of a connection: bytes in, events out; messages in, bytes out.

A session has no socket, no loop and no clock. A driver owns it, and gives it what happens: `begin` when the connection
is there, `receive` what was read, `on_tick` every TICK_S and when `deadline` has come, `lose` when the connection is
gone. The same protocol serves three ends:

    BrokerSession(broker)                   a broker that was dialed: a client or a neighbor may come
    BrokerSession(broker, is_dialing=True)  a broker that has dialed a neighbor
    ClientSession(identity)                 a client that has dialed a broker (`client_session.py`)

State         `state`, as the table in `states.py` says; `reason` and `is_final` of the end; a decoder for what may come
              in this state; how often the other side was silent. On the client's side besides: requests without an
              answer, and credit.
Beginning     The greeting of the other side is checked (`greetings.py`). One that does not fit is refused with a
              `Goodbye`, which is final if the other side has dialed. One that fits is an event: a broker answers a
              `Hello` with `welcome` or `end`, for it alone knows who else is there.
Out of place  A message that may not come in this state, or a bad frame, ends the session with a `Goodbye` that says
              so. The driver sees no event of it but `Ended`.
Silence       Each tick of an established connection a broker sends a `Ping`. When more than SILENT_TICKS_MAX ticks have
              passed without a byte from the other side, it is taken for dead. Ticks are counted, not seconds: if this
              process was busy for long, what came meanwhile has not been read yet.
Drips         A frame that has begun to come must come whole within FRAME_TICKS_MAX ticks. So nobody fills the memory of
              the other side with frames that never end.
End           ENDED is left by nothing. What comes later is dropped, and the driver drops what is put.

Bytes to write are returned by the method that makes them, or come with an event: the driver writes them in that order.
Frames of `Delivery`, `DurableDelivery` and `Batch` do not pass through here, for speed: `frames.py` makes them, and the
driver may write them as long as the session `may_send` them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from msgspec import Struct

from catchment.errors import shown
from catchment.routing.durable.messages import Taken
from catchment.routing.messages import BrokerMessage, LinkMessage, Said
from catchment.wire.frames import HELLO_BYTES_MAX, REASON_CODEPOINTS_MAX, VERSION, Decoder, WireError, frame
from catchment.wire.greetings import (
    ThisBroker,
    hello_refusal,
    neighbor_welcome_refusal,
    request_problem,
)
from catchment.wire.messages import (
    Accepted,
    Batch,
    Confirmed,
    Credit,
    Delivery,
    DurableDelivery,
    Effective,
    Goodbye,
    Hello,
    Look,
    Lost,
    LostLog,
    Ping,
    Pong,
    Publish,
    PublishStored,
    Refused,
    Request,
    Seen,
    SequenceDelivery,
    Unfit,
    Welcome,
)
from catchment.wire.states import ESTABLISHED, HANDSHAKE, Does, Happening, HelloOf, State, What, next_state, stage_of

# How long a greeting and its answer may take.
HANDSHAKE_S: Final = 10.0
# How often a driver calls `on_tick`.
TICK_S: Final = 5.0
# Ticks without a byte from the other side before it is taken for dead.
SILENT_TICKS_MAX: Final = 3
# Ticks that a frame may take to come once it has begun: a minute. The longest frame of a link then needs 5 Mbit/s.
FRAME_TICKS_MAX: Final = 12
# Notifications that `Published` collects before it is handed over. A call of a core with fewer costs more for each;
# one with more keeps everybody else waiting for longer.
PUBLISHED_MAX: Final = 512
# How long the other side may take to answer when `ask_life` wants to know whether it is there.
ANSWER_S_MAX: Final = 2.0

_PING: Final = frame(Ping())
_PONG: Final = frame(Pong())


# --- events -------------------------------------------------------------------------------------


class Published(Struct, frozen=True, gc=False):
    """Publications of one read that follow one another: a broker handles them in one call. They have PUBLISHED_MAX
    notifications or a few more; further publications of the read are another event."""

    publications: tuple[Publish, ...]


class Write(Struct, frozen=True, gc=False):
    """A frame for the other side: the answer to its `Ping`, or a `Ping`."""

    frame: bytes


class Answered(Struct, frozen=True):
    """The other side has answered `ask_life`: it is there."""


class Ended(Struct, frozen=True):
    """The last event: the driver writes `goodbye`, if there is one, and closes the connection. There is none if the
    other side has said goodbye, or is silent."""

    reason: str
    is_final: bool = False
    goodbye: bytes = b""
    # The name in a greeting that this side has refused.
    refused_name: str | None = None


# Most messages are events themselves.
Event = (
    Published
    | Batch[Any]
    | BrokerMessage
    | LinkMessage
    | Request
    | PublishStored
    | Taken
    | Look
    | Unfit
    | Delivery
    | DurableDelivery
    | SequenceDelivery
    | Confirmed
    | Effective
    | LostLog
    | Lost
    | Accepted
    | Refused
    | Seen
    | Credit
    | Hello
    | Welcome
    | Pong
    | Write
    | Answered
    | Ended
)


# --- both ends ----------------------------------------------------------------------------------


class Session:
    """What both ends have in common. `deadline` is when the handshake must be over; the driver calls `on_tick` then."""

    def __init__(self, state: State, language: Any = None) -> None:
        self.reason = "the other side has closed it"
        # Whether connecting again would end for the same reason.
        self.is_final = False
        self.deadline = 0.0
        # The size of the frame that the last event came in.
        self.frame_bytes = 0
        self._language = language
        self._silent_ticks = 0
        # The number of the frame that was coming at the last tick, and for how many ticks it has been.
        self._coming_frame = -1
        self._coming_ticks = 0
        self._asked_at: float | None = None
        self._left_when_asked = 0
        self._decoder: Decoder[Any] = Decoder(Goodbye, HELLO_BYTES_MAX)
        self._enter(state)

    @property
    def is_established(self) -> bool:
        """Whether both ends have welcomed each other, and neither has ended it."""
        return self.state in ESTABLISHED

    def may_send(self, *kinds: type) -> bool:
        return self._stage.sends.issuperset(kinds)

    # --- beginning ---

    def begin(self, now: float) -> bytes:
        """The connection is there. An end that has dialed says Hello with this."""
        self.deadline = now + HANDSHAKE_S
        return b""

    # --- receiving ---

    def receive(self, data: bytes) -> Iterator[Event]:
        """The events of these bytes, one after the other. The driver handles an event before it takes the next: what it
        does about one, ending the session for example, decides what may come next."""
        if self.state is State.ENDED:
            return
        self._silent_ticks = 0
        publications: list[Publish] = []
        collected = 0
        try:
            for body in self._decoder.bodies(data):
                if self.is_ended:
                    return
                message = self._decoder.decoded(body)
                if type(message) is Publish:
                    publications.append(message)
                    # A publication of nothing is work too.
                    collected += len(message.notifications) or 1
                    if collected >= PUBLISHED_MAX:
                        yield Published(tuple(publications))
                        publications, collected = [], 0
                    continue
                if publications:
                    # They came before this message, which may depend on them.
                    yield Published(tuple(publications))
                    publications, collected = [], 0
                event = self._event(message)
                if event is not None:
                    self.frame_bytes = len(body)
                    yield event
        except WireError as problem:
            # What came before the bad frame was good.
            if publications:
                yield Published(tuple(publications))
                publications = []
            if not self.is_ended:
                yield self._ended(self._misreading(problem))
        if publications:
            yield Published(tuple(publications))

    def _event(self, message: Any) -> Event | None:
        if self.is_ended:
            # The driver has ended it because of the publications before this message.
            return None
        handler = self.handlers.get(type(message))
        return message if handler is None else handler(self, message)

    def _misreading(self, problem: WireError) -> str:
        """What to say about a frame that the decoder of this state does not take."""
        if problem.name and problem.name not in self._stage.names:
            return f"{shown(problem.name)} is out of place in {self.state.value}: {self._expected()} may come"
        return str(problem)

    def _expected(self) -> str:
        *names, last = self._stage.names
        return f"{', '.join(names)} or {last}" if names else last

    def _pinged(self, message: Ping) -> Event:
        return Write(_PONG)

    def _ponged(self, message: Pong) -> Event:
        was_asked, self._asked_at = self._asked_at is not None, None
        return Answered() if was_asked else message

    def _left(self, message: Goodbye) -> Event:
        self._change("receives", Goodbye)
        self.reason, self.is_final = message.reason[:REASON_CODEPOINTS_MAX], message.is_final
        return Ended(self.reason, self.is_final)

    # What has to be done about a message before the driver sees it; most are handed on as they are. No message without
    # a handler changes the state.
    handlers: ClassVar[Mapping[type, Callable[[Any, Any], Event | None]]] = {
        Ping: _pinged,
        Pong: _ponged,
        Goodbye: _left,
    }

    # --- sending ---

    def say(self, message: Said) -> bytes:
        """The frame of a message that does not change the state. LimitError if it is too long."""
        assert type(message) in self._stage.sends, f"{type(message).__name__} may not be sent in {self.state.value}"
        return frame(message, self._stage.bytes_max)

    # --- time ---

    def on_tick(self, now: float, shows_life: bool = False, was_read: bool = True) -> Write | Ended | None:
        """Called every TICK_S, and when the deadline has come. `shows_life`: the driver knows a reason why the other
        side is not silent though nothing came from it. It takes what was written to it, or we do not read. `was_read`:
        we did read since the last tick, so that a frame that is not whole is late by the fault of the other side.

        After the end, too: if the other side does not even take the `Goodbye`, `Ended` comes a second time, and the
        driver waits no longer."""
        if self.state in HANDSHAKE:
            return None if now < self.deadline else self._late()
        if was_read and not self.is_ended and self._is_dripping():
            return self._ended(f"FRAME_TICKS_MAX is {FRAME_TICKS_MAX}: a frame did not come whole in so many ticks")
        self._silent_ticks = 0 if shows_life else self._silent_ticks + 1
        if self._silent_ticks <= SILENT_TICKS_MAX:
            return None if self.is_ended else self._keep_alive()
        if not self.is_ended:
            self._change("notices", Happening.SILENT)
            self.reason = "it is silent"
        return Ended(self.reason, self.is_final)

    def _late(self) -> Ended:
        missing = "Hello" if self.state is State.ACCEPTED else "answer to Hello"
        self._change("notices", Happening.LATE)
        return self._said_goodbye(f"no {missing} within {HANDSHAKE_S:g} s")

    def _is_dripping(self) -> bool:
        """Whether the same frame has been coming for too many ticks."""
        coming = self._decoder.frames_count if self._decoder.unfinished_bytes else -1
        self._coming_ticks = self._coming_ticks + 1 if coming == self._coming_frame != -1 else 0
        self._coming_frame = coming
        return self._coming_ticks > FRAME_TICKS_MAX

    @property
    def unfinished(self) -> tuple[int, int]:
        """The number of the frame that is coming, and how many bytes of it have come. They are valid between reads."""
        return self._decoder.frames_count, self._decoder.unfinished_bytes

    def _keep_alive(self) -> Write | None:
        return Write(_PING)

    def ask_life(self, now: float, left_bytes: int) -> bytes:
        """Asks whether the other side is there, and does not wait: `is_answering` says it. `left_bytes` is how much
        waits to be written to it. If that has become less since the last question, the other side takes something, and
        is asked anew. The frame to write, or nothing."""
        if self._asked_at is not None and left_bytes >= self._left_when_asked:
            return b""
        self._asked_at, self._left_when_asked = now, left_bytes
        return _PING

    def is_answering(self, now: float) -> bool:
        """Whether the last question was answered, or is not older than ANSWER_S_MAX."""
        return self._asked_at is None or now - self._asked_at < ANSWER_S_MAX

    # --- the end ---

    def end(self, reason: str, is_final: bool = False) -> bytes:
        """Ends the session, and returns the `Goodbye` to write; nothing if it has ended already."""
        return b"" if self.is_ended else self._ended(reason, is_final).goodbye

    def lose(self, reason: str) -> None:
        """The connection is gone, or is given up without a word."""
        if not self.is_ended:
            self._change("notices", Happening.LOST)
            self.reason = reason

    def _ended(self, reason: str, is_final: bool = False, refused_name: str | None = None) -> Ended:
        self._change("sends", Goodbye)
        return self._said_goodbye(reason, is_final, refused_name)

    def _said_goodbye(self, reason: str, is_final: bool = False, refused_name: str | None = None) -> Ended:
        self.reason, self.is_final = reason, is_final
        return Ended(reason, is_final, frame(Goodbye(reason, is_final)), refused_name)

    # --- states ---

    def _change(self, does: Does, what: What) -> None:
        """Every change of state goes by the table."""
        then = next_state(self.state, does, what)
        assert then is not None, f"{self.state.value} {does} {what}"
        self._enter(then)

    def _enter(self, state: State) -> None:
        self.state = state
        self.is_ended = state is State.ENDED
        self._stage = stage_of(state, self._language)
        if not self.is_ended:
            # From the next frame on: what follows in the same read is decoded in the new state.
            self._decoder.expect(self._stage.receives, self._stage.bytes_max)


# --- a broker -----------------------------------------------------------------------------------


class BrokerSession(Session):
    """A broker's end. After a `Hello` the driver calls `welcome` or `end`."""

    def __init__(self, broker: ThisBroker, *, is_dialing: bool = False, cost: int = 1) -> None:
        super().__init__(State.DIALED if is_dialing else State.ACCEPTED, broker.language)
        self.is_dialing = is_dialing
        self._broker = broker
        self._cost = cost

    def begin(self, now: float) -> bytes:
        super().begin(now)
        if not self.is_dialing:
            return b""
        broker = self._broker
        versions = (VERSION, VERSION)
        hello = Hello(
            versions, "broker", broker.name, routing=broker.routing, cost=self._cost, instance=broker.instance
        )
        self._change("sends", HelloOf.BROKER)
        return frame(hello)

    def welcome(
        self, credit: int = 0, now: int = 0, last_seq: int | None = None, session: int = 0, storage: str = ""
    ) -> bytes:
        """The answer to a `Hello`. The arguments are for a client: its credit, the broker's clock, the last number of
        the client that the broker knows, the number of the session, and who keeps what the client publishes."""
        broker = self._broker
        if self.state is State.CLIENT_CAME:
            welcome = Welcome(
                VERSION,
                broker.name,
                broker.routing,
                credit=credit,
                now=now,
                last_seq=last_seq,
                session=session,
                storage=storage,
            )
        else:
            welcome = Welcome(VERSION, broker.name, broker.routing, self._cost, instance=broker.instance)
        self._change("sends", Welcome)
        return frame(welcome)

    def _greeted(self, hello: Hello) -> Event:
        if refusal := hello_refusal(self._broker, hello):
            return self._ended(refusal, is_final=True, refused_name=hello.name)
        self._change("receives", HelloOf(hello.role))
        # The end that dials says what the link costs.
        self._cost = hello.cost
        return hello

    def _welcomed(self, welcome: Welcome) -> Event:
        if refusal := neighbor_welcome_refusal(self._broker, welcome):
            return self._ended(refusal, refused_name=welcome.name)
        self._change("receives", Welcome)
        return welcome

    def _requested(self, request: Request) -> Event:
        problem = request_problem(request.body)
        return request if problem is None else Unfit(request.number, 0, problem)

    handlers = {**Session.handlers, Hello: _greeted, Welcome: _welcomed, Request: _requested}  # noqa: RUF012
