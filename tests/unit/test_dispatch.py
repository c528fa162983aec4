"""Dispatch of messages to the methods of a core: what is refused, and what is a mistake of ours."""

from typing import Any

import pytest

from catchment.errors import InputError, RemoteProtocolError
from catchment.model.filter import Filter
from catchment.routing.messages import (
    HOST,
    Action,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Subscribe,
    Time,
    TimerFired,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from tests.toy_system import Listeners

ALICE, NORTH = Client("alice"), Neighbor("north")
REQUEST = Subscribe("alice", "1", Filter("x > 3"))


class Plain(DispatchingCore[Listeners]):
    """A core with the methods that all have."""

    def __init__(self) -> None:
        self.clients = ClientSide()


class Noting(Plain):
    """A core that notes which method was called; `problem` is raised by what clients and neighbors cause."""

    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__()
        self.called: list[Any] = []
        self.problem = problem

    def _note(self, *what: Any) -> list[Action]:
        self.called.append(what)
        if self.problem is not None:
            raise self.problem
        return []

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        return self._note("requested", message, source, now)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        return self._note("client down", client, now)

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        return self._note("link up", neighbor, cost, now)

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return self._note("link down", neighbor, now)

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        return self._note("timer", name, now)

    def _heard(self, message: Listeners, source: Neighbor, now: Time) -> list[Action]:
        return self._note("heard", message, source, now)


CASES: list[tuple[Any, Any, tuple[Any, ...]]] = [
    (REQUEST, ALICE, ("requested", REQUEST, ALICE, 7)),
    (ClientDown(), ALICE, ("client down", ALICE, 7)),
    (LinkUp(3), NORTH, ("link up", NORTH, 3, 7)),
    (LinkDown(), NORTH, ("link down", NORTH, 7)),
    (TimerFired("x"), HOST, ("timer", "x", 7)),
    (Listeners(2), NORTH, ("heard", Listeners(2), NORTH, 7)),
]


@pytest.mark.parametrize(("message", "source", "call"), CASES)
def test_each_message_goes_to_its_method(message: Any, source: Any, call: tuple[Any, ...]):
    core = Noting()
    assert core.on_message(message, source, 7) == []
    assert core.called == [call]


@pytest.mark.parametrize(("message", "source", "call"), CASES)
def test_who_caused_an_error_is_refused_and_mistakes_of_ours_are_not_hidden(message: Any, source: Any, call: Any):
    problem = RemoteProtocolError("north", "spoke nonsense")
    is_caused = isinstance(message, Subscribe) or source == NORTH
    core = Noting(problem)
    if is_caused:
        assert core.on_message(message, source, 7) == [Refuse(source, problem)]
    else:
        with pytest.raises(RemoteProtocolError):
            core.on_message(message, source, 7)
    with pytest.raises(ZeroDivisionError):
        Noting(ZeroDivisionError()).on_message(message, source, 7)


def test_without_methods_of_its_own_a_core_serves_clients():
    core = Plain()
    assert core.on_message(ClientUp("alice"), ALICE, 0) == []
    assert core.on_message(REQUEST, ALICE, 0) == []
    assert core.clients.subscriptions_count == 1
    (refused,) = core.on_message(REQUEST, ALICE, 0)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, InputError)
    for quiet in (LinkUp(), LinkDown()):
        assert core.on_message(quiet, NORTH, 0) == []
    assert core.on_message(TimerFired("x"), HOST, 0) == []
    core.on_message(ClientDown(), ALICE, 0)
    assert core.clients.subscriptions_count == 0
    with pytest.raises(AssertionError, match="Listeners is no message of this system"):
        core.on_message(Listeners(2), NORTH, 0)


def test_sources_are_checked():
    core = Noting()
    for message, source in ((REQUEST, NORTH), (Listeners(2), ALICE), (LinkUp(), ALICE), (ClientDown(), NORTH)):
        with pytest.raises(AssertionError):
            core.on_message(message, source, 0)
    assert core.called == []
