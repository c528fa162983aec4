"""The routes and schemas of webhooks, for the description that `GET /openapi.json` returns."""

from __future__ import annotations

from typing import Final

from catchment.broker.http.openapi_parts import (
    ID,
    LIMIT,
    TEXT,
    TEXTS,
    WHOLE,
    Json,
    answered,
    object_of,
    parameter,
    ref,
    refused,
)

_NUMBER: Final = parameter("number", "path", "The number of a dead letter", WHOLE)
_UNKNOWN: Final = {"404": refused("There is no such webhook, or no such dead letter"), "501": refused("No store")}


def _operation(name: str, summary: str, responses: Json, *parameters: Json) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [ID, *parameters],
        "responses": {**responses, **_UNKNOWN},
    }


def webhook_paths() -> Json:
    one = "/subscriptions/{id}"
    key = parameter("key", "query", "The secret of the callback", TEXT)
    rate = parameter("WebHook-Allowed-Rate", "header", "Requests a minute that the sink allows, or *", TEXT)
    agreed = {"200": answered("The sink has agreed", TEXT, "text/plain")}
    return {
        f"{one}/confirm": {
            method: _operation(f"confirm{method.title()}", "The callback: the sink agrees", agreed, key, rate)
            for method in ("get", "post")
        },
        f"{one}/validate": {
            "post": _operation("validate", "Ask the sink again", {"202": answered("It is asked", ref("Subscription"))})
        },
        **_dead_paths(f"{one}/dead"),
    }


def _dead_paths(dead: str) -> Json:
    count = {"type": "object", "additionalProperties": WHOLE}
    after = parameter("after", "query", "Return those that follow this number", WHOLE)
    return {
        dead: {
            "get": _operation(
                "listDead",
                "List dead letters, the oldest first",
                {
                    "200": {
                        **answered("Dead letters", {"type": "array", "items": ref("DeadLetter")}),
                        "headers": {"Link": {"description": "The next page, if there is one", "schema": TEXT}},
                    },
                    "400": refused("A parameter is wrong"),
                },
                LIMIT,
                after,
            ),
            "delete": _operation("dropAllDead", "Drop all dead letters", {"200": answered("How many", count)}),
        },
        f"{dead}/resend": {
            "post": _operation(
                "resendAllDead",
                "Send all dead letters again, in order, until the sink does not accept one",
                {"202": answered("How many there are", count)},
            )
        },
        f"{dead}/{{number}}": {
            "get": _operation(
                "showDead",
                "Show a dead letter with its event",
                {"200": answered("The dead letter", ref("DeadLetter")), "400": refused("No number")},
                _NUMBER,
            ),
            "delete": _operation(
                "dropDead",
                "Drop a dead letter",
                {"200": answered("How many", count), "400": refused("No number")},
                _NUMBER,
            ),
        },
        f"{dead}/{{number}}/resend": {
            "post": _operation(
                "resendDead",
                "Send a dead letter again",
                {
                    "200": answered("The sink has accepted it", count),
                    "400": refused("No number"),
                    "502": refused("The sink has not accepted it; it stays a dead letter"),
                },
                _NUMBER,
            )
        },
    }


def push_members() -> Json:
    """The members of a subscription that make it a webhook."""
    texts = {"type": "object", "additionalProperties": TEXT}
    return {
        "sink": {"type": "string", "format": "uri", "maxLength": 2048},
        "protocol": {"const": "HTTP"},
        "protocolsettings": object_of([], method={"enum": ["POST", "PUT"]}, headers=texts),
        "sinkCredential": {
            "type": "object",
            "required": ["credentialType"],
            "properties": {"credentialType": {"enum": ["PLAIN", "ACCESSTOKEN"]}},
            "additionalProperties": TEXT,
        },
        "config": object_of(
            [],
            mode={"enum": ["binary", "structured"]},
            rate={"type": ["integer", "null"], "minimum": 1, "maximum": 60_000},
            attempts={"type": "integer", "minimum": 1, "maximum": 100},
            giveup_s={"type": "integer", "minimum": 1, "maximum": 31 * 86_400},
            timeout_s={"type": "integer", "minimum": 1, "maximum": 120},
        ),
    }


def webhook_schemas() -> Json:
    return {
        "DeadLetter": object_of(
            ["number", "at", "attempts", "reason", "event_id", "event_source", "event_type", "bytes"],
            number=WHOLE,
            at={"type": "string", "format": "date-time"},
            attempts=WHOLE,
            reason=TEXT,
            event_id=TEXT,
            event_source=TEXT,
            event_type=TEXT,
            bytes=WHOLE,
            event=ref("CloudEvent"),
        ),
        "DeliveryStatus": object_of(
            ["state", "missing"],
            state={"enum": ["asking", "active", "retrying", "gone", "read", "away"]},
            problem=TEXT,
            allowed_by={"enum": ["handshake", "callback", "trusted", None]},
            allowed_rate={"type": ["integer", "string", "null"]},
            waiting=WHOLE,
            delivered=WHOLE,
            failed=WHOLE,
            lost=WHOLE,
            dead=WHOLE,
            missing={**TEXTS, "description": "Storages that do not know of the subscription yet"},
        ),
    }
