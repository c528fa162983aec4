"""One connection of a client to a broker: its credit, and the answers it waits for, begin and end with it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from catchment.client.problems import ConnectionLostError, error_of
from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.routing.messages import ClientRequest, Said
from catchment.wire.frames import REASON_CODEPOINTS_MAX, VERSION, Decoder, WireError, frame
from catchment.wire.messages import (
    Accepted,
    Credit,
    Delivery,
    Goodbye,
    Hello,
    Look,
    Lost,
    Ping,
    Pong,
    Publish,
    Refused,
    Request,
    Seen,
    SequenceDelivery,
    ToClient,
    Welcome,
)

CONNECT_S_MAX: Final = 10.0
# A broker pings more often; looks at its silence are counted, because what came while we were late is not read yet.
SILENCE_LOOK_S: Final = 5.0
SILENT_LOOKS_MAX: Final = 3
# What waits to be sent: past it, who publishes waits.
OUTBOX_BYTES: Final = 1_048_576
# How long `close` waits for what was published to be on its way.
CLOSE_S_MAX: Final = 5.0

_PONG: Final = frame(Pong())
log = logging.getLogger("catchment.client")


class Connection(asyncio.Protocol):
    """Made by `connected`. `came` is given what is delivered, in order, and its bytes on the wire; `ready` is called
    once, on the `Welcome`, and may ask already: nothing overtakes that."""

    def __init__(
        self, hello: Hello, came: Callable[[Any, int], None], ready: Callable[[Connection, Welcome], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.welcomed: asyncio.Future[Welcome] = self._loop.create_future()
        # Its result is the reason.
        self.lost: asyncio.Future[str] = self._loop.create_future()
        # Whether the broker has said that to connect again is of no use.
        self.is_final = False
        self.broker = ""
        self.credit = 0
        self._hello = hello
        self._came = came
        self._ready = ready
        self._decoder: Decoder[Any] = Decoder(ToClient)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reason = "the broker has closed it"
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._freed = asyncio.Event()
        self._looks_silent = 0
        self._look: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of it with uvloop.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=OUTBOX_BYTES)
        self._transport.write(frame(self._hello))
        self._look = self._loop.call_later(SILENCE_LOOK_S, self._look_at_silence)

    def _look_at_silence(self) -> None:
        self._looks_silent += 1
        if self._looks_silent > SILENT_LOOKS_MAX:
            self.abort("the broker is silent")
        else:
            self._look = self._loop.call_later(SILENCE_LOOK_S, self._look_at_silence)

    def data_received(self, data: bytes) -> None:
        self._looks_silent = 0
        try:
            for body in self._decoder.bodies(data):
                self._handle(self._decoder.decoded(body), len(body))
                if not self.is_open:
                    return
        except WireError as problem:
            self.end(str(problem))

    def _handle(self, message: Any, size: int) -> None:
        match message:
            case Delivery() | SequenceDelivery() | Lost() if self.welcomed.done():
                self._came(message, size)
            case Credit():
                self.credit += message.notifications
                self._freed.set()
            case Accepted():
                self._answer(message.number, None)
            case Seen():
                self._answer(message.number, message.found)
            case Refused():
                self._refused(message)
            case Ping():
                # While much waits to be sent that is a sign of life too; a broker that only pings fills no memory.
                if not self._is_paused:
                    self._write(_PONG)
            case Goodbye():
                self.is_final = message.is_final
                self._close(message.reason[:REASON_CODEPOINTS_MAX])
            case Welcome() if not self.welcomed.done():
                self._welcome(message)
            case Pong():
                pass
            case _:
                self.end(f"{type(message).__name__} out of place")

    def _welcome(self, welcome: Welcome) -> None:
        if welcome.version != VERSION:
            self.end(f"the broker speaks version {welcome.version}, {VERSION} was offered")
            return
        self.broker, self.credit = welcome.name, welcome.credit
        self.welcomed.set_result(welcome)
        self._ready(self, welcome)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._freed.set()

    def connection_lost(self, problem: Exception | None) -> None:
        if problem is not None:
            self._reason = str(problem) or type(problem).__name__
        if self._look is not None:
            self._look.cancel()
        if not self.welcomed.done():
            self.welcomed.set_exception(ConnectionLostError(f"refused: {self._reason}"))
            self.welcomed.exception()  # nobody may be there to hear it
        self._lose()
        if not self.lost.done():
            self.lost.set_result(self._reason)

    # --- asking ---

    def ask(self, body: ClientRequest) -> asyncio.Future[Any]:
        """What is asked; the answer is awaited. Whoever drops it does not hear of it."""
        return self._asked(lambda number: Request(number, body))

    def look(self, what: Any, notification: Notification | None) -> asyncio.Future[Any]:
        return self._asked(lambda number: Look(number, what, notification))

    def publish(self, batch: tuple[Notification, ...], is_answered: bool) -> asyncio.Future[Any] | None:
        """Once `allowed`."""
        self.credit -= len(batch)
        if is_answered:
            return self._asked(lambda number: Publish(number, batch))
        self._write(frame(Publish(0, batch)))
        return None

    async def allowed(self) -> int:
        """How many may be published, when it is more than none. ConnectionLostError if that will never be."""
        while self.is_open and (self.credit < 1 or self._is_paused):
            self._freed.clear()
            await self._freed.wait()
        if not self.is_open:
            raise self._problem()
        return self.credit

    def _asked(self, message_of: Callable[[int], Said]) -> asyncio.Future[Any]:
        number = next(self._numbers)
        body = frame(message_of(number))
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._write(body)
        self._waiting[number] = answer
        # Also if whoever has asked is cancelled.
        answer.add_done_callback(lambda _: self._waiting.pop(number, None))
        return answer

    def _write(self, body: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise self._problem()
        self._transport.write(body)

    def _refused(self, refused: Refused) -> None:
        if refused.number:
            self._answer(refused.number, error_of(refused))
        else:
            log.warning("publication refused", extra={"kind": refused.kind, "reason": refused.reason})

    def _answer(self, number: int, found: Any) -> None:
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(found, CatchmentError):
            waiting.set_exception(found)
        else:
            waiting.set_result(found)

    # --- ending ---

    def _problem(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self.broker} was lost: {self._reason}")

    def end(self, reason: str) -> None:
        """Says why, and closes once what was written is on its way."""
        if self.is_open:
            self._write(frame(Goodbye(reason)))
            self._close(reason)

    def abort(self, reason: str) -> None:
        self._reason = reason
        if self._transport is not None and not self.lost.done():
            self._transport.abort()
            self._lose()

    async def ended(self) -> None:
        """After `end`: returns when it is closed, at the latest after CLOSE_S_MAX."""
        if self._transport is not None:
            await asyncio.wait([self.lost], timeout=CLOSE_S_MAX)
            self.abort(self._reason)

    def _close(self, reason: str) -> None:
        self._reason = reason
        assert self._transport is not None
        self._transport.close()
        self._lose()

    def _lose(self) -> None:
        """Nothing is answered any more."""
        for one in list(self._waiting.values()):
            if not one.done():
                one.set_exception(self._problem())
                one.exception()  # whoever has asked hears it still; if nobody does, it is no mistake
        self._freed.set()


async def connected(
    host: str,
    port: int,
    hello: Hello,
    came: Callable[[Any, int], None],
    ready: Callable[[Connection, Welcome], None],
) -> Connection:
    """A connection that was welcomed. ConnectionLostError says why there is none."""
    loop, found = asyncio.get_running_loop(), Connection(hello, came, ready)
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            await loop.create_connection(lambda: found, host, port)
            await asyncio.shield(found.welcomed)
            return found
    except ConnectionLostError:
        raise
    except OSError as problem:
        reason = "no answer" if isinstance(problem, TimeoutError) else problem.strerror or type(problem).__name__
        raise ConnectionLostError(f"cannot connect to {host}:{port}: {reason}") from None
    finally:
        if not found.welcomed.done():
            found.abort("not welcomed in time")
