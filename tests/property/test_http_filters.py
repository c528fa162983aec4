"""Filter expressions of HTTP subscriptions: what the broker subscribes to and then checks is what they mean."""

from collections.abc import Callable
from datetime import UTC

from hypothesis import given, reject
from hypothesis import strategies as st
from msgspec.json import encode

from catchment.broker.http.filters import Selection, combined, expressions_of, selection_of
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
    lambda dialect, texts: {dialect: texts},
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
EXPRESSIONS = st.recursive(
    TEXT_TESTS | OTHERS,
    lambda inner: (
        inner.map(lambda negated: {"not": negated})
        | st.builds(
            lambda dialect, parts: {dialect: parts},
            st.sampled_from(["all", "any"]),
            st.lists(inner, min_size=1, max_size=3),
        )
    ),
    max_leaves=6,
)
NOTIFICATIONS = st.builds(Notification, st.dictionaries(NAMES, VALUES, max_size=4))


def text_of(value):
    """The text that CESQL gives a value. CONCAT gives it without a string literal, so nothing needs an escape."""
    return Cesql("CONCAT('', x)").evaluate({"x": value}).value


TESTS: dict[str, Callable[[str, str], bool]] = {
    "exact": lambda value, text: value == text,
    "prefix": lambda value, text: value.startswith(text),
    "suffix": lambda value, text: value.endswith(text),
}


def means(expression, notification):
    """The slow, obvious reading of an expression."""
    ((dialect, operand),) = expression.items()
    match dialect:
        case "all":
            return all(means(part, notification) for part in operand)
        case "any":
            return any(means(part, notification) for part in operand)
        case "not":
            return not means(operand, notification)
        case "sql":
            result = Cesql(f"BOOL({operand})").evaluate(notification)
            return result.value is True and not result.errors
        case "catchment":
            return Filter(operand).matches(notification)
    test = TESTS[dialect]
    return all(name in notification and test(text_of(notification[name]), text) for name, text in operand.items())


def selected(expressions) -> Selection:
    try:
        return selection_of(combined(expressions_of(expressions)))
    except LimitError:
        reject()


def is_delivered(selection: Selection, notification: Notification) -> bool:
    return selection.wanted.matches(notification) and selection.matches(notification)


@given(st.lists(EXPRESSIONS, max_size=3), st.lists(NOTIFICATIONS, min_size=1, max_size=20))
def test_selection_is_what_is_meant(expressions, notifications):
    selection = selected(expressions)
    for notification in notifications:
        meant = all(means(expression, notification) for expression in expressions)
        assert is_delivered(selection, notification) is meant


@given(EXPRESSIONS, NOTIFICATIONS)
def test_negation_is_the_rest(expression, notification):
    delivered = [is_delivered(selected([choice]), notification) for choice in (expression, {"not": expression})]
    assert sorted(delivered) == [False, True]


ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | ANY_FLOAT | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8"), min_size=1)
EVENTS = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": TEXT, "source": TEXT, "type": TEXT},
    optional={
        "time": st.just("2026-11-15T10:30:00.25Z"),
        "datacontenttype": st.sampled_from(["application/json", "text/plain", "image/png", "application/xml"]),
        "level": st.integers(-(2**31), 2**31 - 1) | st.booleans() | TEXT,
    },
)


@given(EVENTS, st.one_of(st.just({}), JSON.map(lambda data: {"data": data}), st.just({"data_base64": "AP8="})))
def test_cloudevents_are_delivered_as_they_were_published(context, data):
    notification = notification_of_cloudevent({**context, **data})
    again = notification_of_cloudevent(parsed_json(encode(cloudevent_of(notification, "/elsewhere")).decode("utf-8")))
    assert again == notification
