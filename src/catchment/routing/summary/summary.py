"""The summary of a broker's subscriptions: an AACS or SACS for each attribute, and matching by them (§3 of the text).

A subscription is dissolved into what it says of each attribute. A notification is matched (Algorithm 1) by collecting,
attribute by attribute, the ids whose constraint its value satisfies; an id that was collected as often as it names
attributes is a match. Since a summary may hold wider constraints than were asked for, it may report a subscription that
does not match, and never leaves out one that does. The broker that owns it decides.

What has no place in a summary is widened before: of a filter with alternatives, the least conjunction around them; of a
set of strings that is no pattern, a pattern that holds it; an attribute that may be absent is left out. A subscription
that then names no attribute matches everything.
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
    """A filter by attribute: ranges of keys of each kind, and patterns. `is_exact` says that together they say no more
    than the filter."""

    keys: dict[tuple[str, str], Keys]
    patterns: dict[str, tuple[Pattern, ...]]
    is_exact: bool

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.keys} | set(self.patterns)


def dissolved(boxes: Iterable[Box]) -> Dissolved:
    """What the boxes of a filter, of which there is one at least, say of each attribute."""
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
            patterns[name], exact = patterns_of(values.strings)
            is_exact &= exact
    return Dissolved(keys, patterns, is_exact)


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one broker, or of several merged. `everything` are ids that name no attribute."""

    schema: Schema
    arithmetic: _AacsOf = field(default_factory=dict)
    strings: _SacsOf = field(default_factory=dict)
    everything: frozenset[SubscriptionId] = frozenset()
    is_exact: bool = True

    @classmethod
    def of(cls, broker: int, filters: Mapping[int, Filter], schema: Schema, rows_max: int = ROWS_MAX) -> Summary:
        """The summary of a broker's subscriptions by number. New attributes get their place in the schema."""
        keys: dict[tuple[str, str], list[tuple[SubscriptionId, Keys]]] = {}
        patterns: dict[str, list[tuple[SubscriptionId, tuple[Pattern, ...]]]] = {}
        everything, is_exact = [], True
        for number, filter in filters.items():
            if filter.is_empty:
                continue
            found = dissolved(filter.boxes)
            id = SubscriptionId(broker, number, schema.bits(sorted(found.names)))
            is_exact &= found.is_exact
            if not id.attributes:
                everything.append(id)
            for where, ranges in found.keys.items():
                keys.setdefault(where, []).append((id, ranges))
            for name, some in found.patterns.items():
                patterns.setdefault(name, []).append((id, some))
        arithmetic = {where: Aacs.of(asked, rows_max) for where, asked in keys.items()}
        strings = {name: Sacs.of(asked, rows_max) for name, asked in patterns.items()}
        return cls(schema, arithmetic, strings, frozenset(everything), is_exact and _all_exact(arithmetic, strings))

    # --- Algorithm 1 ---

    def matches(self, notification: Matchable) -> list[SubscriptionId]:
        """The ids that a notification may match, sorted: all that it does, and where rows are wide some more."""
        values = notification.matched if isinstance(notification, Notification) else notification
        counters = Counter(id for name, value in values.items() for id in self.satisfied(name, value))
        return sorted([*self.everything, *(id for id, count in counters.items() if count == id.count)])

    def satisfied(self, name: str, value: Value) -> frozenset[SubscriptionId]:
        """Step 1 for one attribute: the ids whose constraint on it the value satisfies."""
        if isinstance(value, str):
            strings = self.strings.get(name)
            return strings.match(value) if strings else frozenset()
        kind, key = arithmetic_key(value)
        arithmetic = self.arithmetic.get((name, kind))
        return arithmetic.match(key) if arithmetic else frozenset()

    # --- several ---

    def merged(self, other: Summary, rows_max: int = ROWS_MAX) -> Summary:
        """What both hold (§4.1); they must share their schema."""
        assert self.schema is other.schema
        arithmetic, strings = dict(self.arithmetic), dict(self.strings)
        for where, aacs in other.arithmetic.items():
            arithmetic[where] = arithmetic[where].merged(aacs, rows_max) if where in arithmetic else aacs
        for name, sacs in other.strings.items():
            strings[name] = strings[name].merged(sacs, rows_max) if name in strings else sacs
        is_exact = self.is_exact and other.is_exact and _all_exact(arithmetic, strings)
        return Summary(self.schema, arithmetic, strings, self.everything | other.everything, is_exact)

    def kept(self, wanted: Callable[[SubscriptionId], bool]) -> Summary:
        """Only some ids. Rows stay as wide as the others made them: whoever has the filters makes a summary anew."""
        arithmetic = {where: left for where, one in self.arithmetic.items() if (left := one.kept(wanted)).rows}
        strings = {name: rest for name, one in self.strings.items() if (rest := one.kept(wanted)).rows}
        return Summary(self.schema, arithmetic, strings, frozenset(filter(wanted, self.everything)), self.is_exact)

    def size_bytes(self, id_bytes: int) -> int:
        """Equations (1) and (2) of §5.1 together."""
        arithmetic = sum(one.size_bytes(VALUE_BYTES[kind], id_bytes) for (_, kind), one in self.arithmetic.items())
        return arithmetic + sum(one.size_bytes(id_bytes) for one in self.strings.values())


def _all_exact(arithmetic: _AacsOf, strings: _SacsOf) -> bool:
    return all(one.is_exact for one in arithmetic.values()) and all(one.is_exact for one in strings.values())
