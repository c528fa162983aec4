"""Fewer filters over a link than are wanted beyond it: merging and batching (SIENA §5.3.1, §5.3.2).

Between what a neighbor is to be told (`Forwarding`) and what is said to it stands a `Merged`: groups of filters, each
said as one that covers its members. *Perfectly*, by default: what is said lets through exactly what the members do.
*Imperfectly*, with a budget: it may let more through, a stated share of it at most, under a stated distribution of
notifications.

announce    what is covered by a group joins it, and nothing is said. Else it is merged with a group of the same
            attributes, if that can be; what the merged filter covers besides joins too, so that no two filters said to
            a neighbor cover one another: it would forget the narrower, and miss it when the wider goes.
withdraw    the group it was in is dissolved, and what is left of it announced anew. All in one message.

A link may also be told in batches: changes wait for a stated time and go together, those that cancelled one another
not at all.

`MergingCore` puts both around a core that tells its neighbors Interest and Advertised: it changes what is said, and the
core inside need not know. A network may have some brokers with it and some without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Generic

from catchment.errors import LimitError
from catchment.model.filter import Advertisement, Filter
from catchment.model.measure import Distribution
from catchment.model.merging import imperfect_merge, perfect_merge, perfect_merge_of_advertisements
from catchment.routing.core import Inspection
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    ClientRequest,
    HostMessage,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Routed,
    Send,
    SetTimer,
    Time,
    TimerFired,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.poset import K, Poset
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.forwarding import Change, in_text_order
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.messages import Advertised, Interest

# Groups that a filter is tried with, the newest first: each try is a union.
TRIES_MAX: Final = 16
# Members of a group: all are announced anew when one leaves.
MEMBERS_MAX: Final = 256

# What may be said for all members of two groups, given what is said for each; None if they stay apart.
Join = Callable[[Sequence[K], K, Sequence[K], K], K | None]


@dataclass(frozen=True, slots=True)
class Merging:
    """`false_positive_share_max` is the budget: of what a merged filter lets through, the share nobody asked for."""

    false_positive_share_max: float = 0.0
    distribution: Distribution = field(default_factory=Distribution)

    def join(self, members: Sequence[Filter], said: Filter, others: Sequence[Filter], other: Filter) -> Filter | None:
        try:
            merged = perfect_merge(said, other)
            if merged is None and self.false_positive_share_max > 0:
                wide = imperfect_merge([*members, *others], self.distribution)
                merged = wide.filter if wide.false_positive_share <= self.false_positive_share_max else None
        except LimitError:
            return None
        return merged


def join_advertisements(
    members: Sequence[Advertisement], said: Advertisement, others: Sequence[Advertisement], other: Advertisement
) -> Advertisement | None:
    try:
        return perfect_merge_of_advertisements(said, other)
    except LimitError:
        return None


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """How a neighbor is told: merged or as it is, and how long changes wait to go together."""

    merging: Merging | None = None
    batch: Time = 0


PLAIN: Final = LinkPolicy()
# Its timers begin with this, and go on with the name of the neighbor.
TIMER: Final = "say "


class Merged(Generic[K]):
    """What is said to one neighbor."""

    def __init__(self, join: Join[K]) -> None:
        self._join: Join[K] = join
        self._members: dict[K, dict[K, None]] = {}
        self._group_of: dict[K, K] = {}
        self._poset: Poset[K] = Poset()
        self._by_names: dict[frozenset[str], dict[K, None]] = {}

    @property
    def said(self) -> tuple[K, ...]:
        return tuple(self._members)

    def update(self, change: Change[K]) -> Change[K]:
        """What is to be said, given what has changed in what the neighbor is to be told."""
        before: set[K] = set()  # what was said and may be so no longer
        loose = dict.fromkeys(change.announced)
        for one in change.withdrawn:
            if (group := self._group_of.get(one)) is not None:
                before.add(group)
                loose.update(self._dissolved(group))
        for one in change.withdrawn:
            loose.pop(one, None)
        entered: set[K] = set()
        for one in in_text_order(loose):
            self._enter(one, before, entered)
        after = {one for one in entered if one in self._members}
        gone = {one for one in before if one not in self._members}
        # One that went and came again was never away.
        return Change(in_text_order(gone), in_text_order(after - before))

    def _dissolved(self, group: K) -> dict[K, None]:
        members = self._members.pop(group)
        for one in members:
            del self._group_of[one]
        self._poset.remove(group)
        self._by_names[_names(group)].pop(group)
        return members

    def _enter(self, filter: K, before: set[K], entered: set[K]) -> None:
        above = self._poset.covering(filter)
        if above:
            self._put(above[0], (filter,))
            return
        members: dict[K, None] = {filter: None}
        said = filter
        while (found := self._mergeable(members, said)) is not None:
            said, other = found
            members.update(self._taken(other, before, entered))
        for covered in self._poset.covered(said):
            members.update(self._taken(covered, before, entered))
        self._members[said] = {}
        self._poset.insert(said)
        self._by_names.setdefault(_names(said), {})[said] = None
        self._put(said, members)
        entered.add(said)

    def _taken(self, group: K, before: set[K], entered: set[K]) -> dict[K, None]:
        if group not in entered:
            before.add(group)
        entered.discard(group)
        return self._dissolved(group)

    def _put(self, group: K, members: Iterable[K]) -> None:
        for one in members:
            self._members[group][one] = None
            self._group_of[one] = group

    def _mergeable(self, members: dict[K, None], said: K) -> tuple[K, K] | None:
        """What to say for these and another group together, and that group."""
        candidates = self._by_names.get(_names(said), {})
        for other in list(islice(reversed(candidates), TRIES_MAX)):
            others = self._members[other]
            if len(members) + len(others) <= MEMBERS_MAX:
                merged = self._join(tuple(members), said, tuple(others), other)
                if merged is not None:
                    return merged, other
        return None


class _Said(Generic[K]):
    """What one neighbor is told of one kind: what waits to be said, and what has been, merged or not."""

    def __init__(self, join: Join[K] | None) -> None:
        self._merged: Merged[K] | None = None if join is None else Merged(join)
        self._plain: dict[K, None] = {}
        self._withdrawn: dict[K, None] = {}
        self._announced: dict[K, None] = {}

    def add(self, withdrawn: Iterable[K], announced: Iterable[K]) -> None:
        for gone, come, filters in (
            (self._announced, self._withdrawn, withdrawn),
            (self._withdrawn, self._announced, announced),
        ):
            for one in filters:
                # What waits to be withdrawn and is announced again was never away.
                if one in gone:
                    del gone[one]
                else:
                    come[one] = None

    def take(self) -> Change[K]:
        """What is to be said now."""
        change = Change(in_text_order(self._withdrawn), in_text_order(self._announced))
        self._withdrawn, self._announced = {}, {}
        if self._merged is not None:
            return self._merged.update(change)
        for one in change.withdrawn:
            del self._plain[one]
        self._plain.update(dict.fromkeys(change.announced))
        return change

    @property
    def filters(self) -> tuple[K, ...]:
        return tuple(self._plain) if self._merged is None else self._merged.said


# Cores that tell their neighbors Interest, and perhaps Advertised, hop by hop.
MergeableCore = AcyclicCore | HierarchicalCore | AdvertisingCore
MergingMessage = Interest | Advertised


class MergingCore:
    """A core that says less: `policy` for all links, or for single ones, by neighbor."""

    def __init__(
        self, inner: MergeableCore, policy: LinkPolicy, by_neighbor: Mapping[str, LinkPolicy] | None = None
    ) -> None:
        self.inner: Any = inner
        self._policy = policy
        self._by_neighbor = by_neighbor or {}
        self._interest: dict[Neighbor, _Said[Filter]] = {}
        self._offers: dict[Neighbor, _Said[Advertisement]] = {}
        self._waiting: set[Neighbor] = set()

    @property
    def name(self) -> str:
        return str(self.inner.name)

    @property
    def clients(self) -> ClientSide:
        clients: ClientSide = self.inner.clients
        return clients

    def said_to(self, neighbor: Neighbor) -> tuple[tuple[Filter, ...], tuple[Advertisement, ...]]:
        """The filters and advertisements that a neighbor has been told."""
        known = neighbor in self._interest
        return (self._interest[neighbor].filters, self._offers[neighbor].filters) if known else ((), ())

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        matchers: Sequence[RecallingMatcher[Any]] = self.inner.matchers()
        return matchers

    def inspect(self) -> Inspection:
        inspection: Inspection = self.inner.inspect()
        return inspection

    def leftovers(self) -> list[str]:
        said = [
            f"{filter}, said to {neighbor}"
            for neighbor in sorted(self._interest)
            for filter in self.said_to(neighbor)[0]
        ]
        return [*self.inner.leftovers(), *said]

    # --- what comes ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        return self._saved(self.inner.on_notifications(batch, source, now), now)

    def on_message(
        self, message: ClientRequest | HostMessage | MergingMessage, source: Interface, now: Time
    ) -> list[Action]:
        match message:
            case TimerFired() if message.name.startswith(TIMER):
                neighbor = Neighbor(message.name.removeprefix(TIMER))
                self._waiting.discard(neighbor)
                return self._say(neighbor) if neighbor in self._interest else []
            case LinkUp() | LinkDown():
                assert isinstance(source, Neighbor)
                self._forget(source)
                if isinstance(message, LinkUp):
                    merging = self._policy_of(source).merging
                    self._interest[source] = _Said(None if merging is None else merging.join)
                    self._offers[source] = _Said(None if merging is None else join_advertisements)
            case _:
                pass
        return self._saved(self.inner.on_message(message, source, now), now)

    def _policy_of(self, neighbor: Neighbor) -> LinkPolicy:
        return self._by_neighbor.get(neighbor.name, self._policy)

    def _forget(self, neighbor: Neighbor) -> None:
        self._interest.pop(neighbor, None)
        self._offers.pop(neighbor, None)

    def _saved(self, actions: list[Action], now: Time) -> list[Action]:
        """The same, with what neighbors are told merged, now or later."""
        found: list[Action] = []
        told: dict[Neighbor, None] = {}
        for action in actions:
            match action:
                case Send(message=Interest(withdrawn, announced)):
                    self._interest[action.interface].add(withdrawn, announced)
                    told[action.interface] = None
                case Send(message=Advertised(withdrawn, announced)):
                    self._offers[action.interface].add(withdrawn, announced)
                    told[action.interface] = None
                case _:
                    found.append(action)
        for neighbor in told:
            if not (batch := self._policy_of(neighbor).batch):
                found += self._say(neighbor)
            elif neighbor not in self._waiting:
                self._waiting.add(neighbor)
                found.append(SetTimer(TIMER + neighbor.name, now + batch))
        return found

    def _say(self, neighbor: Neighbor) -> list[Action]:
        offers, interest = self._offers[neighbor].take(), self._interest[neighbor].take()
        messages: list[BrokerMessage] = [Advertised(offers.withdrawn, offers.announced)] if offers else []
        messages += [Interest(interest.withdrawn, interest.announced)] if interest else []
        return [Send(neighbor, message) for message in messages]


def _names(filter: Filter | Advertisement) -> frozenset[str]:
    return filter.names if isinstance(filter, Filter) else frozenset(filter.box.sets)
