"""What a client has said that holds until its connection ends, besides its subscriptions: advertisements, suspended
identities, and identities that it has mapped to others. It is said again to the next broker."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from catchment.client import reconnecting
from catchment.client.connection import ConnectionToBroker
from catchment.client.durable import heard
from catchment.client.problems import ConnectionLostError
from catchment.errors import BadIdError
from catchment.model.advertisement import Advertisement
from catchment.model.names import HTTP_PUBLISHER
from catchment.routing.messages import Advertise, MapIdentity, Suspend

log = logging.getLogger("catchment.client")


class Standing:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.advertisements: dict[tuple[str, Advertisement], None] = {}
        self.suspended: set[str] = set()
        # Identities, each with its handler; besides that, it may be mapped to HTTP publishers.
        self._handlers: dict[tuple[str, str], None] = {}

    def unadvertised(self, identity: str, advertisement: Advertisement) -> None:
        for key in [key for key in self.advertisements if key[0] == identity and advertisement.covers(key[1])]:
            del self.advertisements[key]

    def mapped(self, identity: str, handler: str) -> None:
        if handler != HTTP_PUBLISHER:
            for key in [key for key in self._handlers if key[0] == identity and key[1] != HTTP_PUBLISHER]:
                del self._handlers[key]
        self._handlers[identity, handler] = None

    def restate(self, connection: ConnectionToBroker) -> None:
        for identity, advertisement in self.advertisements:
            connection.ask(Advertise(identity, advertisement)).add_done_callback(heard)
        # Before the subscriptions: otherwise something could be delivered to the wrong client in between.
        for identity, handler in list(self._handlers):
            self._remap(connection, identity, handler, reconnecting.RETRY_S_FIRST)
        for identity in sorted(self.suspended):
            connection.ask(Suspend(identity)).add_done_callback(heard)

    def _remap(self, connection: ConnectionToBroker, identity: str, handler: str, wait: float) -> None:
        if connection.is_open and (identity, handler) in self._handlers:
            answer = connection.ask(MapIdentity(identity, handler))
            answer.add_done_callback(partial(self._remapped, connection, identity, handler, wait))

    def _remapped(
        self, connection: ConnectionToBroker, identity: str, handler: str, wait: float, answer: asyncio.Future[Any]
    ) -> None:
        problem = None if answer.cancelled() else answer.exception()
        if isinstance(problem, BadIdError):
            # After a restart of the broker its clients come back in any order: the handler may not be there yet.
            later = min(2 * wait, reconnecting.RETRY_S_MOST)
            self._loop.call_later(wait, self._remap, connection, identity, handler, later)
        elif problem is not None and not isinstance(problem, ConnectionLostError):
            self._handlers.pop((identity, handler), None)
            log.warning("mapping refused", extra={"identity": identity, "handler": handler, "reason": str(problem)})
