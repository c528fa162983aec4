"""Expressions evaluated, for the tests of CESQL."""

from catchment.model.cesql import Cesql

HOP = {"hop": "7", "name": "Ada", "level": 3, "on": True, "wide": 2**31, "ratio": 0.5}


def value(text: str, attributes=HOP):
    found = Cesql(text).evaluate(attributes)
    assert found.error is None, found.errors
    return found.value


def outcome(text: str, attributes=HOP):
    """The value with its type, and the kinds of error in order."""
    found = Cesql(text).evaluate(attributes)
    return found.value, type(found.value), [fault.kind.value for fault in found.errors]
