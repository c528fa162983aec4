"""Delivery over HTTP, by Server-Sent Events and WebSocket, to software that others wrote."""

import json
import socket

import httpx
import pytest
from httpx_sse import connect_sse
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as connect_websocket
from websockets.typing import Subprotocol

from catchment.broker.config import read_config
from catchment.broker.http.delivery_log import LOG_ENTRIES_MAX
from catchment.errors import UnavailableError
from catchment.routing.messages import Gap
from tests.integration.live import WAIT_S, until, url_of
from tests.integration.over_http import an_event, ids_of, metrics, publish, read, subscribe


def test_last_event_id(http):
    id = subscribe(http)
    path = f"/subscriptions/{id}/events"
    publish(http, *(an_event(str(i)) for i in range(6)))
    first = read(http, path, 3)
    assert ids_of(first) == ["0", "1", "2"]
    second = read(http, path, 3, {"Last-Event-ID": first[-1].id})
    assert ids_of(second) == ["3", "4", "5"]
    publish(http, an_event("6"))
    assert ids_of(read(http, path, 1, {"Last-Event-ID": second[-1].id})) == ["6"]
    # A reader may go back as far as the log does.
    assert ids_of(read(http, path, 4, {"Last-Event-ID": first[-1].id})) == ["3", "4", "5", "6"]


def test_a_place_of_another_stream_is_a_gap(http):
    id = subscribe(http)
    publish(http, an_event("1"))
    gap, event = read(http, f"/subscriptions/{id}/events", 2, {"Last-Event-ID": "elsewhere.77"})
    assert (gap.event, gap.json()["type"]) == ("gap", "catchment.gap")
    assert event.json()["id"] == "1"


def test_what_brokers_have_lost_is_a_gap_in_its_place(http, broker, live):
    id = subscribe(http)
    publish(http, an_event("1"))
    live.do(lambda: broker.node._tell_gap(Gap("x", 1, ("a", "b"), 1_000_000, 0), None))
    live.do(lambda: broker.node._tell_gap(Gap("x", 2, ("a", "b"), 1_000_000, 2_000_000, 3), None))
    publish(http, an_event("2"))
    first, opened, closed, second = read(http, f"/subscriptions/{id}/events", 4)
    assert (first.json()["id"], second.json()["id"]) == ("1", "2")
    assert (opened.event, closed.event, closed.json()["type"]) == ("gap", "gap", "catchment.gap")
    assert opened.json()["data"] == {
        "since": "1970-01-01T00:00:01Z",
        "until": None,
        "missed": None,
        "link": ["a", "b"],
    }
    assert (closed.json()["data"]["until"], closed.json()["data"]["missed"]) == ("1970-01-01T00:00:02Z", 3)
    # A reader that comes back does not hear of it again; one over a WebSocket hears it too.
    assert ids_of(read(http, f"/subscriptions/{id}/events", 1, {"Last-Event-ID": closed.id})) == ["2"]
    with connect_websocket(f"ws://{broker.http.address}/subscriptions/{id}/ws?after={first.id}") as websocket:
        assert [json.loads(websocket.recv(WAIT_S))["type"] for _ in range(2)] == ["catchment.gap"] * 2


def test_what_nobody_reads_is_bounded_and_counted(http, broker):
    id = subscribe(http)
    extra, count = 10, 0
    while count < LOG_ENTRIES_MAX + extra:
        publish(http, *(an_event(str(count + i)) for i in range(LOG_ENTRIES_MAX // 2 + extra // 2)))
        count += LOG_ENTRIES_MAX // 2 + extra // 2
    lost, *events = read(http, f"/subscriptions/{id}/events", LOG_ENTRIES_MAX + 1)
    assert (lost.event, lost.json()["data"]) == ("lost", {"count": extra})
    assert ids_of(events) == [str(i) for i in range(extra, count)]
    # A reader that comes back after the message `lost` does not get it again.
    assert ids_of(read(http, f"/subscriptions/{id}/events", 1, {"Last-Event-ID": lost.id})) == [str(extra)]
    assert metrics(http)["catchment_notifications_lost_total"] == extra


def test_slow_reader_loses_and_does_not_stall_others(http, broker, live):
    """A client that never reads: its socket fills up, then its log drops deliveries. Other clients do not notice."""
    slow_id, quick_id = subscribe(http), subscribe(http)
    address = broker.http.address
    with socket.create_connection((address.host, address.port)) as slow:
        slow.sendall(f"GET /subscriptions/{slow_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: live.do(lambda: broker.http.subscriptions[slow_id].log.readers), "the slow reader")
        data = "x" * 20_000
        with connect_sse(http, "GET", f"/subscriptions/{quick_id}/events") as source:
            events = source.iter_sse()
            sent = 0
            while not live.do(lambda: broker.http.subscriptions[slow_id].log.lost):
                with httpx.Client(base_url=url_of(broker), timeout=WAIT_S) as other:
                    publish(other, *(an_event(str(sent + i), data=data) for i in range(20)))
                assert [next(events).json()["id"] for _ in range(20)] == [str(sent + i) for i in range(20)]
                sent += 20
                assert sent < 10_000, "the slow reader loses nothing"
        received = b""
        slow.settimeout(WAIT_S)
        while b"event: lost" not in received:
            received = received[-20:] + slow.recv(1_048_576)


def test_slow_websocket_loses_and_learns_how_many(http, broker, live):
    id = subscribe(http)
    url = url_of(broker).replace("http:", "ws:")
    with connect_websocket(f"{url}/subscriptions/{id}/ws", max_queue=1) as websocket:
        until(lambda: live.do(lambda: broker.http.subscriptions[id].log.readers), "the reader")
        sent = 0
        while not live.do(lambda: broker.http.subscriptions[id].log.lost):
            publish(http, *(an_event(str(sent + i), data="x" * 20_000) for i in range(50)))
            sent += 50
            assert sent < 10_000, "the slow reader loses nothing"
        publish(http, an_event("last"))
        got, lost = [], 0
        while "last" not in got:
            message = json.loads(websocket.recv(WAIT_S))
            lost += message["data"]["count"] if message["type"] == "catchment.lost" else 0
            got += [message["id"]] if message["type"] == "com.example.test" else []
    assert lost > 0
    assert len(got) + lost == sent + 1
    assert got[:-1] == sorted(got[:-1], key=int)


def test_ad_hoc_streams(http, broker, live):
    filters = {"filter": ["level > 3", "level < 9"], "sql": "type = 'com.example.test'"}
    with connect_sse(http, "GET", "/events", params=filters) as source:
        with httpx.Client(base_url=url_of(broker), timeout=WAIT_S) as other:
            publish(
                other, an_event("1", level=5), an_event("2", level=1, type="t"), an_event("3", type="t"), an_event("4")
            )
            assert other.get("/subscriptions").json() == []
        events = source.iter_sse()
        delivered = [next(events).json() for _ in range(3)]
    assert [(event["id"], event["catchmentids"]) for event in delivered] == [("1", "1,2,3"), ("2", "2"), ("4", "3")]
    until(lambda: live.do(lambda: len(broker.http.subscriptions)) == 0, "the end of the subscription")
    assert http.get("/events", params={"filter": "level >"}).status_code == 400
    assert http.get("/events", params={"fitler": "level > 3"}).status_code == 400


def test_websocket(http, broker):
    id = subscribe(http, {"sql": "INT(level) > 3"})
    url = url_of(broker).replace("http:", "ws:")
    publish(http, an_event("1", level=5), an_event("2", level="1"), an_event("3", level="7"))
    with connect_websocket(f"{url}/subscriptions/{id}/ws", subprotocols=[Subprotocol("cloudevents.json")]) as websocket:
        assert websocket.subprotocol == "cloudevents.json"
        first, second = (json.loads(websocket.recv(WAIT_S)) for _ in range(2))
        assert (first["id"], second["id"]) == ("1", "3")
    with connect_websocket(f"{url}/subscriptions/{id}/ws?after={first['catchmentplace']}") as websocket:
        assert json.loads(websocket.recv(WAIT_S))["id"] == "3"
        websocket.send("hello")
        with pytest.raises(ConnectionClosed) as ended:
            websocket.recv(WAIT_S)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1003
    with connect_websocket(f"{url}/events/ws?filter=level%20%3E%203") as websocket:
        publish(http, an_event("4", level=4))
        assert json.loads(websocket.recv(WAIT_S))["id"] == "4"


def test_websockets_refused(http, broker):
    url = url_of(broker).replace("http:", "ws:")
    id = subscribe(http)
    for path, headers, status in [
        ("/subscriptions/nope/ws", {}, 404),
        ("/events/ws?filter=level%20%3E", {}, 400),
        (f"/subscriptions/{id}/ws", {"Origin": "https://elsewhere.example"}, 403),
    ]:
        with pytest.raises(InvalidStatus) as refused:
            connect_websocket(url + path, additional_headers=headers)
        assert refused.value.response.status_code == status


def test_streams_end_with_their_subscription(http, broker):
    id = subscribe(http)
    url = url_of(broker).replace("http:", "ws:")
    with (
        connect_websocket(f"{url}/subscriptions/{id}/ws") as websocket,
        connect_sse(http, "GET", f"/subscriptions/{id}/events") as source,
    ):
        with httpx.Client(base_url=url_of(broker), timeout=WAIT_S) as other:
            other.delete(f"/subscriptions/{id}")
        (end,) = source.iter_sse()
        assert (end.event, end.json()["data"]) == ("end", {"reason": "the subscription is deleted"})
        assert json.loads(websocket.recv(WAIT_S))["type"] == "catchment.end"


def test_stopping_ends_streams(live):
    broker = live.broker()
    with (
        httpx.Client(base_url=url_of(broker), timeout=WAIT_S) as http,
        connect_sse(http, "GET", "/events") as source,
        connect_websocket(url_of(broker).replace("http:", "ws:") + "/events/ws") as websocket,
    ):
        live.call(broker.stop())
        (end,) = source.iter_sse()
        assert end.json()["data"] == {"reason": "north is shutting down"}
        assert json.loads(websocket.recv(WAIT_S))["data"] == {"reason": "north is shutting down"}
        with pytest.raises(ConnectionClosed):
            websocket.recv(WAIT_S)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url_of(broker) + "/healthz")


def test_a_port_in_use_is_an_error(live, broker):
    with pytest.raises(UnavailableError):
        live.broker("south", http=broker.http.address)


def test_the_configuration_names_the_address(tmp_path):
    file = tmp_path / "north.toml"
    for text, address in [('"127.0.0.1:7481"', "127.0.0.1:7481"), ('"localhost"', "localhost:7480")]:
        file.write_text(f"http = {text}")
        assert str(read_config(file).http) == address
    file.write_text("")
    assert read_config(file).http is None


def test_without_http(live):
    assert live.broker(http=None).http is None
