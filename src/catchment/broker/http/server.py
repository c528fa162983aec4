"""Starlette on uvicorn, in the broker's process and on its loop.

The node has one client, `PUBLISHER`, for everybody who publishes over HTTP, and one for each subscription made over
HTTP. The HTTP side calls the node directly: there is no socket between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn

from catchment.broker.config import Address
from catchment.broker.hosts import AllowedHosts
from catchment.broker.http.catalog import Catalog
from catchment.broker.http.durable_side import DurableSide, Place
from catchment.broker.http.outlet import QuietOutlet
from catchment.broker.http.pages import PUBLISHER, Pages
from catchment.broker.http.protocols import Edge, makers
from catchment.broker.http.subscriptions import HttpSubscriptions
from catchment.errors import UnavailableError
from catchment.store.http_sql import open_http_tables

if TYPE_CHECKING:
    from catchment.broker.server import Broker

# The broker closes a WebSocket whose client sends any message, so it need not read a long one.
WEBSOCKET_BYTES_MAX: Final = 65_536
# How long a stopping broker lets requests finish.
HTTP_DRAIN_S_MAX: Final = 5
# How often the broker looks for subscriptions that nobody reads.
EXPIRY_S: Final = 30.0


class _Server(uvicorn.Server):
    """Does not handle signals, which belong to `run_broker`, and sets `listening` once it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class HttpSide:
    """What a broker serves over HTTP: `await start()`, then `await stop(reason)`."""

    def __init__(self, broker: Broker, address: Address) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.subscriptions = HttpSubscriptions(broker.node, loop.time)
        self.catalog = Catalog(self.subscriptions)
        self.pages = Pages(broker, self.catalog)
        self.edge = Edge(broker.turns, broker.half_sent)
        self._allowed = AllowedHosts(address.host, broker.config.allowed_hosts)
        self._node, self._config = broker.node, broker.config
        self._tasks: list[asyncio.Task[None]] = []
        self._server: _Server | None = None

    async def start(self) -> None:
        listener = _listener(self.address)
        host, port = listener.getsockname()[:2]
        self.address = Address(host, port)
        self._node.client_up(PUBLISHER, PUBLISHER.name, {}, QuietOutlet())
        await self._open_durable()
        http, websocket = makers(self.edge)
        config = uvicorn.Config(
            self.pages.app(self._allowed, lambda: self.connections_count),
            http=cast("type[asyncio.Protocol]", http),
            ws=cast("type[asyncio.Protocol]", websocket),
            lifespan="off",
            log_config=None,
            log_level="error",  # at "warning" it logs every bad request: anybody could fill the log
            access_log=False,
            timeout_graceful_shutdown=HTTP_DRAIN_S_MAX,
            ws_max_size=WEBSOCKET_BYTES_MAX,
            ws_per_message_deflate=False,  # compression would take a quarter of a megabyte for each connection
            server_header=False,
        )
        self._server = _Server(config)
        serving = asyncio.ensure_future(self._server.serve([listener]))
        self._tasks = [serving, asyncio.ensure_future(self._expire())]
        await self._server.listening.wait()

    async def _open_durable(self) -> None:
        """Goes on with webhooks and durable subscriptions, if the broker has a store."""
        if not self._config.store.url:
            return
        tables = await asyncio.to_thread(open_http_tables, self._config.store.url)
        host = self._config.allowed_hosts[0] if self._config.allowed_hosts else self.address.host
        place = Place(host, f"http://{self.address}", self.subscriptions.source)
        side = DurableSide(self._node, tables, self._config.webhooks, place, self.subscriptions.encode)
        try:
            await side.open()
        except BaseException:
            await side.close("the broker does not start")
            raise
        self.catalog.durable = side

    @property
    def webhook_statuses(self) -> list[dict[str, Any]]:
        """How each webhook is doing."""
        if self.catalog.durable is None:
            return []
        webhooks = self.catalog.webhooks
        return [{"id": id, **webhooks[id].webhook.status} for id in webhooks.ids]

    @property
    def connections_count(self) -> int:
        return 0 if self._server is None else len(self._server.server_state.connections)

    async def stop(self, reason: str) -> None:
        """Ends the streams, answers the requests under way, and closes."""
        if self._server is None:
            return
        self.subscriptions.close(reason)
        if self.catalog.durable is not None:
            await self.catalog.durable.close(reason)
        self._server.should_exit = True
        serving, expiring = self._tasks
        expiring.cancel()
        await asyncio.gather(serving, expiring, return_exceptions=True)
        self._server = None

    def abort(self) -> None:
        """Closes at once; what is under way gets no answer."""
        if self._server is not None:
            self._server.force_exit = True
            for server in self._server.servers:
                server.close()
            for task in self._tasks:
                task.cancel()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_S)
            self.subscriptions.expire()


def _listener(address: Address) -> socket.socket:
    """A listening socket. It is made before uvicorn starts, so that a port in use is an error of `start`."""
    try:
        listener = socket.create_server((address.host, address.port), family=_family(address), backlog=1_024)
    except OSError as problem:
        raise UnavailableError(f"cannot listen for HTTP on {address}: {problem.strerror or problem}") from None
    listener.setblocking(False)
    return listener


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET
