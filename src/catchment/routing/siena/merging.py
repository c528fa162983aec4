"""Merging and batching: a broker sends fewer filters and fewer messages over a link (SIENA §5.3.1, §5.3.2).

`Forwarding` decides what a neighbor is to be told. What is really *said* to the neighbor is less: `Merged` puts filters
into groups and says for each group one filter that covers all its members. Merging is *perfect* by default: the filter
that is said lets through exactly what the members let through. *Imperfect* merging has a budget: the filter may let
more through, but at most a stated share of what it lets through may be unwanted, under a stated distribution of
notifications.

announce    If the filter of a group covers the new filter, the new one joins that group, and nothing is said. Otherwise
            it is merged with a group that names the same attributes, if that is possible. Then all groups that the
            merged filter covers join too, so no two filters said to a neighbor cover one another. If they did, the
            neighbor would forget the narrower one, and would miss it when the wider one is withdrawn.
withdraw    The group of the filter is dissolved, and its other members are announced again. All that goes in one
            message.

A link may also be told in batches: changes wait for a stated time and go together. Changes that cancelled one another
meanwhile are never sent.

`MergingCore` does both around a core that tells its neighbors Interest and Advertised. It changes what is said; the
core inside does not know of it. In one network, some brokers may merge and others not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Generic

from catchment.errors import LimitError
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
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

# Groups that a filter is tried to merge with, the newest first: each try computes a union.
TRIES_MAX: Final = 16
# Members of a group: when one leaves, all others are announced again.
MEMBERS_MAX: Final = 256

# Given the members of two groups and what is said for each group: the filter that may be said for both together, or
# None if the groups stay apart.
Join = Callable[[Sequence[K], K, Sequence[K], K], K | None]


@dataclass(frozen=True, slots=True)
class Merging:
    """`false_positive_share_max` is the budget: how much of what a merged filter lets through may be unwanted."""

    false_positive_share_max: float = 0.0
    distribution: Distribution = field(default_factory=Distribution)

    def join(
        self, members: Sequence[Filter], said: Filter, other_members: Sequence[Filter], other_said: Filter
    ) -> Filter | None:
        try:
            merged = perfect_merge(said, other_said)
            if merged is None and self.false_positive_share_max > 0:
                # From the members, not from the two filters that are said: what these let through too much already
                # must count against the budget again.
                wide = imperfect_merge([*members, *other_members], self.distribution)
                merged = wide.filter if wide.false_positive_share <= self.false_positive_share_max else None
        except LimitError:
            # The union is too large for the model to compute: the groups stay apart.
            return None
        return merged


def join_advertisements(
    members: Sequence[Advertisement],
    said: Advertisement,
    other_members: Sequence[Advertisement],
    other_said: Advertisement,
) -> Advertisement | None:
    """Advertisements are merged only perfectly."""
    try:
        return perfect_merge_of_advertisements(said, other_said)
    except LimitError:
        return None


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """How a neighbor is told: merged, or not if `merging` is None; and how long changes wait to go together."""

    merging: Merging | None = None
    batch: Time = 0


PLAIN: Final = LinkPolicy()
# The name of a timer is this and the name of the neighbor that changes wait for.
TIMER: Final = "say "


class Merged(Generic[K]):
    """The groups of filters that one neighbor is to be told. A group is known by the filter that is said for it."""

    def __init__(self, join: Join[K]) -> None:
        self._join: Join[K] = join
        # By what is said for a group, its members; and for each member its group.
        self._members: dict[K, dict[K, None]] = {}
        self._group_of: dict[K, K] = {}
        # All that is said, ordered by covering; and by the attributes that it names, the newest last.
        self._poset: Poset[K] = Poset()
        self._by_names: dict[frozenset[str], dict[K, None]] = {}

    @property
    def said(self) -> tuple[K, ...]:
        return tuple(self._members)

    def update(self, change: Change[K]) -> Change[K]:
        """Takes a change of what the neighbor is to be told. Returns what is to be said to it."""
        # What was said before this change and has been dissolved since.
        before: set[K] = set()
        # Filters that are in no group: the new ones, and the members of dissolved groups.
        loose = dict.fromkeys(change.announced)
        for filter in change.withdrawn:
            # None if its group was dissolved already, because of another filter that is withdrawn.
            if (group := self._group_of.get(filter)) is not None:
                before.add(group)
                loose.update(self._dissolved(group))
        for filter in change.withdrawn:
            loose.pop(filter, None)
        entered: set[K] = set()
        # In text order: so the groups do not depend on the order of a set or of the message.
        for filter in in_text_order(loose):
            self._enter(filter, before, entered)
        after = {group for group in entered if group in self._members}
        gone = {group for group in before if group not in self._members}
        # A filter that was dissolved and is said again has not changed for the neighbor: it is in neither list.
        return Change(in_text_order(gone), in_text_order(after - before))

    def _dissolved(self, group: K) -> dict[K, None]:
        """Removes a group. Returns its members."""
        members = self._members.pop(group)
        for member in members:
            del self._group_of[member]
        self._poset.remove(group)
        self._by_names[_names(group)].pop(group)
        return members

    def _enter(self, filter: K, before: set[K], entered: set[K]) -> None:
        """Puts a loose filter into a group. `entered` collects the groups that this update makes, `before` those of
        earlier updates that it dissolves."""
        above = self._poset.covering(filter)
        if above:
            self._put(above[0], (filter,))
            return
        members: dict[K, None] = {filter: None}
        said = filter
        # Merging goes on as long as another group fits: a wider filter may fit to groups that the narrower did not.
        while (merge := self._mergeable(members, said)) is not None:
            said, group = merge
            members.update(self._taken(group, before, entered))
        # The invariant: no filter that is said covers another.
        for covered in self._poset.covered(said):
            members.update(self._taken(covered, before, entered))
        self._members[said] = {}
        self._poset.insert(said)
        self._by_names.setdefault(_names(said), {})[said] = None
        self._put(said, members)
        entered.add(said)

    def _taken(self, group: K, before: set[K], entered: set[K]) -> dict[K, None]:
        """Dissolves a group for the sake of a wider one. Returns its members."""
        # A group that this same update has made was never said: it need not be withdrawn.
        if group not in entered:
            before.add(group)
        entered.discard(group)
        return self._dissolved(group)

    def _put(self, group: K, members: Iterable[K]) -> None:
        for member in members:
            self._members[group][member] = None
            self._group_of[member] = group

    def _mergeable(self, members: dict[K, None], said: K) -> tuple[K, K] | None:
        """A filter to say for these members and another group together, and that group; None if there is none."""
        candidates = self._by_names.get(_names(said), {})
        for candidate in list(islice(reversed(candidates), TRIES_MAX)):
            candidate_members = self._members[candidate]
            if len(members) + len(candidate_members) <= MEMBERS_MAX:
                merged = self._join(tuple(members), said, tuple(candidate_members), candidate)
                if merged is not None:
                    return merged, candidate
        return None


class _Said(Generic[K]):
    """The filters, or the advertisements, for one neighbor: the changes that wait to be said, and what has been said,
    merged or not."""

    def __init__(self, join: Join[K] | None) -> None:
        self._merged: Merged[K] | None = None if join is None else Merged(join)
        # What has been said, if it is not merged.
        self._plain: dict[K, None] = {}
        # What waits to be withdrawn and to be announced.
        self._withdrawn: dict[K, None] = {}
        self._announced: dict[K, None] = {}

    def add(self, withdrawn: Iterable[K], announced: Iterable[K]) -> None:
        """Adds a change to those that wait."""
        for opposite, waiting, filters in (
            (self._announced, self._withdrawn, withdrawn),
            (self._withdrawn, self._announced, announced),
        ):
            for filter in filters:
                # A filter that waits to be announced and is withdrawn needs no message at all, and the other way round.
                if filter in opposite:
                    del opposite[filter]
                else:
                    waiting[filter] = None

    def take(self) -> Change[K]:
        """Takes the changes that wait. Returns what is to be said now."""
        change = Change(in_text_order(self._withdrawn), in_text_order(self._announced))
        self._withdrawn, self._announced = {}, {}
        if self._merged is not None:
            return self._merged.update(change)
        for filter in change.withdrawn:
            del self._plain[filter]
        self._plain.update(dict.fromkeys(change.announced))
        return change

    @property
    def filters(self) -> tuple[K, ...]:
        """What has been said and not withdrawn."""
        return tuple(self._plain) if self._merged is None else self._merged.said


# Cores that tell their neighbors Interest, and perhaps Advertised, hop by hop.
MergeableCore = AcyclicCore | HierarchicalCore | AdvertisingCore
MergingMessage = Interest | Advertised


class MergingCore:
    """A core that says less to its neighbors than `inner`. `policy` holds for all links, except those of the neighbors
    that have their own policy in `by_neighbor`."""

    def __init__(
        self, inner: MergeableCore, policy: LinkPolicy, by_neighbor: Mapping[str, LinkPolicy] | None = None
    ) -> None:
        self.inner: Any = inner
        self._policy = policy
        self._by_neighbor = by_neighbor or {}
        self._interest: dict[Neighbor, _Said[Filter]] = {}
        self._offers: dict[Neighbor, _Said[Advertisement]] = {}
        # The neighbors that a timer runs for.
        self._waiting: set[Neighbor] = set()

    @property
    def name(self) -> str:
        return str(self.inner.name)

    @property
    def clients(self) -> ClientSide:
        clients: ClientSide = self.inner.clients
        return clients

    def said_to(self, neighbor: Neighbor) -> tuple[tuple[Filter, ...], tuple[Advertisement, ...]]:
        """The filters and advertisements that have been said to a neighbor."""
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

    # --- messages and notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        return self._saved(self.inner.on_notifications(batch, source, now), now)

    def on_message(
        self, message: ClientRequest | HostMessage | MergingMessage, source: Interface, now: Time
    ) -> list[Action]:
        match message:
            case TimerFired() if message.name.startswith(TIMER):
                neighbor = Neighbor(message.name.removeprefix(TIMER))
                self._waiting.discard(neighbor)
                # The link may have gone down since the timer was set.
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
        """The actions of the inner core, where merged messages take the place of what it tells its neighbors. They are
        sent at once, or when a timer fires."""
        performed: list[Action] = []
        changed: dict[Neighbor, None] = {}
        for action in actions:
            match action:
                case Send(message=Interest(withdrawn, announced)):
                    self._interest[action.interface].add(withdrawn, announced)
                    changed[action.interface] = None
                case Send(message=Advertised(withdrawn, announced)):
                    self._offers[action.interface].add(withdrawn, announced)
                    changed[action.interface] = None
                case _:
                    performed.append(action)
        for neighbor in changed:
            if not (batch := self._policy_of(neighbor).batch):
                performed += self._say(neighbor)
            elif neighbor not in self._waiting:
                # The first change sets the timer. Later ones wait for the same timer.
                self._waiting.add(neighbor)
                performed.append(SetTimer(TIMER + neighbor.name, now + batch))
        return performed

    def _say(self, neighbor: Neighbor) -> list[Action]:
        """Sends what waits for a neighbor. Offers go before interest, as the core inside sends them."""
        offers, interest = self._offers[neighbor].take(), self._interest[neighbor].take()
        messages: list[BrokerMessage] = [Advertised(offers.withdrawn, offers.announced)] if offers else []
        messages += [Interest(interest.withdrawn, interest.announced)] if interest else []
        return [Send(neighbor, message) for message in messages]


def _names(filter: Filter | Advertisement) -> frozenset[str]:
    """The attributes that a filter or an advertisement names."""
    return filter.names if isinstance(filter, Filter) else frozenset(filter.box.sets)
