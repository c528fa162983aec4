"""The connection of a client, which is made again whenever it is lost.

At first soon, then every few seconds; with several addresses, at the next one each time. A broker may say that
connecting again will fail for the same reason: then the client is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import replace

from catchment.client.connection import ConnectionToBroker, Delivering, connected
from catchment.client.deliveries import GapSpan
from catchment.client.problems import ConnectionLostError
from catchment.errors import CatchmentError, UnavailableError
from catchment.wire.client_session import ClientSession
from catchment.wire.messages import Welcome

RETRY_S_FIRST, RETRY_S_MOST = 0.1, 3.0


class Events(NamedTuple):
    """What the owner of a connection does when something happens to it."""

    # What to say to the next broker.
    make_session: Callable[[], ClientSession]
    came: Callable[[Delivering, int], None]
    misnumbered: Callable[[int], None]
    unavailable: Callable[[UnavailableError], None]
    # States what the client wants and offers: nothing that is asked or published overtakes it.
    welcomed: Callable[[ConnectionToBroker, Welcome], None]
    mark_gap: Callable[[GapSpan], None]
    disconnected: Callable[[], None]
    # The client is over: what whoever asks gets, and whoever reads.
    failed: Callable[[CatchmentError, CatchmentError | None], None]


class Reconnecting:
    """With `reconnects` false, a lost connection is the end. With `offline`, `open` returns also if no broker is there;
    the client goes on trying."""

    def __init__(self, owner: Events, addresses: Sequence[tuple[str, int]], reconnects: bool, offline: bool) -> None:
        self._owner, self._addresses = owner, addresses
        self._reconnects, self._may_be_offline = reconnects, offline
        self._loop = asyncio.get_running_loop()
        # The place of the address to try next.
        self._next_address = 0
        self.broker = ""
        self.connection: ConnectionToBroker | None = None
        # Set while there is a connection, and when there never will be.
        self._connected = asyncio.Event()
        self._failed: CatchmentError | None = None
        self._lost_count = 0
        self._keeper: asyncio.Task[None] | None = None

    # --- beginning and end ---

    async def open(self) -> None:
        try:
            first = await self._dialed_any()
        except ConnectionLostError as problem:
            if not self._may_be_offline or problem.is_final:
                raise
            first = None
        except BaseException:
            # Cancelled, perhaps a moment after the broker has welcomed us: nobody else would close the connection.
            if self.connection is not None:
                self.connection.abort("given up")
            raise
        self._keeper = self._loop.create_task(self._keep(first))

    async def close(self) -> None:
        """Returns when what was written is on its way."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._fail(ConnectionLostError("the client was closed"), None)
        if self.connection is not None:
            self.connection.end("done")
            await self.connection.ended()

    def drop(self, reason: str) -> None:
        """Ends this connection; another one is made."""
        if self.connection is not None:
            self.connection.end(reason)

    def _fail(self, problem: CatchmentError, read_problem: CatchmentError | None) -> None:
        self._failed = self._failed or problem
        self._connected.set()
        self._owner.failed(self._failed, read_problem)

    # --- connecting ---

    async def _dialed_any(self) -> ConnectionToBroker:
        """A connection to the first address that takes us; the last problem if none does."""
        for _ in self._addresses[1:]:
            try:
                return await self._dial()
            except ConnectionLostError as problem:
                if problem.is_final:
                    raise
        return await self._dial()

    async def _dial(self) -> ConnectionToBroker:
        """A connection to the next address. If it fails, or is lost later, the one after that is next."""
        host, port = self._addresses[self._next_address]
        self._next_address = (self._next_address + 1) % len(self._addresses)
        events = self._owner._replace(welcomed=self._welcomed)
        return await connected(host, port, self._owner.make_session(), events)

    def _welcomed(self, connection: ConnectionToBroker, welcome: Welcome) -> None:
        self.broker, self.connection = welcome.name, connection
        self._owner.welcomed(connection, welcome)
        self._connected.set()

    async def _keep(self, connection: ConnectionToBroker | None) -> None:
        """Connects again whenever the connection is lost: at first soon, but later and later if none lasts."""
        wait = RETRY_S_FIRST
        while True:
            span = None
            if connection is not None:
                began = self._loop.time()
                reason = await asyncio.shield(connection.closed)
                if (span := self._lost(connection, reason)) is None:
                    return
                if self._loop.time() - began > RETRY_S_MOST:
                    wait = RETRY_S_FIRST
            try:
                connection, wait = await self._reconnected(wait)
            except ConnectionLostError as problem:
                self._fail(problem, problem)
                return
            if span is not None:
                self._owner.mark_gap(replace(span, until=datetime.now(UTC)))

    def _lost(self, connection: ConnectionToBroker, reason: str) -> GapSpan | None:
        """The connection is lost: the gap that begins; None if the client is over."""
        self._connected.clear()
        self._owner.disconnected()
        if connection.is_final or not self._reconnects:
            problem = ConnectionLostError(f"the connection to {self.broker} was lost: {reason}")
            self._fail(problem, problem)
            return None
        self._lost_count += 1
        span = GapSpan(f"connection {self._lost_count}", datetime.now(UTC), None)
        self._owner.mark_gap(span)
        return span

    async def _reconnected(self, wait: float) -> tuple[ConnectionToBroker, float]:
        """The next connection, and how long to wait before the next attempt. ConnectionLostError if the broker has
        said that there will never be one."""
        while True:
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_S_MOST)
            try:
                return await self._dial(), wait
            except ConnectionLostError as problem:
                if problem.is_final:
                    raise

    @property
    def is_over(self) -> bool:
        """Whether there will never be a connection again."""
        return self._failed is not None

    @property
    def is_connected(self) -> bool:
        return self._failed is None and self._connected.is_set()

    async def ready(self) -> ConnectionToBroker:
        """Waits for a connection. It is good until the next `await`."""
        while self._failed is None:
            if self.connection is not None and self.connection.is_open:
                return self.connection
            # The connection is lost, and `_keep` has not noticed it yet.
            self._connected.clear()
            await self._connected.wait()
        raise self._failed
