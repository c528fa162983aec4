"""Which filters a broker announces to each neighbor, given who subscribed to which filter (SIENA §5.2.3).

A *subscriber* is a neighbor, the identity of a local client, or a pattern that this broker watches. A subscriber
*holds* the filters that it subscribed to.

State: the poset of all filters that somebody holds; for each filter its subscribers; for each neighbor the filters that
it *was told* (that were announced to it), and the filters that are *wanted* for it (that it should be told). Equation
(1) of the text says for each filter which neighbors it is forwarded to:

    forwards(f) = neighbors − NST(f) − ∪ forwards(f′) for f′ in P_S that covers f

Here the same is kept the other way round, for each neighbor. A filter f is *eligible* for a neighbor N if somebody
other than N holds f, and `may_tell(f, N)` allows it. (In an acyclic network, NST(f) is N alone if N is the only
subscriber of f.) The filters wanted for N are exactly the *roots among the filters that are eligible for N*: those that
no other eligible filter covers. So a change of one filter affects only filters that it covers or that cover it. What a
neighbor must hear is the difference between what is wanted for it and what it was told.

subscribe    No client holds two filters of which one covers the other, as far as the poset knows. If X holds a filter
             that covers the new one, the new one changes nothing and is not entered. Otherwise X holds the new one, and
             no longer those that it covers. A neighbor holds exactly what it has announced and not withdrawn: its poset
             may have kept filters apart that ours has not, and it will withdraw each by itself. A filter that nobody
             holds leaves the poset.
unsubscribe  X no longer holds the given filter; a client, also those that the given one covers.
flush        says for each neighbor which filters are to be withdrawn and which announced. Both go into one message, so
             no notification is missed between them. The text sends the unsubscription first, and has such a moment.

The same code forwards subscriptions and advertisements, as the text proposes (§5.2.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic

from catchment.model.pattern import Pattern
from catchment.routing.messages import Neighbor
from catchment.routing.poset import K, Poset

# A neighboring broker, the identity of a local client, or a pattern that this broker watches.
Subscriber = Neighbor | str | Pattern


@dataclass(frozen=True, slots=True)
class Change(Generic[K]):
    """What a neighbor must hear: the filters to withdraw and the filters to announce."""

    withdrawn: tuple[K, ...]
    announced: tuple[K, ...]

    def __bool__(self) -> bool:
        return bool(self.withdrawn or self.announced)


class Forwarding(Generic[K]):
    """The filters of all subscribers, and what each neighbor was told of them. `may_tell(f, N)` says whether f may be
    announced to N. If it may, then every filter that covers f may too."""

    def __init__(self, may_tell: Callable[[K, Neighbor], bool] = lambda filter, neighbor: True) -> None:
        self._may_tell: Callable[[K, Neighbor], bool] = may_tell
        self.poset: Poset[K] = Poset()
        self._subscribers: dict[K, dict[Subscriber, None]] = {}
        self._held: dict[Subscriber, dict[K, None]] = {}
        # What each neighbor should be told, kept up to date with every change; and what it was told by the last flush.
        self._wanted: dict[Neighbor, dict[K, None]] = {}
        self._told: dict[Neighbor, dict[K, None]] = {}
        # For each neighbor, the filters that were wanted or ceased to be wanted since the last flush: only these can
        # differ between `_wanted` and `_told`.
        self._touched: dict[Neighbor, set[K]] = {}
        # Where a filter is entered as another filter that says the same: that other one, and by which words it is held.
        self._entered_as: dict[tuple[Subscriber, K], K] = {}
        self._words: dict[tuple[Subscriber, K], dict[K, None]] = {}

    # --- who holds what, who was told what ---

    def subscribers(self, filter: K) -> frozenset[Subscriber]:
        return frozenset(self._subscribers.get(filter, ()))

    def held_by(self, subscriber: Subscriber) -> tuple[K, ...]:
        return tuple(self._held.get(subscriber, ()))

    def held_count(self, subscriber: Subscriber) -> int:
        return len(self._held.get(subscriber, ()))

    def forwards(self, filter: K) -> frozenset[Neighbor]:
        """The neighbors that were told a filter: forwards(f) of the text."""
        return frozenset(neighbor for neighbor, told in self._told.items() if filter in told)

    def told_to(self, neighbor: Neighbor) -> tuple[K, ...]:
        """The filters that a neighbor was told."""
        return tuple(self._told.get(neighbor, ()))

    @property
    def neighbors(self) -> tuple[Neighbor, ...]:
        return tuple(sorted(self._told))

    def __len__(self) -> int:
        return len(self.poset)

    # --- changes ---

    def subscribe(self, subscriber: Subscriber, filter: K) -> tuple[K | None, tuple[K, ...]]:
        """Enters a filter. Returns the filter as the subscriber holds it now, or None if it held a covering one
        already; and the filters that the new one replaced."""
        is_exact = isinstance(subscriber, Neighbor)
        if not is_exact and any(subscriber in self._subscribers[wider] for wider in self.poset.covering(filter)):
            return None, ()
        # The poset may have an equal filter already, in other words: then the subscriber holds that object.
        node = self.poset.insert(filter).filter
        self._note_words(subscriber, filter, node)
        if is_exact and subscriber in self._subscribers.get(node, ()):
            return None, ()
        narrower_ones = () if is_exact else self.poset.covered(node)
        replaced = tuple(narrower for narrower in narrower_ones if subscriber in self._subscribers.get(narrower, ()))
        self._subscribers.setdefault(node, {})[subscriber] = None
        self._held.setdefault(subscriber, {})[node] = None
        # First the wider filter comes, then the narrower ones go: so none of them is uncovered and wanted in between.
        self._reconsider(node)
        for narrower in replaced:
            self._take(subscriber, narrower)
        return node, replaced

    def _note_words(self, subscriber: Subscriber, filter: K, node: K) -> None:
        """Notes by which words a subscriber says a node, unless it is only those of the node itself."""
        key = (subscriber, node)
        if filter != node:
            self._entered_as[subscriber, filter] = node
            said_itself = {node: None} if node in self._held.get(subscriber, ()) else {}
            self._words.setdefault(key, said_itself)[filter] = None
        elif key in self._words:
            self._words[key][filter] = None

    def _is_said_still(self, subscriber: Subscriber, filter: K, node: K) -> bool:
        """Takes back one of the words by which a subscriber says a node. Returns whether there are others."""
        words = self._words.get((subscriber, node))
        if words is None:
            return False
        words.pop(filter, None)
        self._entered_as.pop((subscriber, filter), None)
        if not words:
            del self._words[subscriber, node]
        return bool(words)

    def unsubscribe(self, subscriber: Subscriber, filter: K) -> tuple[K, ...]:
        """Takes a filter from a subscriber; from a client, also the filters that the given one covers. Returns the
        filters that it held."""
        held = self._held.get(subscriber, {})
        node = self._entered_as.get((subscriber, filter), filter)
        if node in held:
            # A client that holds this filter holds no other filter that it covers.
            gone: tuple[K, ...] = () if self._is_said_still(subscriber, filter, node) else (node,)
        elif isinstance(subscriber, Neighbor):
            gone = ()
        else:
            gone = tuple(covered for covered in self.poset.covered(filter) if covered in held)
        for covered in gone:
            self._take(subscriber, covered)
        return gone

    def drop(self, subscriber: Subscriber) -> tuple[K, ...]:
        """Takes all filters from a subscriber. Returns the filters that it held."""
        gone = self.held_by(subscriber)
        for filter in gone:
            self._take(subscriber, filter)
        return gone

    def _take(self, subscriber: Subscriber, filter: K) -> None:
        """The subscriber no longer holds the filter."""
        holders, held = self._subscribers[filter], self._held[subscriber]
        del holders[subscriber], held[filter]
        for words in self._words.pop((subscriber, filter), ()):
            self._entered_as.pop((subscriber, words), None)
        if not held:
            del self._held[subscriber]
        # While the filter is still in the poset: what it covered is found below it.
        self._reconsider(filter)
        if not holders:
            del self._subscribers[filter]
            self.poset.remove(filter)

    # --- neighbors ---

    def connect(self, neighbor: Neighbor) -> None:
        """A neighbor connects that has been told nothing. §5.2.3 forwards every root to it."""
        self._told[neighbor], self._wanted[neighbor], self._touched[neighbor] = {}, {}, set()
        self.recompute(neighbor)

    def disconnect(self, neighbor: Neighbor) -> tuple[K, ...]:
        """A neighbor is gone. Returns the filters that it held."""
        for table in (self._told, self._wanted, self._touched):
            table.pop(neighbor, None)
        return self.drop(neighbor)

    def recompute(self, neighbor: Neighbor) -> None:
        """Computes from nothing what is wanted for a neighbor: `may_tell` has changed for it."""
        eligible: dict[K, None] = {}
        # Goes down from the roots, level by level, and stops on each path at the first filter that is eligible: all
        # filters below that one are covered by it.
        level, visited = list(self.poset.roots), set(self.poset.roots)
        while level:
            level_below = []
            for filter in level:
                if self._eligible(filter, neighbor):
                    eligible[filter] = None
                else:
                    level_below += [below for below in self.poset.successors(filter) if below not in visited]
                    visited.update(level_below)
            level = level_below
        # A filter may be reached on a path without eligible filters, and lie below an eligible one on another path.
        wanted = {filter: None for filter in eligible if not self._has_eligible_above(filter, neighbor)}
        self._touched[neighbor] |= wanted.keys() ^ self._wanted[neighbor].keys()
        self._wanted[neighbor] = wanted

    def _eligible(self, filter: K, neighbor: Neighbor) -> bool:
        holders = self._subscribers[filter]
        # Whether there is a holder besides the neighbor itself: a bool counts as 0 or 1.
        return len(holders) > (neighbor in holders) and self._may_tell(filter, neighbor)

    def _has_eligible_above(self, filter: K, neighbor: Neighbor) -> bool:
        """Whether another filter, which is eligible for the neighbor, covers this one."""
        coverers = self.poset.covering(filter)
        return any(coverer != filter and self._eligible(coverer, neighbor) for coverer in coverers)

    def _reconsider(self, filter: K) -> None:
        """Brings what is wanted for each neighbor up to date, after the subscribers of one filter have changed."""
        for neighbor, wanted in self._wanted.items():
            if self._eligible(filter, neighbor):
                # It has become a root among the eligible filters: it takes the place of all wanted ones below it.
                if filter not in wanted and not self._has_eligible_above(filter, neighbor):
                    self._touched[neighbor].update(below for below in self.poset.covered(filter) if below in wanted)
                    for below in self.poset.covered(filter):
                        wanted.pop(below, None)
                    self._want(filter, neighbor)
            elif filter in wanted:
                # It was a root among the eligible filters and is eligible no longer: others may be roots now.
                del wanted[filter]
                self._touched[neighbor].add(filter)
                self._uncover(filter, neighbor)

    def _want(self, filter: K, neighbor: Neighbor) -> None:
        self._wanted[neighbor][filter] = None
        self._touched[neighbor].add(filter)

    def _uncover(self, filter: K, neighbor: Neighbor) -> None:
        """A filter is no longer wanted for a neighbor. Now the filters below it are wanted, except those that another
        eligible filter covers."""
        level, visited = list(self.poset.successors(filter)), {filter}
        while level:
            level_below: list[K] = []
            for below in level:
                if below in visited:
                    continue
                visited.add(below)
                # Past a filter that is not eligible the search goes on. An eligible one covers all below it, so the
                # search stops there, whether it is wanted itself or lies below another eligible one.
                if not self._eligible(below, neighbor):
                    level_below += self.poset.successors(below)
                elif not self._has_eligible_above(below, neighbor):
                    self._want(below, neighbor)
            level = level_below

    def flush(self) -> list[tuple[Neighbor, Change[K]]]:
        """What each neighbor must hear now, sorted by neighbor. The caller sends it: it counts as told from now on."""
        changes = []
        for neighbor in sorted(self._told):
            told, wanted, touched = self._told[neighbor], self._wanted[neighbor], self._touched[neighbor]
            # A filter that was touched and is back as it was, told and wanted or neither, is in none of the two.
            withdrawn = in_text_order(filter for filter in touched if filter in told and filter not in wanted)
            announced = in_text_order(filter for filter in touched if filter in wanted and filter not in told)
            touched.clear()
            for filter in withdrawn:
                del told[filter]
            told.update(dict.fromkeys(announced))
            if withdrawn or announced:
                changes.append((neighbor, Change(withdrawn, announced)))
        return changes


def in_text_order(filters: Iterable[K]) -> tuple[K, ...]:
    """Filters sorted by their texts: the order in which messages list them."""
    return tuple(sorted(filters, key=str))
