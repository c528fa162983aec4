"""The HTTP side of a broker: Starlette on uvicorn, in the broker's process and on its loop.

Subscribers over HTTP are clients of the node as others are; there is no socket between. `docs/http.md` says what there
is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from catchment.broker.config import Address
from catchment.broker.http.pages import PUBLISHER, Pages
from catchment.broker.http.subscriptions import Subscriptions
from catchment.errors import UnavailableError

if TYPE_CHECKING:
    from catchment.broker.server import Broker

# Connections and requests at once; past it, 503.
HTTP_CONNECTIONS_MAX: Final = 2_000
# A WebSocket only delivers: whatever is sent to it ends it, and need not be long.
WEBSOCKET_BYTES_MAX: Final = 65_536
# What waits for one: deliveries wait in its log, so this is a message and pongs.
WEBSOCKET_OUTBOX_BYTES_MAX: Final = 16 * 1_048_576
HTTP_DRAIN_S_MAX: Final = 5
EXPIRY_S: Final = 30.0


class _WebSocket(WebSocketsSansIOProtocol):
    def handle_ping(self) -> None:
        """One that pings and reads no answer would fill our memory with them."""
        super().handle_ping()
        if self.transport.get_write_buffer_size() > WEBSOCKET_OUTBOX_BYTES_MAX:
            self.transport.abort()


class _Outlet:
    """Publishers over HTTP are answered by what the node returns: nothing is sent to them."""

    def put(self, frame: bytes) -> None:
        pass

    def is_behind(self) -> bool:
        return False

    def end(self, reason: str) -> None:
        pass


class _Server(uvicorn.Server):
    """Leaves signals to who runs the broker, and says when it listens."""

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
    """`await start()`, then `await stop(reason)`."""

    def __init__(self, broker: Broker, address: Address) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.subscriptions = Subscriptions(broker.node, loop.time)
        self.pages = Pages(broker, self.subscriptions)
        self._node = broker.node
        self._tasks: list[asyncio.Task[None]] = []
        self._server: _Server | None = None

    async def start(self) -> None:
        bound = _bound(self.address)
        host, port = bound.getsockname()[:2]
        self.address = Address(host, port)
        self._node.client_up(PUBLISHER, PUBLISHER.name, {}, _Outlet())
        config = uvicorn.Config(
            self.pages.app(),
            http="h11",
            ws=_WebSocket,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            limit_concurrency=HTTP_CONNECTIONS_MAX,
            timeout_graceful_shutdown=HTTP_DRAIN_S_MAX,
            ws_max_size=WEBSOCKET_BYTES_MAX,
            ws_per_message_deflate=False,  # its windows are a quarter of a megabyte for each
            server_header=False,
        )
        self._server = _Server(config)
        serving = asyncio.ensure_future(self._server.serve([bound]))
        self._tasks = [serving, asyncio.ensure_future(self._expire())]
        await self._server.listening.wait()

    async def stop(self, reason: str) -> None:
        """Ends the streams, answers what was asked, and closes."""
        if self._server is None:
            return
        self.subscriptions.close(reason)
        self._server.should_exit = True
        serving, expiring = self._tasks
        expiring.cancel()
        await asyncio.gather(serving, expiring, return_exceptions=True)
        self._server = None

    def abort(self) -> None:
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


def _bound(address: Address) -> socket.socket:
    """Before anything is begun: a port that is taken is an error at once."""
    try:
        found = socket.create_server((address.host, address.port), family=_family(address), backlog=1_024)
    except OSError as problem:
        raise UnavailableError(f"cannot listen for HTTP on {address}: {problem.strerror or problem}") from None
    found.setblocking(False)
    return found


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET
