"""The routes of a broker's HTTP side, and what each answers. `openapi.py` describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from catchment.broker.http.binding import (
    BODY_BYTES_MAX,
    TOLD_MAX,
    BadEventsError,
    Fault,
    UnknownMediaTypeError,
    notifications_of,
)
from catchment.broker.http.delivery_log import Reader
from catchment.broker.http.filters import FILTER_EXPRESSIONS_MAX, Expression, Native, sql
from catchment.broker.http.metrics import Requests, registry_of
from catchment.broker.http.openapi import document
from catchment.broker.http.streams import over_websocket, server_sent
from catchment.broker.http.subscriptions import (
    FullError,
    HttpSubscription,
    Subscriptions,
    TakenIdError,
    UnknownSubscriptionError,
)
from catchment.broker.status import topology_of
from catchment.errors import CatchmentError, InputError, LimitError, shown
from catchment.model.filter import Filter
from catchment.model.notification import Notification, parsed_json
from catchment.routing.messages import Client, Refuse

if TYPE_CHECKING:
    from catchment.broker.server import Broker

# Subscriptions in one answer.
PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 100
# How long a body may take to come: its part waits in memory meanwhile.
BODY_S_MAX: Final = 30.0
# Whoever publishes over HTTP is this client of the node.
PUBLISHER: Final = Client("@http")

_PROBLEM: Final = "application/problem+json"
_TITLES: Final = {
    400: "Bad request",
    403: "Forbidden",
    404: "Not found",
    409: "Conflict",
    413: "Too much",
    415: "Unknown media type",
    422: "Refused",
    503: "Not now",
}


class TooLongError(InputError):
    """A body past its limit."""


class ForeignPageError(InputError):
    """A page of another site that would read here."""


def answer(
    found: object, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = "application/json"
) -> Response:
    return Response(msgspec.json.encode(found), status, headers, media_type)


def problem(status: int, detail: str, kind: str = "", **more: Any) -> Response:
    """RFC 9457."""
    title = _TITLES.get(status, kind or "Problem")
    found = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    headers = {"Retry-After": "1"} if status == 503 else {}
    return answer(found | ({"kind": kind} if kind else {}), status, headers, _PROBLEM)


def problem_of(error: CatchmentError) -> Response:
    match error:
        case BadEventsError():
            told = [msgspec.to_builtins(one) for one in error.faults[:TOLD_MAX]]
            return problem(400, str(error), "BadEventsError", accepted=0, errors=told)
        case UnknownMediaTypeError():
            return problem(415, str(error))
        case UnknownSubscriptionError():
            return problem(404, str(error))
        case FullError():
            return problem(503, str(error))
        case TakenIdError():
            return problem(409, str(error), "BadIdError")
        case ForeignPageError():
            return problem(403, str(error))
        case TooLongError():
            return problem(413, str(error))
        case LimitError() if error.limit == "BATCH_EVENTS_MAX":
            return problem(413, str(error), "LimitError")
    return problem(400, str(error), type(error).__name__)


class EventStream(StreamingResponse):
    """Says when it is over, however it ends."""

    def __init__(self, reader: Reader, source: str, done: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(server_sent(reader, source), headers=headers, media_type="text/event-stream")
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()


class Pages:
    def __init__(self, broker: Broker, subscriptions: Subscriptions) -> None:
        self.broker, self.subscriptions = broker, subscriptions
        self.requests = Requests()
        self._registry = registry_of(broker, subscriptions, self.requests)

    def routes(self) -> list[BaseRoute]:
        return [
            _path("/events", POST=self.publish, GET=self.stream_ad_hoc),
            WebSocketRoute("/events/ws", self.websocket_ad_hoc),
            _path("/subscriptions", POST=self.subscribe, GET=self.list_subscriptions),
            _path("/subscriptions/{id}", GET=self.show, DELETE=self.delete),
            _path("/subscriptions/{id}/events", GET=self.stream),
            WebSocketRoute("/subscriptions/{id}/ws", self.websocket),
            _path("/metrics", GET=self.metrics),
            _path("/healthz", GET=self.health),
            _path("/topology", GET=self.topology),
            _path("/openapi.json", GET=self.openapi),
        ]

    def app(self) -> Counted:
        handlers: dict[Any, Any] = {CatchmentError: _on_error, HTTPException: _on_http_exception, 500: _on_bug}
        return Counted(Starlette(routes=self.routes(), exception_handlers=handlers), self.requests)

    # --- publishing ---

    async def publish(self, request: Request) -> Response:
        body = await _body(request)
        notifications = notifications_of(request.headers.items(), body)
        if self.broker.is_stopping:
            return problem(503, "this broker is shutting down: nothing is published")
        if self.broker.is_congested:
            return problem(503, "a link to a neighbor is congested: nothing is published, try again")
        stamped = [one if one.time is not None else one.stamped(time=datetime.now(UTC)) for one in notifications]
        return _published(stamped, self.broker.node.publish(PUBLISHER, stamped))

    # --- subscriptions ---

    async def subscribe(self, request: Request) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise UnknownMediaTypeError(f"a subscription is application/json, found {shown(media_type)}")
        found = self.subscriptions.create(_parsed(await _body(request)))
        return answer(found.resource, 201, {"Location": f"/subscriptions/{found.id}"})

    async def list_subscriptions(self, request: Request) -> Response:
        limit = request.query_params.get("limit", str(PAGE_DEFAULT))
        if not limit.isdecimal() or len(limit) > 4 or not 1 <= int(limit) <= PAGE_MAX:
            raise InputError(f"limit lies between 1 and {PAGE_MAX:,}, found {shown(limit)}")
        found, more = self.subscriptions.page(request.query_params.get("after", ""), int(limit))
        headers = {"Link": f'</subscriptions?limit={limit}&after={found[-1].id}>; rel="next"'} if more else {}
        return answer([one.resource for one in found], headers=headers)

    async def show(self, request: Request) -> Response:
        return answer(self._listed(request).resource)

    async def delete(self, request: Request) -> Response:
        return answer(self.subscriptions.delete(self._listed(request).id).resource)

    def _listed(self, connection: HTTPConnection) -> HttpSubscription:
        found = self.subscriptions[connection.path_params["id"]]
        if not found.is_listed:
            raise UnknownSubscriptionError(f"there is no subscription {shown(found.id)}")
        return found

    # --- delivery ---

    async def stream(self, request: Request) -> Response:
        return self._streamed(request, lambda: self._listed(request))

    async def stream_ad_hoc(self, request: Request) -> Response:
        expressions = _ad_hoc_expressions(request)
        return self._streamed(request, lambda: self.subscriptions.ad_hoc(expressions))

    def _streamed(self, request: Request, find: Callable[[], HttpSubscription]) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        found = find()
        reader = Reader(found.log, _after(request))
        return EventStream(reader, self.subscriptions.source, lambda: self._left(found, reader))

    async def websocket(self, websocket: WebSocket) -> None:
        await self._over_websocket(websocket, lambda: self._listed(websocket))

    async def websocket_ad_hoc(self, websocket: WebSocket) -> None:
        await self._over_websocket(websocket, lambda: self.subscriptions.ad_hoc(_ad_hoc_expressions(websocket)))

    async def _over_websocket(self, websocket: WebSocket, find: Callable[[], HttpSubscription]) -> None:
        try:
            _check_origin(websocket)
            found = find()
        except CatchmentError as error:
            await websocket.send_denial_response(problem_of(error))
            return
        reader = Reader(found.log, _after(websocket))
        try:
            await over_websocket(websocket, reader, self.subscriptions.source)
        finally:
            self._left(found, reader)

    def _left(self, found: HttpSubscription, reader: Reader) -> None:
        reader.close()
        found.idle_since = self.subscriptions.now()
        if not found.is_listed and found.log.ended is None:
            self.subscriptions.delete(found.id, "its stream has ended")

    # --- looking in ---

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def health(self, request: Request) -> Response:
        found = {"status": "stopping" if self.broker.is_stopping else "ok", "name": self.broker.node.name}
        return answer(found | {"up_s": round(self.broker.uptime_s, 3)}, 503 if self.broker.is_stopping else 200)

    async def topology(self, request: Request) -> Response:
        return answer(topology_of(self.broker))

    async def openapi(self, request: Request) -> Response:
        return answer(document())


class Counted:
    """Counts what is answered."""

    def __init__(self, app: Starlette, requests: Requests) -> None:
        self._app, self._requests = app, requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Any) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                self._requests.count(scope.get("method", "WEBSOCKET"), message["status"])
            elif message["type"] == "websocket.accept":
                self._requests.count("WEBSOCKET", 101)
            await send(message)

        await self._app(scope, receive, counting)


def _path(path: str, **by_method: Callable[[Request], Awaitable[Response]]) -> Route:
    """One route for all methods: a wrong one is told all that there are."""

    async def handle(request: Request) -> Response:
        return await by_method["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, handle, methods=list(by_method))


# --- requests -----------------------------------------------------------------------------------


async def _body(request: Request) -> bytes:
    """All of it, and never more than the limit in memory."""
    declared = request.headers.get("content-length", "0")
    found = bytearray()
    if not declared.isdecimal() or len(declared) > 18 or int(declared) <= BODY_BYTES_MAX:
        try:
            async with asyncio.timeout(BODY_S_MAX):
                async for chunk in request.stream():
                    found += chunk
                    if len(found) > BODY_BYTES_MAX:
                        break
                else:
                    return bytes(found)
        except TimeoutError:
            raise HTTPException(408, f"BODY_S_MAX is {BODY_S_MAX:.0f}: the body did not come in time") from None
        except ClientDisconnect:
            raise HTTPException(400, "the body is not whole") from None
    raise TooLongError(f"BODY_BYTES_MAX is {BODY_BYTES_MAX:,}: send less at once")


def _parsed(body: bytes) -> object:
    try:
        return parsed_json(body.decode("utf-8"))
    except UnicodeDecodeError as fault:
        raise InputError(f"byte {fault.start + 1} is not UTF-8") from None


def _after(connection: HTTPConnection) -> str | None:
    return connection.headers.get("last-event-id") or connection.query_params.get("after")


def _ad_hoc_expressions(connection: HTTPConnection) -> list[Expression]:
    given = connection.query_params.multi_items()
    if len(given) > FILTER_EXPRESSIONS_MAX:
        raise LimitError("FILTER_EXPRESSIONS_MAX", FILTER_EXPRESSIONS_MAX, f"{len(given):,} parameters")
    for name, _ in given:
        if name not in ("filter", "sql", "after"):
            raise InputError(f"there is no parameter {shown(name)}: use filter, sql or after")
    return [Native(Filter(text)) if name == "filter" else sql(text) for name, text in given if name != "after"]


def _check_origin(websocket: WebSocket) -> None:
    """A page of another site may open a WebSocket here, and browsers leave it to servers to mind."""
    origin = websocket.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != websocket.headers.get("host"):
        raise ForeignPageError(f"pages of {shown(origin)} may not read here")


def _published(notifications: Sequence[Notification], refusals: Sequence[Refuse]) -> Response:
    if not refusals:
        return answer({"accepted": len(notifications)}, 202)
    by_one = {id(one.notification): one.error for one in refusals}
    faults = [Fault.of(i, by_one[id(one)]) for i, one in enumerate(notifications) if id(one) in by_one]
    accepted = len(notifications) - len(faults)
    detail = f"{len(faults)} of {len(notifications)} events are refused; the others are published"
    told = [msgspec.to_builtins(one) for one in faults[:TOLD_MAX]]
    return problem(422, detail, type(refusals[0].error).__name__, accepted=accepted, errors=told)


async def _on_error(request: Request, error: CatchmentError) -> Response:
    return problem_of(error)


async def _on_bug(request: Request, error: Exception) -> Response:
    """It is logged, and not told to strangers."""
    return problem(500, "a mistake of the broker's own: see its log")


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    found = problem(error.status_code, error.detail)
    found.headers.update(error.headers or {})
    return found
