"""Requests that the tests of the HTTP side send, and streams that they read."""

import json
from itertools import islice

from httpx_sse import connect_sse
from prometheus_client.parser import text_string_to_metric_families

STRUCTURED = {"Content-Type": "application/cloudevents+json"}
BATCHED = {"Content-Type": "application/cloudevents-batch+json"}


def an_event(id="1", **more):
    return {"specversion": "1.0", "id": id, "source": "/tests", "type": "com.example.test", **more}


def publish(http, *events):
    answer = http.post("/events", content=json.dumps(events), headers=BATCHED)
    assert (answer.status_code, answer.json()) == (202, {"accepted": len(events)})


def subscribe(http, *filters, **more):
    answer = http.post("/subscriptions", json={"filters": list(filters), **more})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/subscriptions/{answer.json()['id']}"
    return answer.json()["id"]


def read(http, path, count, headers=None):
    """The first `count` events of a stream of Server-Sent Events; fewer if the stream ends."""
    with connect_sse(http, "GET", path, headers=headers or {}) as source:
        assert source.response.status_code == 200, source.response.read()
        return [*islice(source.iter_sse(), count)]


def ids_of(events):
    return [event.json()["id"] for event in events]


def metrics(http):
    families = text_string_to_metric_families(http.get("/metrics").text)
    return {sample.name: sample.value for family in families for sample in family.samples}
