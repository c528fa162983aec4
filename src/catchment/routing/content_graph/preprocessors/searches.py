"""Faster searches than breadth first (F3 §6.3): sorted levels, an index, a matcher, a hash.

Each finds the nodes that a document belongs to, for subscriptions that are sets of pairs; `RangeIndexSearch` and
`MatcherSearch` are for ranges too. In tests the breadth-first search is the slow twin of all of them.

sorted levels   The nodes of each level (those with as many pairs) are sorted by attribute and value. A binary search
                finds those whose first pair is in the document; only they are looked at.
index           By pair, the nodes that have it. A node is found when as many of its pairs were met as it has.
range index     Ranges sorted by their low end, in blocks that know their highest high end, as in an R-tree: blocks that
                end below the document are passed over.
matcher         The one matcher of this project, on filters that say the same.
hash            A hash of the whole document finds the node that has exactly its pairs. It is the lowest by itself: all
                other nodes that the document belongs to have fewer pairs, and are above it. The text notes that this
                works only where documents are exactly what somebody subscribed to. Here the index takes over where
                they are not, so nobody misses anything.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final, Generic, NamedTuple

from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.routing.content_graph.preprocessors.base import N, S
from catchment.routing.parts.recall import RecallingMatcher

# A name, the type of the value, and the value. 1 and true are equal for Python, so the type is part of it.
Pair = tuple[str, str, Value]
Pairs = frozenset[Pair]

# Ranges in a block of the range index: small enough to be looked through, many enough that blocks are few.
BLOCK: Final = 64


def _key(pair: Pair) -> tuple[str, str, str]:
    """Sorts pairs of all types. Equal numbers have the same key, be they whole or not."""
    name, kind, value = pair
    is_whole = isinstance(value, float) and value.is_integer()
    return name, kind, repr(int(value) if is_whole and isinstance(value, float) else value)


def _sorted_pairs(pairs: Pairs) -> tuple[tuple[str, str, str], ...]:
    return tuple(sorted(map(_key, pairs)))


class SortedLevelsSearch:
    """Levels of sorted pairs."""

    def __init__(self) -> None:
        self.examined = 0
        # By number of pairs: the sorted pairs of each node, with the node, sorted.
        self._levels: dict[int, list[tuple[tuple[tuple[str, str, str], ...], int]]] = {}
        self._pairs: dict[int, Pairs] = {}

    def add(self, node: int, subscription: Pairs) -> None:
        self._pairs[node] = subscription
        insort(self._levels.setdefault(len(subscription), []), (_sorted_pairs(subscription), node))

    def remove(self, node: int) -> None:
        pairs = self._pairs.pop(node)
        level = self._levels[len(pairs)]
        del level[bisect_left(level, (_sorted_pairs(pairs), node))]
        if not level:
            del self._levels[len(pairs)]

    def nodes(self, document: Pairs) -> Iterable[int]:
        keys = set(map(_key, document))
        found: list[int] = []
        for size, level in self._levels.items():
            if size == 0:
                found += [node for _, node in level]
            elif size <= len(keys):
                for key in keys:
                    found += self._with_first(level, key, keys)
        return found

    def _with_first(
        self,
        level: list[tuple[tuple[tuple[str, str, str], ...], int]],
        first: tuple[str, str, str],
        keys: set[tuple[str, str, str]],
    ) -> list[int]:
        """The nodes of a level whose first pair is this, and whose others are in the document."""
        found: list[int] = []
        for i in range(bisect_left(level, ((first,), -1)), len(level)):
            pairs, node = level[i]
            if pairs[0] != first:
                break
            self.examined += 1
            if keys.issuperset(pairs):
                found.append(node)
        return found


class PairIndexSearch:
    """By pair, the nodes that have it."""

    def __init__(self) -> None:
        self.examined = 0
        self._by_pair: dict[Pair, set[int]] = {}
        self._pairs: dict[int, Pairs] = {}
        # Nodes without pairs: everything belongs to them.
        self._whole: set[int] = set()

    def add(self, node: int, subscription: Pairs) -> None:
        self._pairs[node] = subscription
        if not subscription:
            self._whole.add(node)
        for pair in subscription:
            self._by_pair.setdefault(pair, set()).add(node)

    def remove(self, node: int) -> None:
        self._whole.discard(node)
        for pair in self._pairs.pop(node):
            self._by_pair[pair].discard(node)
            if not self._by_pair[pair]:
                del self._by_pair[pair]

    def nodes(self, document: Pairs) -> Iterable[int]:
        counts: Counter[int] = Counter()
        for pair in document:
            counts.update(self._by_pair.get(pair, ()))
        self.examined += len(counts)
        pairs = self._pairs
        return [*self._whole, *(node for node, count in counts.items() if count == len(pairs[node]))]


class HashSearch:
    """A hash of all pairs, and the index for what no node has exactly."""

    def __init__(self) -> None:
        self._index = PairIndexSearch()
        self._by_hash: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}

    @property
    def examined(self) -> int:
        return self._index.examined

    @examined.setter
    def examined(self, count: int) -> None:
        self._index.examined = count

    def add(self, node: int, subscription: Pairs) -> None:
        self._index.add(node, subscription)
        digest = self._hashes[node] = _digest(subscription)
        self._by_hash[digest] = node

    def remove(self, node: int) -> None:
        self._index.remove(node)
        del self._by_hash[self._hashes.pop(node)]

    def nodes(self, document: Pairs) -> Iterable[int]:
        node = self._by_hash.get(_digest(document))
        return self._index.nodes(document) if node is None else (node,)


def _digest(pairs: Pairs) -> bytes:
    return blake2b(repr(_sorted_pairs(pairs)).encode(), digest_size=16).digest()


class MatcherSearch(Generic[S, N]):
    """The matcher. `filter_of` says what a subscription is as a filter, `notification_of` what a document is."""

    def __init__(self, filter_of: Callable[[S], Filter], notification_of: Callable[[N], Notification]) -> None:
        # The matcher looks at no subscription that its index rules out: it does not count.
        self.examined = 0
        self._filter_of = filter_of
        self._notification_of = notification_of
        self._matcher: RecallingMatcher[tuple[int, ...]] = RecallingMatcher(_ints)

    def add(self, node: int, subscription: S) -> None:
        self._matcher.add(node, self._filter_of(subscription))

    def remove(self, node: int) -> None:
        self._matcher.remove(node)

    def nodes(self, document: N) -> Iterable[int]:
        return self._matcher.answers([self._notification_of(document)])[0]


def _ints(ids: Iterable[Id]) -> tuple[int, ...]:
    return tuple(int(id) for id in ids)


class PairMatcherSearch(MatcherSearch[Pairs, Pairs]):
    """The matcher, for pairs. Each pair that somebody wants is an attribute of its own, because a document may have
    several values of one name, and a notification has one."""

    def __init__(self) -> None:
        super().__init__(self._as_filter, self._as_notification)
        self._wanted: Counter[Pair] = Counter()
        self._pairs: dict[int, Pairs] = {}

    def add(self, node: int, subscription: Pairs) -> None:
        super().add(node, subscription)
        self._pairs[node] = subscription
        self._wanted.update(subscription)

    def remove(self, node: int) -> None:
        super().remove(node)
        self._wanted.subtract(self._pairs[node])
        for pair in self._pairs.pop(node):
            if not self._wanted[pair]:
                del self._wanted[pair]

    def _as_filter(self, pairs: Pairs) -> Filter:
        return Filter.of(*((_digest(frozenset([pair])).hex(), "=", True) for pair in pairs))

    def _as_notification(self, pairs: Pairs) -> Notification:
        return Notification({_digest(frozenset([pair])).hex(): True for pair in pairs if pair in self._wanted})


class Range(NamedTuple):
    """All numbers from `low` to `high`, both included."""

    low: float
    high: float


class RangeIndexSearch:
    """Ranges by their low ends, in blocks. It is sorted again when it is first asked after a change."""

    def __init__(self) -> None:
        self.examined = 0
        self._ranges: dict[int, Range] = {}
        self._sorted: list[tuple[Range, int]] | None = None
        self._lows: list[float] = []
        self._highest: list[float] = []

    def add(self, node: int, subscription: Range) -> None:
        self._ranges[node] = subscription
        self._sorted = None

    def remove(self, node: int) -> None:
        del self._ranges[node]
        self._sorted = None

    def nodes(self, document: Range | None) -> Iterable[int]:
        if document is None:
            return []
        ranges = self._built()
        found: list[int] = []
        # Those that begin after the document's end are no longer looked at.
        end = bisect_right(self._lows, document.high)
        for block in range(0, end, BLOCK):
            if self._highest[block // BLOCK] < document.low:
                continue
            for range_, node in ranges[block : min(block + BLOCK, end)]:
                self.examined += 1
                if range_.high >= document.low:
                    found.append(node)
        return found

    def _built(self) -> list[tuple[Range, int]]:
        if self._sorted is None:
            self._sorted = sorted((range_, node) for node, range_ in self._ranges.items())
            self._lows = [range_.low for range_, _ in self._sorted]
            highs = [range_.high for range_, _ in self._sorted]
            self._highest = [max(highs[i : i + BLOCK]) for i in range(0, len(highs), BLOCK)]
        return self._sorted
