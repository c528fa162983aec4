"""The summary of a broker's subscriptions: an AACS or a SACS for each attribute, and matching by them (§3 of the text).

A subscription is *dissolved*: taken apart into what it asks of each attribute. To match a notification (Algorithm 1),
the summary collects, attribute by attribute, the ids of the subscriptions whose constraint the value satisfies. An id
that is collected as often as it names attributes is a match. A summary may have wider constraints than subscriptions
asked for. So it may report a subscription that does not match, but it never leaves out one that does. The broker that
has the subscription decides.

What a summary cannot express is widened before. A filter without a normal form counts as the wider one that it is
routed by. A filter with alternatives becomes the least conjunction that covers them. A set of strings that is no
pattern becomes a pattern that covers it. An attribute that may be absent is left out. A subscription that then names no
attribute matches everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from catchment.model.box import Box
from catchment.model.conjunction import Matchable
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.routing.summary.aacs import (
    AACS_ROWS_MAX,
    VALUE_BYTES,
    Aacs,
    Keys,
    arithmetic_key,
    arithmetic_keys,
    is_untyped,
)
from catchment.routing.summary.ids import Schema, SubscriptionId
from catchment.routing.summary.sacs import Pattern, Sacs, patterns_of

ROWS_MAX: Final = AACS_ROWS_MAX
_AacsOf = dict[tuple[str, str], Aacs[SubscriptionId]]
_SacsOf = dict[str, Sacs[SubscriptionId]]


@dataclass(frozen=True, slots=True)
class Dissolved:
    """A filter, taken apart by attribute: ranges of keys, by attribute and kind; and patterns of strings, by attribute.
    `is_exact` says that together they match no more than the filter."""

    keys: dict[tuple[str, str], Keys]
    patterns: dict[str, tuple[Pattern, ...]]
    is_exact: bool

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.keys} | set(self.patterns)


def dissolved(boxes: Iterable[Box]) -> Dissolved:
    """Takes a filter apart, given as its boxes. There must be at least one box."""
    listed = list(boxes)
    box = reduce(Box.hull, listed)
    is_exact = len(listed) == 1
    keys: dict[tuple[str, str], Keys] = {}
    patterns: dict[str, tuple[Pattern, ...]] = {}
    for name, values in box.sets.items():
        if values.absent:
            is_exact = False
            continue
        for kind, ranges in arithmetic_keys(values).items():
            keys[name, kind] = ranges
        is_exact &= is_untyped(values)
        if values.strings:
            patterns[name], is_name_exact = patterns_of(values.strings)
            is_exact &= is_name_exact
    return Dissolved(keys, patterns, is_exact)


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one broker's subscriptions, or of those of several brokers, merged. `everything` has the ids of
    the subscriptions that name no attribute."""

    schema: Schema
    arithmetic: _AacsOf = field(default_factory=dict)
    strings: _SacsOf = field(default_factory=dict)
    everything: frozenset[SubscriptionId] = frozenset()
    is_exact: bool = True

    @classmethod
    def of(cls, broker: int, filters: Mapping[int, Filter], schema: Schema, rows_max: int = ROWS_MAX) -> Summary:
        """The summary of a broker's subscriptions, given by number. New attributes get a place in the schema."""
        keys: dict[tuple[str, str], list[tuple[SubscriptionId, Keys]]] = {}
        patterns: dict[str, list[tuple[SubscriptionId, tuple[Pattern, ...]]]] = {}
        everything, is_exact = [], True
        for number, filter in filters.items():
            if filter.is_empty:
                continue
            parts = dissolved(filter.routed.boxes)
            # Sorted: the place of a new attribute must not depend on the order of a set.
            id = SubscriptionId(broker, number, schema.bits(sorted(parts.names)))
            is_exact &= parts.is_exact and filter.is_normal
            if not id.attributes:
                everything.append(id)
            for name_and_kind, ranges in parts.keys.items():
                keys.setdefault(name_and_kind, []).append((id, ranges))
            for name, name_patterns in parts.patterns.items():
                patterns.setdefault(name, []).append((id, name_patterns))
        arithmetic = {name_and_kind: Aacs.of(asked, rows_max) for name_and_kind, asked in keys.items()}
        strings = {name: Sacs.of(asked, rows_max) for name, asked in patterns.items()}
        return cls(schema, arithmetic, strings, frozenset(everything), is_exact and _all_exact(arithmetic, strings))

    # --- Algorithm 1 ---

    def matches(self, notification: Matchable) -> list[SubscriptionId]:
        """The ids of the subscriptions that a notification may match, sorted: all that it does match, and, where rows
        are wide, perhaps some more."""
        values = notification.matched if isinstance(notification, Notification) else notification
        counters = Counter(id for name, value in values.items() for id in self.satisfied(name, value))
        return sorted([*self.everything, *(id for id, count in counters.items() if count == id.count)])

    def satisfied(self, name: str, value: Value) -> frozenset[SubscriptionId]:
        """Step 1 of Algorithm 1 for one attribute: the ids of the subscriptions whose constraint the value
        satisfies."""
        if isinstance(value, str):
            strings = self.strings.get(name)
            return strings.match(value) if strings else frozenset()
        kind, key = arithmetic_key(value)
        arithmetic = self.arithmetic.get((name, kind))
        return arithmetic.match(key) if arithmetic else frozenset()

    # --- several ---

    def merged(self, other: Summary, rows_max: int = ROWS_MAX) -> Summary:
        """What both summaries say together (§4.1). They must have the same schema."""
        assert self.schema is other.schema
        arithmetic, strings = dict(self.arithmetic), dict(self.strings)
        for name_and_kind, aacs in other.arithmetic.items():
            mine = arithmetic.get(name_and_kind)
            arithmetic[name_and_kind] = aacs if mine is None else mine.merged(aacs, rows_max)
        for name, sacs in other.strings.items():
            strings[name] = strings[name].merged(sacs, rows_max) if name in strings else sacs
        is_exact = self.is_exact and other.is_exact and _all_exact(arithmetic, strings)
        return Summary(self.schema, arithmetic, strings, self.everything | other.everything, is_exact)

    def kept(self, wanted: Callable[[SubscriptionId], bool]) -> Summary:
        """The same with only the ids that are wanted. Rows stay as wide as the other ids made them: a broker that has
        the filters should make a new summary instead."""
        arithmetic = {
            name_and_kind: aacs_left
            for name_and_kind, aacs in self.arithmetic.items()
            if (aacs_left := aacs.kept(wanted)).rows
        }
        strings = {name: sacs_left for name, sacs in self.strings.items() if (sacs_left := sacs.kept(wanted)).rows}
        return Summary(self.schema, arithmetic, strings, frozenset(filter(wanted, self.everything)), self.is_exact)

    def size_bytes(self, id_bytes: int) -> int:
        """Equations (1) and (2) of §5.1 together."""
        arithmetic = sum(aacs.size_bytes(VALUE_BYTES[kind], id_bytes) for (_, kind), aacs in self.arithmetic.items())
        return arithmetic + sum(sacs.size_bytes(id_bytes) for sacs in self.strings.values())


def _all_exact(arithmetic: _AacsOf, strings: _SacsOf) -> bool:
    return all(aacs.is_exact for aacs in arithmetic.values()) and all(sacs.is_exact for sacs in strings.values())
