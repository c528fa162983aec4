"""Distance vectors: each broker tells its neighbors how far it is from every other broker (filter propagation §2.2).

The *distance* of two brokers is the number of links between them. A broker keeps what each neighbor said last. Its
*route* to a broker leads through the neighbor that is nearest to it; of several that are equally near, through the one
whose name comes first. So routes depend only on what neighbors say, never on the order in which they said it.

The routes of all brokers to one broker, the *origin*, form a tree: the next hop on the route is the *parent*, and the
neighbors whose routes lead through a broker are its *children*. What is published at the origin travels down this tree.
No broker knows the whole tree.

An entry of `Distances` is a broker and a number:

    less than `infinity`         the distance of the sender
    `infinity`                   the sender has no route
    `infinity` + distance        the sender's route leads through the receiver, which is the parent of the sender

The last form is split horizon with poisoned reverse: nobody takes a route through a neighbor whose own route leads
back. RIP says `infinity` there. DVMRP adds the distance, as here, so that a parent can tell a child from a neighbor
that has no route.

Distances    Each entry replaces what the neighbor said of that broker before. Then routes are computed again.
link up      The neighbor is told all distances.
link down    All that the neighbor said is forgotten.
always       As soon as the distance or the parent has changed, all neighbors hear what has changed for them (triggered
             updates). Nothing is repeated: links carry each message once and in order (`core.py`), so the periodic
             updates of RIP are not needed.

When a broker is gone, those that are left may take each other's old routes for a while, with distances that grow at
each exchange. That ends at `infinity`. So no network works whose brokers are `infinity` links apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from catchment.errors import InputError, LimitError, RemoteProtocolError, shown
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.routing.messages import Action, BrokerMessage, BrokerName, Neighbor, Send

# RIP's: brokers that are so many links apart, or more, do not reach each other.
INFINITY: Final = 16
# No network has longer routes. Counting to infinity takes as many exchanges as this number says.
INFINITY_MAX: Final = 256
# Brokers that one neighbor may name: a broker keeps a number for each.
DESTINATIONS_MAX: Final = 10_000


class Distances(BrokerMessage, frozen=True):
    """How far the sender is from some brokers, each with the number that stands for it. Of the other brokers, what it
    said before holds."""

    entries: tuple[tuple[BrokerName, int], ...]


@dataclass(slots=True)
class RouteChange:
    """What has changed in the trees: origins whose tree has another parent here, and pairs of an origin and a child."""

    parents: set[str] = field(default_factory=set)
    gained: set[tuple[str, Neighbor]] = field(default_factory=set)
    lost: set[tuple[str, Neighbor]] = field(default_factory=set)


class DistanceVectors:
    """What the broker `name` knows of distances."""

    def __init__(self, name: str, infinity: int = INFINITY) -> None:
        if not 2 <= infinity <= INFINITY_MAX:
            raise InputError(f"infinity is {infinity}: use a number of links from 2 to {INFINITY_MAX}")
        self.name = name
        self.infinity = infinity
        # By neighbor and broker: what the neighbor said last, and what it was told last. What is not there is infinity.
        self._heard: dict[Neighbor, dict[str, int]] = {}
        self._told: dict[Neighbor, dict[str, int]] = {}
        # By broker: the distance and the neighbor that the route leads through. There are none through ourselves.
        self._routes: dict[str, tuple[int, Neighbor]] = {}
        self._children: dict[str, tuple[Neighbor, ...]] = {}
        # Brokers of which neighbors may have to be told something.
        self._touched: set[str] = set()

    # --- trees ---

    def parent(self, origin: str) -> Neighbor | None:
        """Where notifications of an origin come from: None if there is no route, or if we are the origin."""
        route = self._routes.get(origin)
        return None if route is None else route[1]

    def children(self, origin: str) -> tuple[Neighbor, ...]:
        """The neighbors below this broker in the tree of an origin, sorted."""
        return self._children.get(origin, ())

    def distance(self, origin: str) -> int | None:
        """In links; None if there is no route."""
        if origin == self.name:
            return 0
        route = self._routes.get(origin)
        return None if route is None else route[0]

    def is_reached(self, origin: str) -> bool:
        return origin == self.name or origin in self._routes

    @property
    def reached(self) -> tuple[str, ...]:
        """The names of the brokers that can be reached, sorted. This broker is one of them."""
        return tuple(sorted({self.name, *self._routes}))

    # --- changes ---

    def up(self, neighbor: Neighbor) -> None:
        """A link has come up. The next `flush` tells the neighbor everything."""
        self._heard[neighbor], self._told[neighbor] = {}, {}
        self._touched.update(self.reached)

    def down(self, neighbor: Neighbor) -> RouteChange:
        """A link has gone down."""
        change = RouteChange()
        said = self._heard.pop(neighbor, {})
        self._told.pop(neighbor, None)
        for origin, number in said.items():
            self._reconsider(origin, neighbor, number, self.infinity, change)
        return change

    def heard(self, message: Distances, neighbor: Neighbor) -> RouteChange:
        """A neighbor has said something. CatchmentError if it cannot be true, or is too much; then nothing has
        changed."""
        said = self._heard[neighbor]
        for origin, number in message.entries:
            self._check(origin, number, neighbor)
        named = len({origin for origin, _ in message.entries} | said.keys())
        if named > DESTINATIONS_MAX:
            raise LimitError("DESTINATIONS_MAX", DESTINATIONS_MAX, f"{named:,}", "split the network")
        change = RouteChange()
        for origin, number in message.entries:
            before = said.get(origin, self.infinity)
            if number == self.infinity:
                said.pop(origin, None)
            else:
                said[origin] = number
            self._reconsider(origin, neighbor, before, number, change)
        return change

    def _check(self, origin: str, number: int, neighbor: Neighbor) -> None:
        if not 0 <= number < 2 * self.infinity:
            raise RemoteProtocolError(
                neighbor.name,
                f"told the number {shown(number)} for {shown(origin)}: with infinity = {self.infinity} it is from 0 to "
                f"{2 * self.infinity - 1}; all brokers of a network have the same infinity",
            )
        if (number == 0) is not (origin == neighbor.name):
            raise RemoteProtocolError(neighbor.name, f"told the number {number} for {shown(origin)}: only itself is 0")
        if not 1 <= len(origin) <= IDENTITY_CODEPOINTS_MAX:
            raise RemoteProtocolError(neighbor.name, f"told a broker's name of {len(origin):,} characters")

    def _reconsider(self, origin: str, neighbor: Neighbor, before: int, after: int, change: RouteChange) -> None:
        """A neighbor has said another number for an origin."""
        was_child, is_child = before > self.infinity, after > self.infinity
        if was_child and not is_child:
            self._lose_child(origin, neighbor)
            change.lost.add((origin, neighbor))
        elif is_child and not was_child:
            self._children[origin] = tuple(sorted((*self.children(origin), neighbor)))
            change.gained.add((origin, neighbor))
        route_before, route = self._routes.get(origin), self._best(origin)
        if route == route_before or origin == self.name:
            return
        if route is None:
            del self._routes[origin]
        else:
            self._routes[origin] = route
        self._touched.add(origin)
        if route_before is None or route is None or route[1] != route_before[1]:
            change.parents.add(origin)

    def _lose_child(self, origin: str, neighbor: Neighbor) -> None:
        left = tuple(child for child in self._children[origin] if child != neighbor)
        if left:
            self._children[origin] = left
        else:
            del self._children[origin]

    def _best(self, origin: str) -> tuple[int, Neighbor] | None:
        """The shortest route, by distance and then by name."""
        infinity = self.infinity
        routes = [(said.get(origin, infinity) + 1, neighbor) for neighbor, said in self._heard.items()]
        best = min(routes, default=None)
        return None if best is None or best[0] >= infinity else best

    # --- what neighbors are told ---

    def flush(self) -> list[Action]:
        """Tells each neighbor what has changed for it since it was last told."""
        touched, self._touched = sorted(self._touched), set()
        actions: list[Action] = []
        for neighbor in sorted(self._told) if touched else ():
            told = self._told[neighbor]
            entries: list[tuple[str, int]] = []
            for origin in touched:
                number = self._number_for(origin, neighbor)
                if number != told.get(origin, self.infinity):
                    entries.append((origin, number))
                    told[origin] = number
                    if number == self.infinity:
                        del told[origin]
            if entries:
                actions.append(Send(neighbor, Distances(tuple(entries))))
        return actions

    def _number_for(self, origin: str, neighbor: Neighbor) -> int:
        if origin == self.name:
            return 0
        route = self._routes.get(origin)
        if route is None:
            return self.infinity
        distance, hop = route
        return self.infinity + distance if hop == neighbor else distance
