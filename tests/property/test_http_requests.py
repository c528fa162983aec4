"""The HTTP side reads whatever is sent to it, or refuses it with an answer that can be sent."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode, encode

from catchment.broker.config import Config
from catchment.broker.http.binding import BATCHED, STRUCTURED, notifications_of
from catchment.broker.http.problems import problem_of
from catchment.broker.http.subscriptions import HttpSubscriptions
from catchment.errors import CatchmentError, InputError
from catchment.model.cloudevents import cloudevent_of
from catchment.node import Node

LONG = st.integers(70_000, 70_001).map(lambda count: "a" * count)
# A lone surrogate is no Unicode text, but JSON can write it.
TEXTS = st.text(max_size=5) | LONG | st.sampled_from(["\ud800", "1.0", "", "$id", "type = 'x'", "x >", "2026-11-15"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
MEMBERS = st.sampled_from(
    ["specversion", "id", "source", "type", "time", "data", "data_base64", "datacontenttype", "x"]
)
GOOD = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
EVENTS = st.dictionaries(MEMBERS | TEXTS, VALUES, max_size=6).map(lambda more: {**GOOD, **more})
BODIES = (VALUES | EVENTS | st.lists(EVENTS, max_size=3)).map(lambda value: json.dumps(value).encode()) | st.binary()
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["content-type", "ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-", "ce-x"]),
        st.sampled_from([STRUCTURED, BATCHED, "text/plain; charset=x", "1.0", "%ff", '"a\\"', ";", ""]) | st.text(),
    )
)
DIALECTS = st.sampled_from(["exact", "prefix", "suffix", "all", "any", "not", "sql", "catchment", "other"])
EXPRESSIONS = st.recursive(
    SCALARS | st.dictionaries(TEXTS, SCALARS, max_size=2),
    lambda inner: st.dictionaries(DIALECTS, inner, min_size=1, max_size=1) | st.lists(inner, max_size=2),
    max_leaves=8,
)


@given(HEADERS, BODIES, st.sampled_from([STRUCTURED, BATCHED, None]))
def test_publications(headers, body, content_type):
    all_headers = headers if content_type is None else [("content-type", content_type), *headers]
    try:
        notifications = notifications_of(all_headers, body)
    except InputError as problem:
        answer = problem_of(problem)
        assert 400 <= answer.status_code < 500
        assert decode(answer.body)["detail"]
    else:
        for notification in notifications:
            decode(encode(cloudevent_of(notification, "/here")))


MEMBERS_OF_SUBSCRIPTIONS = st.sampled_from(["id", "source", "types", "filters", "sink", "y"])


@given(st.dictionaries(MEMBERS_OF_SUBSCRIPTIONS, VALUES | EXPRESSIONS | st.lists(EXPRESSIONS)))
def test_subscriptions(members):
    node = Node("north", Config().make_core(), lambda: 0, lambda timer: None)
    subscriptions = HttpSubscriptions(node, lambda: 0.0)
    try:
        made = subscriptions.create(json.loads(json.dumps(members)))
    except CatchmentError as problem:
        answer = problem_of(problem)
        assert decode(answer.body)["detail"]
    else:
        assert decode(encode(made.resource))["id"] == made.id
        subscriptions.delete(made.id)
    assert not node.clients
    assert len(subscriptions) == 0
