"""The seam between a routing core and the host that runs it.

A core is a pure state machine: a message in, a list of actions out. It has no sockets, no clock, no randomness and
never asks who runs it, so that what the simulator shows is evidence about the live broker.

What a host promises:

- It performs the actions in the order of the list.
- A link, while it is up, carries what is sent over it in order, each once. Where that cannot be kept, the link goes
  down (`LinkDown`) and comes up again (`LinkUp`), and both ends have forgotten what they said to each other.
- A neighbor says only what the routing system knows: its messages, and its header on notifications.
- `now` never goes back.

What a core promises:

- The same messages in the same order give the same actions: sets are sorted before anything is emitted.
- It never raises for what a client or a neighbor says: a client is refused (`Refuse`), a neighbor that contradicts
  itself is refused too, and the host ends that link.
- After each message it is whole: there is no call in which it waits.
- It can be looked into: `inspect`, `leftovers`. Status pages, metrics, measures and checkers ask nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from catchment.routing.messages import Action, BrokerMessage, ClientRequest, HostMessage, Interface, Routed, Time

if TYPE_CHECKING:
    from catchment.routing.parts.clients import ClientSide
    from catchment.routing.parts.recall import RecallingMatcher

M_contra = TypeVar("M_contra", bound=BrokerMessage, contravariant=True)

# The table of a broker's own clients.
CLIENTS_TABLE: Final = "clients"


class Table(Struct, frozen=True, order=True):
    """Filters that a broker holds for somebody: its own clients together, a neighbor, or another broker.

    `bytes` is the length of their texts, as the wire sends them."""

    holder: str
    filters: int
    bytes: int


class Work(Struct, frozen=True):
    """What a core has done since its start, counted: it depends on messages alone, never on the machine."""

    # Notifications whose content was looked at here.
    matched: int = 0
    # Pairs of filters that were compared by covering because an index left them in doubt.
    compared: int = 0


class KnownBroker(Struct, frozen=True):
    """A broker of the network, as far as this one knows: its links with their costs, by name."""

    name: str
    is_reached: bool
    links: tuple[tuple[str, int], ...]


class Inspection(Struct, frozen=True):
    """What a core says of itself."""

    # One for each holder that has filters here, sorted by name.
    tables: tuple[Table, ...]
    work: Work = Work()
    # Where brokers know the network: all that this one has heard of.
    brokers: tuple[KnownBroker, ...] | None = None

    @property
    def filters(self) -> int:
        return sum(table.filters for table in self.tables)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)


class RoutingCore(Protocol[M_contra]):
    """`M_contra` is what the brokers of its routing system say to each other."""

    @property
    def clients(self) -> ClientSide:
        """The broker's own clients: what they want, and what they are due."""
        ...

    def on_message(
        self, message: ClientRequest | HostMessage | M_contra, source: Interface, now: Time
    ) -> list[Action]: ...

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        """All that one read brought: one call of the matcher for the batch."""
        ...

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        """The matchers that notifications go through here. A host may prepare them when it has time."""
        ...

    def inspect(self) -> Inspection: ...

    def leftovers(self) -> list[str]:
        """What this core still holds, as text, that it should not hold when no client wants or offers anything."""
        ...
