"""Durable subscriptions over HTTP, and publishing with ack=stored."""

import json
import subprocess
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from catchment.broker.config import StoreConfig
from catchment.broker.http.durable_streams import PASS_ENTRIES_MAX
from catchment.store.interface import StoreFullError
from catchment.store.sql.store import SqlStore
from tests.integration.live import WAIT_S, Live, until, url_of
from tests.integration.over_http import BATCHED, an_event, ids_of, publish, read

EVENTS = "/subscriptions/orders/events"


@pytest.fixture
def store(tmp_path):
    return StoreConfig(url=str(tmp_path / "store.db"))


@pytest.fixture
def broker(live, store):
    return live.broker(store=store)


def client_of(broker):
    return httpx.Client(base_url=url_of(broker), timeout=WAIT_S)


def create(http, id="orders", **more):
    answer = http.post("/subscriptions", json={"id": id, "durable": True, **more})
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == {"state": "away", "missing": []}
    return answer.json()


def numbered(count, start=0):
    return [an_event(str(n)) for n in range(start, start + count)]


def after(event):
    return {"Last-Event-ID": event.id}


def all_events(http, count, path=EVENTS):
    """What a browser's EventSource gets: it reads until the stream ends, and comes back with the last id."""
    events: list[Any] = []
    headers: dict[str, str] = {}
    while len(events) < count:
        for event in read(http, path, count - len(events), headers):
            if event.event == "end":
                break
            events.append(event)
            headers = after(event)
    return events


# --- reading ------------------------------------------------------------------------------------


def test_a_reader_goes_on_exactly_where_it_was(http):
    create(http, filters=[{"prefix": {"type": "com"}}])
    publish(http, *numbered(5))
    first = read(http, EVENTS, 3)
    assert ids_of(first) == ["0", "1", "2"]
    assert first[0].json()["catchmentplace"] == first[0].id
    assert first[0].json()["catchmentids"] == "orders"
    publish(http, *numbered(2, 5))
    assert ids_of(read(http, EVENTS, 4, after(first[-1]))) == ["3", "4", "5", "6"]
    # To come back after 2 has acknowledged what is before it. What was only sent is not acknowledged.
    assert ids_of(read(http, EVENTS, 4)) == ["3", "4", "5", "6"]


def test_what_was_sent_and_not_acknowledged_comes_again(http):
    create(http)
    publish(http, *numbered(3))
    assert ids_of(read(http, EVENTS, 3)) == ["0", "1", "2"]
    assert ids_of(read(http, EVENTS, 3)) == ["0", "1", "2"]


def test_a_reader_that_never_acknowledges_gets_everything_once(http):
    create(http)
    count = 2 * PASS_ENTRIES_MAX + 50
    publish(http, *numbered(count))
    assert ids_of(all_events(http, count)) == [str(n) for n in range(count)]


def test_an_event_source_of_javascript_gets_everything_once(http, broker, javascript):
    """It comes back by itself each time that a pass ends, with `Last-Event-ID`."""
    create(http)
    count = 3 * PASS_ENTRIES_MAX + 1
    publish(http, *numbered(count))
    run = subprocess.run(
        ["node", "durable.cjs", url_of(broker), "orders", str(count)],
        cwd=javascript, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [str(n) for n in range(count)]


def test_a_broker_that_starts_again_goes_on_where_its_reader_was(store):
    with Live() as live, client_of(live.broker(store=store)) as http:
        create(http)
        publish(http, *numbered(4))
        last = read(http, EVENTS, 2)[-1]
    with Live() as live, client_of(live.broker(store=store)) as http:
        assert http.get("/subscriptions/orders").json()["durable"] is True
        publish(http, *numbered(2, 4))
        assert ids_of(read(http, EVENTS, 4, after(last))) == ["2", "3", "4", "5"]


def test_acknowledging_by_request(http):
    create(http)
    publish(http, *numbered(4))
    place = read(http, EVENTS, 2)[-1].id
    until(lambda: http.get("/subscriptions/orders").json()["status"]["state"] == "away")
    assert http.post("/subscriptions/orders/ack", json={"place": place}).status_code == 204
    assert ids_of(read(http, EVENTS, 2)) == ["2", "3"]
    bodies: list[Any] = [{"place": place[:-1] + "x"}, {"place": 7}, {}, [], {"place": f"d:{'a' * 32}:99~{'0' * 16}"}]
    for bad in bodies:
        assert http.post("/subscriptions/orders/ack", json=bad).status_code == 400
    assert http.post("/subscriptions/none/ack", json={"place": place}).status_code == 404


@pytest.mark.parametrize(
    "text", ["", "nonsense", "d:~", "d:" + "a" * 32 + ":999999~0123456789abcdef", "1a2b3c.7", "d:" * 5_000]
)
def test_what_is_no_place_begins_with_what_was_not_acknowledged(http, broker, live, text):
    create(http)
    publish(http, *numbered(2))
    assert ids_of(read(http, EVENTS, 2, {"Last-Event-ID": text})) == ["0", "1"]
    assert live.do(lambda: broker.node.core.alarms) == []


def test_a_place_of_another_subscription_is_none(http):
    create(http)
    create(http, "others")
    publish(http, *numbered(2))
    place = after(read(http, "/subscriptions/others/events", 2)[-1])
    assert ids_of(read(http, EVENTS, 2, place)) == ["0", "1"]


def test_another_reader_takes_the_place_of_the_first(http, broker):
    create(http)
    publish(http, *numbered(1))
    with http.stream("GET", EVENTS) as stream:
        lines = stream.iter_lines()
        while not next(lines).startswith("data: "):
            pass
        with client_of(broker) as other:
            assert ids_of(read(other, EVENTS, 1)) == ["0"]
        assert any("another reader has come" in line for line in lines)


def test_a_websocket_acknowledges_with_messages(http, broker):
    create(http)
    publish(http, *numbered(300))
    url = url_of(broker).replace("http", "ws") + "/subscriptions/orders/ws"
    with connect(url) as socket:
        got = []
        for _ in range(300):
            event = json.loads(socket.recv(WAIT_S))
            got.append(event["id"])
            if len(got) % 100 == 0:
                socket.send(json.dumps({"ack": event["catchmentplace"]}))
        assert got == [str(n) for n in range(300)]
    publish(http, *numbered(1, 300))

    def again():
        with connect(f"{url}?after={event['catchmentplace']}") as socket:
            return json.loads(socket.recv(WAIT_S))["id"]

    assert again() == "300"
    with connect(url) as socket:
        socket.send("nonsense")
        with pytest.raises(ConnectionClosedError, match="1003"):
            list(socket)


def test_filters_are_changed_and_the_place_is_kept(http):
    create(http, filters=[{"exact": {"level": "5"}}])
    publish(http, an_event("a", level=5), an_event("b", level=6))
    changed = {"durable": True, "filters": [{"exact": {"level": "6"}}]}
    assert http.put("/subscriptions/orders", json=changed).status_code == 200
    publish(http, an_event("c", level=5), an_event("d", level=6))
    assert ids_of(read(http, EVENTS, 2)) == ["a", "d"]


def test_a_deleted_subscription_is_forgotten(http, broker, live):
    create(http)
    publish(http, *numbered(2))
    assert http.delete("/subscriptions/orders").status_code == 200
    assert live.do(lambda: len(broker.node.core.table)) == 0
    create(http)
    publish(http, *numbered(1, 7))
    assert ids_of(read(http, EVENTS, 1)) == ["7"]


# --- publishing ---------------------------------------------------------------------------------


def post(http, *events, **request):
    return http.post("/events", content=json.dumps(events), headers=BATCHED | request.pop("headers", {}), **request)


def test_stored(http):
    # Nobody durable wants it: there is nothing to keep.
    assert post(http, *numbered(1), params={"ack": "stored"}).json() == {"accepted": 1, "stored": True}
    create(http)
    answer = post(http, *numbered(3), params={"ack": "stored"})
    assert (answer.status_code, answer.json()) == (200, {"accepted": 3, "stored": True})
    answer = post(http, *numbered(1), headers={"Catchment-Ack": "stored"})
    assert (answer.status_code, answer.json()) == (200, {"accepted": 1, "stored": True})
    assert post(http, *numbered(1), params={"ack": "perhaps"}).status_code == 400


def test_a_broker_without_a_store_stores_nothing(live):
    with client_of(live.broker("bare")) as http:
        answer = post(http, *numbered(1), params={"ack": "stored"})
        assert answer.status_code == 501


def test_a_full_store_is_told_and_transient_traffic_goes_on(http, monkeypatch):
    create(http, filters=[{"catchment": "level = 5"}])
    publish(http, an_event("before", level=5))

    def full(store, batch):
        raise StoreFullError("no room")

    monkeypatch.setattr(SqlStore, "write", full)
    monkeypatch.setattr(SqlStore, "probe", lambda store: False)
    refused = until(lambda: _refused(post(http, an_event("1", level=5), params={"ack": "stored"})), "a refusal")
    assert refused.headers["retry-after"] == "1"
    answer = post(http, an_event("2", level=5), an_event("3", level=6))
    assert (answer.status_code, answer.json()["accepted"]) == (503, 1)
    assert post(http, an_event("4", level=6)).status_code == 202
    monkeypatch.undo()
    until(lambda: post(http, an_event("5", level=5), params={"ack": "stored"}).status_code == 200)
    events = ids_of(read(http, EVENTS, 2))
    assert (events[0], events[-1]) == ("before", "5")


def _refused(answer):
    return answer if answer.status_code == 503 else None
