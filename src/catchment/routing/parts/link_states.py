"""Link states: each broker floods a record of its links, keeps the records of all others, and computes paths from them.

A *record* (`Links`) lists the links that one broker, its *origin*, has. To *flood* a record is to send it to all
neighbors, which send it on to theirs. So all brokers have the same records, and compute the same shortest-path trees
(`paths.py`).

Each record has a sequence number (`seq`); of two records of one origin, the one with the greater number is newer. A
broker numbers its next record at least with the current time. So a broker that crashed and lost its memory begins with
a number greater than all that it used before.

Links        If the record is newer than the known record of its origin, it replaces that record and is flooded on.
             Trees are computed again when somebody asks for one.
own record   A broker hears a record of its own links with a number that is not less than its current number: the record
             is from before a crash, and the clock has gone back since. The broker states its links again, with a
             greater number.
link up      The broker states its links again, and sends all records to the new neighbor: two networks that were apart
             become one.
link down    The broker states its links again. A broker that nobody has a link to is in nobody's tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catchment.routing.core import KnownBroker
from catchment.routing.messages import Action, BrokerMessage, Neighbor, Send, Time
from catchment.routing.parts.paths import agreed, next_hops, tree


class Links(BrokerMessage, frozen=True):
    """A record: the neighbors of `origin` by name, with the costs of the links. A record with a greater `seq` replaces
    it. Brokers flood it."""

    origin: str
    seq: int
    costs: tuple[tuple[str, int], ...]


def following(seq: int, now: Time) -> int:
    """The number of the record that follows the record numbered `seq`."""
    # Never less than the time: a broker that restarts from 0 still numbers above its records from before the crash.
    return max(seq + 1, now)


class LinkStates:
    """What the broker `name` knows about the links of all brokers. `record` makes our own record; a routing system may
    have records that say more than `Links`."""

    def __init__(self, name: str, record: Callable[[str, int, tuple[tuple[str, int], ...]], Links] = Links) -> None:
        self.name = name
        self._made = record
        # Our own links.
        self.costs: dict[Neighbor, int] = {}
        self._records: dict[str, Links] = {name: record(name, 0, ())}
        # Grows with each new record.
        self.version = 0
        # Computed when asked for, by origin; forgotten with each new record.
        self._trees: dict[str, dict[str, str | None]] = {}
        self._hops: dict[str, dict[str, str]] = {}

    # --- records ---

    def up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        """A link has come up."""
        actions = self._restated({**self.costs, neighbor: cost}, now)
        # The neighbor's network may never have heard of the brokers on this side. Our own record went out above.
        records = [self._records[origin] for origin in sorted(self._records) if origin != self.name]
        return actions + [Send(neighbor, record) for record in records]

    def down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        """A link has gone down."""
        return self._restated({linked: cost for linked, cost in self.costs.items() if linked != neighbor}, now)

    def heard(self, record: Links, source: Neighbor, now: Time) -> list[Action]:
        """A neighbor has sent a record."""
        known = self._records.get(record.origin)
        if record.origin == self.name:
            mine = self._records[self.name]
            # An echo of a record that we flooded needs no answer. Anything else with our number or a greater one is
            # from before a crash: other brokers would prefer it to ours, so ours must get a number above it.
            outdated = record.seq < mine.seq or record == mine
            return [] if outdated else self._restated(self.costs, now, record.seq)
        # Flooding ends here: each broker passes a record on only when it is new to it.
        if known is not None and known.seq >= record.seq:
            return []
        self._record(record)
        return self.flooded(record, source)

    def _restated(self, costs: dict[Neighbor, int], now: Time, seq: int = 0) -> list[Action]:
        """States our links to all neighbors, with a number greater than our last one and greater than `seq`."""
        self.costs = costs
        number = following(max(self._records[self.name].seq, seq), now)
        links = tuple(sorted((neighbor.name, cost) for neighbor, cost in costs.items()))
        self._record(self._made(self.name, number, links))
        return self.flooded(self._records[self.name])

    def _record(self, record: Links) -> None:
        self._records[record.origin] = record
        self.version += 1
        self._trees.clear()
        self._hops.clear()

    def flooded(self, message: BrokerMessage, source: Neighbor | None = None) -> list[Action]:
        """Sends a record to all neighbors except the one it came from."""
        return [Send(neighbor, message) for neighbor in sorted(self.costs) if neighbor != source]

    @property
    def seq(self) -> int:
        """The number of our own record."""
        return self._records[self.name].seq

    @property
    def records(self) -> Mapping[str, Links]:
        """By origin. Brokers that cannot be reached now have their last record here too."""
        return self._records

    def known_brokers(self) -> tuple[KnownBroker, ...]:
        """All brokers that this one has heard of, as `Inspection` shows them."""
        reached = set(self.reached)
        return tuple(KnownBroker(name, name in reached, record.costs) for name, record in sorted(self._records.items()))

    # --- paths ---

    @property
    def reached(self) -> tuple[str, ...]:
        """The names of the brokers that can be reached from this one, sorted. This broker is one of them."""
        return tuple(sorted(self.tree(self.name)))

    def tree(self, origin: str) -> dict[str, str | None]:
        """The shortest-path tree of `origin`: for each broker that it reaches, the broker before it on the path."""
        if origin not in self._trees:
            links = agreed({broker: dict(record.costs) for broker, record in self._records.items()})
            self._trees[origin] = tree(links, origin)
        return self._trees[origin]

    def hops_from(self, origin: str) -> dict[str, str]:
        """For each broker that is below this one in the tree of `origin`: the neighbor that leads to it."""
        if origin not in self._hops:
            self._hops[origin] = next_hops(self.tree(origin), self.name)
        return self._hops[origin]
