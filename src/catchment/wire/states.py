"""The states of a connection, and what may happen in each: one table for both ends.

Each end of a connection has a state of its own, and knows from it what it may send and what may come.

    accepting broker   ACCEPTED ─┬─ Hello of a client ─► CLIENT_CAME ── Welcome ─► SERVING ─┐
                                 └─ Hello of a broker ─► BROKER_CAME ── Welcome ─► LINKED  ─┤
    dialing broker     DIALED ───── Hello of a broker ─► BROKER_WAITS ─ Welcome ─► LINKED  ─┼─► ENDED
    client             DIALED ───── Hello of a client ─► CLIENT_WAITS ─ Welcome ─► SERVED  ─┘

What is not in the table is out of place. If the other side does it, the connection ends with a `Goodbye` that says so;
if this side does it, that is a mistake of ours. A decoder is made for each state from the table, so a message that may
not come in a state is not even decoded. Nothing leaves ENDED: what comes after it is dropped.

`docs/protocol.md` prints this table, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cache, reduce
from operator import or_
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from catchment.routing.durable.messages import Taken
from catchment.routing.messages import Beat, BrokerMessage, Gap, LinkReport, Parting, Said
from catchment.wire.frames import FRAME_BYTES_MAX, HELLO_BYTES_MAX, LINK_FRAME_BYTES_MAX
from catchment.wire.messages import (
    Accepted,
    Batch,
    Confirmed,
    Credit,
    Delivery,
    DurableDelivery,
    Effective,
    Goodbye,
    Hello,
    Look,
    Lost,
    LostLog,
    Ping,
    Pong,
    Publish,
    PublishStored,
    Refused,
    Request,
    Seen,
    SequenceDelivery,
    Welcome,
)


class State(Enum):
    """What an end of a connection is doing."""

    # A broker has accepted the connection and does not know yet who is there.
    ACCEPTED = "ACCEPTED"
    # The Hello that came is in order; the broker decides whether to welcome the client, or the neighbor.
    CLIENT_CAME = "CLIENT_CAME"
    BROKER_CAME = "BROKER_CAME"
    # This end has connected and has said nothing yet.
    DIALED = "DIALED"
    # It has said Hello, as a client or as a broker, and waits for the answer.
    CLIENT_WAITS = "CLIENT_WAITS"
    BROKER_WAITS = "BROKER_WAITS"
    # A broker, with a client at the other end.
    SERVING = "SERVING"
    # A client, with a broker at the other end.
    SERVED = "SERVED"
    # A broker, with a neighbor at the other end.
    LINKED = "LINKED"
    ENDED = "ENDED"


class HelloOf(Enum):
    """A `Hello` leads to another state for each role."""

    CLIENT = "client"
    BROKER = "broker"


class Happening(Enum):
    """What is neither sent nor received."""

    LATE = "`HANDSHAKE_S` have passed"
    SILENT = "the other side is silent"
    LOST = "the connection is lost"


Does = Literal["receives", "sends", "notices"]
# `BrokerMessage` stands for every message of the routing system, and `Batch` for a batch with its header.
What = type[Said] | HelloOf | Happening


class Row(NamedTuple):
    """An end in one of these states may do this; then it is in the state `then`."""

    states: tuple[State, ...]
    does: Does
    what: tuple[What, ...]
    then: State


HANDSHAKE: Final = (
    State.ACCEPTED,
    State.CLIENT_CAME,
    State.BROKER_CAME,
    State.DIALED,
    State.CLIENT_WAITS,
    State.BROKER_WAITS,
)
ESTABLISHED: Final = (State.SERVING, State.SERVED, State.LINKED)
_LIVE: Final = (*HANDSHAKE, *ESTABLISHED)

_BY_CLIENT: Final = (Request, Publish, PublishStored, Taken, Look, Ping, Pong)
_DURABLE_TO_CLIENT: Final = (DurableDelivery, Confirmed, Effective, LostLog)
_TO_CLIENT: Final = (
    *(Accepted, Refused, Seen, Credit, Delivery, SequenceDelivery, Lost, Gap),
    *_DURABLE_TO_CLIENT,
    *(Ping, Pong),
)
_BETWEEN_BROKERS: Final = (Batch, BrokerMessage, LinkReport, Beat, Parting, Gap, Ping, Pong)

TABLE: Final[tuple[Row, ...]] = (
    # A broker that was dialed.
    Row((State.ACCEPTED,), "receives", (HelloOf.CLIENT,), State.CLIENT_CAME),
    Row((State.ACCEPTED,), "receives", (HelloOf.BROKER,), State.BROKER_CAME),
    Row((State.CLIENT_CAME,), "sends", (Welcome,), State.SERVING),
    Row((State.BROKER_CAME,), "sends", (Welcome,), State.LINKED),
    # An end that has dialed.
    Row((State.DIALED,), "sends", (HelloOf.CLIENT,), State.CLIENT_WAITS),
    Row((State.DIALED,), "sends", (HelloOf.BROKER,), State.BROKER_WAITS),
    Row((State.CLIENT_WAITS,), "receives", (Welcome,), State.SERVED),
    Row((State.BROKER_WAITS,), "receives", (Welcome,), State.LINKED),
    # The conversation.
    Row((State.SERVING,), "receives", _BY_CLIENT, State.SERVING),
    Row((State.SERVING,), "sends", _TO_CLIENT, State.SERVING),
    Row((State.SERVED,), "receives", _TO_CLIENT, State.SERVED),
    Row((State.SERVED,), "sends", _BY_CLIENT, State.SERVED),
    Row((State.LINKED,), "receives", _BETWEEN_BROKERS, State.LINKED),
    Row((State.LINKED,), "sends", _BETWEEN_BROKERS, State.LINKED),
    # The end: either side may say Goodbye at any time.
    Row(_LIVE, "receives", (Goodbye,), State.ENDED),
    Row(_LIVE, "sends", (Goodbye,), State.ENDED),
    Row(HANDSHAKE, "notices", (Happening.LATE,), State.ENDED),
    Row(ESTABLISHED, "notices", (Happening.SILENT,), State.ENDED),
    Row(_LIVE, "notices", (Happening.LOST,), State.ENDED),
)

# The longest frame in states after the handshake.
_BYTES_MAX: Final = {
    State.SERVING: FRAME_BYTES_MAX,
    State.SERVED: FRAME_BYTES_MAX,
    State.LINKED: LINK_FRAME_BYTES_MAX,
}

_NEXT: Final[dict[tuple[State, Does, What], State]] = {
    (state, row.does, what): row.then for row in TABLE for state in row.states for what in row.what
}


def next_state(state: State, does: Does, what: What) -> State | None:
    """None if it is out of place."""
    return _NEXT.get((state, does, what))


class Stage(NamedTuple):
    """What a state means for a connection of one routing system."""

    # The union of types that the decoder reads, and their names.
    receives: Any
    names: tuple[str, ...]
    # What may be sent without a change of state.
    sends: frozenset[type]
    # The longest frame that may come or be sent.
    bytes_max: int


@cache
def stage_of(state: State, language: Any) -> Stage:
    """`language` is what the brokers of the routing system say to each other (`messages.between_brokers`); a client,
    which is never linked, has none."""
    receives = [kind for what in _whats(state, "receives", None) for kind in _kinds(what, language)]
    sends = [kind for what in _whats(state, "sends", state) for kind in _kinds(what, language)]
    names = tuple(dict.fromkeys(_origin(kind).__name__ for kind in receives))
    union = reduce(or_, receives) if receives else None
    return Stage(union, names, frozenset(map(_origin, sends)), _BYTES_MAX.get(state, HELLO_BYTES_MAX))


def _whats(state: State, does: Does, then: State | None) -> Iterator[What]:
    for row in TABLE:
        if state in row.states and row.does == does and (then is None or row.then is then):
            yield from row.what


def _kinds(what: What, language: Any) -> list[Any]:
    """The types that the decoder knows it as."""
    if isinstance(what, HelloOf):
        return [Hello]
    if what is Batch or what is BrokerMessage:
        return [kind for kind in get_args(language) if issubclass(_origin(kind), what)]
    return [what]


def _origin(kind: Any) -> Any:
    """`Batch` of `Batch[Header]`; any other type itself."""
    return get_origin(kind) or kind
