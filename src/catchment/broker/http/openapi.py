"""The OpenAPI 3.1 description of the HTTP side, which `GET /openapi.json` returns."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

_STREAM_NOTE: Final = (
    "Each message is a CloudEvent in JSON, with two more attributes: `catchmentids`, the ids of the subscriptions that "
    "match, and `catchmentplace`, its place in the stream. The broker's own messages are of the types catchment.lost, "
    "catchment.gap and catchment.end."
)


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: Json, media_type: str = "application/json") -> Json:
    return {"content": {media_type: {"schema": schema}}}


def _answer(description: str, schema: Json, media_type: str = "application/json") -> Json:
    return {"description": description, **_content(schema, media_type)}


def _problem(description: str) -> Json:
    return _answer(description, _ref("Problem"), "application/problem+json")


def _parameter(name: str, place: str, description: str, schema: Json) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": schema,
    }


_TEXT: Final[Json] = {"type": "string"}
_ID: Final = _parameter("id", "path", "The id of a subscription", _TEXT)
_AFTER: Final = _parameter("after", "query", "The place to go on after, like the header Last-Event-ID", _TEXT)
_LAST: Final = _parameter("Last-Event-ID", "header", "The place to go on after: nothing is delivered twice", _TEXT)
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT}
_FILTER: Final = _parameter(
    "filter", "query", "A filter in Catchment's language. If there are several, their ids are 1, 2, …", _TEXTS
)
_SQL: Final = _parameter("sql", "query", "A filter in CESQL, otherwise the same", _TEXTS)
_STREAM: Final = _answer("Server-Sent Events. " + _STREAM_NOTE, _TEXT, "text/event-stream")
_SOCKET: Final[Json] = {
    "101": {
        "description": "A WebSocket, with the subprotocol cloudevents.json if the client offers it. " + _STREAM_NOTE
    },
    "400": _problem("A parameter is wrong"),
    "403": _problem("The request comes from a page of another site"),
    "503": _problem("Too many subscriptions"),
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
                    "application/cloudevents+json": {"schema": _ref("CloudEvent")},
                    "application/cloudevents-batch+json": {"schema": {"type": "array", "items": _ref("CloudEvent")}},
                    "*/*": {"schema": binary},
                },
            },
            "responses": {
                "202": _answer("All events are published", _ref("Accepted")),
                "400": _problem("Some events are not valid CloudEvents: `errors` lists them. Nothing is published"),
                "408": _problem("The body did not arrive in time"),
                "413": _problem("The body is too long, or has too many events. Nothing is published"),
                "415": _problem("The body is in none of the three modes. Nothing is published"),
                "422": _problem("The network refuses some events: `errors` lists them. The others are published"),
                "503": _problem("A link is congested, or the broker is shutting down. Nothing is published"),
            },
        },
        "get": {
            "operationId": "streamAdHoc",
            "summary": "Read a stream of what matches; the subscription lives as long as the stream",
            "parameters": [_FILTER, _SQL, _AFTER, _LAST],
            "responses": {
                "200": _STREAM,
                "400": _problem("A filter or another parameter is wrong"),
                "503": _problem("Too many subscriptions"),
            },
        },
    }


def _subscriptions() -> Json:
    limit = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    return {
        "post": {
            "operationId": "subscribe",
            "summary": "Make a subscription",
            "requestBody": {"required": True, **_content(_ref("NewSubscription"))},
            "responses": {
                "201": {
                    **_answer("The new subscription", _ref("Subscription")),
                    "headers": {"Location": {"description": "The path of the new subscription", "schema": _TEXT}},
                },
                "400": _problem("The subscription is wrong; `detail` says why"),
                "408": _problem("The body did not arrive in time"),
                "409": _problem("The id is in use"),
                "413": _problem("The body is too long"),
                "415": _problem("The body is not application/json"),
                "503": _problem("Too many subscriptions"),
            },
        },
        "get": {
            "operationId": "listSubscriptions",
            "summary": "List the subscriptions made over HTTP at this broker, sorted by id",
            "parameters": [
                _parameter("limit", "query", "How many to return at most", limit),
                _parameter("after", "query", "Return those that follow this id", _TEXT),
            ],
            "responses": {
                "200": {
                    **_answer("The subscriptions", {"type": "array", "items": _ref("Subscription")}),
                    "headers": {"Link": {"description": "The next page, if there is one", "schema": _TEXT}},
                },
                "400": _problem("A parameter is wrong"),
            },
        },
    }


def _about_one(operation: str, summary: str, answer: Json) -> Json:
    """An operation on the subscription in the path."""
    responses = {"200": answer, "404": _problem("No subscription has this id")}
    return {"operationId": operation, "summary": summary, "parameters": [_ID], "responses": responses}


def _looking_in() -> Json:
    def get(operation: str, summary: str, **responses: Json) -> Json:
        # A keyword cannot start with a digit, so the callers below write s200 for 200.
        answers = {name.removeprefix("s"): response for name, response in responses.items()}
        return {"get": {"operationId": operation, "summary": summary, "responses": answers}}

    return {
        "/metrics": get(
            "metrics", "Metrics for Prometheus", s200=_answer("Prometheus' text format", _TEXT, "text/plain")
        ),
        "/healthz": get(
            "health",
            "Whether the broker works",
            s200=_answer("It works", _ref("Health")),
            s503=_answer("It is shutting down", _ref("Health")),
        ),
        "/topology": get(
            "topology", "What the broker knows of the network", s200=_answer("What it knows", _ref("Topology"))
        ),
        "/openapi.json": get("openapi", "This description", s200=_answer("This description", {"type": "object"})),
    }


def _paths() -> Json:
    stream = _about_one("stream", "Read a stream of the deliveries of a subscription", _STREAM)
    stream["parameters"] = [_ID, _AFTER, _LAST]
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
                "showSubscription", "Show a subscription", _answer("The subscription", _ref("Subscription"))
            ),
            "delete": _about_one(
                "deleteSubscription",
                "Delete a subscription",
                _answer("The subscription as it was", _ref("Subscription")),
            ),
        },
        "/subscriptions/{id}/events": {"get": stream},
        "/subscriptions/{id}/ws": {
            "get": {
                "operationId": "websocket",
                "summary": "The same stream over a WebSocket",
                "parameters": [_ID, _AFTER],
                "responses": {**_SOCKET, "404": _problem("No subscription has this id")},
            }
        },
        **_looking_in(),
    }


# --- schemas ------------------------------------------------------------------------------------


def _object(required: list[str], **properties: Json) -> Json:
    return {"type": "object", "required": required, "properties": properties}


def _dialects() -> Json:
    text_tests = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "minLength": 1}}
    expressions = {"type": "array", "minItems": 1, "items": _ref("FilterExpression")}
    dialects: dict[str, Json] = {
        "exact": text_tests,
        "prefix": text_tests,
        "suffix": text_tests,
        "all": expressions,
        "any": expressions,
        "not": _ref("FilterExpression"),
        "sql": {"type": "string", "description": "An expression in CESQL"},
        "catchment": {"type": "string", "description": "A filter in Catchment's language"},
    }
    exactly_one = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
    return {"type": "object", **exactly_one, "properties": dialects}


def _schemas() -> Json:
    links = {"type": "array", "items": _object(["neighbor", "cost"], neighbor=_TEXT, cost={"type": "integer"})}
    text = {"type": "string", "minLength": 1}
    members: dict[str, Json] = {
        "id": {"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,128}$"},
        "source": text,
        "types": {"type": "array", "minItems": 1, "maxItems": 64, "items": text},
        "filters": {"type": "array", "items": _ref("FilterExpression")},
    }
    error = _object(["index", "kind", "reason"], index={"type": "integer"}, kind=_TEXT, reason=_TEXT)
    broker = _object(["name", "is_reached", "links"], name=_TEXT, is_reached={"type": "boolean"}, links=links)
    return {
        "CloudEvent": {
            **_object(["specversion", "id", "source", "type"], specversion={"const": "1.0"}, id=text, source=text),
            "additionalProperties": True,
        },
        "Accepted": _object(["accepted"], accepted={"type": "integer"}),
        "Problem": _object(
            ["type", "title", "status", "detail"],
            type=_TEXT,
            title=_TEXT,
            status={"type": "integer"},
            detail=_TEXT,
            kind=_TEXT,
            accepted={"type": "integer"},
            errors={"type": "array", "items": error},
        ),
        "FilterExpression": _dialects(),
        "NewSubscription": {"type": "object", "additionalProperties": False, "properties": members},
        "Subscription": _object(
            ["id", "delivery", "waiting"],
            **members,
            delivery=_object(["sse", "websocket"], sse=_TEXT, websocket=_TEXT),
            waiting={"type": "integer", "description": "Deliveries that nobody has read yet"},
        ),
        "Health": _object(
            ["status", "name", "up_s"], status={"enum": ["ok", "stopping"]}, name=_TEXT, up_s={"type": "number"}
        ),
        "Topology": _object(
            ["name", "instance", "routing", "address", "links"],
            name=_TEXT,
            instance=_TEXT,
            routing=_TEXT,
            address=_TEXT,
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
