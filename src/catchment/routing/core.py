"""The seam between a routing core and the host that runs it.

A core is a pure state machine: a message goes in, a list of actions comes out. It has no sockets, no clock, no
randomness, and it never asks which host runs it. So what the simulator shows is evidence about the live broker.

What a host promises:

- It performs the actions in the order of the list.
- While a link is up, it carries each message once, in order. If a link cannot do that, the host takes it down
  (`LinkDown`) and up again (`LinkUp`); then both ends have forgotten what they said to each other.
- A neighbor says only what the routing system knows: the messages of that system, and notifications with its header.
- `now` never goes back.

What a core promises:

- The same messages in the same order give the same actions. A core sorts a set before it makes actions from it.
- It never raises an exception because of what a client or a neighbor says. It refuses (`Refuse`) a request of a client
  that it cannot do. It also refuses a neighbor that contradicts itself, and the host ends that link.
- After each message its state is complete: no call waits for another call.
- It answers questions about itself: `inspect`, `leftovers`. Status pages, metrics, measures and checkers ask only
  those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from catchment.routing.messages import (
    Action,
    BrokerMessage,
    ClientRequest,
    HostMessage,
    Interface,
    Neighbor,
    Routed,
    Time,
)

if TYPE_CHECKING:
    from catchment.routing.parts.clients import ClientSide
    from catchment.routing.parts.recall import RecallingMatcher

M_contra = TypeVar("M_contra", bound=BrokerMessage, contravariant=True)

# The holder of the table of a broker's own clients.
CLIENTS_TABLE: Final = "@clients"  # no broker has such a name


class Table(Struct, frozen=True, order=True):
    """How many filters a broker holds for `holder`: for all its own clients together, for a neighbor, or for another
    broker. `bytes` is the length of the texts of these filters, as the wire sends them."""

    holder: str
    filters: int
    bytes: int


class Work(Struct, frozen=True):
    """What a core has done since its start. The counts depend only on the messages, never on the speed of the
    machine."""

    # Notifications whose content this core has looked at.
    matched: int = 0
    # Pairs of filters that the core compared with `covers`, because the index of the poset could not decide.
    compared: int = 0
    # Notifications that were dropped because they were not newer than the last one of their source: copies that came
    # another way, and numbers that went back.
    old: int = 0
    # Rows and ids of summaries that the core looked at to match notifications. Only the system `summary` has these.
    looked_up: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.matched + other.matched,
            self.compared + other.compared,
            self.old + other.old,
            self.looked_up + other.looked_up,
        )

    def __neg__(self) -> Work:
        return Work(-self.matched, -self.compared, -self.old, -self.looked_up)


class KnownBroker(Struct, frozen=True):
    """What this broker knows of a broker of the network. `links` has the names of its neighbors, each with the cost of
    the link."""

    name: str
    is_reached: bool
    links: tuple[tuple[str, int], ...]


class Inspection(Struct, frozen=True):
    """What a core says about itself."""

    # One table for each holder that has filters here.
    tables: tuple[Table, ...]
    work: Work = Work()
    # All brokers that this one has heard of. None if brokers of this routing system know only their neighbors.
    brokers: tuple[KnownBroker, ...] | None = None
    # Filters that the broker forwards without knowing which others cover them, because it takes too many steps to find
    # out.
    apart: int = 0
    # Records of other brokers that made no sense or found no room, since the start.
    dropped_records: int = 0

    @property
    def filters(self) -> int:
        return sum(table.filters for table in self.tables)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)


@runtime_checkable
class LeavesInParts(Protocol):
    """What a core may offer besides: to forget what a neighbor has said in several steps, before `LinkDown`."""

    def farewell(self, neighbor: Neighbor, most: int) -> Iterator[BrokerMessage]:
        """Messages by which the neighbor itself would take back nearly all that it has said, `most` filters in each.
        Nothing, if that is little. The host gives them to the core one by one, as if the neighbor had said them."""
        ...


class RoutingCore(Protocol[M_contra]):
    """A broker's part of a routing system. `M_contra` is the union of the messages that its brokers send each other."""

    @property
    def clients(self) -> ClientSide:
        """The broker's own clients: what they want, and what is to be delivered to them."""
        ...

    def on_message(
        self, message: ClientRequest | HostMessage | M_contra, source: Interface, now: Time
    ) -> list[Action]: ...

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        """Takes all notifications that one read of a connection brought, so that one call of the matcher serves the
        whole batch."""
        ...

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        """The matchers that notifications go through in this core. A host may call their `prepare` when it has time."""
        ...

    def inspect(self) -> Inspection: ...

    def leftovers(self) -> list[str]:
        """Texts that describe what this core still keeps for subscriptions and advertisements. When no client of the
        network wants or offers anything, the list must be empty."""
        ...
