"""Requests to sinks, with httpcore: it keeps connections, verifies certificates, follows no redirects, knows no cookies
and obeys no environment variables. What is added here is where it may connect to, and how much of an answer is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpcore

from catchment.broker.http.webhooks.answers import SinkAnswer
from catchment.broker.targets import ForbiddenTargetError, Target, TargetRules
from catchment.errors import CatchmentError

# What is read of the body of an answer. It is only shown to people, so what follows is not read: the connection ends.
ANSWER_BYTES_MAX: Final = 65_536
# What of it is kept.
ANSWER_CHARACTERS_SHOWN: Final = 200
# Connections to all sinks together that are kept for the next request, and for how long.
IDLE_CONNECTIONS_MAX: Final = 128
IDLE_CONNECTION_S_MAX: Final = 30.0
# Headers of an answer that mean something here; all others are not kept.
_KEPT_HEADERS: Final = frozenset({"retry-after", "webhook-allowed-origin", "webhook-allowed-rate"})
_HEADER_CHARACTERS_MAX: Final = 256


class SinkError(CatchmentError):
    """No answer: the sink could not be reached, or took too long, or broke the protocol."""


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Resolves names itself and connects only to addresses that the rules allow."""

    def __init__(self, rules: TargetRules) -> None:
        self._rules = rules
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {problem.strerror or problem}") from None
        addresses = self._rules.checked(host, dict.fromkeys(str(info[4][0]) for info in infos))
        for address in addresses[:-1]:
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
        return await self._inner.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("a sink is no socket of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Sinks:
    """All sinks of a broker. `certificates` verifies those of the sinks; by default the system's do."""

    def __init__(self, rules: TargetRules, certificates: ssl.SSLContext | None = None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=certificates or ssl.create_default_context(),
            max_connections=None,  # each webhook makes one request at a time, and there are WEBHOOKS_MAX of them
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_CONNECTION_S_MAX,
            network_backend=_CheckedBackend(rules),
        )

    async def ask(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> SinkAnswer:
        """Sends a request. All of it, from resolving the name to the end of the answer, may take `timeout_s`."""
        url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        all_headers = {"host": target.authority, "content-length": str(len(body)), **headers}
        try:
            async with asyncio.timeout(timeout_s):
                async with self._pool.stream(
                    method, url, headers=[*all_headers.items()], content=body or None
                ) as response:
                    return SinkAnswer(response.status, _headers(response.headers), await _text(response))
        except TimeoutError:
            raise SinkError(f"no answer within {timeout_s:g} s") from None
        except ForbiddenTargetError as problem:
            raise SinkError(str(problem)) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as problem:
            raise SinkError(f"{type(problem).__name__}: {problem}"[:ANSWER_CHARACTERS_SHOWN]) from None

    async def close(self) -> None:
        await self._pool.aclose()


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    named = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in pairs)
    return {name: value[:_HEADER_CHARACTERS_MAX] for name, value in named if name in _KEPT_HEADERS}


async def _text(response: httpcore.Response) -> str:
    """The beginning of a body, as one line. Of a long body the rest is not read: leaving the stream closes it."""
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk[: ANSWER_BYTES_MAX - len(body)]
        if len(body) >= ANSWER_BYTES_MAX:
            break
    text = bytes(body[: 4 * ANSWER_CHARACTERS_SHOWN]).decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:ANSWER_CHARACTERS_SHOWN]
