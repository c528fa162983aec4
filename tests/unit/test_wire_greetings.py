"""Who may connect as what: names, versions, routing systems."""

from typing import Any

import msgspec
import pytest

from catchment.errors import BadIdError
from catchment.model.filter import Filter
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.routing.messages import LINK_COST_MAX, MapIdentity, Subscribe
from catchment.wire.frames import (
    VERSION,
)
from catchment.wire.messages import (
    Goodbye,
    Request,
    Unfit,
    Welcome,
)
from catchment.wire.states import State
from tests.unit.wire_sessions import (
    BROKER_HELLO,
    BROKER_WELCOME,
    CLIENT_HELLO,
    REQUEST,
    SPOKEN,
    accepted,
    broker_waits,
    came,
    client_waits,
    events,
    goodbye_of,
    said,
    serving,
)

# --- who is there -------------------------------------------------------------------------------

TOO_LONG = "x" * (IDENTITY_CODEPOINTS_MAX + 1)
MISNAMED = {
    "*": "'*' is reserved: it stands for everybody",
    "@x": "'@x': names that begin with @ are the broker's own",
    "@": "'@': names that begin with @ are the broker's own",
    "a\nb": "'a\\nb': a name has no control characters and no line ends",
    "a\x00": "'a\\x00': a name has no control characters and no line ends",
    "\u2028": "'\\u2028': a name has no control characters and no line ends",
    "": "a name has 1 to 1,024 characters, found 0",
    TOO_LONG: "a name has 1 to 1,024 characters, found 1,025",
    "ours": "two brokers are named 'ours'",
}
MISFITS: list[tuple[dict[str, Any], str]] = [
    *(({"name": name}, reason) for name, reason in MISNAMED.items()),
    ({"instance": TOO_LONG}, "a name has 1 to 1,024 characters, found 1,025"),
    ({"routing": "flooding"}, "ours runs siena general, 'theirs' runs 'flooding'"),
    ({"routing": ""}, "ours runs siena general, 'theirs' runs ''"),
    ({"cost": 0}, "a link costs 1 to 1,000,000, found 0"),
    ({"cost": LINK_COST_MAX + 1}, "a link costs 1 to 1,000,000, found 1000001"),
]


@pytest.mark.parametrize(("given", "reason"), MISFITS)
def test_a_neighbor_that_does_not_fit_is_refused_by_whom_it_dials(given, reason):
    session = accepted()
    (ended,) = events(session, msgspec.structs.replace(BROKER_HELLO, **given))
    assert goodbye_of(ended) == Goodbye(reason, is_final=True)
    assert ended.refused_name == given.get("name", "theirs")


@pytest.mark.parametrize(("given", "reason"), MISFITS)
def test_a_neighbor_that_does_not_fit_is_refused_by_whom_it_welcomes(given, reason):
    session = broker_waits()
    (ended,) = events(session, msgspec.structs.replace(BROKER_WELCOME, **given))
    assert goodbye_of(ended).reason == reason
    assert session.state is State.ENDED


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, reason in MISNAMED.items() if name != "ours"])
def test_a_client_cannot_have_any_name(name, reason):
    (ended,) = events(accepted(), msgspec.structs.replace(CLIENT_HELLO, name=name))
    assert goodbye_of(ended) == Goodbye(reason, is_final=True)


@pytest.mark.parametrize("name", ["**", "ours", "x" * IDENTITY_CODEPOINTS_MAX, "a@b", "é", "日\u3000本", "\u200d"])
def test_a_client_may_have_these_names(name):
    (hello,) = events(accepted(), msgspec.structs.replace(CLIENT_HELLO, name=name))
    assert hello.name == name


@pytest.mark.parametrize("versions", [(VERSION + 1, VERSION + 5), (1, VERSION - 1), (0, 0), (VERSION + 1, VERSION - 1)])
@pytest.mark.parametrize("hello", [CLIENT_HELLO, BROKER_HELLO], ids=["client", "broker"])
def test_a_version_that_does_not_fit_is_refused(hello, versions):
    (ended,) = events(accepted(), msgspec.structs.replace(hello, versions=versions))
    reason = f"this broker speaks version {VERSION}, you speak {versions[0]} to {versions[1]}"
    assert goodbye_of(ended) == Goodbye(reason, is_final=True)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_broker_that_answers_with_another_version_is_left(version):
    (ended,) = events(broker_waits(), msgspec.structs.replace(BROKER_WELCOME, version=version))
    assert goodbye_of(ended).reason == f"'theirs' speaks version {version}, {VERSION} was offered"
    (ended,) = events(client_waits(), Welcome(version, "theirs"))
    assert goodbye_of(ended).reason == f"the broker speaks version {version}, {VERSION} was offered"


@pytest.mark.parametrize("versions", [(1, 9), SPOKEN, (0, VERSION)])
def test_a_range_of_versions_that_has_ours_is_welcomed_with_ours(versions):
    session = came(msgspec.structs.replace(CLIENT_HELLO, versions=versions))
    assert said(session.welcome())[0].version == VERSION


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, reason in MISNAMED.items() if name != "ours"])
def test_a_client_does_not_stay_with_a_broker_of_such_a_name(name, reason):
    (ended,) = events(client_waits(), Welcome(VERSION, name))
    assert goodbye_of(ended).reason == reason


@pytest.mark.parametrize("name", ["@http/1", "@", "*", "a\nb", "\x7f"])
def test_a_client_cannot_ask_for_an_identity_of_the_brokers_own(name):
    session = serving()
    for body in (Subscribe(name, "s", Filter("x > 0")), MapIdentity(name, "alice"), MapIdentity("alice", name)):
        (unfit,) = events(session, Request(5, body))
        assert isinstance(unfit, Unfit)
        assert isinstance(unfit.error, BadIdError)
        assert (unfit.number, unfit.notifications) == (5, 0)
    assert events(session, REQUEST) == [REQUEST]


def test_the_cost_of_a_link_is_what_the_dialer_says():
    session = came(msgspec.structs.replace(BROKER_HELLO, cost=7))
    assert said(session.welcome())[0].cost == 7
