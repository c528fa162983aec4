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
from collections.abc import Iterable, Mapping
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
    NUMBER,
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
    def of(
        cls,
        broker: int,
        filters: Mapping[int, Filter],
        schema: Schema,
        rows_max: int = ROWS_MAX,
        *,
        is_joined: bool = False,
    ) -> Summary:
        """The summary of a broker's subscriptions, given by number. New attributes get a place in the schema. With
        `is_joined`, an AACS has the text's rows (`aacs.py`)."""
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
        arithmetic = {
            name_and_kind: Aacs.joined(asked) if is_joined else Aacs.of(asked, rows_max)
            for name_and_kind, asked in keys.items()
        }
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
        """What both summaries say together (§4.1), with the schema of this one."""
        theirs = other.remapped(self.schema)
        arithmetic, strings = dict(self.arithmetic), dict(self.strings)
        for name_and_kind, aacs in theirs.arithmetic.items():
            mine = arithmetic.get(name_and_kind)
            arithmetic[name_and_kind] = aacs if mine is None else mine.merged(aacs, rows_max)
        for name, sacs in theirs.strings.items():
            strings[name] = strings[name].merged(sacs, rows_max) if name in strings else sacs
        is_exact = self.is_exact and theirs.is_exact and _all_exact(arithmetic, strings)
        return Summary(self.schema, arithmetic, strings, self.everything | theirs.everything, is_exact)

    def remapped(self, schema: Schema, brokers: Mapping[int, int] | None = None) -> Summary:
        """The same in the numbers of another process: with its schema, and with its numbers of brokers where they are
        given."""
        if schema is self.schema and not brokers:
            return self
        numbers: dict[SubscriptionId, SubscriptionId] = {}

        def anew(ids: Iterable[SubscriptionId]) -> frozenset[SubscriptionId]:
            for id in ids:
                if id not in numbers:
                    numbers[id] = id.remapped(schema, self.schema, brokers or {})
            return frozenset(map(numbers.__getitem__, ids))

        arithmetic = {
            name_and_kind: Aacs(tuple(row._replace(ids=anew(row.ids)) for row in aacs.rows), aacs.is_exact)
            for name_and_kind, aacs in self.arithmetic.items()
        }
        strings = {
            name: Sacs({pattern: anew(ids) for pattern, ids in sacs.rows.items()}, sacs.is_exact)
            for name, sacs in self.strings.items()
        }
        return Summary(schema, arithmetic, strings, anew(self.everything), self.is_exact)

    def size_bytes(self, id_bytes: int, number_bytes: int = VALUE_BYTES[NUMBER]) -> int:
        """Equations (1) and (2) of §5.1 together, and the ids of subscriptions that name no attribute. The text's
        table 2 counts 4 bytes for a number; our numbers have 8."""
        value_bytes = {**VALUE_BYTES, NUMBER: number_bytes}
        arithmetic = sum(aacs.size_bytes(value_bytes[kind], id_bytes) for (_, kind), aacs in self.arithmetic.items())
        strings = sum(sacs.size_bytes(id_bytes) for sacs in self.strings.values())
        return arithmetic + strings + len(self.everything) * id_bytes


def _all_exact(arithmetic: _AacsOf, strings: _SacsOf) -> bool:
    return all(aacs.is_exact for aacs in arithmetic.values()) and all(sacs.is_exact for sacs in strings.values())
