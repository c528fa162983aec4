"""The links of all brokers, flooded: the record each broker keeps of the others', and the paths that follow from it.

Every broker states the links it has, with a number that only grows: it is never less than the time, so that a broker
which has lost its memory goes on above what it said before. So all brokers know the same, and compute the same
shortest-path trees (`paths.py`).

Links        replaces the record of its origin if newer, and is flooded on. Trees are computed anew when next needed.
own record   heard from others with a greater number: from before a crash, and the clock went back. Ours is stated
             anew with one greater.
link up      our links are stated anew, and the neighbor is given all records: two networks that were apart become one.
link down    our links are stated anew. A broker that is gone is in nobody's tree.
"""

from __future__ import annotations

from collections.abc import Mapping

from catchment.routing.core import KnownBroker
from catchment.routing.messages import Action, BrokerMessage, Neighbor, Send, Time
from catchment.routing.parts.paths import agreed, next_hops, tree


class Links(BrokerMessage, frozen=True):
    """The links that `origin` has, with their costs, by name; one with a greater `seq` replaces it. Flooded."""

    origin: str
    seq: int
    costs: tuple[tuple[str, int], ...]


def following(seq: int, now: Time) -> int:
    """The number of a record that follows one."""
    return max(seq + 1, now)


class LinkStates:
    """What the broker `name` knows of all links."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Our own links.
        self.costs: dict[Neighbor, int] = {}
        self._records: dict[str, Links] = {name: Links(name, 0, ())}
        # Grows with each record that is new.
        self.version = 0
        self._trees: dict[str, dict[str, str | None]] = {}
        self._hops: dict[str, dict[str, str]] = {}

    # --- records ---

    def up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        actions = self._restated({**self.costs, neighbor: cost}, now)
        others = [self._records[one] for one in sorted(self._records) if one != self.name]
        return actions + [Send(neighbor, record) for record in others]

    def down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return self._restated({one: cost for one, cost in self.costs.items() if one != neighbor}, now)

    def heard(self, record: Links, source: Neighbor, now: Time) -> list[Action]:
        known = self._records.get(record.origin)
        if record.origin == self.name:
            mine = self._records[self.name]
            outdated = record.seq < mine.seq or record == mine
            return [] if outdated else self._restated(self.costs, now, record.seq)
        if known is not None and known.seq >= record.seq:
            return []
        self._record(record)
        return self.flooded(record, source)

    def _restated(self, costs: dict[Neighbor, int], now: Time, seq: int = 0) -> list[Action]:
        """Our links, told to all; with a number after `seq` too."""
        self.costs = costs
        number = following(max(self._records[self.name].seq, seq), now)
        self._record(Links(self.name, number, tuple(sorted((one.name, cost) for one, cost in costs.items()))))
        return self.flooded(self._records[self.name])

    def _record(self, record: Links) -> None:
        self._records[record.origin] = record
        self.version += 1
        self._trees.clear()
        self._hops.clear()

    def flooded(self, message: BrokerMessage, source: Neighbor | None = None) -> list[Action]:
        """A record to all neighbors but the one that it came from."""
        return [Send(one, message) for one in sorted(self.costs) if one != source]

    @property
    def seq(self) -> int:
        """The number of our own record."""
        return self._records[self.name].seq

    @property
    def records(self) -> Mapping[str, Links]:
        """By origin, those of brokers that cannot be reached too."""
        return self._records

    def known_brokers(self) -> tuple[KnownBroker, ...]:
        """For who looks into a core."""
        reached = set(self.reached)
        return tuple(KnownBroker(name, name in reached, record.costs) for name, record in sorted(self._records.items()))

    # --- paths ---

    @property
    def reached(self) -> tuple[str, ...]:
        """The brokers that can be reached, this one among them."""
        return tuple(sorted(self.tree(self.name)))

    def tree(self, origin: str) -> dict[str, str | None]:
        """For each broker that an origin reaches, the one before it on the shortest path."""
        if origin not in self._trees:
            links = agreed({one: dict(record.costs) for one, record in self._records.items()})
            self._trees[origin] = tree(links, origin)
        return self._trees[origin]

    def hops_from(self, origin: str) -> dict[str, str]:
        """For each broker that is reached through this one from an origin, the neighbor that leads to it."""
        if origin not in self._hops:
            self._hops[origin] = next_hops(self.tree(origin), self.name)
        return self._hops[origin]
