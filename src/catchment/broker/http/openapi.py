"""The OpenAPI 3.1 description of the HTTP side, which `GET /openapi.json` gives."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

_STREAM_NOTE: Final = (
    "Each message is a CloudEvent in JSON, with `catchmentids`, the ids of the subscriptions that match, and "
    "`catchmentplace`, its place. Those of types catchment.lost, catchment.gap and catchment.end are the broker's."
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
_ID: Final = _parameter("id", "path", "Of a subscription", _TEXT)
_AFTER: Final = _parameter("after", "query", "The place to go on after; as the header Last-Event-ID", _TEXT)
_LAST: Final = _parameter("Last-Event-ID", "header", "The place to go on after: nothing comes twice", _TEXT)
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT}
_FILTER: Final = _parameter("filter", "query", "In Catchment's language; several are subscriptions 1, 2, …", _TEXTS)
_SQL: Final = _parameter("sql", "query", "The same in CESQL", _TEXTS)
_STREAM: Final = _answer("Server-Sent Events. " + _STREAM_NOTE, _TEXT, "text/event-stream")
_SOCKET: Final[Json] = {
    "101": {"description": "A WebSocket, of subprotocol cloudevents.json if that is offered. " + _STREAM_NOTE},
    "400": _problem("A bad parameter"),
    "403": _problem("A page of another site"),
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
                "202": _answer("All are on their way", _ref("Accepted")),
                "400": _problem("Something is no CloudEvent: nothing is published, each bad one is told by its place"),
                "408": _problem("The body did not come in time"),
                "413": _problem("Too long, or too many at once: nothing is published"),
                "415": _problem("Neither mode: nothing is published"),
                "422": _problem("Some are refused by the network, told by their places; the others are published"),
                "503": _problem("The network is congested: nothing is published"),
            },
        },
        "get": {
            "operationId": "streamAdHoc",
            "summary": "A stream of what matches, for as long as it is read",
            "parameters": [_FILTER, _SQL, _AFTER, _LAST],
            "responses": {
                "200": _STREAM,
                "400": _problem("A bad filter"),
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
                    **_answer("Made", _ref("Subscription")),
                    "headers": {"Location": {"description": "Where it is", "schema": _TEXT}},
                },
                "400": _problem("What is wrong with it"),
                "408": _problem("The body did not come in time"),
                "409": _problem("There is one of this id"),
                "413": _problem("Too long"),
                "415": _problem("Not application/json"),
                "503": _problem("Too many subscriptions"),
            },
        },
        "get": {
            "operationId": "listSubscriptions",
            "summary": "Subscriptions made over HTTP at this broker, by id",
            "parameters": [
                _parameter("limit", "query", "At most so many", limit),
                _parameter("after", "query", "Those that follow this id", _TEXT),
            ],
            "responses": {
                "200": {
                    **_answer("They", {"type": "array", "items": _ref("Subscription")}),
                    "headers": {"Link": {"description": "Of the next page, if there is one", "schema": _TEXT}},
                },
                "400": _problem("A bad parameter"),
            },
        },
    }


def _one(operation: str, summary: str, found: Json) -> Json:
    responses = {"200": found, "404": _problem("There is none of this id")}
    return {"operationId": operation, "summary": summary, "parameters": [_ID], "responses": responses}


def _looking_in() -> Json:
    def get(operation: str, summary: str, **responses: Json) -> Json:
        answers = {name.removeprefix("s"): one for name, one in responses.items()}
        return {"get": {"operationId": operation, "summary": summary, "responses": answers}}

    return {
        "/metrics": get("metrics", "For Prometheus", s200=_answer("In its text format", _TEXT, "text/plain")),
        "/healthz": get(
            "health",
            "Whether it works",
            s200=_answer("It does", _ref("Health")),
            s503=_answer("It is shutting down", _ref("Health")),
        ),
        "/topology": get("topology", "What it knows of the network", s200=_answer("That", _ref("Topology"))),
        "/openapi.json": get("openapi", "This", s200=_answer("This", {"type": "object"})),
    }


def _paths() -> Json:
    stream = _one("stream", "A stream of a subscription's deliveries", _STREAM)
    stream["parameters"] = [_ID, _AFTER, _LAST]
    return {
        "/events": _events(),
        "/events/ws": {
            "get": {
                "operationId": "websocketAdHoc",
                "summary": "The same over a WebSocket",
                "parameters": [_FILTER, _SQL, _AFTER],
                "responses": _SOCKET,
            }
        },
        "/subscriptions": _subscriptions(),
        "/subscriptions/{id}": {
            "get": _one("showSubscription", "One subscription", _answer("It", _ref("Subscription"))),
            "delete": _one("deleteSubscription", "Delete it", _answer("As it was", _ref("Subscription"))),
        },
        "/subscriptions/{id}/events": {"get": stream},
        "/subscriptions/{id}/ws": {
            "get": {
                "operationId": "websocket",
                "summary": "The same over a WebSocket",
                "parameters": [_ID, _AFTER],
                "responses": {**_SOCKET, "404": _problem("There is none of this id")},
            }
        },
        **_looking_in(),
    }


# --- schemas ------------------------------------------------------------------------------------


def _object(required: list[str], **properties: Json) -> Json:
    return {"type": "object", "required": required, "properties": properties}


def _dialects() -> Json:
    texts = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "minLength": 1}}
    several = {"type": "array", "minItems": 1, "items": _ref("FilterExpression")}
    dialects: dict[str, Json] = {
        "exact": texts,
        "prefix": texts,
        "suffix": texts,
        "all": several,
        "any": several,
        "not": _ref("FilterExpression"),
        "sql": {"type": "string", "description": "CESQL"},
        "catchment": {"type": "string", "description": "Catchment's language"},
    }
    one = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
    return {"type": "object", **one, "properties": dialects}


def _schemas() -> Json:
    links = {"type": "array", "items": _object(["neighbor", "cost"], neighbor=_TEXT, cost={"type": "integer"})}
    named = {"type": "string", "minLength": 1}
    asked: dict[str, Json] = {
        "id": {"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,128}$"},
        "source": named,
        "types": {"type": "array", "minItems": 1, "maxItems": 64, "items": named},
        "filters": {"type": "array", "items": _ref("FilterExpression")},
    }
    error = _object(["index", "kind", "reason"], index={"type": "integer"}, kind=_TEXT, reason=_TEXT)
    broker = _object(["name", "is_reached", "links"], name=_TEXT, is_reached={"type": "boolean"}, links=links)
    return {
        "CloudEvent": {
            **_object(["specversion", "id", "source", "type"], specversion={"const": "1.0"}, id=named, source=named),
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
        "NewSubscription": {"type": "object", "additionalProperties": False, "properties": asked},
        "Subscription": _object(
            ["id", "delivery", "waiting"],
            **asked,
            delivery=_object(["sse", "websocket"], sse=_TEXT, websocket=_TEXT),
            waiting={"type": "integer", "description": "Deliveries that nobody has read"},
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
