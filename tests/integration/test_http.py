"""The HTTP side of a live broker, used by software that others wrote."""

import json
import re
import shutil
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openapi_spec_validator import OpenAPIV31SpecValidator

from catchment.broker.config import Address
from catchment.broker.http.binding import BATCH_EVENTS_MAX, BODY_BYTES_MAX
from catchment.broker.http.filters import FILTER_NESTING_MAX
from catchment.broker.http.pages import PUBLISHER
from catchment.client import connect_blocking
from catchment.model.notification import Notification
from tests.integration.live import WAIT_S, until, url_of
from tests.integration.over_http import BATCHED, STRUCTURED, an_event, ids_of, metrics, publish, read, subscribe

# --- publishing ---------------------------------------------------------------------------------


def sdk_event():
    attributes = {
        "id": "A-1 é \u20ac%",
        "source": "https://example.com/storage",
        "type": "com.example.object",
        "subject": "a b",
        "time": datetime(2026, 11, 15, 10, 30, tzinfo=UTC),
        "datacontenttype": "application/json",
        "shard": "7",
    }
    return CloudEvent(attributes, {"size": 1.5, "name": "naïve"})


@pytest.mark.parametrize("to_message", [to_structured_event, to_binary_event])
def test_python_sdk(http, to_message):
    """An event that the SDK sends is delivered as the same event."""
    id = subscribe(http, {"exact": {"type": "com.example.object"}})
    message = to_message(sdk_event())
    answer = http.post("/events", content=message.body, headers=message.headers)
    assert answer.status_code == 202, answer.text
    (delivered,) = read(http, f"/subscriptions/{id}/events", 1)
    event = from_http_event(HTTPMessage(STRUCTURED, delivered.data.encode()))
    sent = sdk_event()
    assert event.get_data() == sent.get_data()
    for name, value in sent.get_attributes().items():
        assert event.get_attributes()[name] == value, name
    assert event.get_extension("catchmentids") == id


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        ("text/plain", b"hello"),
        ("text/xml", b"<a/>"),
        ("application/octet-stream", b"\0\xff\n"),
        ("application/json", b'{"a": [1, 2.50]}'),
        ("application/json", b"not json"),
        ("application/json", b'"\xff"'),
        (None, b"12345678901234567890123"),
    ],
)
def test_binary_data(http, content_type, data):
    id = subscribe(http)
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/tests", "ce-type": "t"}
    if content_type:
        headers["Content-Type"] = content_type
    assert http.post("/events", content=data, headers=headers).status_code == 202
    (delivered,) = read(http, f"/subscriptions/{id}/events", 1)
    event = from_http_event(HTTPMessage(STRUCTURED, delivered.data.encode()))
    got = event.get_data()
    assert got == json.loads(data) if not isinstance(got, str | bytes) else got in (data, data.decode("latin-1"))
    assert event.get_datacontenttype() == content_type


def test_a_batch_is_delivered_in_order(http):
    id = subscribe(http)
    publish(http, *(an_event(str(i)) for i in range(100)))
    assert ids_of(read(http, f"/subscriptions/{id}/events", 100)) == [str(i) for i in range(100)]


def test_bad_events_of_a_batch_are_listed_and_nothing_is_published(http):
    id = subscribe(http)
    bad = [an_event("1"), {"specversion": "1.0"}, an_event("3"), 7, an_event("5", level=[1])]
    answer = http.post("/events", content=json.dumps(bad), headers=BATCHED)
    problem = answer.json()
    assert (answer.status_code, problem["accepted"]) == (400, 0)
    assert answer.headers["content-type"] == "application/problem+json"
    assert [error["index"] for error in problem["errors"]] == [1, 3, 4]
    publish(http, an_event("after"))
    assert ids_of(read(http, f"/subscriptions/{id}/events", 1)) == ["after"]


BAD_REQUESTS = [
    (400, STRUCTURED, b"{"),
    (400, STRUCTURED, b"\xff"),
    (400, STRUCTURED, b"[" * 100_000),
    (400, STRUCTURED, b'{"specversion": "0.3", "id": "1", "source": "s", "type": "t"}'),
    (400, BATCHED, b"{}"),
    (413, BATCHED, b"[" + b"1," * BATCH_EVENTS_MAX + b"1]"),
    (413, STRUCTURED, b" " * (BODY_BYTES_MAX + 1)),
    (400, {"ce-specversion": "1.0", "ce-id": "1", "ce-type": "t"}, b""),
    (400, {"ce-specversion": "1.0", "ce-id": "%ff", "ce-type": "t", "ce-source": "s"}, b""),
    (400, {"ce-specversion": "1.0", "ce-id": "1", "ce-type": "t", "ce-source": "s", "ce-data": "x"}, b""),
    (415, {"Content-Type": "application/json"}, b"{}"),
    (415, {"Content-Type": "application/cloudevents+avro"}, b"{}"),
    (415, {"Content-Type": "application/cloudevents+json; charset=utf-16"}, b"{}"),
    (415, {}, b""),
]


@pytest.mark.parametrize(("status", "headers", "body"), BAD_REQUESTS)
def test_bad_requests(http, status, headers, body):
    answer = http.post("/events", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["status"] == status
    assert answer.json()["detail"]


def test_body_without_a_length_is_bounded(http):
    """Sent in chunks, so no header declares its length."""
    answer = http.post("/events", content=(b" " * 65_536 for _ in range(64)), headers=STRUCTURED)
    assert answer.status_code == 413


def test_half_a_request(http, broker, caplog):
    """A client that leaves in the middle of a body leaves nothing behind."""
    address = broker.http.address
    with socket.create_connection((address.host, address.port)) as half:
        half.sendall(
            b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nce-specversion: 1.0\r\n\r\nhalf"
        )
    until(lambda: ("POST", 400) in broker.http.pages.answers.counts, "the answer that nobody reads")
    assert metrics(http)["catchment_notifications_published_total"] == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_congested_broker_refuses_events(http, broker, monkeypatch):
    id = subscribe(http)
    with monkeypatch.context() as patch:
        patch.setattr(type(broker), "is_congested", True)
        answer = http.post("/events", content=json.dumps(an_event("1")), headers=STRUCTURED)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    publish(http, an_event("2"))
    assert ids_of(read(http, f"/subscriptions/{id}/events", 1)) == ["2"]


def test_unadvertised_events_are_refused(live):
    broker = live.broker(routing="siena advertising")
    with (
        httpx.Client(base_url=url_of(broker), timeout=WAIT_S) as http,
        connect_blocking(f"catchment://{broker.address}", identity="/tests") as client,
    ):
        client.advertise("id any, source any, type any, specversion any, level < 3")
        # The name belongs to the client that uses it, until it lets HTTP publishers use it too.
        answer = http.post("/events", content=json.dumps([an_event("0", level=1)]), headers=BATCHED)
        assert (answer.status_code, answer.json()["accepted"]) == (422, 0)
        assert "'/tests' belongs to another client" in answer.json()["errors"][0]["reason"]
        client.map_identity("/tests", "@http")
        id = subscribe(http)
        events = [an_event("1", level=1), an_event("2", level=9), an_event("3", level=2)]
        answer = http.post("/events", content=json.dumps(events), headers=BATCHED)
        assert (answer.status_code, answer.json()["accepted"]) == (422, 2)
        assert [error["index"] for error in answer.json()["errors"]] == [1]
        assert ids_of(read(http, f"/subscriptions/{id}/events", 2)) == ["1", "3"]


def test_with_clients_of_sockets(http, broker):
    """Clients over HTTP and clients over a socket are in one network."""
    with connect_blocking(f"catchment://{broker.address}", identity="alice") as client:
        id = subscribe(http, {"catchment": "price > 100"})
        subscription = client.subscribe("type = 'com.example.test'")
        publish(http, an_event("1", data={"x": 1}))
        delivery = subscription.get(WAIT_S)
        assert delivery is not None
        assert delivery.notification["source"] == "/tests"
        assert delivery.notification.payload == b'{"x":1}'
        assert delivery.notification.time is not None
        client.publish(Notification({"price": 101.5, "Symbol": "DIS"}, payload=b"\0"), ack="accepted")
        (delivered,) = read(http, f"/subscriptions/{id}/events", 1)
        event = from_http_event(HTTPMessage(STRUCTURED, delivered.data.encode()))
        assert (event.get_type(), event.get_source()) == ("catchment.notification", "alice")
        assert Notification.from_json(event.get_data())["Symbol"] == "DIS"


def test_over_a_network(live):
    north = live.broker("north")
    south = live.broker("south", neighbors=(Address.parse(str(north.address)),))
    with (
        httpx.Client(base_url=url_of(north), timeout=WAIT_S) as at_north,
        httpx.Client(base_url=url_of(south), timeout=WAIT_S) as at_south,
    ):
        until(lambda: len(at_north.get("/topology").json()["brokers"]) == 2, "the link")
        id = subscribe(at_south, {"suffix": {"type": ".test"}}, {"not": {"exact": {"level": "2"}}})
        until(lambda: live.do(lambda: north.node.core.inner.wants_of("south")), "the subscription at the other broker")
        publish(at_north, an_event("1"), an_event("2", level=2), an_event("3", type="x"), an_event("4", level="3"))
        assert ids_of(read(at_south, f"/subscriptions/{id}/events", 2)) == ["1", "4"]
        topology = at_south.get("/topology").json()
        assert [link["neighbor"] for link in topology["links"]] == ["north"]
        reached = [(each["name"], each["is_reached"]) for each in topology["brokers"]]
        assert reached == [("north", True), ("south", True)]


# --- subscriptions ------------------------------------------------------------------------------


def test_subscriptions_are_resources(http):
    ids = sorted(subscribe(http, {"exact": {"type": "t"}}, id=f"s{i}") for i in range(5))
    assert http.get("/subscriptions/s3").json()["filters"] == [{"exact": {"type": "t"}}]
    first = http.get("/subscriptions", params={"limit": 3})
    assert [subscription["id"] for subscription in first.json()] == ids[:3]
    second = http.get(first.links["next"]["url"])
    assert [subscription["id"] for subscription in second.json()] == ids[3:]
    assert "next" not in second.links
    assert http.delete("/subscriptions/s3").json()["id"] == "s3"
    assert [http.request(method, "/subscriptions/s3").status_code for method in ("GET", "DELETE")] == [404, 404]
    assert http.post("/subscriptions", json={"id": "s1"}).status_code == 409
    assert http.get("/subscriptions", params={"limit": 0}).status_code == 400


def test_a_deleted_subscription_leaves_the_broker(http, broker, live):
    id = subscribe(http)
    http.delete(f"/subscriptions/{id}")
    assert live.do(lambda: broker.node.core.clients.subscriptions_count) == 0


def nested(depth):
    expression: dict[str, Any] = {"exact": {"type": "t"}}
    for _ in range(depth):
        expression = {"not": expression}
    return expression


BAD_SUBSCRIPTIONS = [
    [],
    {"filters": {}},
    {"filters": [{}]},
    {"filters": [{"exact": {"type": "t"}, "prefix": {"type": "t"}}]},
    {"filters": [{"exact": {"type": ""}}]},
    {"filters": [{"exact": {"type": 1}}]},
    {"filters": [{"all": []}]},
    {"filters": [{"any": {}}]},
    {"filters": [{"glob": {"type": "*"}}]},
    {"filters": [{"sql": "type ="}]},
    {"filters": [{"catchment": "price >"}]},
    {"filters": [{"any": [{"exact": {"type": "t"}}] * 300}]},
    {"filters": [nested(FILTER_NESTING_MAX)]},
    {"types": []},
    {"source": ""},
    {"id": "a/b"},
    {"protocol": "HTTP"},
    {"durable": "yes"},
    {"sink": "https://example.com", "protocol": "HTTP", "durable": False},
    {"colour": "red"},
]


@pytest.mark.parametrize("subscription", BAD_SUBSCRIPTIONS)
def test_bad_subscriptions(http, broker, subscription):
    answer = http.post("/subscriptions", json=subscription)
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"]
    assert http.get("/subscriptions").json() == []
    assert broker.node.clients.keys() == {PUBLISHER}


@pytest.mark.parametrize("more", [{"durable": True}, {"sink": "https://example.com", "protocol": "HTTP"}])
def test_a_broker_without_a_store_has_nothing_durable(http, more):
    answer = http.post("/subscriptions", json=more)
    assert (answer.status_code, "--store" in answer.json()["detail"]) == (501, True)
    assert http.get("/subscriptions").json() == []


def test_a_transient_subscription_does_not_change(http):
    id = subscribe(http)
    assert http.put(f"/subscriptions/{id}", json={"types": ["t"]}).status_code == 409
    assert http.put("/subscriptions/none", json={}).status_code == 404


def test_subscriptions_are_bounded(http, broker, live):
    live.do(lambda: setattr(broker.http.subscriptions, "subscriptions_max", 2))
    subscribe(http)
    subscribe(http)
    answer = http.post("/subscriptions", json={})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert http.get("/events").status_code == 503


def test_a_subscription_that_nobody_reads_is_deleted(http, broker, live):
    id = subscribe(http)
    live.do(broker.http.subscriptions.expire)
    assert http.get(f"/subscriptions/{id}").status_code == 200
    live.do(lambda: setattr(broker.http.subscriptions, "idle_s_max", -1.0))
    live.do(broker.http.subscriptions.expire)
    assert http.get(f"/subscriptions/{id}").status_code == 404


# --- looking in ---------------------------------------------------------------------------------


def test_head_and_wrong_methods(http):
    assert http.head("/events").headers["content-type"].startswith("text/event-stream")
    assert http.head("/healthz").status_code == 200
    assert (http.put("/events").status_code, http.delete("/metrics").status_code) == (405, 405)
    assert set(http.put("/subscriptions").headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_metrics_are_of_one_broker(live):
    north, south = live.broker("north"), live.broker("south")
    with (
        httpx.Client(base_url=url_of(north), timeout=WAIT_S) as at_north,
        httpx.Client(base_url=url_of(south), timeout=WAIT_S) as at_south,
    ):
        publish(at_north, an_event("1"), an_event("2"))
        subscribe(at_south)
        by_broker = [metrics(at_north), metrics(at_south)]
    assert [each["catchment_notifications_published_total"] for each in by_broker] == [2, 0]
    assert [each["catchment_http_subscriptions"] for each in by_broker] == [0, 1]


def test_openapi_describes_every_route(http, broker):
    document = http.get("/openapi.json").json()
    OpenAPIV31SpecValidator(document).validate()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    routes = broker.http.pages.routes()
    served = {(route.path, method) for route in routes for method in getattr(route, "methods", {"GET"}) - {"HEAD"}}
    assert described == served


def test_answers_fit_openapi(http):
    document = http.get("/openapi.json").json()
    id = subscribe(http, {"not": {"any": [{"exact": {"type": "t"}}, {"sql": "TRUE"}]}}, types=["t"], source="/s")
    for path, method, status in [
        ("/healthz", "get", 200),
        ("/topology", "get", 200),
        ("/subscriptions", "get", 200),
        ("/subscriptions/{id}", "get", 200),
        ("/subscriptions", "post", 415),
        ("/events", "post", 415),
        ("/subscriptions/{id}", "delete", 200),
        ("/subscriptions/{id}", "get", 404),
    ]:
        answer = http.request(method, path.replace("{id}", id))
        assert answer.status_code == status
        (content,) = document["paths"][path][method]["responses"][str(status)]["content"].items()
        assert answer.headers["content-type"] == content[0]
        schema = {**content[1]["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(answer.json())


# --- software of others ---------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(http, broker):
    def curl(*arguments):
        command = ["curl", "--silent", "--show-error", "--max-time", "20", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S + 10).stdout

    url = url_of(broker)
    wanted = ["-H", "Content-Type: application/json", "-d", '{"filters": [{"prefix": {"type": "com."}}]}']
    made = json.loads(curl(*wanted, f"{url}/subscriptions"))
    attributes = ("id: 1", "source: /curl", "type: com.x", "specversion: 1.0")
    headers = [argument for attribute in attributes for argument in ("-H", f"ce-{attribute}")]
    answer = curl(*headers, "-H", "Content-Type: text/plain", "-d", "hello", f"{url}/events")
    assert json.loads(answer) == {"accepted": 1}
    streaming = ["curl", "--silent", "--no-buffer", "--max-time", "20", url + made["delivery"]["sse"]]
    with subprocess.Popen(streaming, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        data = next(line for line in stream.stdout if line.startswith("data: "))
        stream.terminate()
    assert json.loads(data.removeprefix("data: "))["data"] == "hello"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_examples_of_the_page(http, broker):
    """Every `sh` example of the page works as it is written, with the port of this broker."""
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    examples = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        script = "set -e\n" + example.replace("http://127.0.0.1:7480", url_of(broker)).replace("curl ", "curl --fail ")
        run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
        assert run.returncode == 0, run.stdout + run.stderr
    assert metrics(http)["catchment_notifications_published_total"] == 4


def test_javascript_sdk(http, broker, javascript):
    """Events that the JavaScript SDK sends in three modes reach an EventSource and a WebSocket unchanged."""
    id = subscribe(http, {"prefix": {"type": "com.example.js"}})
    run = subprocess.run(
        ["node", "roundtrip.cjs", url_of(broker), id],
        cwd=javascript, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    expected = ["structured", "binary", "batch-1", "batch-2"]
    assert json.loads(run.stdout) == {"sse": expected, "websocket": expected}
