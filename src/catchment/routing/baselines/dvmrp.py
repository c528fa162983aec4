"""DVMRP-style multicast: notifications go down the publisher's tree to every broker that has subscribers, unfiltered.

What filter propagation is compared with as the worst case, filtering at the subscriber (its text, §2.2.2 and §5.1). All
notifications are one multicast group, and a broker is in the group if one of its clients subscribes to anything.

State: distance vectors (`parts/distance_vectors.py`), which give each publisher a tree; for each publisher the children
that have *pruned* themselves, and whether this broker has pruned itself from its parent; the local clients.

notification    goes to all children that are not pruned. If the broker has no subscribers and all its children are
                pruned, it prunes itself: it sends `Prune` to the parent. What does not come from the parent is dropped.
Prune           The child gets nothing more of that publisher, until it grafts or the prune expires. If nobody is left
                here, the broker prunes itself at once.
Graft           The child gets everything again. A broker that has pruned itself grafts itself.
first subscriber  The broker grafts itself in all trees that it has pruned itself from.
prune timer     The child gets everything again. Nobody is told. If it still wants nothing, it prunes itself again when
                a notification comes and half of the timeout has passed since its last prune.
Distances       A new parent knows of no prune, and a new child is not pruned: the broker grafts itself for it.

Departures: grafts are not acknowledged, since links carry each message once. Prunes expire only if a timeout is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from catchment.errors import InputError, RemoteProtocolError, shown
from catchment.model.filter import Filter
from catchment.routing.baselines.messages import DvmrpSettings, Graft, Prune
from catchment.routing.core import Inspection, Work
from catchment.routing.messages import (
    SECOND,
    Action,
    Client,
    ClientRequest,
    Forward,
    Header,
    Interface,
    Neighbor,
    Routed,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.distance_vectors import Distances, DistanceVectors, RouteChange
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.siena.messages import OriginHeader

# Links that a notification may cross: as many as the longest route has.
HOPS_MAX: Final = 255
# Clients that publish whose last number is kept. The one that has been silent longest is forgotten first.
PUBLISHERS_MAX: Final = 100_000

DvmrpMessage = Distances | Prune | Graft


@dataclass(slots=True)
class _Pruning:
    """In the tree of one publisher: the children that are pruned, and when this broker pruned itself, if it did."""

    children: set[Neighbor] = field(default_factory=set)
    pruned_at: Time | None = None


class DvmrpCore(DispatchingCore[DvmrpMessage]):
    """A multicast router."""

    def __init__(self, name: str, settings: DvmrpSettings | None = None) -> None:
        given = settings or DvmrpSettings()
        if given.prune_timeout_s < 0:
            raise InputError(f"prune_timeout_s is {given.prune_timeout_s:g}: use 0 s or more; 0 means never")
        self.name = name
        self.clients = ClientSide()
        self.vectors = DistanceVectors(name, given.infinity)
        self._prunings: dict[str, _Pruning] = {}
        self._timeout = round(given.prune_timeout_s * SECOND)
        # By the name of a timer, the publisher and the child.
        self._timers: dict[str, tuple[str, Neighbor]] = {}
        self._newest = Newest(PUBLISHERS_MAX)
        self._matched = 0

    # --- messages ---

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        due = self.clients.request(message, source)
        return due + [action for publisher in sorted(self._prunings) for action in self._graft_if_needed(publisher)]

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        self.vectors.up(neighbor)
        return self.vectors.flush()

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return self._rerouted(self.vectors.down(neighbor))

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        self._expire(name)
        return []

    def _heard(self, message: DvmrpMessage, source: Neighbor, now: Time) -> list[Action]:
        match message:
            case Distances():
                return self._rerouted(self.vectors.heard(message, source))
            case Prune():
                self._check_child(message.publisher, source)
                return self._on_prune(message.publisher, source, now)
            case Graft():
                self._check_child(message.publisher, source)
                return self._on_graft(message.publisher, source)
            case _:
                assert_never(message)

    def _check_child(self, publisher: str, source: Neighbor) -> None:
        if source not in self.vectors.children(publisher):
            what = f"pruned or grafted for {shown(publisher)}, and its route to that broker does not lead through here"
            raise RemoteProtocolError(source.name, what)

    # --- prunes and grafts ---

    def _on_prune(self, publisher: str, child: Neighbor, now: Time) -> list[Action]:
        if not self.vectors.is_reached(publisher):
            # We have lost our route just now, and the child has not heard of it.
            return []
        self._pruning(publisher).children.add(child)
        return self._watch(publisher, child, now) + self._prune_if_idle(publisher, now)

    def _on_graft(self, publisher: str, child: Neighbor) -> list[Action]:
        if publisher in self._prunings:
            self._prunings[publisher].children.discard(child)
        return self._graft_if_needed(publisher)

    def _pruning(self, publisher: str) -> _Pruning:
        return self._prunings.setdefault(publisher, _Pruning())

    def _is_idle(self, publisher: str) -> bool:
        """Whether nobody here or below wants notifications of a publisher."""
        pruned = self._pruning(publisher).children
        return not self.clients.subscriptions_count and pruned.issuperset(self.vectors.children(publisher))

    def _prune_if_idle(self, publisher: str, now: Time) -> list[Action]:
        """Prunes itself, unless it did so lately."""
        parent, pruning = self.vectors.parent(publisher), self._pruning(publisher)
        is_done = pruning.pruned_at is not None and (not self._timeout or now < pruning.pruned_at + self._timeout // 2)
        if parent is None or is_done or not self._is_idle(publisher):
            return []
        pruning.pruned_at = now
        return [Send(parent, Prune(publisher))]

    def _graft_if_needed(self, publisher: str) -> list[Action]:
        pruning, parent = self._prunings.get(publisher), self.vectors.parent(publisher)
        if pruning is None or pruning.pruned_at is None or parent is None or self._is_idle(publisher):
            return []
        pruning.pruned_at = None
        return [Send(parent, Graft(publisher))]

    # --- trees ---

    def _rerouted(self, change: RouteChange) -> list[Action]:
        # Distances first: a new parent must know that we are its child.
        return self.vectors.flush() + self._follow(change)

    def _follow(self, change: RouteChange) -> list[Action]:
        """Trees have changed."""
        for publisher, child in change.lost:
            if publisher in self._prunings:
                self._prunings[publisher].children.discard(child)
        for publisher in change.parents:
            if not self.vectors.is_reached(publisher):
                self._prunings.pop(publisher, None)
            elif publisher in self._prunings:
                self._prunings[publisher].pruned_at = None
        gained = sorted({publisher for publisher, _ in change.gained})
        return [action for publisher in gained for action in self._graft_if_needed(publisher)]

    # --- timers ---

    def _watch(self, publisher: str, child: Neighbor, now: Time) -> list[Action]:
        if not self._timeout:
            return []
        # A length, since names may have spaces: no other pair has the same text.
        name = f"prune {len(publisher)} {publisher} {child.name}"
        self._timers[name] = publisher, child
        return [SetTimer(name, now + self._timeout, is_idle=True)]

    def _expire(self, timer: str) -> None:
        pair = self._timers.pop(timer, None)
        if pair is not None and pair[0] in self._prunings:
            self._prunings[pair[0]].children.discard(pair[1])

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        fresh = [each for each in batch if self._is_due(each.header, source) and self._newest.is_new(each.notification)]
        self._matched += len(fresh)
        actions = self.clients.due([routed.notification for routed in fresh], now)
        outgoing: dict[Neighbor, list[Routed]] = {}
        said: dict[str, list[Action]] = {}
        for routed in fresh:
            publisher = routed.header.origin if isinstance(routed.header, OriginHeader) else self.name
            pruned = self._pruning(publisher).children
            further = Routed(routed.notification, OriginHeader(routed.header.hops + 1, publisher))
            for child in self.vectors.children(publisher):
                if child not in pruned and child != source:
                    outgoing.setdefault(child, []).append(further)
            if publisher not in said:
                said[publisher] = self._prune_if_idle(publisher, now)
        forwards = [Forward(child, tuple(outgoing[child])) for child in sorted(outgoing)]
        return [*actions, *forwards, *(action for some in said.values() for action in some)]

    def _is_due(self, header: Header, source: Interface) -> bool:
        """Whether notifications with this header come from there."""
        if not isinstance(header, OriginHeader):
            return True
        return header.hops <= HOPS_MAX and source == self.vectors.parent(header.origin)

    # --- looking in ---

    @property
    def infinity(self) -> int:
        return self.vectors.infinity

    @property
    def is_filtering(self) -> bool:
        return False

    def rows(self) -> Iterator[tuple[str, str, Filter]]:
        """Publisher, child, and `false` for a child that is pruned, else `true`."""
        for publisher in sorted(self._prunings):
            pruned = self.pruned_children(publisher)
            for child in self.vectors.children(publisher):
                yield publisher, child.name, Filter.nothing() if child in pruned else Filter.everything()

    def pruned_children(self, publisher: str) -> tuple[Neighbor, ...]:
        """The children that get nothing of a publisher, sorted."""
        pruning = self._prunings.get(publisher)
        return () if pruning is None else tuple(sorted(pruning.children))

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (self.clients.matcher,)

    def inspect(self) -> Inspection:
        return Inspection(tuple(self.clients.tables()), Work(self._matched, old=self._newest.old_count))

    def leftovers(self) -> list[str]:
        return self.clients.leftovers()
