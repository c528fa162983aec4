"""Webhooks of live brokers. The sink is a server of the standard library; the SDK of CloudEvents reads the events."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from catchment.broker.config import StoreConfig
from catchment.broker.webhook_settings import WebhookSettings
from catchment.cli import main
from tests.integration.live import WAIT_S, Live, until, url_of
from tests.integration.over_http import an_event, metrics, publish
from tests.integration.processes import catchment, started
from tests.integration.sinks import AGREES, a_sink

LOOPBACK = WebhookSettings(allow=("127.0.0.1",))


@pytest.fixture
def sink():
    with a_sink() as made:
        yield made


@pytest.fixture
def store(tmp_path):
    return StoreConfig(url=str(tmp_path / "store.db"))


@pytest.fixture
def broker(live, store):
    return live.broker(store=store, webhooks=LOOPBACK)


def data_event(id, **more):
    """An event with data, so that it is sent in binary mode."""
    return an_event(id, datacontenttype="application/json", data={"n": id}, **more)


def add(http, sink, id="audit", **more):
    answer = http.post("/subscriptions", json={"id": id, "sink": sink.url, "protocol": "HTTP", **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def status(http, id="audit"):
    return http.get(f"/subscriptions/{id}").json()["status"]


def client_of(broker):
    return httpx.Client(base_url=url_of(broker), timeout=WAIT_S)


# --- delivery -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_events_arrive_in_order_as_others_read_them(http, sink, mode):
    add(http, sink, config={"mode": mode}, filters=[{"prefix": {"type": "com.example"}}])
    publish(http, *(data_event(str(n)) for n in range(20)), an_event("other", type="org.example"))
    until(lambda: len(sink.posted) == 20)
    events = [from_http_event(HTTPMessage(asked.headers, asked.body)) for asked in sink.posted]
    assert [event.get_id() for event in events] == [str(n) for n in range(20)]
    assert [event.get_data() for event in events] == [{"n": str(n)} for n in range(20)]
    assert {asked.headers["webhook-request-origin"] for asked in sink.posted} == {"127.0.0.1"}
    until(lambda: status(http)["delivered"] == 20)
    assert status(http) | {"waiting": 0, "dead": 0, "state": "active"} == status(http)
    assert metrics(http)["catchment_webhook_delivered_total"] == 20


def test_a_sink_that_is_away_gets_everything_when_it_is_back(http, sink):
    add(http, sink)
    sink.answer = lambda asked: 500
    publish(http, *(data_event(str(n)) for n in range(5)))
    until(lambda: len(sink.posted) >= 2)
    sink.answer = lambda asked: 204
    until(lambda: status(http)["delivered"] == 5)
    accepted = list(dict.fromkeys(sink.ids))
    assert accepted == [str(n) for n in range(5)]


def test_a_sink_that_stalls_delays_nobody_else(http, sink):
    answering = threading.Event()
    sink.answer = lambda asked: 204 if "slow" not in asked.path else (answering.wait(WAIT_S), 204)[1]
    slow = {"id": "slow", "sink": sink.url + "/slow", "protocol": "HTTP"}
    assert http.post("/subscriptions", json=slow).status_code == 201
    add(http, sink)
    publish(http, *(data_event(str(n)) for n in range(10)))
    until(lambda: status(http)["delivered"] == 10)
    # One request at a time: the first one is still under way.
    assert [asked.headers["ce-id"] for asked in sink.posted if "slow" in asked.path] == ["0"]
    answering.set()
    until(lambda: status(http, "slow")["delivered"] == 10)


def test_a_webhook_gets_what_is_published_at_other_brokers(live, store, sink):
    north = live.broker("north", store=store, webhooks=LOOPBACK)
    south = live.broker("south", neighbors=(north.address,), store=StoreConfig(storage="north"))
    with client_of(north) as http, client_of(south) as other:
        until(lambda: other.get("/topology").json()["links"])
        made = add(http, sink)
        assert made["status"]["missing"] == []
        until(lambda: len(south.node.core.table))
        publish(other, data_event("far"))
        until(lambda: sink.ids == ["far"])


def test_a_broker_that_starts_again_goes_on(store, sink):
    sink.answer = lambda asked: 400 if asked.headers["ce-id"] == "bad" else 503
    with Live() as live, client_of(live.broker(store=store, webhooks=LOOPBACK)) as http:
        add(http, sink, sinkCredential={"credentialType": "PLAIN", "identifier": "me", "secret": "very-secret"})
        publish(http, data_event("bad"), data_event("1"), data_event("2"))
        until(lambda: status(http)["dead"] == 1 and len(sink.posted) >= 2)
    sink.answer = lambda asked: 204
    sink.asked.clear()
    with Live() as live, client_of(live.broker(store=store, webhooks=LOOPBACK)) as http:
        until(lambda: sink.ids == ["1", "2"])
        assert sink.asked[0].method == "POST"  # its permission was kept
        assert sink.posted[0].headers["authorization"].startswith("Basic ")
        (letter,) = http.get("/subscriptions/audit/dead").json()
        assert (letter["event_id"], letter["attempts"]) == ("bad", 1)
        assert "very-secret" not in http.get("/subscriptions").text
        publish(http, data_event("3"))
        until(lambda: sink.ids == ["1", "2", "3"])


def test_gone_ends_it_and_another_sink_begins_it_anew(http, sink, broker, live):
    add(http, sink)
    sink.answer = lambda asked: 410
    publish(http, data_event("1"), data_event("2"))
    until(lambda: status(http)["state"] == "gone")
    publish(http, data_event("3"))
    assert sink.ids == ["1"]
    sink.answer = lambda asked: 204
    another = {"sink": sink.url + "/new", "protocol": "HTTP"}
    assert http.put("/subscriptions/audit", json=another).status_code == 200
    publish(http, data_event("4"))
    until(lambda: sink.ids == ["1", "4"])
    assert sink.posted[-1].path == "/hook/new"


def test_a_deleted_webhook_is_forgotten_everywhere(http, sink, broker, live):
    sink.answer = lambda asked: 400
    add(http, sink)
    publish(http, data_event("1"))
    until(lambda: status(http)["dead"] == 1)
    assert http.delete("/subscriptions/audit").json()["id"] == "audit"
    assert http.get("/subscriptions/audit").status_code == 404
    assert live.do(lambda: len(broker.node.core.table)) == 0
    add(http, sink)
    assert http.get("/subscriptions/audit/dead").json() == []


def test_what_was_published_before_an_edit_goes_by_the_old_filters(http, sink):
    sink.answer = lambda asked: 503
    old = [{"exact": {"level": "5"}}]
    new = [{"exact": {"level": "6"}}]
    add(http, sink, filters=old)
    publish(http, data_event("old-5", level=5), data_event("old-6", level=6))
    until(lambda: sink.ids)
    changed = {"sink": sink.url, "protocol": "HTTP", "filters": new}
    assert http.put("/subscriptions/audit", json=changed).json()["filters"] == new
    publish(http, data_event("new-5", level=5), data_event("new-6", level=6))
    sink.answer = lambda asked: 204
    until(lambda: status(http)["delivered"] == 2)
    assert list(dict.fromkeys(sink.ids)) == ["old-5", "new-6"]


# --- permission ---------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_callback_is_used(http, sink):
    sink.handshake = (200, {"Allow": "POST, OPTIONS"})
    add(http, sink, config={"rate": 6_000})
    publish(http, data_event("1"))
    until(lambda: "not agreed" in status(http)["problem"])
    (asked,) = sink.asked
    assert (asked.method, asked.headers["webhook-request-rate"]) == ("OPTIONS", "6000")
    callback = asked.headers["webhook-request-callback"]
    assert http.get(callback[:-1] + "!").status_code == 404
    assert http.get(callback.replace("audit", "none")).status_code == 404
    assert sink.posted == []
    assert http.get(callback, headers={"WebHook-Allowed-Rate": "3000"}).status_code == 200
    until(lambda: sink.ids == ["1"])
    assert (status(http)["allowed_by"], status(http)["allowed_rate"]) == ("callback", 3_000)


def test_the_rate_of_the_handshake_is_shown_and_asked_for_again(http, sink):
    sink.handshake = (204, {"WebHook-Allowed-Origin": "127.0.0.1", "WebHook-Allowed-Rate": "1200"})
    add(http, sink)
    until(lambda: status(http)["allowed_rate"] == 1_200)
    sink.handshake = (200, AGREES)
    assert http.post("/subscriptions/audit/validate").status_code == 202
    until(lambda: status(http)["allowed_rate"] == "*")


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"sink": "https://10.0.0.1/", "protocol": "HTTP"}, 403),
        ({"sink": "http://sink.example/", "protocol": "HTTP"}, 403),
        ({"sink": "https://169.254.169.254/latest", "protocol": "HTTP"}, 403),
        ({"sink": "gopher://sink.example/", "protocol": "HTTP"}, 400),
        ({"sink": "https://sink.example/"}, 400),
        ({"sink": "https://sink.example/", "protocol": "HTTP", "filters": [{"sql": "type ="}]}, 400),
        ({"sink": "https://sink.example/", "protocol": "HTTP", "config": {"attempts": 0}}, 400),
        ({"sink": "https://sink.example/", "protocol": "HTTP", "id": "a/b"}, 400),
        ({"sink": 7, "protocol": "HTTP"}, 400),
    ],
)
def test_bad_webhooks_are_refused_and_leave_nothing(http, broker, live, given, code):
    answer = http.post("/subscriptions", json=given)
    assert answer.status_code == code, answer.text
    assert http.get("/subscriptions").json() == []
    assert live.do(lambda: len(broker.node.core.table)) == 0


def test_requests_that_do_not_fit(http, sink):
    add(http, sink)
    assert http.post("/subscriptions", json={"id": "audit"}).status_code == 409
    assert http.put("/subscriptions/audit", json={"durable": True}).status_code == 409
    assert http.put("/subscriptions/audit", json={"id": "b", "sink": sink.url, "protocol": "HTTP"}).status_code == 400
    assert http.put("/subscriptions/audit", json={"sink": "https://10.0.0.1", "protocol": "HTTP"}).status_code == 403
    assert http.get("/subscriptions/audit/events").status_code == 409
    assert http.get("/subscriptions/audit/dead/x").status_code == 400
    assert http.get("/subscriptions/audit/dead/7").status_code == 404
    assert http.post("/subscriptions/audit/dead/7/resend").status_code == 404
    assert http.delete("/subscriptions/none/dead").status_code == 404
    assert http.get("/subscriptions?kind=webhook").json()[0]["id"] == "audit"
    assert http.get("/subscriptions?kind=durable").json() == []
    assert http.get("/subscriptions?kind=other").status_code == 400


# --- dead letters, from the command line --------------------------------------------------------


@pytest.fixture
def command(broker, capsys):
    """Runs `catchment webhook …` and returns its exit code and output."""

    def run(*arguments):
        code = main(["webhook", *arguments, "--http", str(broker.http.address)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_the_command_line(http, sink, command):
    sink.answer = lambda asked: (422, {"Content-Length": "0"})
    code, out = command("add", sink.url, "--id", "audit", "--filter", "level > 3", "--sql", "type LIKE 'com%'",
                        "--header", "X-Team: shop", "--rate", "6000")  # fmt: skip
    assert (code, "audit" in out, "active" in out) == (0, True, True)
    publish(http, *(data_event(str(n), level=n) for n in range(8)))
    until(lambda: status(http)["dead"] == 4)
    assert sink.posted[0].headers["x-team"] == "shop"
    _, out = command("list", "--json")
    assert json.loads(out)["status"]["dead"] == 4
    _, out = command("dead", "audit", "--json")
    numbers = [json.loads(line)["number"] for line in out.splitlines()]
    assert len(numbers) == 4
    _, out = command("dead", "audit")
    assert out.splitlines()[0].endswith("the sink answered 422")
    _, out = command("dead", "audit", str(numbers[0]))
    assert json.loads(out)["event"]["data"] == {"n": "4"}
    code, out = command("resend", "audit", str(numbers[0]))
    assert (code, "422" in out) == (1, True)
    sink.answer = lambda asked: 204
    sink.asked.clear()
    assert command("resend", "audit", str(numbers[0]))[0] == 0
    _, out = command("dead", "audit", str(numbers[1]), "--drop", "--json")
    assert json.loads(out) == {"dropped": 1}
    assert json.loads(command("resend", "audit", "--json")[1]) == {"resending": 2}
    until(lambda: status(http)["dead"] == 0)
    assert sink.ids == ["4", "6", "7"]
    assert command("remove", "audit")[0] == 0
    assert command("list") == (0, "")
    code, out = command("remove", "audit")
    assert (code, "there is no" in out) == (1, True)


def test_top_and_the_status_have_webhooks(http, broker, sink, capsys):
    sink.answer = lambda asked: 400
    add(http, sink)
    publish(http, data_event("1"))
    until(lambda: status(http)["dead"] == 1)
    assert main(["top", "--url", str(broker.address), "--count", "1", "--json"]) == 0
    (webhook,) = json.loads(capsys.readouterr().out)["webhooks"]
    assert (webhook["id"], webhook["dead"]) == ("audit", 1)
    assert main(["top", "--url", str(broker.address), "--count", "1", "--every-s", "0.01"]) == 0
    assert "webhook audit" in capsys.readouterr().out


def test_examples_of_the_page(http, sink, broker):
    """Every `sh` example of docs/webhooks.md works as it is written, with the addresses of this broker and sink."""
    page = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text("utf-8")
    examples = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    commands = [line for example in examples for line in example.splitlines()]
    adding = next(command for command in commands if " add " in command)
    run_example(adding, broker, sink)
    sink.answer = lambda asked: 400
    publish(http, *(data_event(str(n), price=500) for n in range(3)))
    until(lambda: status(http)["dead"] == 3)
    sink.answer = lambda asked: 204
    numbers = [str(letter["number"]) for letter in http.get("/subscriptions/audit/dead").json()]
    for command in commands:
        if command != adding:
            # The dead letter 7 of the page is the first one here, and the second one is dropped.
            number = numbers[1] if "--drop" in command else numbers[0]
            run_example(re.sub(r"audit 7", f"audit {number}", command), broker, sink)
    assert sink.ids[-1] == "0"
    assert status(http)["dead"] == 1


def run_example(command, broker, sink):
    arguments = shlex.split(command.replace("https://sink.example/hook", sink.url), comments=True)
    assert arguments[0] == "catchment"
    done = subprocess.run(
        catchment(*arguments[1:], "--http", str(broker.http.address)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, command + done.stdout + done.stderr


def test_pages_of_dead_letters(http, sink):
    sink.answer = lambda asked: 400
    add(http, sink)
    publish(http, *(data_event(str(n)) for n in range(5)))
    until(lambda: status(http)["dead"] == 5)
    first = http.get("/subscriptions/audit/dead", params={"limit": 3})
    following = http.get(first.headers["link"].partition(">")[0][1:])
    assert [letter["event_id"] for letter in first.json() + following.json()] == [str(n) for n in range(5)]
    assert "link" not in following.headers


# --- kill -9 ------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def serving(tmp_path, port):
    """A broker that is a process of its own, and an HTTP client of it."""
    config = tmp_path / "broker.toml"
    config.write_text(
        f'listen = "127.0.0.1:0"\nhttp = "127.0.0.1:{port}"\n[store]\nurl = "{tmp_path}/store.db"\n'
        '[webhooks]\nallow = ["127.0.0.1"]\n'
    )
    with started(catchment("serve", str(config), "--json")) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), process.stderr and process.stderr.read()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S) as http:
            yield process, http


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(WAIT_S)


def test_a_broker_killed_after_the_answer_sends_the_same_event_again(tmp_path, sink):
    """Twice: the sink kills the broker while it answers 2xx. Nothing is lost, and the order stays."""
    port = free_port()
    ids = [str(n) for n in range(30)]
    killing = {"5", "20"}
    accepted = []

    def answer(asked):
        id = asked.headers["ce-id"]
        if id in killing:
            killing.discard(id)
            accepted.append(id)
            kill(running[0])
            return 204  # nobody hears it
        accepted.append(id)
        return 204

    sink.answer = answer
    running: list[subprocess.Popen[str]] = []
    with serving(tmp_path, port) as (process, http):
        running[:] = [process]
        add(http, sink)
        stored = http.post("/events?ack=stored", content=json.dumps([data_event(id) for id in ids]),
                           headers={"Content-Type": "application/cloudevents-batch+json"})  # fmt: skip
        assert stored.status_code in (200, 502) or killing != {"5", "20"}
        until(lambda: process.poll() is not None)
    with serving(tmp_path, port) as (process, http):
        running[:] = [process]
        until(lambda: process.poll() is not None)
    with serving(tmp_path, port) as (process, http):
        running[:] = [process]
        until(lambda: status(http)["waiting"] == 0 and accepted[-1:] == ["29"])
    assert killing == set()
    # Each event came; those in whose answer the broker died came again, under the same id, and nothing came out of
    # order: without the repeats the list is the one that was published.
    firsts = list(dict.fromkeys(accepted))
    assert firsts == ids
    assert all(accepted.count(id) >= 2 for id in ("5", "20"))
    positions = [ids.index(id) for id in accepted]
    for earlier, later in pairwise(positions):
        assert later <= earlier + 1
