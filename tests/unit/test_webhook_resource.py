"""The JSON of a webhook, and notifications as requests."""

import json

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from catchment.broker.http.webhooks.message import (
    BINARY_HEADERS_BYTES_MAX,
    message_of,
    message_of_json,
    structured_json,
)
from catchment.broker.http.webhooks.resource import HIDDEN, push_of
from catchment.errors import InputError
from catchment.model.notification import Notification

SINK = {"sink": "https://sink.example/", "protocol": "HTTP"}
TOKEN = {
    "credentialType": "ACCESSTOKEN",
    "accessToken": "secret-token",
    "accessTokenType": "bearer",
    "accessTokenExpiresUtc": "2030-01-01T00:00:00Z",
}
PLAIN = {"credentialType": "PLAIN", "identifier": "me", "secret": "pass:word"}


@pytest.mark.parametrize(
    "more",
    [
        {"protocol": "MQTT5"},
        {"protocol": None},
        {"protocolsettings": []},
        {"protocolsettings": {"method": "GET"}},
        {"protocolsettings": {"topic": "x"}},
        {"protocolsettings": {"headers": {"Host": "x"}}},
        {"protocolsettings": {"headers": {"ce-id": "x"}}},
        {"protocolsettings": {"headers": {"Content-Length": "1"}}},
        {"protocolsettings": {"headers": {"WebHook-Request-Origin": "x"}}},
        {"protocolsettings": {"headers": {"X-A": "a\r\nX-B: b"}}},
        {"protocolsettings": {"headers": {"X A": "a"}}},
        {"protocolsettings": {"headers": {"X-A": "a", "x-a": "b"}}},
        {"protocolsettings": {"headers": {"X-A": 1}}},
        {"protocolsettings": {"headers": {f"X-{i}": "a" for i in range(33)}}},
        {"protocolsettings": {"headers": {"X-A": "a" * 5_000}}},
        {"config": {"mode": "batched"}},
        {"config": {"rate": 0}},
        {"config": {"rate": True}},
        {"config": {"attempts": 101}},
        {"config": {"giveup_s": "1"}},
        {"config": {"timeout_s": 0.5}},
        {"config": {"speed": 1}},
        {"sinkCredential": {"credentialType": "REFRESHTOKEN"}},
        {"sinkCredential": {**TOKEN, "accessToken": "a b"}},
        {"sinkCredential": {**TOKEN, "accessToken": "a\n"}},
        {"sinkCredential": {**TOKEN, "accessTokenType": "mac"}},
        {"sinkCredential": {**TOKEN, "accessTokenExpiresUtc": "soon"}},
        {"sinkCredential": {**TOKEN, "colour": "red"}},
        {"sinkCredential": {**PLAIN, "identifier": "a:b"}},
        {"sinkCredential": {"credentialType": "PLAIN", "identifier": "me"}},
    ],
)
def test_what_is_wrong_is_refused(more):
    with pytest.raises(InputError):
        push_of({**SINK, **more})


def test_secrets_go_in_and_never_come_out():
    given = {**SINK, "sinkCredential": TOKEN, "protocolsettings": {"headers": {"X-Api-Key": "secret-key"}}}
    push = push_of(given)
    text = json.dumps(push.resource)
    assert "secret" not in text
    assert push.resource["sinkCredential"]["accessToken"] == HIDDEN
    assert push.request_headers == {"authorization": "Bearer secret-token", "x-api-key": "secret-key"}
    # What is shown can be sent back: it keeps the secrets.
    assert push_of(push.resource, push) == push
    assert push_of({**SINK, "sinkCredential": PLAIN}).request_headers == {"authorization": "Basic bWU6cGFzczp3b3Jk"}


EVENT = {"specversion": "1.0", "id": '1 é%"', "source": "/s", "type": "t", "subject": "a b", "shard": "7"}


def sdk_event(message):
    return from_http_event(HTTPMessage(dict(message.headers), message.body))


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize("through_json", [False, True])
def test_the_sdk_of_others_reads_our_requests(mode, through_json):
    context = {**EVENT, "datacontenttype": "application/json"}
    notification = Notification(context, id=EVENT["id"], source="/s", payload=b'{"size": 1.5}')
    if through_json:
        message = message_of_json(structured_json(notification, "/b"), mode)
    else:
        message = message_of(notification, mode, "/b")
    event = sdk_event(message)
    assert event.get_data() == {"size": 1.5}
    for name, value in context.items():
        assert event.get_attributes()[name] == value
    assert message.headers["content-type"] == (
        "application/json" if mode == "binary" else "application/cloudevents+json; charset=utf-8"
    )


@pytest.mark.parametrize(
    ("context", "payload"),
    [
        ({}, b""),
        ({}, b"data without a type"),
        ({"datacontenttype": "text/plain\r\nX: y"}, b"x"),
        ({"datacontenttype": "text/plain", "Not-A-Name": 1}, b"x"),
        ({"datacontenttype": "text/plain", "subject": "x" * BINARY_HEADERS_BYTES_MAX}, b"x"),
    ],
)
def test_what_cannot_be_binary_is_structured(context, payload):
    message = message_of(Notification({**EVENT, **context}, id="1", source="/s", payload=payload), "binary", "/b")
    assert message.headers == {"content-type": "application/cloudevents+json; charset=utf-8"}
    assert json.loads(message.body)["subject"]


def test_a_notification_that_was_no_cloudevent_becomes_one():
    notification = Notification({"price": 8.5, "is_new": True}, id="7", source="shop")
    for mode in ("binary", "structured"):
        event = sdk_event(message_of(notification, mode, "/b"))
        assert (event.get_id(), event.get_source(), event.get_type()) == ("7", "shop", "catchment.notification")
        assert event.get_data()["price"] == 8.5
