"""Unions of messages, as decoders of the tests take them: what a client sends, what it is sent, what neighbors say."""

from functools import reduce
from operator import or_
from typing import Any

from catchment.routing.systems import SYSTEMS
from catchment.wire.messages import Welcome, between_brokers
from catchment.wire.states import State, stage_of


def _received_in(*states: State) -> Any:
    return reduce(or_, (stage_of(state, None).receives for state in states))


TO_BROKER: Any = _received_in(State.ACCEPTED, State.SERVING)
TO_CLIENT: Any = _received_in(State.CLIENT_WAITS, State.SERVED)


def language_of(routing: str) -> Any:
    """What linked brokers of this system say to each other."""
    system = SYSTEMS[routing]
    return between_brokers(system.messages, system.header)


def to_neighbor(routing: str) -> Any:
    """The same, and the answer to a `Hello`."""
    return language_of(routing) | Welcome
