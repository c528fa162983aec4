"""What `catchment check` can be asked about: filters in both dialects, patterns, advertisements.

Each subject reports on itself, relates itself to another of its kind and judges notifications. All of
it is asked of the model; here it is put into words and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catchment.cli.terminal import BadUsage, described
from catchment.errors import InputError
from catchment.model.advertisement import Advertisement
from catchment.model.box import Box
from catchment.model.explanation import Explanation, explain, shown_literal
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Json, format_duration

if TYPE_CHECKING:
    from catchment.model.cesql import Cesql

Report = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Relation:
    """How one subject stands to another; `overlaps` is None where that is not defined."""

    covers: bool
    covered: bool
    overlaps: bool | None
    note: str = ""

    @property
    def sentence(self) -> str:
        return self.note + self._sentence

    @property
    def _sentence(self) -> str:
        if self.covers and self.covered:
            return "They are equal: each matches exactly what the other matches."
        if self.covers:
            return (
                "The first covers the second: whatever matches the second matches the first, not the other way round."
            )
        if self.covered:
            return (
                "The second covers the first: whatever matches the first matches the second, not the other way round."
            )
        if self.overlaps is None:
            return "Neither covers the other."
        if self.overlaps:
            return "Neither covers the other, but they overlap: some notification could match both."
        return "They are disjoint: no notification can match both."

    def to_json(self) -> Report:
        return {"covers": self.covers, "covered": self.covered, "overlaps": self.overlaps, "sentence": self.sentence}


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a notification matches, why not (in a line), and the same for programs, made when asked for."""

    matched: bool
    reason: str
    details: Callable[[], Report]


def subject_of(where: str, text: str, dialect: str, kind: str) -> Subject:
    """Parses `text`; BadUsage says what is wrong with the argument called `where`."""
    try:
        match kind, dialect:
            case "filter", "catchment":
                return FilterSubject(Filter(text))
            case "filter", _:
                from catchment.model.cesql import Cesql

                return CesqlSubject(Cesql(text))
            case _, "cesql":
                raise BadUsage(f"CESQL has no {kind}s: leave out --as, or --dialect")
            case "pattern", _:
                return PatternSubject(Pattern(text))
            case _:
                return AdvertisementSubject(Advertisement(text))
    except InputError as problem:
        raise BadUsage(described(problem, where, text)) from None


# --- filters ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilterSubject:
    filter: Filter

    def report(self) -> Report:
        return {"kind": "filter", "dialect": "catchment", **filter_report(self.filter)}

    def relation(self, other: Any) -> Relation:
        return relation_of(self.filter, other.filter)

    def judge(self, notification: Notification) -> Judgement:
        return judgement_of(explain(self.filter, notification))


def filter_report(filter: Filter) -> Report:
    return {
        "text": str(filter),
        "empty": filter.is_empty,
        "everything": filter == Filter.everything(),
        "attributes": attributes_of(filter.boxes),
        "alternatives": len(filter.alternatives),
        "comparisons": filter.comparisons,
        "filter": filter.to_json(),
    }


def attributes_of(boxes: Iterable[Box]) -> dict[str, Json]:
    """For each attribute the types that some alternative accepts, and whether one accepts its absence."""
    types: dict[str, list[Json]] = {}
    absent: dict[str, bool] = {}
    for box in boxes:
        for name, found in box.sets.items():
            listed = types.setdefault(name, [])
            listed += [one.value for one in found.types if one.value not in listed]
            absent[name] = absent.get(name, False) or found.absent
    return {name: {"types": types[name], "absent": absent[name]} for name in sorted(types)}


def relation_of(first: Filter, second: Filter, note: str = "") -> Relation:
    return Relation(
        first.covers(second), second.covers(first), first.overlaps(second), note or _empty_note(first, second)
    )


def _empty_note(first: Filter, second: Filter) -> str:
    """Nothing is covered by everything: true, and surprising without a word about it."""
    if first.is_empty and second.is_empty:
        return "Both match nothing. "
    if first.is_empty or second.is_empty:
        return f"The {'first' if first.is_empty else 'second'} matches nothing, so any filter covers it. "
    return ""


def judgement_of(explanation: Explanation) -> Judgement:
    matched = explanation.matched
    return Judgement(matched, "" if matched else str(explanation), lambda: _details(explanation))


def _details(explanation: Explanation) -> Report:
    """What a reader of many lines wants: the alternative that held, or the clauses that failed in the nearest."""
    nearest = explanation.nearest
    if nearest is None:
        return {}
    found: Report = {"alternative": str(nearest.conjunction)}
    return found if nearest.held else found | {"failing": [clause.to_json() for clause in nearest.failing]}


@dataclass(frozen=True, slots=True)
class CesqlSubject:
    """Matches exactly as the expression does; brokers route by the filter it implies."""

    expression: Cesql

    def report(self) -> Report:
        implied = filter_report(self.expression.filter)
        return {"kind": "filter", "dialect": "cesql", "text": str(self.expression), "implies": implied}

    def relation(self, other: Any) -> Relation:
        return relation_of(self.expression.filter, other.expression.filter, "Of the filters they imply: ")

    def judge(self, notification: Notification) -> Judgement:
        found = self.expression.evaluate(notification.matched)
        faults = [str(fault) for fault in found.errors]
        matched = self.expression.matches(notification.matched)
        reason = "" if matched else "; ".join(faults) or f"the expression gives {shown_literal(found.value)}"
        return Judgement(matched, reason, lambda: {"value": found.value, "errors": [*faults]})


# --- patterns and advertisements ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PatternSubject:
    pattern: Pattern

    def report(self) -> Report:
        filters = self.pattern.filters
        within = self.pattern.within
        return {
            "kind": "pattern",
            "dialect": "catchment",
            "text": str(self.pattern),
            "empty": any(one.is_empty for one in filters),
            "within": None if within is None else format_duration(within),
            "by": list(self.pattern.by),
            "attributes": attributes_of(box for one in filters for box in one.boxes),
            "alternatives": sum(len(one.alternatives) for one in filters),
            "comparisons": sum(one.comparisons for one in filters),
            "filters": [filter_report(one) for one in filters],
        }

    def relation(self, other: Any) -> Relation:
        return Relation(self.pattern.covers(other.pattern), other.pattern.covers(self.pattern), None)


@dataclass(frozen=True, slots=True)
class AdvertisementSubject:
    advertisement: Advertisement

    def report(self) -> Report:
        return {
            "kind": "advertisement",
            "dialect": "catchment",
            "text": str(self.advertisement),
            "attributes": attributes_of([self.advertisement.box]),
            "comparisons": sum(one.comparisons for one in self.advertisement.constraints),
            "advertisement": self.advertisement.to_json(),
        }

    def relation(self, other: Any) -> Relation:
        mine, its = self.advertisement, other.advertisement
        return Relation(mine.covers(its), its.covers(mine), mine.overlaps(its))

    def judge(self, notification: Notification) -> Judgement:
        box = self.advertisement.box
        wrong = {name: value for name, value in notification.matched.items() if value not in box.of(name)}
        reason = "; ".join(f"{name}: value {shown_literal(value)} is not advertised" for name, value in wrong.items())
        return Judgement(self.advertisement.matches(notification), reason, lambda: {"undeclared": list(wrong)})


# What can be checked, and of that what single notifications can be held against.
Judge = FilterSubject | CesqlSubject | AdvertisementSubject
Subject = Judge | PatternSubject
