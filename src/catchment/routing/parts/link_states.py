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
             is from before a crash, and the clock has gone back since; or somebody has made it up. The broker states
             its links again, with a greater number.
link up      The broker states its links again, and sends all records to the new neighbor: two networks that were apart
             become one.
link down    The broker states its links again. A broker that nobody has a link to is in nobody's tree.

What makes sense. A number is a time, so one that lies more than AHEAD_MAX_US in the future is no number of that origin.
If the origin itself says it, its clock is wrong, and it loses the link. If a neighbor passes it on, it is dropped: the
neighbor's clock may be a little ahead of ours. So a broker can always outbid what was made up in its name: the greatest
number that others accept is only so far away, and time moves on.

Forgetting. Every CHECK_US after a change the broker looks which origins it cannot reach; it *marks* them. It forgets
the record of an origin that has been marked for FORGET_US. So what was made up goes by itself, also if brokers are
restarted one by one and tell each other what they know. One thing must be minded: while one broker has forgotten an
origin that comes back, the next may still know it, and would not flood on a record that is not new to it. So a broker
floods a record of a marked origin on although it knows it, once.

Room. There are at most BROKERS_MAX records. When all places are taken, those of origins that cannot be reached go
first, the longest marked first. If all can be reached, each neighbor has a share: the origins that it leads to. The
neighbor with the greatest share loses the farthest of them, unless the newcomer is in that same share: then the
newcomer is dropped and counted. So whoever makes up brokers takes places only from itself. The record of a neighbor
itself always finds room, unless all places are taken by neighbors: then it is refused, and told why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Final

from msgspec import Meta

from catchment.errors import LimitError, RemoteProtocolError
from catchment.routing.core import KnownBroker
from catchment.routing.messages import (
    SECOND,
    Action,
    BrokerMessage,
    BrokerName,
    LinkCost,
    Neighbor,
    Number,
    Refuse,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.parts.paths import agreed, next_hops, tree

# Brokers of one network: this broker keeps a record of each, and a tree for each.
BROKERS_MAX: Final = 10_000
# So many records go at once when there is no room: finding them takes a tree, which is computed once for all of them.
ROOM_AT_ONCE: Final = 100
# How far the clock of another broker may be ahead: more than any mistake with time zones.
AHEAD_MAX_US: Final = 24 * 3_600 * SECOND
# How soon after a change a broker looks who cannot be reached, and how often while there is somebody.
CHECK_US: Final = 60 * SECOND
# How long an origin that cannot be reached is kept: several checks, and longer than a broker takes to restart.
FORGET_US: Final = 10 * CHECK_US
# The timer of the checks.
CHECK_TIMER: Final = "link states"


class Links(BrokerMessage, frozen=True):
    """A record: the neighbors of `origin` by name, with the costs of the links. A record with a greater `seq` replaces
    it. Brokers flood it."""

    origin: BrokerName
    seq: Number
    costs: Annotated[tuple[tuple[BrokerName, LinkCost], ...], Meta(max_length=BROKERS_MAX)]


def following(seq: int, now: Time) -> int:
    """The number of the record that follows the record numbered `seq`."""
    # Never less than the time: a broker that restarts from 0 still numbers above its records from before the crash.
    return max(seq + 1, now)


def is_plausible(seq: int, now: Time) -> bool:
    """Whether a record can have this number."""
    return 0 <= seq <= now + AHEAD_MAX_US


def implausible(origin: str, seq: int, source: Neighbor, now: Time) -> list[Action]:
    """What to do about a record whose number is not plausible: nothing, unless its origin itself has sent it."""
    if source.name != origin:
        return []
    what = f"numbered a record {(seq - now) / SECOND:,.0f} s ahead of the clock here: set the clocks of both brokers"
    return [Refuse(source, RemoteProtocolError(source.name, what))]


class LinkStates:
    """What the broker `name` knows about the links of all brokers. `forgotten` is called with each origin whose record
    is forgotten. The core gives `on_timer` each timer that fires. `record` makes our own record; a routing system may
    have records that say more than `Links`."""

    def __init__(
        self,
        name: str,
        forgotten: Callable[[str], None] | None = None,
        record: Callable[[str, int, tuple[tuple[str, int], ...]], Links] = Links,
    ) -> None:
        self.name = name
        self._made = record
        # Our own links.
        self.costs: dict[Neighbor, int] = {}
        self._records: dict[str, Links] = {name: record(name, 0, ())}
        self._forgotten = forgotten
        # Grows with each new record.
        self.version = 0
        # Records that did not make sense, or found no room.
        self.dropped = 0
        # Computed when asked for; forgotten with each new record. Links that both ends state; trees and hops by origin.
        self._agreed: dict[str, dict[str, int]] | None = None
        self._trees: dict[str, dict[str, str | None]] = {}
        self._hops: dict[str, dict[str, str]] = {}
        # The marks: since when an origin could not be reached, and which kinds of its records were flooded again.
        self._unreached: dict[str, Time] = {}
        self._repeated: set[tuple[type, str]] = set()
        self._is_checking = False

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
        if not is_plausible(record.seq, now):
            self.dropped += 1
            return implausible(record.origin, record.seq, source, now)
        if record.origin == self.name:
            mine = self._records[self.name]
            # An echo of a record that we flooded needs no answer. Anything else with our number or a greater one is
            # from before a crash: other brokers would prefer it to ours, so ours must get a number above it.
            outdated = record.seq < mine.seq or record == mine
            return [] if outdated else self._restated(self.costs, now, record.seq)
        known = self._records.get(record.origin)
        # Flooding ends here: each broker passes a record on only when it is new to it.
        if known is not None and known.seq >= record.seq:
            return self.flooded(record, source) if record == known and self.may_repeat(Links, record.origin) else []
        if known is None and not self._has_room(record.origin, source):
            self.dropped += 1
            return self._crowded(record.origin, source)
        self._record(record)
        return self.flooded(record, source) + self._checking(now)

    def _restated(self, costs: dict[Neighbor, int], now: Time, seq: int = 0) -> list[Action]:
        """States our links to all neighbors, with a number greater than our last one and greater than `seq`."""
        self.costs = costs
        number = following(max(self._records[self.name].seq, seq), now)
        links = tuple(sorted((neighbor.name, cost) for neighbor, cost in costs.items()))
        self._record(self._made(self.name, number, links))
        return self.flooded(self._records[self.name]) + self._checking(now)

    def _record(self, record: Links) -> None:
        self._records[record.origin] = record
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._agreed = None
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
        """By origin. Brokers that cannot be reached now have their last record here too, until it is forgotten."""
        return self._records

    def known_brokers(self) -> tuple[KnownBroker, ...]:
        """All brokers that this one has heard of, as `Inspection` shows them."""
        reached = set(self.reached)
        return tuple(KnownBroker(name, name in reached, record.costs) for name, record in sorted(self._records.items()))

    # --- forgetting ---

    def _checking(self, now: Time) -> list[Action]:
        """After a change: sets the timer of the next check, if it is not set."""
        if self._is_checking:
            return []
        self._is_checking = True
        return [SetTimer(CHECK_TIMER, now + CHECK_US, is_idle=True)]

    def on_timer(self, name: str, now: Time) -> list[Action]:
        """Marks the origins that cannot be reached, and forgets those that were marked long ago."""
        if name != CHECK_TIMER:
            return []
        self._is_checking = False
        reached = set(self.reached)
        unreached = [origin for origin in self._records if origin not in reached]
        since_before = self._unreached
        self._unreached = {origin: since_before.get(origin, now) for origin in unreached}
        # An origin that is marked anew may be repeated anew.
        self._repeated = {each for each in self._repeated if each[1] in since_before and each[1] in self._unreached}
        for origin in unreached:
            if now - self._unreached[origin] >= FORGET_US:
                self._forget(origin)
        return self._checking(now) if self._unreached else []

    def may_repeat(self, kind: type, origin: str) -> bool:
        """Whether a record of this kind that is known already is flooded on: its origin could not be reached for a
        while, and others may have forgotten it. Once for each kind, so that flooding ends."""
        if origin not in self._unreached or (kind, origin) in self._repeated:
            return False
        self._repeated.add((kind, origin))
        return True

    def _forget(self, origin: str) -> None:
        del self._records[origin]
        self._unreached.pop(origin, None)
        self._changed()
        if self._forgotten is not None:
            self._forgotten(origin)

    # --- room ---

    def _has_room(self, origin: str, source: Neighbor) -> bool:
        if len(self._records) >= BROKERS_MAX:
            self._make_room(origin, source)
        return len(self._records) < BROKERS_MAX

    def _crowded(self, origin: str, source: Neighbor) -> list[Action]:
        """There is no room for a record. If it is the neighbor's own, the link is of no use, and is refused."""
        if source.name != origin:
            return []
        problem = LimitError("BROKERS_MAX", BROKERS_MAX, "one more", "split the network")
        return [Refuse(source, problem)]

    def _make_room(self, origin: str, source: Neighbor) -> None:
        near = {self.name, *(neighbor.name for neighbor in self.costs)}
        parents = self.tree(self.name)
        gone = [each for each in self._records if each not in parents and each not in near]
        # Those that were marked first have been away longest; those that are not marked yet have come last.
        gone.sort(key=lambda each: (each not in self._unreached, self._unreached.get(each, 0)))
        for each in gone[:ROOM_AT_ONCE] or self._farthest_of_the_greatest_share(parents, near, origin, source):
            self._forget(each)

    def forget_marked(self, but: str) -> None:
        """Forgets all origins but one that are marked and still cannot be reached: a core needs room for what it keeps
        for origins. Those that are not marked may have come a moment ago, and the other end of their link follows."""
        reached = {but, *self.reached}
        for origin in [origin for origin in self._unreached if origin not in reached]:
            self._forget(origin)

    def _farthest_of_the_greatest_share(
        self, parents: Mapping[str, str | None], near: set[str], origin: str, source: Neighbor
    ) -> list[str]:
        leads_to = next_hops(parents, self.name)
        shares = Counter(leads_to[each] for each in leads_to)
        greatest = max(sorted(shares), key=lambda neighbor: shares[neighbor], default=source.name)
        excess = shares[greatest] - shares[source.name]
        if excess < 2 and source.name != origin:
            return []
        # `parents` has the nearest first: Dijkstra finds them in that order.
        far_first = [each for each in reversed(list(parents)) if each not in near and leads_to[each] == greatest]
        return far_first[: max(1, min(ROOM_AT_ONCE, excess // 2))]

    # --- paths ---

    @property
    def reached(self) -> tuple[str, ...]:
        """The names of the brokers that can be reached from this one, sorted. This broker is one of them."""
        return tuple(sorted(self.tree(self.name)))

    def tree(self, origin: str) -> dict[str, str | None]:
        """The shortest-path tree of `origin`: for each broker that it reaches, the broker before it on the path."""
        if origin not in self._records:
            # Nothing is kept for a name that somebody has written into a header: there are as many names as one likes.
            return {origin: None}
        if origin not in self._trees:
            if self._agreed is None:
                self._agreed = agreed({broker: dict(record.costs) for broker, record in self._records.items()})
            self._trees[origin] = tree(self._agreed, origin)
        return self._trees[origin]

    def hops_from(self, origin: str) -> dict[str, str]:
        """For each broker that is below this one in the tree of `origin`: the neighbor that leads to it."""
        if origin not in self._records:
            return {}
        if origin not in self._hops:
            self._hops[origin] = next_hops(self.tree(origin), self.name)
        return self._hops[origin]
