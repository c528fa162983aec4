"""Filter propagation: the first notifications go everywhere; unwanted ones send filters back up (text by D. Davis).

A *publisher* is the broker where a notification was published. Each publisher has a tree, by distance vectors
(`parts/distance_vectors.py`, §2.2, §3.2.3): a notification comes from the parent and goes to the children. A broker
learns of publishers from notifications (§3.1), and it sends too much rather than too little.

State: distance vectors; for each publisher the filters of children, and what the parent was told (`tree.py`); what the
broker's own clients want, reduced by covering: the text's row `self`, which is `false` if they want nothing. The
*composite* of a publisher is what the broker wants itself and for its children (`composite.py`, §3.4). It is `true` if
a child is open.

notification      of a publisher that was not known: all children are open (§3.3.1). It goes to all open children, and
                  to those whose filter matches it. If it came from the parent and nobody here wants it: the composite
                  goes to the parent, unless it is `true` or the suppression timer runs. A notification that does not
                  come from the parent is dropped: it is on its way through a tree that has changed.
Filtered          replaces the filter of a child, and starts its filter timer (§3.3.2). Then:
                  - If all children have filters, the composite goes to the parent at once.
                  - Otherwise the composite is `true`. It goes to the parent if the parent holds a filter of ours.
                  The text sends `true` only if that is what came. A wider filter that comes while another child is
                  open would then be lost, since the parent holds a filter from before: here that sends `true` too.
subscriptions     of the broker's own clients change: the composite goes to the parent of each publisher whose parent
                  holds a filter of ours (§3.3.3). The suppression timer delays none of these: it silences only what an
                  unwanted notification would cause, and what would say the same again.
filter timer      for a publisher and a child: the child is open again. Nobody is told (§3.3.5).
suppression timer for a publisher and its parent. Nothing happens when it ends, so it is a time (`silent_until`), and no
                  timer of the host.
publisher timer   Nothing was heard of the publisher for long: what is kept for it is forgotten. If the parent holds a
                  filter of ours, it is told `true` first: a broker that forgot this would not tell it when its clients
                  want more. (The text relies on the parent's timer, which a slow parent may have started later.)
Distances         may change trees, which the text leaves open (§6.2). A new parent has been told nothing, and gives
                  everything. A new child is open: so the parent is told `true`, if it holds a filter of ours. The
                  filter of a child that is gone is forgotten, and the parent is told what is left. A publisher that
                  cannot be reached is forgotten.

Departures: a filter that the parent holds already is not sent again while the suppression timer runs, nor ever if
filters do not expire. Links are between two brokers, so no column for several brokers behind one interface is needed.

A neighbor that sends a filter for a tree in which it is no child here contradicts itself: a broker says that its route
leads through us before it sends filters for that publisher, on the same link. It is refused, so no filter of an unknown
publisher is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, assert_never

from catchment.errors import CatchmentError, InputError, RemoteProtocolError, shown
from catchment.model.filter import Filter
from catchment.routing.core import Inspection, Table, Work
from catchment.routing.messages import (
    SECOND,
    Action,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    Deliver,
    Forward,
    Header,
    HostMessage,
    Interface,
    Keep,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Time,
    TimerFired,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.distance_vectors import Distances, DistanceVectors, RouteChange
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.propagation.composite import EVERYTHING, Composer, is_everything
from catchment.routing.propagation.messages import Filtered, PropagationSettings
from catchment.routing.propagation.tree import PublisherTree
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.siena.messages import OriginHeader

# Links that a notification may cross: as many as the longest route has.
HOPS_MAX: Final = 255
# Clients that publish whose last number is kept. The one that has been silent longest is forgotten first.
PUBLISHERS_MAX: Final = 100_000

PropagationMessage = Distances | Filtered


class PropagationCore:
    """A broker of filter propagation."""

    def __init__(self, name: str, settings: PropagationSettings | None = None) -> None:
        given = settings or PropagationSettings()
        check_timeouts(given)
        self.name = name
        self.clients = ClientSide()
        self.vectors = DistanceVectors(name, given.infinity)
        # What our own clients want, reduced by covering. All other brokers are one neighbor to it, named as we are.
        self._own: Forwarding[Filter] = Forwarding()
        self._others = Neighbor(name)
        self._own.connect(self._others)
        self._client_wants = ClientInterest(self.clients, self._own)
        # How often that has changed.
        self._own_changes = 0
        self._trees: dict[str, PublisherTree] = {}
        self._composer = Composer(given.comparisons_max, given.approximation)
        self._filter_timeout = round(given.filter_timeout_s * SECOND)
        self._publisher_timeout = round(given.publisher_timeout_s * SECOND)
        half = given.filter_timeout_s / 2
        self._suppression = round((half if given.suppression_s is None else given.suppression_s) * SECOND)
        # By the name of a timer, what it does.
        self._timers: dict[str, Callable[[Time], list[Action]]] = {}
        self._newest = Newest(PUBLISHERS_MAX)
        self._matched = 0

    # --- messages ---

    def on_message(
        self, message: ClientRequest | HostMessage | PropagationMessage, source: Interface, now: Time
    ) -> list[Action]:
        match message:
            case LinkUp() | LinkDown() | Distances() | Filtered():
                assert isinstance(source, Neighbor)
                return self._on_neighbor(message, source, now)
            case TimerFired():
                act = self._timers.pop(message.name, None)
                return [] if act is None else act(now)
            case ClientUp():
                assert isinstance(source, Client)
                self.clients.client_up(source, message)
                return []
            case ClientDown():
                assert isinstance(source, Client)
                self._client_wants.client_down(source)
                return self._own_changed(now)
            case _:
                assert isinstance(source, Client)
                try:
                    due = self._client_wants.request(message, source)
                except CatchmentError as problem:
                    return [Refuse(source, problem)]
                return due + self._own_changed(now)

    def _on_neighbor(
        self, message: LinkUp | LinkDown | Distances | Filtered, source: Neighbor, now: Time
    ) -> list[Action]:
        change = RouteChange()
        try:
            match message:
                case LinkUp():
                    self.vectors.up(source)
                case LinkDown():
                    change = self.vectors.down(source)
                case Distances():
                    change = self.vectors.heard(message, source)
                case Filtered():
                    return self._on_filter(message.publisher, message.wanted, source, now)
                case _:
                    assert_never(message)
        except CatchmentError as problem:
            return [Refuse(source, problem)]
        # Distances first: a new parent must know that we are its child before it hears a filter.
        return self.vectors.flush() + self._follow(change, now)

    # --- trees ---

    def _tree(self, publisher: str, now: Time) -> tuple[PublisherTree, list[Action]]:
        """The tree of a publisher, and the timer to set if the publisher was not known."""
        tree = self._trees.get(publisher)
        if tree is not None:
            return tree, []
        tree = self._trees[publisher] = PublisherTree(now)
        return tree, self._watch_publisher(publisher, now + self._publisher_timeout)

    def _open_children(self, publisher: str) -> list[Neighbor]:
        tree = self._trees[publisher]
        return [child for child in self.vectors.children(publisher) if tree.is_open(child)]

    def _follow(self, change: RouteChange, now: Time) -> list[Action]:
        """Trees have changed."""
        affected = {publisher for publisher, _ in change.lost | change.gained}
        for publisher, child in change.lost:
            if publisher in self._trees:
                self._trees[publisher].open(child)
        for publisher in change.parents:
            if not self.vectors.is_reached(publisher):
                self._trees.pop(publisher, None)
            elif publisher in self._trees:
                self._trees[publisher].forget_parent()
        # A new child is open: what the parent holds of us is too narrow now. Without a lost child it is too wide, and
        # what is too much may never come to show it.
        told = [each for each in sorted(affected) if each in self._trees and self._trees[each].sent is not None]
        return [action for publisher in told for action in self._say(publisher, now)]

    # --- filters ---

    def _on_filter(self, publisher: str, wanted: Filter, child: Neighbor, now: Time) -> list[Action]:
        if child not in self.vectors.children(publisher):
            what = f"sent a filter for {shown(publisher)}, and its route to that broker does not lead through here"
            raise RemoteProtocolError(child.name, what)
        if not self.vectors.is_reached(publisher):
            # We have lost our route just now, and the child has not heard of it.
            return []
        tree, actions = self._tree(publisher, now)
        # A neighbor with a larger budget may send more comparisons than are to be made here for a child.
        held = self._composer.within_budget(wanted)
        if is_everything(held):
            tree.open(child)
        else:
            tree.close(child, held)
            actions += self._watch_filter(publisher, child, now)
        return actions + self._widen_or_say(publisher, now)

    def _widen_or_say(self, publisher: str, now: Time) -> list[Action]:
        """After the filter of a child has changed."""
        if self._open_children(publisher) and self._trees[publisher].sent is None:
            # It wants everything, and the parent gives everything.
            return []
        return self._say(publisher, now)

    def _own_changed(self, now: Time) -> list[Action]:
        """Tells the network what our own clients want now, if that has changed."""
        if not self._own.flush():
            return []
        self._own_changes += 1
        told = [publisher for publisher in sorted(self._trees) if self._trees[publisher].sent is not None]
        return [action for publisher in told for action in self._say(publisher, now)]

    def _say(self, publisher: str, now: Time) -> list[Action]:
        """Sends the composite to the parent, unless the parent holds the same."""
        tree, parent = self._trees[publisher], self.vectors.parent(publisher)
        if parent is None:
            # We are the publisher ourselves.
            return []
        composite = self.composite(publisher)
        if is_everything(composite):
            return self._withdraw(publisher, parent)
        text = str(composite)
        if text == tree.sent and (not self._filter_timeout or now < tree.silent_until):
            return []
        tree.sent, tree.silent_until = text, now + self._suppression
        return [Send(parent, Filtered(publisher, composite))]

    def _withdraw(self, publisher: str, parent: Neighbor) -> list[Action]:
        """The parent holds no filter of ours any longer."""
        tree = self._trees[publisher]
        if tree.sent is None:
            return []
        tree.sent = None
        return [Send(parent, Filtered(publisher, EVERYTHING))]

    def composite(self, publisher: str) -> Filter:
        """What this broker wants of a publisher, for itself and for its children."""
        if publisher not in self._trees or self._open_children(publisher):
            return EVERYTHING
        tree = self._trees[publisher]
        # A broker with many subscriptions gets many unwanted notifications before anything changes.
        if tree.composed is None or tree.composed[0] != self._own_changes:
            parts = (*self.own_filters(), *tree.parts())
            tree.composed = self._own_changes, self._composer.composite(parts)
        return tree.composed[1]

    # --- timers ---

    def _set_timer(self, name: str, at: Time, act: Callable[[Time], list[Action]]) -> list[Action]:
        self._timers[name] = act
        return [SetTimer(name, at, is_idle=True)]

    def _watch_filter(self, publisher: str, child: Neighbor, now: Time) -> list[Action]:
        if not self._filter_timeout:
            return []

        def expire(now: Time) -> list[Action]:
            if publisher in self._trees:
                self._trees[publisher].open(child)
            return []

        # A length, since names may have spaces: no other pair has the same text.
        return self._set_timer(f"filter {len(publisher)} {publisher} {child.name}", now + self._filter_timeout, expire)

    def _watch_publisher(self, publisher: str, at: Time) -> list[Action]:
        if not self._publisher_timeout:
            return []

        def expire(now: Time) -> list[Action]:
            tree = self._trees.get(publisher)
            if tree is None:
                return []
            due = tree.heard_at + self._publisher_timeout
            # Notifications only note the time: so they need not set a timer each.
            return self._watch_publisher(publisher, due) if due > now else self._forget(publisher)

        return self._set_timer(f"publisher {publisher}", at, expire)

    def _forget(self, publisher: str) -> list[Action]:
        parent = self.vectors.parent(publisher)
        actions = [] if parent is None else self._withdraw(publisher, parent)
        del self._trees[publisher]
        return actions

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        # `is_new` also remembers, so it is asked last, of what is taken.
        fresh = [each for each in batch if self._is_due(each.header, source) and self._newest.is_new(each.notification)]
        self._matched += len(fresh)
        due = self.clients.due([routed.notification for routed in fresh], now)
        outgoing: dict[Neighbor, list[Routed]] = {}
        said: list[Action] = []
        # Only neighbors in the batch are put together: a client that roams may publish at two brokers, and what it
        # publishes stays in order.
        for publisher, group in groupby(fresh, self._publisher_of):
            some = list(group)
            tree, timers = self._tree(publisher, now)
            tree.heard_at = now
            said += timers
            unsent = self._sorted_out(publisher, tree, some, source, outgoing)
            if unsent and isinstance(source, Neighbor) and _is_any_unwanted(unsent, due):
                said += self._on_unwanted(publisher, tree, now)
        return due + [Forward(child, tuple(outgoing[child])) for child in sorted(outgoing)] + said

    def _publisher_of(self, routed: Routed) -> str:
        """If a notification has no origin yet, it was published here."""
        return routed.header.origin if isinstance(routed.header, OriginHeader) else self.name

    def _is_due(self, header: Header, source: Interface) -> bool:
        """Whether notifications with this header come from there."""
        if not isinstance(header, OriginHeader):
            return True
        return header.hops <= HOPS_MAX and source == self.vectors.parent(header.origin)

    def _sorted_out(
        self,
        publisher: str,
        tree: PublisherTree,
        batch: Sequence[Routed],
        source: Interface,
        outgoing: dict[Neighbor, list[Routed]],
    ) -> list[Routed]:
        """Adds each notification to the batches of the children that get it. Returns those that no child gets."""
        children = {child.name: child for child in self.vectors.children(publisher) if child != source}
        if not children:
            return list(batch)
        always = [child for child in children.values() if tree.is_open(child)]
        matched = tree.wanting([routed.notification for routed in batch])
        unsent: list[Routed] = []
        headers: dict[int, OriginHeader] = {}
        for routed, names in zip(batch, matched, strict=True):
            receivers = always + [children[name] for name in names if name in children]
            if not receivers:
                unsent.append(routed)
                continue
            hops = routed.header.hops + 1
            further = Routed(routed.notification, headers.setdefault(hops, OriginHeader(hops, publisher)))
            for child in receivers:
                outgoing.setdefault(child, []).append(further)
        return unsent

    def _on_unwanted(self, publisher: str, tree: PublisherTree, now: Time) -> list[Action]:
        """The parent sent what nobody wants here."""
        if now < tree.silent_until or self._open_children(publisher):
            return []
        return self._say(publisher, now)

    # --- looking in ---

    @property
    def publishers(self) -> tuple[str, ...]:
        """The publishers that something is kept for, sorted."""
        return tuple(sorted(self._trees))

    def own_filters(self) -> tuple[Filter, ...]:
        """What our own clients want: the row `self` of every publisher."""
        return self._own.told_to(self._others)

    @property
    def infinity(self) -> int:
        return self.vectors.infinity

    @property
    def is_filtering(self) -> bool:
        return True

    def rows(self) -> Iterator[tuple[str, str, Filter]]:
        """The routing table as the text prints it (§3.2.3): publisher, child or `self`, and filter."""
        own = self._composer.composite(self.own_filters())
        for publisher in self.publishers:
            for child, filter in self.filters_by_child(publisher).items():
                yield publisher, child.name, filter
            yield publisher, "self", own

    def filters_by_child(self, publisher: str) -> dict[Neighbor, Filter]:
        """The filter of each child in the tree of a publisher: `true` for one that is open."""
        tree = self._trees.get(publisher)
        children = self.vectors.children(publisher)
        return {child: (tree and tree.filter_of(child)) or EVERYTHING for child in children}

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, *(tree.matcher for tree in self._trees.values())

    def inspect(self) -> Inspection:
        counts: dict[str, list[int]] = {}
        for tree in self._trees.values():
            for child in tree.closed:
                row = counts.setdefault(child.name, [0, 0])
                row[0] += 1
                row[1] += tree.bytes_of(child)
        tables = [Table(name, *row) for name, row in sorted(counts.items())]
        compared = self._own.poset.compared + self._composer.compared
        return Inspection((*self.clients.tables(), *tables), Work(self._matched, compared, self._newest.old_count))

    def leftovers(self) -> list[str]:
        """Of filters, `false` may be left: it says that a child wants nothing."""
        return [*self.clients.leftovers(), *map(str, self._own.poset), *self._filters_left()]

    def _filters_left(self) -> Iterator[str]:
        for publisher, tree in sorted(self._trees.items()):
            for child in tree.closed:
                filter = tree.filter_of(child)
                if filter is not None and filter.expression is not False:
                    yield f"{filter} of {child} for {publisher}"


def _is_any_unwanted(unsent: Sequence[Routed], due: Sequence[Action]) -> bool:
    """Whether no client wants one of these notifications. By `id`: the actions have the objects of the batch."""
    wanted = {id(action.notification) for action in due if isinstance(action, Deliver | Keep)}
    return any(id(routed.notification) not in wanted for routed in unsent)


def check_timeouts(settings: PropagationSettings) -> None:
    """InputError if timeouts do not fit together."""
    filter_s, publisher_s, suppression_s = (
        settings.filter_timeout_s, settings.publisher_timeout_s, settings.suppression_s,
    )  # fmt: skip
    if min(filter_s, publisher_s, suppression_s or 0.0) < 0:
        raise InputError("filter_timeout_s, publisher_timeout_s and suppression_s are 0 s or more; 0 means never")
    if publisher_s and not 0 < filter_s < publisher_s:
        raise InputError(
            f"publisher_timeout_s is {publisher_s:g} and filter_timeout_s {filter_s:g}: the publisher's must be "
            "longer, so that the filters of a publisher expire before the publisher is forgotten"
        )
    if filter_s and suppression_s is not None and suppression_s >= filter_s:
        raise InputError(
            f"suppression_s is {suppression_s:g} and filter_timeout_s {filter_s:g}: suppression must be shorter, so "
            "that a filter can be sent again as soon as it has expired; half is usual"
        )
