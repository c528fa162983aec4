"""Two connections under one client's name: who keeps it.

There is no authentication yet, so a second connection may be the same client, back before the broker noticed that its
old connection is dead; or another process that uses the name too. The broker finds out, and neither can end the other
for good:

    Hello of the second     The broker pings the first, and lets the second wait for its answer.
    the first answers       The second is refused, not finally: it may try again.
    the first is silent     After ANSWER_S_MAX the second takes its place. The first is told, not finally. If it was
                            only slow, it connects again, and is a second then.
    the first closes        The second has the name at once.

A first that does not answer, but takes some of what waits for it, counts as there. One second at a time waits for a
name; more are refused at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from catchment.broker.connection import Connection
from catchment.errors import shown
from catchment.wire import session
from catchment.wire.messages import Hello

# The loop may be early by the resolution of its clock, and the time to answer must have passed.
_LATER_S: Final = 0.05


class Rivals:
    """Connections that wait for a name, by the connection that has it. `welcome` gives the name to one that waited,
    `refuse` ends one with a reason."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        welcome: Callable[[Connection, Hello], None],
        refuse: Callable[[Connection, Hello, str], None],
    ) -> None:
        self._loop, self._welcome, self._refuse = loop, welcome, refuse
        self._waiting: dict[Connection, tuple[Connection, Hello, asyncio.TimerHandle]] = {}
        # By the connection that waits.
        self._first_of: dict[Connection, Connection] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, first: Connection, second: Connection, hello: Hello) -> None:
        """A second connection has come with the name of the first."""
        if first in self._waiting:
            self._refuse(second, hello, f"{shown(hello.name)} is connected, and another connection waits for the name")
            return
        first.is_alive()
        timer = self._loop.call_later(session.ANSWER_S_MAX + _LATER_S, self._decide, first)
        self._waiting[first] = (second, hello, timer)
        self._first_of[second] = first

    def answered(self, first: Connection) -> None:
        """A connection shows that its other side is there."""
        if (waiting := self._ended(first)) is not None:
            name = shown(waiting[1].name)
            self._refuse(*waiting, f"{name} is connected already, and answers: take another name, or try again later")

    def closed(self, connection: Connection) -> None:
        """A connection has closed: whoever waited for its name has it; if it waited itself, it waits no longer."""
        if (waiting := self._ended(connection)) is not None:
            self._take(*waiting)
        if (first := self._first_of.get(connection)) is not None:
            self._ended(first)

    def _decide(self, first: Connection) -> None:
        """The first has had time to answer."""
        if first.is_open and first.is_alive():
            self.answered(first)
        elif (waiting := self._ended(first)) is not None:
            first.end(f"{shown(waiting[1].name)} has connected again, and this connection did not answer")
            self._take(*waiting)

    def _ended(self, first: Connection) -> tuple[Connection, Hello] | None:
        """Who waited for the name of this connection waits no longer."""
        if (waiting := self._waiting.pop(first, None)) is None:
            return None
        second, hello, timer = waiting
        timer.cancel()
        del self._first_of[second]
        return second, hello

    def _take(self, second: Connection, hello: Hello) -> None:
        if second.is_open:
            self._welcome(second, hello)
