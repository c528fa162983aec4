"""What is decided about a request before any page sees it: is there room, and may whoever asks use this broker?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from catchment.broker.hosts import AllowedHosts
from catchment.broker.http.problems import problem, problem_of
from catchment.errors import CatchmentError

# Connections past which a request is answered 503. Those between this and HTTP_CONNECTIONS_MOST can only ask for
# ALWAYS: who looks after a broker can see that it is alive though it is full.
HTTP_CONNECTIONS_MAX: Final = 2_000
ALWAYS: Final = ("/healthz", "/metrics")


class Gate:
    """`connections_count` is how many connections there are."""

    def __init__(self, app: ASGIApp, allowed: AllowedHosts, connections_count: Callable[[], int]) -> None:
        self._app, self._allowed, self._connections_count = app, allowed, connections_count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except CatchmentError as error:
            await problem_of(error)(scope, receive, send)
            return
        if scope["path"] not in ALWAYS and self._connections_count() > HTTP_CONNECTIONS_MAX:
            refusal = problem(503, f"HTTP_CONNECTIONS_MAX is {HTTP_CONNECTIONS_MAX:,}: try again later")
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        server = scope.get("server")
        self._allowed.check(headers.getlist("host"), headers.getlist("origin"), server[0] if server else "")
