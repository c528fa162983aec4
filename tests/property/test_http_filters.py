"""Filter expressions of HTTP subscriptions: what is asked of the network and decided here is what they mean."""

from datetime import UTC

from hypothesis import given, reject
from hypothesis import strategies as st
from msgspec.json import encode

from catchment.broker.http.filters import everything_of, expressions_of, selection_of
from catchment.errors import LimitError
from catchment.model.cesql import Cesql
from catchment.model.cloudevents import cloudevent_of, notification_of_cloudevent
from catchment.model.filter import Filter
from catchment.model.notification import Notification, parsed_json

NAMES = st.sampled_from(["type", "level", "subject", "A-b"])
TEXTS = st.sampled_from(["a", "ab", "b", "1", "12", "-1", "true", "2", "1.5", "2026-11-15T10:30:00Z", "t\\'\"%_"])
VALUES = (
    TEXTS
    | st.integers(-2, 12)
    | st.booleans()
    | st.sampled_from([1.5, 1e300, 0.1, 12.0])
    | st.datetimes(timezones=st.just(UTC))
)
TEXT_TESTS = st.builds(
    lambda dialect, given: {dialect: given},
    st.sampled_from(["exact", "prefix", "suffix"]),
    st.dictionaries(NAMES, TEXTS, min_size=1, max_size=2),
)
OTHERS = st.sampled_from(
    [
        {"sql": "INT(level) > 3"},
        {"sql": "type"},
        {"sql": "EXISTS subject"},
        {"catchment": "level > 1 or type = 'a'"},
        {"catchment": "not subject = 'b'"},
        {"catchment": "true"},
    ]
)
KINDS = st.sampled_from(["all", "any"])
EXPRESSIONS = st.recursive(
    TEXT_TESTS | OTHERS,
    lambda inner: (
        st.builds(lambda one: {"not": one}, inner)
        | st.builds(
            lambda kind, some: {kind: some}, st.sampled_from(["all", "any"]), st.lists(inner, min_size=1, max_size=3)
        )
    ),
    max_leaves=6,
)
NOTIFICATIONS = st.builds(Notification, st.dictionaries(NAMES, VALUES, max_size=4))


def text_of(value):
    """As CESQL says it: `s = s` is the only way to ask for it that has no escapes."""
    return Cesql("CONCAT('', x)").evaluate({"x": value}).value


def means(expression, notification):
    """The slow, obvious reading."""
    ((dialect, given),) = expression.items()
    match dialect:
        case "all":
            return all(means(one, notification) for one in given)
        case "any":
            return any(means(one, notification) for one in given)
        case "not":
            return not means(given, notification)
        case "sql":
            found = Cesql(f"BOOL({given})").evaluate(notification)
            return found.value is True and not found.errors
        case "catchment":
            return Filter(given).matches(notification)
    test = {"exact": str.__eq__, "prefix": str.startswith, "suffix": str.endswith}[dialect]
    return all(name in notification and test(text_of(notification[name]), text) for name, text in given.items())


def selected(found):
    try:
        return selection_of(everything_of(expressions_of(found)))
    except LimitError:
        reject()


@given(st.lists(EXPRESSIONS, max_size=3), st.lists(NOTIFICATIONS, min_size=1, max_size=20))
def test_selection_is_what_is_meant(found, notifications):
    selection = selected(found)
    for one in notifications:
        meant = all(means(expression, one) for expression in found)
        assert (selection.wanted.matches(one) and selection.matches(one)) is meant


@given(EXPRESSIONS, NOTIFICATIONS)
def test_opposite_is_the_rest(expression, notification):
    one, other = (selected([some]) for some in (expression, {"not": expression}))
    found = [some.wanted.matches(notification) and some.matches(notification) for some in (one, other)]
    assert sorted(found) == [False, True]


ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | ANY_FLOAT | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
PLAIN = st.text(st.characters(codec="utf-8"), min_size=1)
EVENTS = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": PLAIN, "source": PLAIN, "type": PLAIN},
    optional={
        "time": st.just("2026-11-15T10:30:00.25Z"),
        "datacontenttype": st.sampled_from(["application/json", "text/plain", "image/png", "application/xml"]),
        "level": st.integers(-(2**31), 2**31 - 1) | st.booleans() | PLAIN,
    },
)


@given(EVENTS, st.one_of(st.just({}), JSON.map(lambda data: {"data": data}), st.just({"data_base64": "AP8="})))
def test_cloudevents_go_out_as_they_came(context, data):
    notification = notification_of_cloudevent({**context, **data})
    again = notification_of_cloudevent(parsed_json(encode(cloudevent_of(notification, "/elsewhere")).decode("utf-8")))
    assert again == notification
