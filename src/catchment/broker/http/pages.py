"""The routes of a broker's HTTP side, and what each answers. `openapi.py` describes them to clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from catchment.broker.hosts import AllowedHosts
from catchment.broker.http.binding import (
    BODY_BYTES_MAX,
    RejectedEvent,
    UnknownMediaTypeError,
    notifications_of,
)
from catchment.broker.http.delivery_log import Reader
from catchment.broker.http.filters import FILTER_EXPRESSIONS_MAX, FilterExpression, Native, sql
from catchment.broker.http.gate import Gate
from catchment.broker.http.metrics import AnswerCounts, registry_of
from catchment.broker.http.openapi import document
from catchment.broker.http.problems import TooLongError, answer, listed_errors, problem, problem_of
from catchment.broker.http.protocols import BODY_S_MAX
from catchment.broker.http.streams import serve_websocket, server_sent_events
from catchment.broker.http.subscriptions import (
    FullError,
    HttpSubscription,
    HttpSubscriptions,
    UnknownSubscriptionError,
)
from catchment.broker.status import topology_of
from catchment.errors import CatchmentError, InputError, LimitError, shown
from catchment.model.filter import Filter
from catchment.model.names import HTTP_PUBLISHER
from catchment.model.notification import Notification, parsed_json
from catchment.routing.messages import Client, Refuse

if TYPE_CHECKING:
    from catchment.broker.server import Broker

# Subscriptions in one answer: the most that a client may ask for, and how many it gets if it does not say.
PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 100
# Streams that read at the same time: each may hold a portion of its log in memory until its client reads.
STREAMS_MAX: Final = 1_500
# To the node, everybody who publishes over HTTP is this client.
PUBLISHER: Final = Client(HTTP_PUBLISHER)


class EventStream(StreamingResponse):
    """A stream of Server-Sent Events. It calls `on_end` when it is over, however it ends."""

    def __init__(self, reader: Reader, source: str, on_end: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(server_sent_events(reader, source), headers=headers, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


class Pages:
    """A handler for each route. A handler that raises a CatchmentError answers with `problem_of` it."""

    def __init__(self, broker: Broker, subscriptions: HttpSubscriptions) -> None:
        self.broker, self.subscriptions = broker, subscriptions
        self.answers = AnswerCounts()
        self._registry = registry_of(broker, subscriptions, self.answers)

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

    def app(self, allowed: AllowedHosts, connections_count: Callable[[], int]) -> CountingApp:
        handlers: dict[Any, Any] = {CatchmentError: _on_error, HTTPException: _on_http_exception, 500: _on_bug}
        app = Starlette(routes=self.routes(), exception_handlers=handlers)
        return CountingApp(Gate(app, allowed, connections_count), self.answers)

    # --- publishing ---

    async def publish(self, request: Request) -> Response:
        body = await _body(request)
        notifications = notifications_of(request.headers.items(), body)
        if self.broker.is_stopping:
            return problem(503, "this broker is shutting down: nothing is published")
        if self.broker.is_congested:
            return problem(503, "a link to a neighbor is congested: nothing is published; try again later")
        stamped = [
            notification if notification.time is not None else notification.stamped(time=datetime.now(UTC))
            for notification in notifications
        ]
        return _answer_to_publisher(stamped, self.broker.node.publish(PUBLISHER, stamped))

    # --- subscriptions ---

    async def subscribe(self, request: Request) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise UnknownMediaTypeError(f"a subscription must be application/json, found {shown(media_type)}")
        made = self.subscriptions.create(_parsed(await _body(request)))
        return answer(made.resource, 201, {"Location": f"/subscriptions/{made.id}"})

    async def list_subscriptions(self, request: Request) -> Response:
        limit = request.query_params.get("limit", str(PAGE_DEFAULT))
        if not limit.isdecimal() or len(limit) > 4 or not 1 <= int(limit) <= PAGE_MAX:
            raise InputError(f"limit must be between 1 and {PAGE_MAX:,}, found {shown(limit)}")
        page, has_more = self.subscriptions.page(request.query_params.get("after", ""), int(limit))
        headers = {"Link": f'</subscriptions?limit={limit}&after={page[-1].id}>; rel="next"'} if has_more else {}
        return answer([subscription.resource for subscription in page], headers=headers)

    async def show(self, request: Request) -> Response:
        return answer(self._listed(request).resource)

    async def delete(self, request: Request) -> Response:
        return answer(self.subscriptions.delete(self._listed(request).id).resource)

    def _listed(self, connection: HTTPConnection) -> HttpSubscription:
        subscription = self.subscriptions[connection.path_params["id"]]
        if not subscription.is_listed:
            raise UnknownSubscriptionError(f"there is no subscription {shown(subscription.id)}")
        return subscription

    # --- delivery ---

    async def stream(self, request: Request) -> Response:
        return self._streamed(request, lambda: self._listed(request))

    async def stream_ad_hoc(self, request: Request) -> Response:
        expressions = _ad_hoc_expressions(request)
        return self._streamed(request, lambda: self.subscriptions.ad_hoc(expressions))

    def _streamed(self, request: Request, find: Callable[[], HttpSubscription]) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        self._check_room()
        subscription = find()
        reader = Reader(subscription.log, _after(request))
        return EventStream(reader, self.subscriptions.source, lambda: self._left(subscription, reader))

    async def websocket(self, websocket: WebSocket) -> None:
        await self._serve_websocket(websocket, lambda: self._listed(websocket))

    async def websocket_ad_hoc(self, websocket: WebSocket) -> None:
        await self._serve_websocket(websocket, lambda: self.subscriptions.ad_hoc(_ad_hoc_expressions(websocket)))

    async def _serve_websocket(self, websocket: WebSocket, find: Callable[[], HttpSubscription]) -> None:
        try:
            self._check_room()
            subscription = find()
        except CatchmentError as error:
            await websocket.send_denial_response(problem_of(error))
            return
        reader = Reader(subscription.log, _after(websocket))
        try:
            await serve_websocket(websocket, reader, self.subscriptions.source)
        finally:
            self._left(subscription, reader)

    def _check_room(self) -> None:
        if self.subscriptions.readers_count >= STREAMS_MAX:
            raise FullError(f"STREAMS_MAX is {STREAMS_MAX:,}: try again later")

    def _left(self, subscription: HttpSubscription, reader: Reader) -> None:
        reader.close()
        subscription.idle_since = self.subscriptions.now()
        # If the log has ended, the subscription is deleted already.
        if not subscription.is_listed and subscription.log.end_reason is None:
            self.subscriptions.delete(subscription.id, "its stream has ended")

    # --- looking in ---

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def health(self, request: Request) -> Response:
        health = {
            "status": "stopping" if self.broker.is_stopping else "ok",
            "name": self.broker.node.name,
            "up_s": round(self.broker.uptime_s, 3),
        }
        return answer(health, 503 if self.broker.is_stopping else 200)

    async def topology(self, request: Request) -> Response:
        return answer(topology_of(self.broker))

    async def openapi(self, request: Request) -> Response:
        return answer(document())


class CountingApp:
    """Counts the answers of an application."""

    def __init__(self, app: ASGIApp, answers: AnswerCounts) -> None:
        self._app, self._answers = app, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Any) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                self._answers.count(scope.get("method", "WEBSOCKET"), message["status"])
            elif message["type"] == "websocket.accept":
                self._answers.count("WEBSOCKET", 101)
            await send(message)

        await self._app(scope, receive, counting)


def _path(path: str, **by_method: Callable[[Request], Awaitable[Response]]) -> Route:
    """One route for all methods of a path, so that the answer 405 names all of them in its header `Allow`."""

    async def handle(request: Request) -> Response:
        return await by_method["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, handle, methods=list(by_method))


# --- requests -----------------------------------------------------------------------------------


async def _body(request: Request) -> bytes:
    """The whole body. Of a body that is too long, no more than the limit and one chunk is ever in memory."""
    declared = request.headers.get("content-length", "0")
    body = bytearray()
    # A declared length past the limit is refused without reading. The header may be missing or wrong, so what arrives
    # is counted too.
    if not declared.isdecimal() or len(declared) > 18 or int(declared) <= BODY_BYTES_MAX:
        try:
            async with asyncio.timeout(BODY_S_MAX):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > BODY_BYTES_MAX:
                        break
                else:
                    return bytes(body)
        except TimeoutError:
            raise HTTPException(408, f"BODY_S_MAX is {BODY_S_MAX:.0f}: the body did not arrive in time") from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended before the body did") from None
    raise TooLongError(f"BODY_BYTES_MAX is {BODY_BYTES_MAX:,}: send less at once")


def _parsed(body: bytes) -> object:
    try:
        return parsed_json(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start + 1} is not UTF-8") from None


def _after(connection: HTTPConnection) -> str | None:
    """The place after which a reader wants to go on."""
    return connection.headers.get("last-event-id") or connection.query_params.get("after")


def _ad_hoc_expressions(connection: HTTPConnection) -> list[FilterExpression]:
    parameters = connection.query_params.multi_items()
    if len(parameters) > FILTER_EXPRESSIONS_MAX:
        raise LimitError("FILTER_EXPRESSIONS_MAX", FILTER_EXPRESSIONS_MAX, f"{len(parameters):,} parameters")
    for name, _ in parameters:
        if name not in ("filter", "sql", "after"):
            raise InputError(f"there is no parameter {shown(name)}: use filter, sql or after")
    return [Native(Filter(text)) if name == "filter" else sql(text) for name, text in parameters if name != "after"]


def _answer_to_publisher(notifications: Sequence[Notification], refusals: Sequence[Refuse]) -> Response:
    if not refusals:
        return answer({"accepted": len(notifications)}, 202)
    # By identity, not by value: a batch may hold equal notifications, and each has an index of its own.
    errors = {id(refusal.notification): refusal.error for refusal in refusals}
    rejected = [
        RejectedEvent.of(index, errors[id(notification)])
        for index, notification in enumerate(notifications)
        if id(notification) in errors
    ]
    accepted = len(notifications) - len(rejected)
    detail = f"{len(rejected)} of {len(notifications)} events are refused; the others are published"
    kind = type(refusals[0].error).__name__
    return problem(422, detail, kind, accepted=accepted, errors=listed_errors(rejected))


async def _on_error(request: Request, error: CatchmentError) -> Response:
    return problem_of(error)


async def _on_bug(request: Request, error: Exception) -> Response:
    """Our bug. uvicorn logs it; the answer does not show it to strangers."""
    return problem(500, "an internal error of the broker: see its log")


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    response = problem(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response
