"""The OpenAPI 3.1 description of the HTTP side, which `GET /openapi.json` returns."""

from __future__ import annotations

from typing import Final

from catchment.broker.http.openapi_parts import (
    ID,
    LIMIT,
    TEXT,
    TEXTS,
    Json,
    answered,
    content,
    object_of,
    parameter,
    ref,
    refused,
)
from catchment.broker.http.webhooks.openapi import push_members, webhook_paths, webhook_schemas

_STREAM_NOTE: Final = (
    "Each message is a CloudEvent in JSON, with two more attributes: `catchmentids`, the ids of the subscriptions that "
    "match, and `catchmentplace`, its place in the stream. The broker's own messages are of the types catchment.lost, "
    "catchment.gap and catchment.end."
)


_AFTER: Final = parameter("after", "query", "The place to go on after, like the header Last-Event-ID", TEXT)
_LAST: Final = parameter("Last-Event-ID", "header", "The place to go on after: nothing is delivered twice", TEXT)
_FILTER: Final = parameter(
    "filter", "query", "A filter in Catchment's language. If there are several, their ids are 1, 2, …", TEXTS
)
_SQL: Final = parameter("sql", "query", "A filter in CESQL, otherwise the same", TEXTS)
_STREAM: Final = answered("Server-Sent Events. " + _STREAM_NOTE, TEXT, "text/event-stream")
_SOCKET: Final[Json] = {
    "101": {
        "description": "A WebSocket, with the subprotocol cloudevents.json if the client offers it. " + _STREAM_NOTE
    },
    "400": refused("A parameter is wrong"),
    "403": refused("The request comes from a page of another site"),
    "503": refused("Too many subscriptions"),
}


def _events() -> Json:
    binary = {"type": "string", "format": "binary"}
    return {
        "post": {
            "operationId": "publish",
            "summary": "Publish CloudEvents: structured, batched, or binary with headers ce-…",
            "requestBody": {
                "required": True,
                "content": {
                    "application/cloudevents+json": {"schema": ref("CloudEvent")},
                    "application/cloudevents-batch+json": {"schema": {"type": "array", "items": ref("CloudEvent")}},
                    "*/*": {"schema": binary},
                },
            },
            "parameters": [
                parameter(
                    "ack",
                    "query",
                    "With `stored`, the answer comes when all events are kept. The header Catchment-Ack is the same",
                    {"enum": ["accepted", "stored"]},
                )
            ],
            "responses": {
                "200": answered("With ack=stored: all events are published and kept", ref("Accepted")),
                "202": answered("All events are published", ref("Accepted")),
                "400": refused("Some events are not valid CloudEvents: `errors` lists them. Nothing is published"),
                "408": refused("The body did not arrive in time"),
                "413": refused("The body is too long, or has too many events. Nothing is published"),
                "415": refused("The body is in none of the three modes. Nothing is published"),
                "422": refused("The network refuses some events: `errors` lists them. The others are published"),
                "501": refused("ack=stored, and the broker has no store. Nothing is published"),
                "503": refused("A link is congested, the broker is shutting down, or its store takes nothing now"),
            },
        },
        "get": {
            "operationId": "streamAdHoc",
            "summary": "Read a stream of what matches; the subscription lives as long as the stream",
            "parameters": [_FILTER, _SQL, _AFTER, _LAST],
            "responses": {
                "200": _STREAM,
                "400": refused("A filter or another parameter is wrong"),
                "503": refused("Too many subscriptions"),
            },
        },
    }


_BAD_BODY: Final[Json] = {
    "400": refused("The body is wrong; `detail` says why"),
    "408": refused("The body did not arrive in time"),
    "413": refused("The body is too long"),
    "415": refused("The body is not application/json"),
}


def _edit() -> Json:
    """`PUT /subscriptions/{id}`."""
    about = _about_one(
        "editSubscription",
        "Put another subscription in the place of a durable one or a webhook",
        answered("The subscription as it is now", ref("Subscription")),
    )
    return {
        **about,
        "requestBody": {"required": True, **content(ref("NewSubscription"))},
        "responses": {
            **about["responses"],
            **_BAD_BODY,
            "403": refused("The broker must not send to this sink"),
            "409": refused("A subscription keeps its kind, and a transient one does not change"),
            "503": refused("The store takes nothing now"),
        },
    }


def _acknowledge() -> Json:
    about = _about_one("acknowledge", "Acknowledge what was read of a durable subscription", {})
    return {
        **about,
        "requestBody": {"required": True, **content(object_of(["place"], place=TEXT))},
        "responses": {
            "204": {"description": "It is acknowledged"},
            "404": refused("No durable subscription has this id"),
            "501": refused("The broker has no store"),
            **_BAD_BODY,
        },
    }


def _subscriptions() -> Json:
    kinds = {"enum": ["transient", "durable", "webhook"]}
    return {
        "post": {
            "operationId": "subscribe",
            "summary": "Make a subscription: transient, durable (`durable`), or a webhook (`sink`)",
            "requestBody": {"required": True, **content(ref("NewSubscription"))},
            "responses": {
                "201": {
                    **answered("The new subscription", ref("Subscription")),
                    "headers": {"Location": {"description": "The path of the new subscription", "schema": TEXT}},
                },
                **_BAD_BODY,
                "403": refused("The broker must not send to this sink"),
                "409": refused("The id is in use"),
                "501": refused("The broker has no store, which durable subscriptions and webhooks need"),
                "503": refused("Too many subscriptions, or the store takes nothing now"),
            },
        },
        "get": {
            "operationId": "listSubscriptions",
            "summary": "List the subscriptions made over HTTP at this broker, sorted by id",
            "parameters": [
                LIMIT,
                parameter("kind", "query", "Return those of this kind only", kinds),
                parameter("after", "query", "Return those that follow this id", TEXT),
            ],
            "responses": {
                "200": {
                    **answered("The subscriptions", {"type": "array", "items": ref("Subscription")}),
                    "headers": {"Link": {"description": "The next page, if there is one", "schema": TEXT}},
                },
                "400": refused("A parameter is wrong"),
            },
        },
    }


def _about_one(operation: str, summary: str, answer: Json) -> Json:
    """An operation on the subscription in the path."""
    responses = {"200": answer, "404": refused("No subscription has this id")}
    return {"operationId": operation, "summary": summary, "parameters": [ID], "responses": responses}


def _looking_in() -> Json:
    def get(operation: str, summary: str, **responses: Json) -> Json:
        # A keyword cannot start with a digit, so the callers below write s200 for 200.
        answers = {name.removeprefix("s"): response for name, response in responses.items()}
        return {"get": {"operationId": operation, "summary": summary, "responses": answers}}

    return {
        "/metrics": get(
            "metrics", "Metrics for Prometheus", s200=answered("Prometheus' text format", TEXT, "text/plain")
        ),
        "/healthz": get(
            "health",
            "Whether the broker works",
            s200=answered("It works", ref("Health")),
            s503=answered("It is shutting down", ref("Health")),
        ),
        "/topology": get(
            "topology", "What the broker knows of the network", s200=answered("What it knows", ref("Topology"))
        ),
        "/openapi.json": get("openapi", "This description", s200=answered("This description", {"type": "object"})),
    }


def _paths() -> Json:
    stream = _about_one("stream", "Read a stream of the deliveries of a subscription", _STREAM)
    stream["parameters"] = [ID, _AFTER, _LAST]
    stream["responses"]["409"] = refused("It is a webhook, which nobody can read")
    return {
        "/events": _events(),
        "/events/ws": {
            "get": {
                "operationId": "websocketAdHoc",
                "summary": "The same stream over a WebSocket",
                "parameters": [_FILTER, _SQL, _AFTER],
                "responses": _SOCKET,
            }
        },
        "/subscriptions": _subscriptions(),
        "/subscriptions/{id}": {
            "get": _about_one(
                "showSubscription", "Show a subscription", answered("The subscription", ref("Subscription"))
            ),
            "put": _edit(),
            "delete": _about_one(
                "deleteSubscription",
                "Delete a subscription",
                answered("The subscription as it was", ref("Subscription")),
            ),
        },
        "/subscriptions/{id}/ack": {"post": _acknowledge()},
        **webhook_paths(),
        "/subscriptions/{id}/events": {"get": stream},
        "/subscriptions/{id}/ws": {
            "get": {
                "operationId": "websocket",
                "summary": "The same stream over a WebSocket",
                "parameters": [ID, _AFTER],
                "responses": {**_SOCKET, "404": refused("No subscription has this id")},
            }
        },
        **_looking_in(),
    }


# --- schemas ------------------------------------------------------------------------------------


def _dialects() -> Json:
    text_tests = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "minLength": 1}}
    expressions = {"type": "array", "minItems": 1, "items": ref("FilterExpression")}
    dialects: dict[str, Json] = {
        "exact": text_tests,
        "prefix": text_tests,
        "suffix": text_tests,
        "all": expressions,
        "any": expressions,
        "not": ref("FilterExpression"),
        "sql": {"type": "string", "description": "An expression in CESQL"},
        "catchment": {"type": "string", "description": "A filter in Catchment's language"},
    }
    exactly_one = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
    return {"type": "object", **exactly_one, "properties": dialects}


def _schemas() -> Json:
    links = {"type": "array", "items": object_of(["neighbor", "cost"], neighbor=TEXT, cost={"type": "integer"})}
    text = {"type": "string", "minLength": 1}
    members: dict[str, Json] = {
        "id": {"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,128}$"},
        "source": text,
        "types": {"type": "array", "minItems": 1, "maxItems": 64, "items": text},
        "filters": {"type": "array", "items": ref("FilterExpression")},
        "durable": {"type": "boolean"},
        **push_members(),
    }
    error = object_of(["index", "kind", "reason"], index={"type": "integer"}, kind=TEXT, reason=TEXT)
    broker = object_of(["name", "is_reached", "links"], name=TEXT, is_reached={"type": "boolean"}, links=links)
    return {
        "CloudEvent": {
            **object_of(["specversion", "id", "source", "type"], specversion={"const": "1.0"}, id=text, source=text),
            "additionalProperties": True,
        },
        "Accepted": object_of(["accepted"], accepted={"type": "integer"}, stored={"const": True}),
        "Problem": object_of(
            ["type", "title", "status", "detail"],
            type=TEXT,
            title=TEXT,
            status={"type": "integer"},
            detail=TEXT,
            kind=TEXT,
            accepted={"type": "integer"},
            errors={"type": "array", "items": error},
        ),
        "FilterExpression": _dialects(),
        "NewSubscription": {"type": "object", "additionalProperties": False, "properties": members},
        "Subscription": object_of(
            ["id"],
            **members,
            delivery=object_of(["sse", "websocket"], sse=TEXT, websocket=TEXT, ack=TEXT),
            waiting={"type": "integer", "description": "Deliveries of a transient one that nobody has read yet"},
            status=ref("DeliveryStatus"),
        ),
        **webhook_schemas(),
        "Health": object_of(
            ["status", "name", "up_s"], status={"enum": ["ok", "stopping"]}, name=TEXT, up_s={"type": "number"}
        ),
        "Topology": object_of(
            ["name", "instance", "routing", "address", "links"],
            name=TEXT,
            instance=TEXT,
            routing=TEXT,
            address=TEXT,
            links=links,
            brokers={"type": "array", "items": broker},
        ),
    }


def document() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Catchment",
            "version": "1",
            "summary": "The HTTP side of a content-based publish/subscribe broker",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": _paths(),
        "components": {"schemas": _schemas()},
    }
