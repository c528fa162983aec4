"""Filter propagation: the first notifications go everywhere; unwanted ones send filters back up (text by D. Davis).

A *publisher* is the broker where a notification was published. Each publisher has a tree, by distance vectors
(`parts/distance_vectors.py`, §2.2, §3.2.3): a notification comes from the parent and goes to the children. A broker
learns of publishers from notifications (§3.1), and it sends too much rather than too little.

If the settings say so, there is one tree for all publishers (§6.2, 5), and a notification goes up and down in it. What
follows is said of the trees of publishers, where one neighbor, the parent, is upstream. In the one tree the parent and
the children all are upstream and downstream at once (`trees.py`): each rule holds for each neighbor as the one
upstream, with all others as its children.

State: distance vectors; for each tree the filters of children, and what the parent was told (`tree.py`); what the
broker's own clients want, reduced by covering: the text's row `self`, which is `false` if they want nothing. The
*composite* of a tree is what the broker wants itself and for its children (`composite.py`, §3.4). It is `true` if a
child is open.

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
Distances         may change trees, which the text leaves open (§6.2). A new parent gives everything: if it was told a
                  filter when it had another place in the tree, it is told `true`. A new child is open: so the parent is
                  told `true`, if it holds a filter of ours. The filter of a child that is gone is forgotten, and the
                  parent is told what is left. A publisher that cannot be reached is forgotten. If another broker
                  becomes the root of the one tree, all filters in the tree before are withdrawn.

Departures: a filter that the parent holds already is not sent again while the suppression timer runs, nor ever if
filters do not expire. Links are between two brokers, so no column for several brokers behind one interface is needed.

In the tree of a publisher, a neighbor that sends a filter and is no child contradicts itself: a broker says that its
route leads through us before it sends filters for that publisher, on the same link. It is refused, so no filter of an
unknown publisher is kept. In the one tree a parent sends filters too, and may not have heard yet that it is our parent
no longer: such a filter is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, assert_never

from catchment.errors import RemoteProtocolError, shown
from catchment.model.filter import Filter
from catchment.routing.core import Inspection, Table, Work
from catchment.routing.messages import (
    SECOND,
    Action,
    Client,
    ClientRequest,
    Deliver,
    Forward,
    Header,
    Interface,
    Keep,
    Neighbor,
    Routed,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.distance_vectors import INFINITY_MAX, Distances, DistanceVectors, RouteChange
from catchment.routing.parts.newest import Newest
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.propagation.composite import EVERYTHING, Composer, is_everything
from catchment.routing.propagation.messages import Filtered, PropagationSettings, check_settings
from catchment.routing.propagation.tree import TreeFilters
from catchment.routing.propagation.trees import OneTree, PublisherTrees, Trees
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.siena.messages import OriginHeader

# Links that a notification may cross: as many as the longest way up to a root and down again has.
HOPS_MAX: Final = 2 * INFINITY_MAX
# Clients that publish whose last number is kept. The one that has been silent longest is forgotten first.
PUBLISHERS_MAX: Final = 100_000

PropagationMessage = Distances | Filtered


class PropagationCore(DispatchingCore[PropagationMessage]):
    """A broker of filter propagation."""

    def __init__(self, name: str, settings: PropagationSettings | None = None) -> None:
        given = settings or PropagationSettings()
        check_settings(given)
        self.name = name
        self.clients = ClientSide()
        self.vectors = DistanceVectors(name, given.infinity)
        one = given.tree == "one"
        self.trees: Trees = OneTree(self.vectors, given.root) if one else PublisherTrees(self.vectors)
        # What our own clients want, reduced by covering. All other brokers are one neighbor to it, named as we are.
        self._own: Forwarding[Filter] = Forwarding()
        self._others = Neighbor(name)
        self._own.connect(self._others)
        self._client_wants = ClientInterest(self.clients, self._own)
        # How often that has changed.
        self._own_changes = 0
        # By the root of a tree.
        self._filters: dict[str, TreeFilters] = {}
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

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        return self._client_wants.request(message, source) + self._own_changed(now)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        self._client_wants.client_down(client)
        return self._own_changed(now)

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        self.vectors.up(neighbor)
        return self.vectors.flush()

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        change = self.vectors.down(neighbor)
        for tree in self._filters.values():
            tree.told.pop(neighbor, None)
        return self._rerouted(change, now)

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        act = self._timers.pop(name, None)
        return [] if act is None else act(now)

    def _heard(self, message: PropagationMessage, source: Neighbor, now: Time) -> list[Action]:
        match message:
            case Distances():
                return self._rerouted(self.vectors.heard(message, source), now)
            case Filtered():
                return self._on_filter(message.publisher, message.wanted, source, now)
            case _:
                assert_never(message)

    def _rerouted(self, change: RouteChange, now: Time) -> list[Action]:
        # Distances first: a new parent must know that we are its child before it hears a filter.
        return self.vectors.flush() + self._follow(change, now)

    # --- trees ---

    def _tree(self, root: str, now: Time) -> tuple[TreeFilters, list[Action]]:
        """What is kept for a tree, and the timer to set if nothing was."""
        tree = self._filters.get(root)
        if tree is not None:
            return tree, []
        tree = self._filters[root] = TreeFilters(now, self.vectors.parent(root))
        return tree, self._watch_publisher(root, now + self._publisher_timeout)

    def _open_below(self, root: str, upstream: Neighbor) -> bool:
        """Whether somebody gets everything of what that neighbor sends."""
        tree = self._filters[root]
        return any(each != upstream and tree.is_open(each) for each in self.trees.downstream(root))

    def _follow(self, change: RouteChange, now: Time) -> list[Action]:
        """Routes have changed."""
        is_other_tree = self.trees.follow(change)
        roots = {root for root, _ in change.lost | change.gained} | change.parents
        affected = sorted(roots & self._filters.keys())
        for root, child in change.lost:
            if root in self._filters:
                self._filters[root].open(child)
        newcomers = change.gained.union(*map(self._follow_parent, affected))
        placed = [(root, neighbor) for root, neighbor in sorted(newcomers) if root in self._filters]
        actions = [action for root, neighbor in placed for action in self._retract(root, neighbor)]
        # A new neighbor is open: what the others hold of us is too narrow now. Without a lost one it is too wide, and
        # what is too much may never come to show it.
        actions += [action for root in affected for action in self._say_again(root, now)]
        if is_other_tree:
            actions += self._leave_trees()
        # Also if the tree was left before: a lost neighbor may have been the last that had a filter in it.
        self._tidy()
        return actions

    def _follow_parent(self, root: str) -> set[tuple[str, Neighbor]]:
        """Forgets what belongs to the parent before. Returns the new parent, if there is one."""
        if not self.vectors.is_reached(root):
            del self._filters[root]
            return set()
        tree, parent = self._filters[root], self.vectors.parent(root)
        if parent == tree.parent:
            return set()
        if tree.parent is not None:
            tree.open(tree.parent)
        tree.parent = parent
        return set() if parent is None else {(root, parent)}

    def _retract(self, root: str, neighbor: Neighbor) -> list[Action]:
        """A neighbor has a new place in a tree. If it was told a filter when it had another one, it may still hold that
        or not: our messages and its own may have crossed. So it is told `true`, and we both begin anew."""
        actions = self._withdraw(root, neighbor)
        self._filters[root].told.pop(neighbor, None)
        return actions

    def _leave_trees(self) -> list[Action]:
        """Another tree is used now. Those who hold our filters in others are told, also if they are not upstream."""
        left = [root for root in sorted(self._filters) if not self.trees.is_used(root)]
        told = [(root, neighbor) for root in left for neighbor in sorted(self._filters[root].told)]
        return [action for root, neighbor in told for action in self._withdraw(root, neighbor)]

    def _tidy(self) -> None:
        """Forgets trees that are not used, once their filters are withdrawn."""
        if self.trees.is_two_way:
            used = self.trees.is_used
            self._filters = {root: tree for root, tree in self._filters.items() if used(root) or tree.closed}

    # --- filters ---

    def _on_filter(self, root: str, wanted: Filter, neighbor: Neighbor, now: Time) -> list[Action]:
        if neighbor not in self.trees.downstream(root):
            if self.trees.is_two_way:
                return []
            what = f"sent a filter for {shown(root)}, and its route to that broker does not lead through here"
            raise RemoteProtocolError(neighbor.name, what)
        if not self.vectors.is_reached(root):
            # We have lost our route just now, and the child has not heard of it.
            return []
        tree, actions = self._tree(root, now)
        # A neighbor with a larger budget may send more comparisons than are to be made here for a child.
        held = self._composer.within_budget(wanted)
        if is_everything(held):
            tree.open(neighbor)
        else:
            tree.close(neighbor, held)
            actions += self._watch_filter(root, neighbor, now)
        others = [each for each in self.trees.upstream(root) if each != neighbor]
        actions += [action for each in others for action in self._widen_or_say(root, each, now)]
        self._tidy()
        return actions

    def _widen_or_say(self, root: str, upstream: Neighbor, now: Time) -> list[Action]:
        """After the filter of another neighbor has changed."""
        if self._open_below(root, upstream) and not self._filters[root].is_told(upstream):
            # We want everything, and it gives everything.
            return []
        return self._say(root, upstream, now)

    def _own_changed(self, now: Time) -> list[Action]:
        """Tells the network what our own clients want now, if that has changed."""
        if not self._own.flush():
            return []
        self._own_changes += 1
        return [action for root in sorted(self._filters) for action in self._say_again(root, now)]

    def _say_again(self, root: str, now: Time) -> list[Action]:
        """After something has changed: tells those upstream who hold a filter of ours."""
        tree = self._filters.get(root)
        told = [each for each in self.trees.upstream(root) if tree is not None and tree.is_told(each)]
        return [action for upstream in told for action in self._say(root, upstream, now)]

    def _say(self, root: str, upstream: Neighbor, now: Time) -> list[Action]:
        """Sends the composite upstream, unless the neighbor holds the same."""
        composite = self.composite(root, upstream)
        if is_everything(composite):
            return self._withdraw(root, upstream)
        text, told = str(composite), self._filters[root].told_to(upstream)
        if text == told.sent and (not self._filter_timeout or now < told.silent_until):
            return []
        told.sent, told.silent_until = text, now + self._suppression
        return [Send(upstream, Filtered(root, composite))]

    def _withdraw(self, root: str, upstream: Neighbor) -> list[Action]:
        """The neighbor holds no filter of ours any longer."""
        tree = self._filters[root]
        if not tree.is_told(upstream):
            return []
        tree.told_to(upstream).sent = None
        return [Send(upstream, Filtered(root, EVERYTHING))]

    def composite(self, root: str, upstream: Neighbor) -> Filter:
        """What this broker wants of that neighbor in a tree, for itself and for its other neighbors in the tree."""
        if root not in self._filters or not self.trees.is_used(root) or self._open_below(root, upstream):
            return EVERYTHING
        tree = self._filters[root]
        told, changes = tree.told_to(upstream), (self._own_changes, tree.changes)
        # A broker with many subscriptions gets many unwanted notifications before anything changes.
        if told.composed is None or told.composed[:2] != changes:
            parts = (*self.own_filters(), *tree.parts(without=upstream))
            told.composed = (*changes, self._composer.composite(parts))
        return told.composed[2]

    # --- timers ---

    def _set_timer(self, name: str, at: Time, act: Callable[[Time], list[Action]]) -> list[Action]:
        self._timers[name] = act
        return [SetTimer(name, at, is_idle=True)]

    def _watch_filter(self, publisher: str, child: Neighbor, now: Time) -> list[Action]:
        if not self._filter_timeout:
            return []

        def expire(now: Time) -> list[Action]:
            if publisher in self._filters:
                self._filters[publisher].open(child)
                self._tidy()
            return []

        # A length, since names may have spaces: no other pair has the same text.
        return self._set_timer(f"filter {len(publisher)} {publisher} {child.name}", now + self._filter_timeout, expire)

    def _watch_publisher(self, publisher: str, at: Time) -> list[Action]:
        if not self._publisher_timeout:
            return []

        def expire(now: Time) -> list[Action]:
            tree = self._filters.get(publisher)
            if tree is None:
                return []
            due = tree.heard_at + self._publisher_timeout
            # Notifications only note the time: so they need not set a timer each.
            return self._watch_publisher(publisher, due) if due > now else self._forget(publisher)

        return self._set_timer(f"publisher {publisher}", at, expire)

    def _forget(self, publisher: str) -> list[Action]:
        told = sorted(self._filters[publisher].told)
        actions = [action for neighbor in told for action in self._withdraw(publisher, neighbor)]
        del self._filters[publisher]
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
        for root, group in groupby(fresh, self._tree_of):
            some = list(group)
            tree, timers = self._tree(root, now)
            tree.heard_at = now
            said += timers
            unsent = self._sorted_out(root, tree, some, source, outgoing)
            if unsent and isinstance(source, Neighbor) and _is_any_unwanted(unsent, due):
                said += self._on_unwanted(root, source, now)
        self._tidy()
        return due + [Forward(child, tuple(outgoing[child])) for child in sorted(outgoing)] + said

    def _tree_of(self, routed: Routed) -> str:
        """If a notification has no tree yet, it was published here."""
        return routed.header.origin if isinstance(routed.header, OriginHeader) else self.trees.own

    def _is_due(self, header: Header, source: Interface) -> bool:
        """Whether notifications with this header come from there."""
        if not isinstance(header, OriginHeader):
            return True
        return header.hops <= HOPS_MAX and source in self.trees.upstream(header.origin)

    def _sorted_out(
        self,
        root: str,
        tree: TreeFilters,
        batch: Sequence[Routed],
        source: Interface,
        outgoing: dict[Neighbor, list[Routed]],
    ) -> list[Routed]:
        """Adds each notification to the batches of the neighbors that get it. Returns those that none gets."""
        children = {child.name: child for child in self.trees.downstream(root) if child != source}
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
            further = Routed(routed.notification, headers.setdefault(hops, OriginHeader(hops, root)))
            for child in receivers:
                outgoing.setdefault(child, []).append(further)
        return unsent

    def _on_unwanted(self, root: str, upstream: Neighbor, now: Time) -> list[Action]:
        """A neighbor sent what nobody wants here."""
        if now < self._filters[root].told_to(upstream).silent_until or self._open_below(root, upstream):
            return []
        return self._say(root, upstream, now)

    # --- looking in ---

    @property
    def publishers(self) -> tuple[str, ...]:
        """The trees that something is kept for, by their publishers; the root, if there is one tree. Sorted."""
        return tuple(sorted(self._filters))

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
        """The filter of each neighbor downstream in the tree of a publisher: `true` for one that is open."""
        tree = self._filters.get(publisher)
        children = self.trees.downstream(publisher)
        return {child: (tree and tree.filter_of(child)) or EVERYTHING for child in children}

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, *(tree.matcher for tree in self._filters.values())

    def inspect(self) -> Inspection:
        counts: dict[str, list[int]] = {}
        for tree in self._filters.values():
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
        for publisher, tree in sorted(self._filters.items()):
            for child in tree.closed:
                filter = tree.filter_of(child)
                if filter is not None and filter.expression is not False:
                    yield f"{filter} of {child} for {publisher}"


def _is_any_unwanted(unsent: Sequence[Routed], due: Sequence[Action]) -> bool:
    """Whether no client wants one of these notifications. By `id`: the actions have the objects of the batch."""
    wanted = {id(action.notification) for action in due if isinstance(action, Deliver | Keep)}
    return any(id(routed.notification) not in wanted for routed in unsent)
