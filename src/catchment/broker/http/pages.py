"""The routes of a broker's HTTP side, and what each answers. `openapi.py` describes them to clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from catchment.broker.hosts import AllowedHosts
from catchment.broker.http.binding import RejectedEvent, notifications_of
from catchment.broker.http.catalog import Catalog, NoStoreError
from catchment.broker.http.delivery_log import Reader
from catchment.broker.http.durable_streams import DurableReader, DurableStream
from catchment.broker.http.filters import FILTER_EXPRESSIONS_MAX, FilterExpression, Native, sql
from catchment.broker.http.gate import Gate
from catchment.broker.http.metrics import AnswerCounts, registry_of
from catchment.broker.http.openapi import document
from catchment.broker.http.problems import answer, listed_errors, problem, problem_of
from catchment.broker.http.requests import body_of, json_body, limit_of, path
from catchment.broker.http.streams import serve_websocket, server_sent_events
from catchment.broker.http.subscriptions import FullError, HttpSubscription
from catchment.broker.http.webhooks.pages import WebhookPages
from catchment.broker.status import topology_of
from catchment.errors import CatchmentError, InputError, LimitError, UnavailableError, shown
from catchment.model.filter import Filter
from catchment.model.names import HTTP_PUBLISHER
from catchment.model.notification import Notification, parsed_json
from catchment.routing.messages import Client, Refuse
from catchment.store.interface import StoreError

if TYPE_CHECKING:
    from catchment.broker.server import Broker
    from catchment.broker.storing import Storing

# Streams that read at the same time: each may hold a portion of its log in memory until its client reads.
STREAMS_MAX: Final = 1_500
# How long a publisher waits for the disk. A disk that takes longer has failed, or is far behind.
STORED_S_MAX: Final = 30.0
# To the node, everybody who publishes over HTTP is this client.
PUBLISHER: Final = Client(HTTP_PUBLISHER)


class EventStream(StreamingResponse):
    """A stream of Server-Sent Events. It calls `on_end` when it is over, however it ends."""

    def __init__(self, reader: Reader | DurableReader, source: str, on_end: Callable[[], None]) -> None:
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

    def __init__(self, broker: Broker, catalog: Catalog) -> None:
        self.broker, self.catalog = broker, catalog
        self.answers = AnswerCounts()
        self._registry = registry_of(broker, catalog, self.answers)

    def routes(self) -> list[BaseRoute]:
        return [
            path("/events", POST=self.publish, GET=self.stream_ad_hoc),
            WebSocketRoute("/events/ws", self.websocket_ad_hoc),
            path("/subscriptions", POST=self.subscribe, GET=self.list_subscriptions),
            path("/subscriptions/{id}", GET=self.show, PUT=self.edit, DELETE=self.delete),
            path("/subscriptions/{id}/ack", POST=self.acknowledge),
            *WebhookPages(self.catalog).routes(),
            path("/subscriptions/{id}/events", GET=self.stream),
            WebSocketRoute("/subscriptions/{id}/ws", self.websocket),
            path("/metrics", GET=self.metrics),
            path("/healthz", GET=self.health),
            path("/topology", GET=self.topology),
            path("/openapi.json", GET=self.openapi),
        ]

    def app(self, allowed: AllowedHosts, connections_count: Callable[[], int]) -> CountingApp:
        handlers: dict[Any, Any] = {CatchmentError: _on_error, HTTPException: _on_http_exception, 500: _on_bug}
        app = Starlette(routes=self.routes(), exception_handlers=handlers)
        return CountingApp(Gate(app, allowed, connections_count), self.answers)

    # --- publishing ---

    async def publish(self, request: Request) -> Response:
        body = await body_of(request)
        notifications = notifications_of(request.headers.items(), body)
        storing = self._storing(request)
        if self.broker.is_stopping:
            return problem(503, "this broker is shutting down: nothing is published")
        if self.broker.is_congested:
            return problem(503, "a link to a neighbor is congested: nothing is published; try again later")
        stamped = [
            notification if notification.time is not None else notification.stamped(time=datetime.now(UTC))
            for notification in notifications
        ]
        refusals = self.broker.node.publish(PUBLISHER, stamped)
        if storing is not None:
            await _all_stored(storing)
        return _answer_to_publisher(stamped, refusals, is_stored=storing is not None)

    def _storing(self, request: Request) -> Storing | None:
        """The store, if the publisher wants to wait for it."""
        ack = request.query_params.get("ack") or request.headers.get("catchment-ack") or "accepted"
        if ack not in ("accepted", "stored"):
            raise InputError(f"ack must be accepted or stored, found {shown(ack)}")
        if ack == "stored" and self.broker.storing is None:
            raise NoStoreError("this broker has no store: nothing is published; ask a broker that has one")
        return self.broker.storing if ack == "stored" else None

    # --- subscriptions ---

    async def subscribe(self, request: Request) -> Response:
        made = await self.catalog.create(await json_body(request, "a subscription"))
        return answer(made, 201, {"Location": f"/subscriptions/{made['id']}"})

    async def list_subscriptions(self, request: Request) -> Response:
        limit, kind = limit_of(request), request.query_params.get("kind", "")
        page, has_more = self.catalog.page(request.query_params.get("after", ""), limit, kind)
        more = f"&kind={kind}" if kind else ""
        link = f'</subscriptions?limit={limit}{more}&after={page[-1]["id"]}>; rel="next"' if has_more else ""
        return answer(page, headers={"Link": link} if link else {})

    async def show(self, request: Request) -> Response:
        return answer(self.catalog.show(request.path_params["id"]))

    async def edit(self, request: Request) -> Response:
        given = await json_body(request, "a subscription")
        return answer(await self.catalog.edit(request.path_params["id"], given))

    async def delete(self, request: Request) -> Response:
        return answer(await self.catalog.delete(request.path_params["id"]))

    async def acknowledge(self, request: Request) -> Response:
        given = await json_body(request, "an acknowledgement")
        if not isinstance(given, dict) or set(given) != {"place"}:
            raise InputError('an acknowledgement is an object like {"place": "d:…"}')
        self.catalog.streams[request.path_params["id"]].acknowledge(given["place"])
        return Response(status_code=204)

    # --- delivery ---

    async def stream(self, request: Request) -> Response:
        subscription = self.catalog.readable(request.path_params["id"])
        if isinstance(subscription, HttpSubscription):
            return self._streamed(request, lambda: subscription)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        self._check_room()
        reader = subscription.read(_after(request), must_return=True)
        return EventStream(reader, self.catalog.transient.source, lambda: subscription.left(reader))

    async def stream_ad_hoc(self, request: Request) -> Response:
        expressions = _ad_hoc_expressions(request)
        return self._streamed(request, lambda: self.catalog.transient.ad_hoc(expressions))

    def _streamed(self, request: Request, find: Callable[[], HttpSubscription]) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        self._check_room()
        subscription = find()
        reader = Reader(subscription.log, _after(request))
        return EventStream(reader, self.catalog.transient.source, lambda: self._left(subscription, reader))

    async def websocket(self, websocket: WebSocket) -> None:
        await self._serve_websocket(websocket, lambda: self.catalog.readable(websocket.path_params["id"]))

    async def websocket_ad_hoc(self, websocket: WebSocket) -> None:
        await self._serve_websocket(websocket, lambda: self.catalog.transient.ad_hoc(_ad_hoc_expressions(websocket)))

    async def _serve_websocket(
        self, websocket: WebSocket, find: Callable[[], HttpSubscription | DurableStream]
    ) -> None:
        try:
            self._check_room()
            subscription = find()
        except CatchmentError as error:
            await websocket.send_denial_response(problem_of(error))
            return
        if isinstance(subscription, DurableStream):
            await self._serve_durable(websocket, subscription)
            return
        reader = Reader(subscription.log, _after(websocket))
        try:
            await serve_websocket(websocket, reader, self.catalog.transient.source)
        finally:
            self._left(subscription, reader)

    async def _serve_durable(self, websocket: WebSocket, subscription: DurableStream) -> None:
        reader = subscription.read(_after(websocket), must_return=False)
        try:
            await serve_websocket(websocket, reader, self.catalog.transient.source, _acknowledging(reader))
        finally:
            subscription.left(reader)

    def _check_room(self) -> None:
        if self.catalog.readers_count >= STREAMS_MAX:
            raise FullError(f"STREAMS_MAX is {STREAMS_MAX:,}: try again later")

    def _left(self, subscription: HttpSubscription, reader: Reader) -> None:
        reader.close()
        subscriptions = self.catalog.transient
        subscription.idle_since = subscriptions.now()
        # If the log has ended, the subscription is deleted already.
        if not subscription.is_listed and subscription.log.end_reason is None:
            subscriptions.delete(subscription.id, "its stream has ended")

    # --- looking in ---

    async def metrics(self, request: Request) -> Response:
        if self.broker.storing is not None:
            # What waits for whom is counted in the store's own thread.
            await self.broker.storing.report()
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


def _after(connection: HTTPConnection) -> str | None:
    """The place after which a reader wants to go on."""
    return connection.headers.get("last-event-id") or connection.query_params.get("after")


def _acknowledging(reader: DurableReader) -> Callable[[str], bool]:
    """What a WebSocket's reader may say: `{"ack": "d:…"}`. False if it is something else."""

    def hear(text: str) -> bool:
        try:
            said = parsed_json(text)
        except CatchmentError:
            return False
        place = said.get("ack") if isinstance(said, dict) and len(said) == 1 else None
        positions = reader.places.positions(place)
        if positions is not None:
            reader.acknowledge(positions)
        return positions is not None

    return hear


def _ad_hoc_expressions(connection: HTTPConnection) -> list[FilterExpression]:
    parameters = connection.query_params.multi_items()
    if len(parameters) > FILTER_EXPRESSIONS_MAX:
        raise LimitError("FILTER_EXPRESSIONS_MAX", FILTER_EXPRESSIONS_MAX, f"{len(parameters):,} parameters")
    for name, _ in parameters:
        if name not in ("filter", "sql", "after"):
            raise InputError(f"there is no parameter {shown(name)}: use filter, sql or after")
    return [Native(Filter(text)) if name == "filter" else sql(text) for name, text in parameters if name != "after"]


async def _all_stored(storing: Storing) -> None:
    try:
        async with asyncio.timeout(STORED_S_MAX):
            await storing.keeping.all_stored()
    except TimeoutError:
        raise StoreError(f"STORED_S_MAX is {STORED_S_MAX:.0f}: the disk is slow; publish again later") from None


def _answer_to_publisher(
    notifications: Sequence[Notification], refusals: Sequence[Refuse], is_stored: bool
) -> Response:
    if not refusals:
        count = len(notifications)
        return answer({"accepted": count, "stored": True}) if is_stored else answer({"accepted": count}, 202)
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
    # What cannot be kept now may be kept later; what the network refuses it will refuse again.
    status = 503 if all(isinstance(refusal.error, UnavailableError) for refusal in refusals) else 422
    return problem(status, detail, kind, accepted=accepted, errors=listed_errors(rejected))


async def _on_error(request: Request, error: CatchmentError) -> Response:
    return problem_of(error)


async def _on_bug(request: Request, error: Exception) -> Response:
    """Our bug. uvicorn logs it; the answer does not show it to strangers."""
    return problem(500, "an internal error of the broker: see its log")


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    response = problem(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response
