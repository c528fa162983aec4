"""Filters held in a poset with who subscribed to them, and what of that each neighbor was told (SIENA §5.2.3).

State: the poset; for each filter its subscribers; for each neighbor the filters announced to it. Equation
(1) of the text,

    forwards(f) = neighbors − NST(f) − ∪ forwards(f′) for f′ in P_S that covers f

is kept as its other side: a neighbor N has been told exactly the *roots among what is eligible for it*, where f is
eligible for N when somebody other than N subscribed to it (in an acyclic network NST(f) is N alone when N is its one
subscriber) and `may_tell(f, N)` allows it. A change of one filter then changes only what it uncovers or covers, and
what each neighbor must hear is the difference to what it was told.

subscribe    X holds no two filters of which one covers the other: a covered one says nothing and is not entered,
             and one that covers takes X from those it covers. Filters that nobody holds leave the poset.
unsubscribe  takes X from the filters that the given one covers.
flush        for each neighbor what is to be withdrawn and announced now. The two go into one message, so that no
             notification falls between them: the text sends the unsubscription first and has such a moment.

The same code forwards subscriptions and advertisements, as the text proposes (§5.2.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic

from catchment.model.pattern import Pattern
from catchment.routing.messages import Neighbor
from catchment.routing.poset import K, Poset

# A neighboring broker, the identity of a local client, or a pattern that is watched here.
Subscriber = Neighbor | str | Pattern


@dataclass(frozen=True, slots=True)
class Change(Generic[K]):
    """What a neighbor must hear."""

    withdrawn: tuple[K, ...]
    announced: tuple[K, ...]

    def __bool__(self) -> bool:
        return bool(self.withdrawn or self.announced)


class Forwarding(Generic[K]):
    """`may_tell(f, N)` says whether N is one that f may be forwarded to; if it may, all that cover f may too."""

    def __init__(self, may_tell: Callable[[K, Neighbor], bool] = lambda filter, neighbor: True) -> None:
        self._may_tell: Callable[[K, Neighbor], bool] = may_tell
        self.poset: Poset[K] = Poset()
        self._subscribers: dict[K, dict[Subscriber, None]] = {}
        self._held: dict[Subscriber, dict[K, None]] = {}
        self._wanted: dict[Neighbor, dict[K, None]] = {}
        self._told: dict[Neighbor, dict[K, None]] = {}
        # Where what is wanted may differ from what was told.
        self._touched: dict[Neighbor, set[K]] = {}

    # --- what is held ---

    def subscribers(self, filter: K) -> frozenset[Subscriber]:
        return frozenset(self._subscribers.get(filter, ()))

    def held_by(self, subscriber: Subscriber) -> tuple[K, ...]:
        return tuple(self._held.get(subscriber, ()))

    def held_count(self, subscriber: Subscriber) -> int:
        return len(self._held.get(subscriber, ()))

    def forwards(self, filter: K) -> frozenset[Neighbor]:
        """The neighbors that were told of a filter."""
        return frozenset(neighbor for neighbor, told in self._told.items() if filter in told)

    def told_to(self, neighbor: Neighbor) -> tuple[K, ...]:
        return tuple(self._told.get(neighbor, ()))

    @property
    def neighbors(self) -> tuple[Neighbor, ...]:
        return tuple(sorted(self._told))

    def __len__(self) -> int:
        return len(self.poset)

    # --- changes ---

    def subscribe(self, subscriber: Subscriber, filter: K) -> tuple[K | None, tuple[K, ...]]:
        """The filter as it is held now, None if it says nothing new of this subscriber; and those that it replaced."""
        above = self.poset.covering(filter)
        if any(subscriber in self._subscribers[one] for one in above):
            return None, ()
        node = self.poset.insert(filter).filter
        replaced = tuple(one for one in self.poset.covered(node) if subscriber in self._subscribers.get(one, ()))
        self._subscribers.setdefault(node, {})[subscriber] = None
        self._held.setdefault(subscriber, {})[node] = None
        self._reconsider(node)
        for one in replaced:
            self._take(subscriber, one)
        return node, replaced

    def unsubscribe(self, subscriber: Subscriber, filter: K) -> tuple[K, ...]:
        """The filters that the subscriber no longer holds."""
        held = self._held.get(subscriber, {})
        if filter in held:
            # It holds nothing else that this one covers.
            gone: tuple[K, ...] = (filter,)
        else:
            gone = tuple(one for one in self.poset.covered(filter) if one in held)
        for one in gone:
            self._take(subscriber, one)
        return gone

    def drop(self, subscriber: Subscriber) -> tuple[K, ...]:
        """Forgets all that an subscriber holds."""
        gone = self.held_by(subscriber)
        for one in gone:
            self._take(subscriber, one)
        return gone

    def _take(self, subscriber: Subscriber, filter: K) -> None:
        holders, held = self._subscribers[filter], self._held[subscriber]
        del holders[subscriber], held[filter]
        if not held:
            del self._held[subscriber]
        self._reconsider(filter)
        if not holders:
            del self._subscribers[filter]
            self.poset.remove(filter)

    # --- neighbors ---

    def connect(self, neighbor: Neighbor) -> None:
        """A neighbor that has been told nothing; §5.2.3 forwards it every root."""
        self._told[neighbor], self._wanted[neighbor], self._touched[neighbor] = {}, {}, set()
        self.recompute(neighbor)

    def disconnect(self, neighbor: Neighbor) -> tuple[K, ...]:
        """A neighbor that is gone, with what it held."""
        for table in (self._told, self._wanted, self._touched):
            table.pop(neighbor, None)
        return self.drop(neighbor)

    def recompute(self, neighbor: Neighbor) -> None:
        """What a neighbor is to be told, anew: whom it may be told about has changed."""
        found: dict[K, None] = {}
        level, visited = list(self.poset.roots), set(self.poset.roots)
        while level:
            following = []
            for one in level:
                if self._eligible(one, neighbor):
                    found[one] = None
                else:
                    following += [below for below in self.poset.successors(one) if below not in visited]
                    visited.update(following)
            level = following
        # A filter that was reached past one predecessor may lie below another that is eligible.
        wanted = {one: None for one in found if not self._has_eligible_above(one, neighbor)}
        self._touched[neighbor] |= wanted.keys() ^ self._wanted[neighbor].keys()
        self._wanted[neighbor] = wanted

    def _eligible(self, filter: K, neighbor: Neighbor) -> bool:
        holders = self._subscribers[filter]
        return len(holders) > (neighbor in holders) and self._may_tell(filter, neighbor)

    def _has_eligible_above(self, filter: K, neighbor: Neighbor) -> bool:
        return any(one != filter and self._eligible(one, neighbor) for one in self.poset.covering(filter))

    def _reconsider(self, filter: K) -> None:
        """What the neighbors are to be told, after the subscribers of one filter changed."""
        for neighbor, wanted in self._wanted.items():
            if self._eligible(filter, neighbor):
                if filter not in wanted and not self._has_eligible_above(filter, neighbor):
                    self._touched[neighbor].update(one for one in self.poset.covered(filter) if one in wanted)
                    for below in self.poset.covered(filter):
                        wanted.pop(below, None)
                    self._want(filter, neighbor)
            elif filter in wanted:
                del wanted[filter]
                self._touched[neighbor].add(filter)
                self._uncover(filter, neighbor)

    def _want(self, filter: K, neighbor: Neighbor) -> None:
        self._wanted[neighbor][filter] = None
        self._touched[neighbor].add(filter)

    def _uncover(self, filter: K, neighbor: Neighbor) -> None:
        """Filters below one that is no longer forwarded, which nothing else forwarded covers."""
        level, visited = list(self.poset.successors(filter)), {filter}
        while level:
            following: list[K] = []
            for one in level:
                if one in visited:
                    continue
                visited.add(one)
                if not self._eligible(one, neighbor):
                    following += self.poset.successors(one)
                elif not self._has_eligible_above(one, neighbor):
                    self._want(one, neighbor)
            level = following

    def flush(self) -> list[tuple[Neighbor, Change[K]]]:
        """What each neighbor must hear now, by name; none of it a second time."""
        found = []
        for neighbor in sorted(self._told):
            told, wanted, touched = self._told[neighbor], self._wanted[neighbor], self._touched[neighbor]
            withdrawn = in_text_order(one for one in touched if one in told and one not in wanted)
            announced = in_text_order(one for one in touched if one in wanted and one not in told)
            touched.clear()
            for one in withdrawn:
                del told[one]
            told.update(dict.fromkeys(announced))
            if withdrawn or announced:
                found.append((neighbor, Change(withdrawn, announced)))
        return found


def in_text_order(filters: Iterable[K]) -> tuple[K, ...]:
    return tuple(sorted(filters, key=str))
