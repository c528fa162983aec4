"""Perfect filtering: every notification goes to the brokers that want it and to no other, and nothing is said for that.

What filter propagation is compared with as the best case, filtering at the publisher without any control message (its
text, §4.3 and §5.1). No live broker can do it: a core here sees the cores of all other brokers. They share a *world*,
which only the simulator gives them.

State: the local clients; the links that are up; the world. The world has the core of each broker. A broker that crashed
is still in it, but it cannot be reached: its neighbors know that their links are down.

notification    of a client: the world finds the brokers that want it now. It goes down the tree of this broker, to the
                neighbors that lead to one of these. Brokers on the way do the same with the same answer: what is wanted
                is decided when it is published. Trees are those of filter propagation and DVMRP: the fewest links, of
                equal parents the one whose name comes first. So the systems can be compared message by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Never

from catchment.model.notification import Notification
from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    Action,
    Client,
    Forward,
    Interface,
    Neighbor,
    Routed,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.paths import agreed, next_hops
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.siena.messages import OriginHeader

# Notifications under way whose receivers are kept: a run has fewer at a time.
UNDER_WAY_MAX: Final = 100_000
# Clients that publish whose last number is kept. The one that has been silent longest is forgotten first.
PUBLISHERS_MAX: Final = 100_000


class World:
    """All cores of one simulated network."""

    def __init__(self) -> None:
        self._cores: dict[str, PerfectCore] = {}
        # By origin and broker, for each broker below it the neighbor that leads there; forgotten when a link changes.
        self._hops: dict[tuple[str, str], dict[str, str]] = {}
        # By publisher and number: the brokers that wanted a notification when it was published.
        self._receivers: dict[tuple[str | None, int | None], tuple[str, ...]] = {}

    def enter(self, core: PerfectCore) -> None:
        """A broker has started. After a crash its new core takes the place of the old."""
        self._cores[core.name] = core

    def links_changed(self) -> None:
        self._hops.clear()

    def hops(self, origin: str, here: str) -> dict[str, str]:
        """For each broker below `here` in the tree of an origin, the neighbor that leads to it."""
        if (origin, here) not in self._hops:
            self._hops[origin, here] = next_hops(self._tree(origin), here)
        return self._hops[origin, here]

    def _tree(self, origin: str) -> dict[str, str | None]:
        """The parent of each broker that an origin reaches, level by level."""
        links = agreed({name: core.costs for name, core in self._cores.items()})
        parents: dict[str, str | None] = {origin: None}
        level = [origin]
        while level:
            below: dict[str, str | None] = {}
            # By name: the first to reach a broker is its parent.
            for broker in sorted(level):
                for neighbor in links[broker]:
                    if neighbor not in parents:
                        below.setdefault(neighbor, broker)
            parents |= below
            level = list(below)
        return parents

    def receivers(self, notification: Notification, is_published: bool) -> tuple[str, ...]:
        """The brokers whose clients want a notification, or wanted it when it was published."""
        key = notification.source, notification.seq
        if is_published or key not in self._receivers:
            if len(self._receivers) >= UNDER_WAY_MAX:
                del self._receivers[next(iter(self._receivers))]
            wanting = (name for name, core in self._cores.items() if core.wants(notification))
            self._receivers[key] = tuple(sorted(wanting))
        return self._receivers[key]


class PerfectCore(DispatchingCore[Never]):
    """A broker that sees all others."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.clients = ClientSide()
        # Of the links that are up, by name of the neighbor.
        self.costs: dict[str, int] = {}
        self._world = world
        self._newest = Newest(PUBLISHERS_MAX)
        self._matched = 0
        world.enter(self)

    def wants(self, notification: Notification) -> bool:
        """Whether a client here wants it."""
        return bool(len(self.clients.matcher) and self.clients.matcher.answers([notification])[0])

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        self.costs[neighbor.name] = cost
        self._world.links_changed()
        return []

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        self.costs.pop(neighbor.name, None)
        self._world.links_changed()
        return []

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        fresh = [routed for routed in batch if self._newest.is_new(routed.notification)]
        self._matched += len(fresh)
        actions = self.clients.due([routed.notification for routed in fresh], now)
        outgoing: dict[Neighbor, list[Routed]] = {}
        for routed in fresh:
            header = routed.header
            origin = header.origin if isinstance(header, OriginHeader) else self.name
            receivers = self._world.receivers(routed.notification, isinstance(source, Client))
            hops = self._world.hops(origin, self.name)
            further = Routed(routed.notification, OriginHeader(header.hops + 1, origin))
            for name in sorted({hops[broker] for broker in receivers if broker in hops}):
                outgoing.setdefault(Neighbor(name), []).append(further)
        return actions + [Forward(neighbor, tuple(outgoing[neighbor])) for neighbor in sorted(outgoing)]

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (self.clients.matcher,)

    def inspect(self) -> Inspection:
        return Inspection(tuple(self.clients.tables()), Work(self._matched, old=self._newest.old_count))

    def leftovers(self) -> list[str]:
        return self.clients.leftovers()
