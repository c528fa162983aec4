"""A connection of a client to its broker: the driver of a session (`wire/session.py`) on an asyncio transport.

The session has the credit and the numbers of what was asked; here are the futures that wait for the answers. Both
begin and end with the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol, cast

from catchment.client.problems import ConnectionLostError, error_of
from catchment.errors import CatchmentError, UnavailableError
from catchment.model.notification import Notification
from catchment.routing.durable.messages import DurableRequest
from catchment.routing.messages import ClientSaid, Gap, Said
from catchment.wire.client_session import ClientSession
from catchment.wire.messages import (
    Accepted,
    Confirmed,
    Credit,
    Delivery,
    DurableDelivery,
    Effective,
    Lost,
    LostLog,
    Pong,
    Refused,
    Seen,
    SequenceDelivery,
    Welcome,
)
from catchment.wire.session import TICK_S, Answered, Ended, Event, Write

CONNECT_S_MAX: Final = 10.0
# What waits to be sent: past it, publishing waits.
OUTBOX_BYTES: Final = 1_048_576
# How long `ended` waits for the system to take what was published.
CLOSE_S_MAX: Final = 5.0

# What a broker delivers and tells.
Delivering = Delivery | DurableDelivery | SequenceDelivery | Lost | Gap | Confirmed | Effective | LostLog
log = logging.getLogger("catchment.client")


class ConnectionEvents(Protocol):
    """What the owner of a connection does when something happens to it."""

    # With what the broker delivers, in order, and its size on the wire.
    @property
    def came(self) -> Callable[[Delivering, int], None]: ...

    # Once, at the `Welcome`. It may ask for things already, and nothing overtakes those.
    @property
    def welcomed(self) -> Callable[[ConnectionToBroker, Welcome], None]: ...

    # The broker has refused a number (`$seq`): with the number to go on after.
    @property
    def misnumbered(self) -> Callable[[int], None]: ...

    # The broker cannot keep what it has accepted: it is to be published again.
    @property
    def unavailable(self) -> Callable[[UnavailableError], None]: ...


class ConnectionToBroker(asyncio.Protocol):
    """Made by `connected`."""

    def __init__(self, session: ClientSession, events: ConnectionEvents) -> None:
        self._loop = asyncio.get_running_loop()
        self.session = session
        self.welcomed: asyncio.Future[Welcome] = self._loop.create_future()
        # Its result is the reason.
        self.closed: asyncio.Future[str] = self._loop.create_future()
        self.broker = ""
        self._events = events
        # By number, who waits for an answer.
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        # Set when there may be credit or room again, or there never will be.
        self._freed = asyncio.Event()
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_final(self) -> bool:
        """Whether the broker has said that connecting again will fail for the same reason."""
        return self.session.is_final

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # With uvloop it is no instance of asyncio.Transport, but it has all of its methods.
        self._transport = cast("asyncio.Transport", transport)
        if self.session.is_ended:
            # Nobody waits for it any more.
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=OUTBOX_BYTES)
        self._transport.write(self.session.begin(self._loop.time()))
        self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        match self.session.on_tick(self._loop.time()):
            case Ended() as ended:
                # Nothing that waits would be read.
                self.abort(ended.reason)
            case _:
                self._ticking = self._loop.call_later(TICK_S, self._tick)

    def data_received(self, data: bytes) -> None:
        for event in self.session.receive(data):
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Delivery() | DurableDelivery() | SequenceDelivery() | Lost() | Gap():
                self._events.came(event, self.session.frame_bytes)
            case Confirmed() | Effective() | LostLog():
                self._events.came(event, self.session.frame_bytes)
            case Accepted():
                self._answer(event.number, None)
            case Credit():
                self._freed.set()
            case Seen():
                self._answer(event.number, event.report)
            case Refused():
                self._refused(event)
            case Write():
                # While much waits to be sent, that is a sign of life too. So a broker that pings and does not read
                # fills no memory.
                if self.is_open and not self._is_paused:
                    self._write(event.frame)
            case Welcome():
                self.broker = event.name
                self.welcomed.set_result(event)
                self._events.welcomed(self, event)
            case Ended():
                self._close(event.goodbye)
            case Pong() | Answered():
                pass
            case _:
                raise AssertionError(f"{type(event).__name__} at a client")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._freed.set()

    def connection_lost(self, problem: Exception | None) -> None:
        self.session.lose("the broker has closed it" if problem is None else str(problem) or type(problem).__name__)
        if self._ticking is not None:
            self._ticking.cancel()
        if not self.welcomed.done():
            problem_of_welcome = ConnectionLostError(f"refused: {self.session.reason}")
            problem_of_welcome.is_final = self.session.is_final
            self.welcomed.set_exception(problem_of_welcome)
            self.welcomed.exception()  # asyncio complains of an exception that nobody has looked at
        self._give_up_waiting()
        if not self.closed.done():
            self.closed.set_result(self.session.reason)

    # --- asking ---

    def ask(self, body: ClientSaid | DurableRequest) -> asyncio.Future[Any]:
        """Sends a request. Its answer may be awaited, or dropped."""
        self._check_open()
        return self._asked(*self.session.ask(body))

    def look(self, what: Literal["status", "explain"], notification: Notification | None) -> asyncio.Future[Any]:
        self._check_open()
        return self._asked(*self.session.look(what, notification))

    def publish(self, batch: tuple[Notification, ...], is_answered: bool) -> asyncio.Future[Any] | None:
        """Publishes as many notifications as are `allowed`."""
        self._check_open()
        number, frame = self.session.publish(batch, is_answered)
        if is_answered:
            return self._asked(number, frame)
        self._write(frame)
        return None

    def publish_stored(self, batch: Sequence[Notification], after: int | None) -> asyncio.Future[Any]:
        """As many notifications as are `allowed`, to be stored. The answer says that they are on their way there."""
        self._check_open()
        return self._asked(*self.session.publish_stored(batch, after))

    def say(self, message: Said) -> None:
        """Sends a message that is not answered."""
        self._check_open()
        self._write(self.session.say(message))

    async def allowed(self) -> int:
        """Waits until notifications may be published, and returns how many. ConnectionLostError if that will never
        be."""
        while self.is_open and (self.session.credit < 1 or self._is_paused):
            self._freed.clear()
            await self._freed.wait()
        self._check_open()
        return self.session.credit

    def _asked(self, number: int, frame: bytes) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._write(frame)
        self._waiting[number] = answer
        # Also if whoever has asked is cancelled.
        answer.add_done_callback(lambda _: self._waiting.pop(number, None))
        return answer

    def _check_open(self) -> None:
        if not self.is_open:
            raise self._problem()

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def _refused(self, refused: Refused) -> None:
        if refused.after is not None:
            self._events.misnumbered(refused.after)
        problem = error_of(refused)
        if refused.number:
            self._answer(refused.number, problem)
            return
        log.warning("publication refused", extra={"kind": refused.kind, "reason": refused.reason})
        if isinstance(problem, UnavailableError):
            self._events.unavailable(problem)

    def _answer(self, number: int, answer: Any) -> None:
        """The session has checked that this was asked; whoever has asked may not wait for it any more."""
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, CatchmentError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    # --- ending ---

    def _problem(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self.broker} was lost: {self.session.reason}")

    def end(self, reason: str) -> None:
        """Says why, and closes once what was written is on its way."""
        if self.is_open:
            self._close(self.session.end(reason))

    def abort(self, reason: str) -> None:
        """Closes at once: what waits to be sent is lost."""
        self.session.lose(reason)
        if self._transport is not None and not self.closed.done():
            self._transport.abort()
            self._give_up_waiting()

    async def ended(self) -> None:
        """After `end`: returns when the connection is closed, at the latest after CLOSE_S_MAX."""
        if self._transport is not None:
            await asyncio.wait([self.closed], timeout=CLOSE_S_MAX)
            self.abort(self.session.reason)

    def _close(self, goodbye: bytes) -> None:
        assert self._transport is not None
        if goodbye:
            self._transport.write(goodbye)
        self._transport.close()
        self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        """Nothing is answered any more."""
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(self._problem())
                answer.exception()  # whoever awaits it still gets it; asyncio does not complain if nobody does
        self._freed.set()


async def connected(host: str, port: int, session: ClientSession, events: ConnectionEvents) -> ConnectionToBroker:
    """A connection that the broker has welcomed. ConnectionLostError says why there is none."""
    loop, connection = asyncio.get_running_loop(), ConnectionToBroker(session, events)
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            await loop.create_connection(lambda: connection, host, port)
            await asyncio.shield(connection.welcomed)
            return connection
    except ConnectionLostError:
        raise
    except OSError as problem:
        reason = "no answer" if isinstance(problem, TimeoutError) else problem.strerror or type(problem).__name__
        raise ConnectionLostError(f"cannot connect to {host}:{port}: {reason}") from None
    finally:
        if not connection.welcomed.done():
            connection.abort("not welcomed in time")
