"""A loop and transports that exist only in memory, and move only when a test says so: connections of a broker on them
are handled turn by turn, and every turn can be looked at."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from catchment.broker.connection import Connection
from catchment.broker.half_sent import HalfSent
from catchment.broker.outboxes import Outboxes
from catchment.broker.turns import Turns
from catchment.routing.messages import Client
from catchment.wire.frames import frame
from catchment.wire.messages import Hello
from catchment.wire.session import BrokerSession, Ended, Event
from tests.unit.wire_sessions import OURS, SPOKEN


class Handle:
    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self._work, self._arguments = work, arguments
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def run(self) -> None:
        if not self._is_cancelled:
            self._work(*self._arguments)


class Loop:
    """What a connection uses of asyncio's loop. The clock stands still but for `pass_time`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: list[Handle] = []
        self._later: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self.now

    def call_soon(self, work: Callable[..., None], *arguments: Any) -> Handle:
        self._ready.append(Handle(work, *arguments))
        return self._ready[-1]

    def call_at(self, when: float, work: Callable[..., None], *arguments: Any) -> Handle:
        handle = Handle(work, *arguments)
        heapq.heappush(self._later, (when, next(self._numbers), handle))
        return handle

    def call_later(self, delay_s: float, work: Callable[..., None], *arguments: Any) -> Handle:
        return self.call_at(self.now + delay_s, work, *arguments)

    def turn(self) -> bool:
        """One turn; whether there was something to do."""
        while self._later and self._later[0][0] <= self.now:
            self._ready.append(heapq.heappop(self._later)[2])
        ready, self._ready = self._ready, []
        for handle in ready:
            handle.run()
        return bool(ready)

    def run(self) -> None:
        """Turns until nothing is ready."""
        while self.turn():
            pass

    def pass_time(self, seconds: float) -> None:
        """All that falls due until then is done, in order."""
        until = self.now + seconds
        while self._later and self._later[0][0] <= until:
            self.now = max(self.now, self._later[0][0])
            self.run()
        self.now = until
        self.run()


class Transport:
    """Takes all that is written. What is sent to it while it is paused waits, as it would in the system's buffers."""

    def __init__(self) -> None:
        self.written = b""
        self.is_reading = True
        self.is_closed = False

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_extra_info(self, name: str) -> object:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Listener:
    """The owner of connections. It keeps what it hears, in order; `cost_s` is how long handling an event takes."""

    def __init__(self, loop: Loop, cost_s: float = 0.0) -> None:
        self.loop, self.cost_s = loop, cost_s
        self.turns = Turns(loop.time, loop.call_soon)
        self.half_sent = HalfSent()
        self.outboxes = Outboxes()
        self.heard_events: list[tuple[str, Event]] = []
        self.closed_reasons: dict[str, str] = {}
        self.names: dict[Connection, str] = {}

    def client(self, name: str) -> tuple[Connection, Transport]:
        """A client that is welcome."""
        loop: Any = self.loop
        connection, transport = Connection(self, loop, BrokerSession(OURS)), Transport()
        self.names[connection] = name
        made: Any = transport
        connection.connection_made(made)
        connection.data_received(frame(Hello(SPOKEN, "client", name)))
        self.loop.run()
        transport.written = b""
        return connection, transport

    def heard(self, connection: Connection, event: Event) -> None:
        self.loop.now += self.cost_s
        if isinstance(event, Hello):
            connection.welcome(100)
            connection.known_as(Client(event.name))
        elif not isinstance(event, Ended):
            self.heard_events.append((self.names[connection], event))

    def closed(self, connection: Connection, reason: str) -> None:
        self.closed_reasons[self.names[connection]] = reason
        self.half_sent.gone(connection)
        self.outboxes.gone(connection)

    def congested(self, connection: Connection) -> None:
        pass

    def drained(self, connection: Connection) -> None:
        pass
