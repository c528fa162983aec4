"""What `catchment check` can check: filters in both dialects, patterns, advertisements.

Each class reports on what it checks and relates it to another of its class. All but patterns also judge
notifications. The model gives the answers; this file puts them into words and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from catchment.cli.arguments import parsed_advertisement, parsed_filter, parsed_pattern
from catchment.cli.terminal import BadUsage
from catchment.model.advertisement import Advertisement
from catchment.model.box import Box
from catchment.model.cesql import Cesql
from catchment.model.explanation import Explanation, explain, shown_literal
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Json, format_duration

Report = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Relation:
    """How the first of two filters relates to the second. Patterns have no overlap: there `overlaps` is None."""

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
    """Whether a notification matches, and in a line why not. `details` makes the same for programs, when called."""

    matched: bool
    reason: str
    details: Callable[[], Report]


def checked_text(where: str, text: str, dialect: str, kind: str) -> Checked:
    """Parses the text of the argument called `where`. BadUsage says what is wrong with it."""
    if kind != "filter" and dialect == "cesql":
        raise BadUsage(f"CESQL has no {kind}s: leave out --as or --dialect")
    if kind == "pattern":
        return CheckedPattern(parsed_pattern(where, text))
    if kind == "advertisement":
        return CheckedAdvertisement(parsed_advertisement(where, text))
    wanted = parsed_filter(where, text, dialect)
    return CheckedCesql(wanted) if isinstance(wanted, Cesql) else CheckedFilter(wanted)


# --- filters ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckedFilter:
    filter: Filter

    def report(self) -> Report:
        return {"kind": "filter", "dialect": "catchment", **filter_report(self.filter)}

    def relation(self, other: Any) -> Relation:
        return relation_of(self.filter, other.filter)

    def judge(self, notification: Notification) -> Judgement:
        return judgement_of(explain(self.filter, notification))


def filter_report(filter: Filter) -> Report:
    """`routed_by` is only there if the filter has no normal form within its budget: the wider filter that brokers route
    it by."""
    normal: Report = {"alternatives": len(filter.alternatives)} if filter.is_normal else {}
    wider: Report = {} if filter.is_normal else {"routed_by": str(filter.routed)}
    return {
        "text": str(filter),
        "empty": filter.is_empty,
        "everything": filter == Filter.everything(),
        "normal": filter.is_normal,
        "attributes": attributes_of(filter.routed.boxes),
        **normal,
        "comparisons": filter.comparisons,
        **wider,
        "filter": filter.to_json(),
    }


def attributes_of(boxes: Iterable[Box]) -> dict[str, Json]:
    """For each attribute the types that some alternative accepts, and whether some alternative accepts its absence.
    Each box is an alternative, and holds the set of accepted values of each attribute."""
    types: dict[str, list[Json]] = {}
    absent: dict[str, bool] = {}
    for box in boxes:
        for name, values in box.sets.items():
            listed = types.setdefault(name, [])
            listed += [type.value for type in values.types if type.value not in listed]
            absent[name] = absent.get(name, False) or values.absent
    return {name: {"types": types[name], "absent": absent[name]} for name in sorted(types)}


def relation_of(first: Filter, second: Filter, note: str = "") -> Relation:
    return Relation(
        first.covers(second), second.covers(first), first.overlaps(second), note or _empty_note(first, second)
    )


def _empty_note(first: Filter, second: Filter) -> str:
    """Every filter covers one that matches nothing. That is true, and surprising without a word about it."""
    if first.is_empty and second.is_empty:
        return "Both match nothing. "
    if first.is_empty or second.is_empty:
        return f"The {'first' if first.is_empty else 'second'} matches nothing, so any filter covers it. "
    return ""


def judgement_of(explanation: Explanation) -> Judgement:
    matched = explanation.matched
    return Judgement(matched, "" if matched else str(explanation), lambda: _details(explanation))


def _details(explanation: Explanation) -> Report:
    """The alternative that held; or the nearest one, with its clauses that failed."""
    nearest = explanation.nearest
    if nearest is None:
        return {}
    details: Report = {"alternative": str(nearest.conjunction)}
    return details if nearest.held else details | {"failing": [clause.to_json() for clause in nearest.failing]}


@dataclass(frozen=True, slots=True)
class CheckedCesql:
    """A CESQL expression. It matches by its own rules; brokers route it by the filter that it implies."""

    expression: Cesql

    def report(self) -> Report:
        implied = filter_report(self.expression.filter)
        return {"kind": "filter", "dialect": "cesql", "text": str(self.expression), "implies": implied}

    def relation(self, other: Any) -> Relation:
        return relation_of(self.expression.filter, other.expression.filter, "Of the filters they imply: ")

    def judge(self, notification: Notification) -> Judgement:
        outcome = self.expression.evaluate(notification.matched)
        errors = [str(error) for error in outcome.errors]
        matched = self.expression.matches(notification.matched)
        reason = "" if matched else "; ".join(errors) or f"the expression gives {shown_literal(outcome.value)}"
        return Judgement(matched, reason, lambda: {"value": outcome.value, "errors": [*errors]})


# --- patterns and advertisements ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckedPattern:
    pattern: Pattern

    def report(self) -> Report:
        filters = self.pattern.filters
        within = self.pattern.within
        return {
            "kind": "pattern",
            "dialect": "catchment",
            "text": str(self.pattern),
            "empty": any(filter.is_empty for filter in filters),
            "within": None if within is None else format_duration(within),
            "by": list(self.pattern.by),
            "attributes": attributes_of(box for filter in filters for box in filter.routed.boxes),
            "alternatives": sum(len(filter.routed.alternatives) for filter in filters),
            "comparisons": sum(filter.comparisons for filter in filters),
            "filters": [filter_report(filter) for filter in filters],
        }

    def relation(self, other: Any) -> Relation:
        return Relation(self.pattern.covers(other.pattern), other.pattern.covers(self.pattern), None)


@dataclass(frozen=True, slots=True)
class CheckedAdvertisement:
    advertisement: Advertisement

    def report(self) -> Report:
        return {
            "kind": "advertisement",
            "dialect": "catchment",
            "text": str(self.advertisement),
            "attributes": attributes_of([self.advertisement.box]),
            "comparisons": sum(constraint.comparisons for constraint in self.advertisement.constraints),
            "advertisement": self.advertisement.to_json(),
        }

    def relation(self, other: Any) -> Relation:
        first, second = self.advertisement, other.advertisement
        return Relation(first.covers(second), second.covers(first), first.overlaps(second))

    def judge(self, notification: Notification) -> Judgement:
        box = self.advertisement.box
        undeclared = {name: value for name, value in notification.matched.items() if value not in box.of(name)}
        reason = "; ".join(
            f"{name}: value {shown_literal(value)} is not advertised" for name, value in undeclared.items()
        )
        return Judgement(self.advertisement.matches(notification), reason, lambda: {"undeclared": list(undeclared)})


# What judges single notifications. A pattern matches sequences.
Judge = CheckedFilter | CheckedCesql | CheckedAdvertisement
Checked = Judge | CheckedPattern
