"""Patterns, sequences of filters, and subscriptions: what a client wants, with an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model import language
from catchment.model.budget import steps_used
from catchment.model.cesql import Cesql
from catchment.model.constraint import quoted_name
from catchment.model.filter import RELATION_STEPS_MAX, Filter
from catchment.model.values import MICROSECOND, Json, checked_duration, checked_name, checked_string, format_duration

# Filters in a pattern: each takes memory at some broker, for each key.
PATTERN_FILTERS_MAX: Final = 64
PATTERN_KEYS_MAX: Final = 8
IDENTITY_CODEPOINTS_MAX: Final = 1_024


class Pattern:
    """A sequence of filters (SIENA §3.4). `within` limits the time from the first notification to the last; `by` names
    attributes whose values must be the same in all notifications of a sequence."""

    __slots__ = ("_identity", "by", "filters", "within")

    filters: tuple[Filter, ...]
    within: timedelta | None

    def __init__(self, text: str) -> None:
        steps, within, by = language.parse_pattern(text)
        self._set([Filter.of_expression(step) for step in steps], within, by)

    @classmethod
    def of(cls, *filters: Filter, within: timedelta | None = None, by: Sequence[str] = ()) -> Pattern:
        pattern = cls.__new__(cls)
        pattern._set(filters, within, by)
        return pattern

    def _set(self, filters: Sequence[Filter], within: timedelta | None, by: Sequence[str]) -> None:
        if not filters:
            raise BadFilterError("a pattern needs at least one filter")
        if len(filters) > PATTERN_FILTERS_MAX:
            raise LimitError("PATTERN_FILTERS_MAX", PATTERN_FILTERS_MAX, len(filters))
        if len(by) > PATTERN_KEYS_MAX:
            raise LimitError("PATTERN_KEYS_MAX", PATTERN_KEYS_MAX, len(by))
        self.filters = tuple(filters)
        self.within = within and checked_duration(within // MICROSECOND)
        self.by = tuple(dict.fromkeys(checked_name(name) for name in by))
        self._identity = (self.filters, self.within, self.by)

    @property
    def is_simple(self) -> bool:
        """Whether it is a single filter."""
        return len(self.filters) == 1

    def covers(self, other: Pattern) -> bool:
        """SIENA §3.8: whether both have equally many filters and each covers the other's; and `by` is the same and
        `within` at least as long. Past RELATION_STEPS_MAX for all filters together: no."""
        if len(self.filters) != len(other.filters) or self.by != other.by:
            return False
        if self.within is not None and (other.within is None or other.within > self.within):
            return False
        return self._covers_each(other)

    def _covers_each(self, other: Pattern) -> bool:
        # What each is routed by is kept once it is found: before the steps are counted, so that these are always the
        # same.
        _ = [filter.routed for filter in (*self.filters, *other.filters)]
        until = steps_used() + RELATION_STEPS_MAX
        pairs = zip(self.filters, other.filters, strict=True)
        return all(steps_used() <= until and mine.covers(its) for mine, its in pairs)

    def __str__(self) -> str:
        within = f" within {format_duration(self.within)}" if self.within else ""
        by = f" by {', '.join(map(quoted_name, self.by))}" if self.by else ""
        return " -> ".join(f"[{filter}]" for filter in self.filters) + within + by

    def __repr__(self) -> str:
        return f"Pattern({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[object, ...]:
        return Pattern.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {"sequence": [filter.to_json() for filter in self.filters]}
        if self.within is not None:
            data["within"] = format_duration(self.within)
        if self.by:
            data["by"] = list(self.by)
        return data

    @classmethod
    def from_json(cls, data: object) -> Pattern:
        """From `{"sequence": [filter, …]}` with `within` and `by` if need be, or from text."""
        if isinstance(data, str):
            return cls(data)
        if not isinstance(data, Mapping) or not {"sequence"} <= set(data) <= {"sequence", "within", "by"}:
            raise BadFilterError(f'{shown(data)} is not a pattern: write text or {{"sequence": [filter, …]}}')
        within, by, sequence = data.get("within"), data.get("by", []), data["sequence"]
        if not (isinstance(sequence, list) and isinstance(by, list) and isinstance(within, str | None)):
            raise BadFilterError(f"{shown(data)} is not a pattern: sequence and by are lists, within a duration")
        duration = None if within is None else language.parse_duration(within)
        return cls.of(*map(Filter.from_json, sequence), within=duration, by=by)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a client wants, with an id: a filter in either dialect, or a pattern."""

    id: str
    client: str
    wanted: Filter | Pattern | Cesql

    def __post_init__(self) -> None:
        _checked_identity(self.id)
        _checked_identity(self.client)

    def to_json(self) -> dict[str, Json]:
        return {"id": self.id, "client": self.client, "wanted": {**self.wanted.to_json()}}

    @classmethod
    def from_json(cls, data: object) -> Subscription:
        if not isinstance(data, Mapping) or set(data) != {"id", "client", "wanted"}:
            raise BadFilterError(f"{shown(data)} is not a subscription: it has id, client and wanted")
        return cls(_checked_identity(data["id"]), _checked_identity(data["client"]), _wanted(data["wanted"]))


def _wanted(data: object) -> Filter | Pattern | Cesql:
    if isinstance(data, Mapping) and "sequence" in data:
        return Pattern.from_json(data)
    if isinstance(data, Mapping) and "dialect" in data:
        return Cesql.from_json(data)
    return Filter.from_json(data)


def _checked_identity(identity: object) -> str:
    if not isinstance(identity, str) or not identity or len(identity) > IDENTITY_CODEPOINTS_MAX:
        raise BadFilterError(f"{shown(identity)} is not an identity: use a text of 1 to {IDENTITY_CODEPOINTS_MAX}")
    return checked_string(identity)
