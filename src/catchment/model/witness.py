"""Witnesses: notifications that a filter matches, chosen so that the other filters that match them show what covers it.

If A covers B, A matches every notification that B matches. So every filter that covers B is among the filters that
match a witness of B, and a matcher finds those without comparing B with all others. This module makes the witnesses,
and names the class of filters for which a single witness decides.

*Shapes.* A conjunction has a shape if its constraints on each attribute are one of: a string `=`; any of prefix, suffix
and substring; a boolean `=`; an interval of untyped numbers, or one of times; `any`. The shape has two parts:

skeleton  the conjunction with each interval widened to all numbers, or to all times
spans     the two ends of each interval, as the keys of `values.py`. These are exact for numbers inside ±2^53; a
          conjunction with an end beyond has no shape

Let A have a shape. A covers B if and only if A's skeleton covers B and each span of A contains the span of B on that
attribute. For a conjunction covers attribute by attribute, and an interval that contains the ends of a set contains
its hull. So B may be any filter; `hull_of` gives its spans. If B allows something that is no number (or no time) for
that attribute, A's skeleton does not cover it.

*One witness decides between skeletons.* Let J be a character that occurs in no operand. The witness of a skeleton B has
for each attribute: v for `= v`; the string p J t1 J … tk J s for prefix p, substrings t and suffix s (those that B
has); the boolean; 0, or the epoch, for an interval; the string J for `any`. B matches it. If a skeleton A matches it, A
covers B:

* A names no attribute that B does not name, because the witness lacks it.
* If B has `= v` for a string, the witness is the only string in B. Else the witness has a J, so A has no `=` there. The
  prefix of A has no J, so it is a prefix of the part of the witness before the first J. That part is p, with which
  every string in B begins; it is empty if B has no prefix, and then A can have none. The same holds for suffixes. The
  substring of A lies between two Js, hence within p, some t, or s, and every string in B contains those.
* A's `any` covers whatever is present. For booleans, numbers and times, A names the same boolean or the same kind.
* If B has `any`, only an A that has `any` too matches J.

Where no character is free to be J, the witness decides nothing and `covers` must be asked.
`tests/property/test_witness.py` compares all this with `covers`.

*Corners.* Filters without a shape get witnesses from the ends of their sets. These decide nothing, but they reduce the
number of filters for which `covers` must be asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from catchment.model.box import Box
from catchment.model.constraint import Constraint, Kind
from catchment.model.domain import INTEGER_KEYED, Values
from catchment.model.values import (
    EPOCH,
    KEY_BOUNDS,
    Type,
    Value,
    float_from_key,
    float_key,
    from_key,
    time_from_key,
    time_key,
)

NUMBER, TIME = "number", "time"
# The ends of a span that has no lower, or no upper, end: beyond all keys.
LEAST: Final = -(2**63) + 1
GREATEST: Final = 2**63 - 1
# Within this, every int is a float, so the keys of floats order both. Beyond, there are ints between floats.
EXACT_MAX: Final = 2**53
# Only so many alternatives of a filter give witnesses: further ones would rule out few more candidates.
WITNESSED_ALTERNATIVES_MAX: Final = 4
# The candidates for J: Unicode noncharacters, which no text for people contains.
JUNK: Final = tuple(map(chr, (*range(0xFDD0, 0xFDF0), *(plane * 0x10000 + 0xFFFE for plane in range(17)))))

# So many constraints are cached: skeletons share their parts.
_PARTS_KEPT_MAX: Final = 65_536
_JUNK: Final = re.compile("[" + "".join(JUNK) + "]")
_ORDERED: Final = ("=", "<", "<=", ">", ">=")
_PATTERNS: Final = ("prefix", "suffix", "substring")
_OPERATORS: Final = {"string": ("=", *_PATTERNS), "bool": ("=",), "any": ("any",)}

Part = tuple[str, str, Value | None]
Span = tuple[str, str, int, int]
Attributes = dict[str, Value]


class Shape(NamedTuple):
    """The skeleton and the spans of a conjunction. A part of the skeleton is (name, operator, value); for an interval
    it is (name, "number" or "time", None). A span is (name, kind, least, greatest). Both are sorted, so that equal
    shapes belong to equal conjunctions."""

    skeleton: tuple[Part, ...]
    spans: tuple[Span, ...]


class ConstraintLike(Protocol):
    """A constraint, or another object with the same fields."""

    @property
    def name(self) -> Any: ...
    @property
    def operator(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def kind(self) -> Any: ...


def shape_of(constraints: Iterable[ConstraintLike]) -> Shape | None:
    """The shape of a conjunction; None if it has none."""
    parts: set[Part] = set()
    ends: dict[tuple[str, str], list[int]] = {}
    names = set()
    for constraint in constraints:
        name, operator, value, kind = constraint.name, constraint.operator, constraint.value, constraint.kind
        if kind in (NUMBER, TIME):
            if not _narrow(ends.setdefault((name, str(kind)), [LEAST, GREATEST]), operator, value):
                return None
        elif kind in _OPERATORS and operator in _OPERATORS[kind] and value != "":
            parts.add((name, operator, value))
        else:
            return None
        names.add(name)
    for (name, kind), (low, high) in ends.items():
        parts.add((name, kind, None))
        if low > high:
            return None
    if len(names) < len(parts) and not _are_patterns(parts):
        return None
    spans = [(name, kind, low, high) for (name, kind), (low, high) in ends.items()]
    return Shape(tuple(sorted(parts)), tuple(sorted(spans)))


def _are_patterns(parts: Iterable[Part]) -> bool:
    """Whether each attribute that is named twice has only patterns, with at most one prefix and at most one suffix."""
    by_name: dict[str, list[str]] = {}
    for name, operator, _ in parts:
        by_name.setdefault(name, []).append(operator)
    return all(
        len(operators) == 1
        or (set(operators) <= set(_PATTERNS) and operators.count("prefix") < 2 and operators.count("suffix") < 2)
        for operators in by_name.values()
    )


def _narrow(span: list[int], operator: str, value: object) -> bool:
    """Narrows a span by a constraint. False if the result is no span with exact ends."""
    if operator == "any":
        return True
    if operator not in _ORDERED:
        return False
    if isinstance(value, datetime):
        key, (least, greatest) = time_key(value), KEY_BOUNDS[Type.TIME]
    elif isinstance(value, int | float) and -EXACT_MAX < value < EXACT_MAX:
        key, (least, greatest) = float_key(float(value)), KEY_BOUNDS[Type.FLOAT]
    else:
        return False
    low, high = key + (operator == ">"), key - (operator == "<")
    if operator in ("=", ">=", ">") and low > least:
        span[0] = max(span[0], low)
    if operator in ("=", "<=", "<") and high < greatest:
        span[1] = min(span[1], high)
    return True


def skeleton_constraints(skeleton: Iterable[Part]) -> tuple[Constraint, ...]:
    """A skeleton as constraints."""
    return tuple(_skeleton_constraint(*part) for part in skeleton)


@lru_cache(_PARTS_KEPT_MAX)
def _skeleton_constraint(name: str, operator: str, value: Value | None) -> Constraint:
    if operator in (NUMBER, TIME):
        return Constraint(name, "any", None, Kind(operator))
    kind = Kind.ANY if value is None else Kind.BOOL if isinstance(value, bool) else Kind.STRING
    return Constraint(name, operator, value, kind)


def junk_in(skeleton: Iterable[Part]) -> set[str]:
    """The characters of `JUNK` that occur in its operands."""
    return {character for part in skeleton if isinstance(part[2], str) for character in _JUNK.findall(part[2])}


# --- witnesses of shapes ------------------------------------------------------------------------


def skeleton_witness(skeleton: Sequence[Part], junk: str) -> Attributes:
    """A notification that this skeleton matches. Of all skeletons without `junk` in an operand, only those that cover
    this one match it."""
    witness: Attributes = {}
    patterns: dict[str, list[Part]] = {}
    for part in skeleton:
        name, operator, value = part
        if operator in _PATTERNS:
            patterns.setdefault(name, []).append(part)
        elif operator == "any":
            witness[name] = junk
        else:
            witness[name] = 0.0 if operator == NUMBER else EPOCH if operator == TIME else value  # type: ignore[assignment]
    for name, parts in patterns.items():
        witness[name] = _pattern_witness(parts, junk)
    return witness


def _pattern_witness(parts: Iterable[Part], junk: str) -> str:
    texts: dict[str, list[str]] = {operator: [] for operator in _PATTERNS}
    for _, operator, value in parts:
        texts[operator].append(str(value))
    middle = "".join(text + junk for text in texts["substring"])
    return "".join(texts["prefix"]) + junk + middle + "".join(texts["suffix"])


def shape_corners(shape: Shape, junk: str) -> tuple[Attributes, Attributes]:
    """Two notifications that the conjunction matches: all intervals at their low ends, and at their high ends."""
    low = skeleton_witness(shape.skeleton, junk)
    high = dict(low)
    for name, kind, least, greatest in shape.spans:
        low[name], high[name] = _in_span(kind, least), _in_span(kind, greatest)
    return low, high


def _in_span(kind: str, key: int) -> Value:
    least, greatest = KEY_BOUNDS[Type.FLOAT if kind == NUMBER else Type.TIME]
    inside = min(max(key, least), greatest)
    return float_from_key(inside) if kind == NUMBER else time_from_key(inside)


# --- any filter ---------------------------------------------------------------------------------


def hull_of(boxes: Sequence[Box]) -> tuple[Span, ...]:
    """The least spans around the values of each attribute for which a filter allows only numbers, or only times."""
    shared = set.intersection(*(set(box.sets) for box in boxes)) if boxes else set()
    hull = []
    for name in shared:
        spans = [_span(box.sets[name]) for box in boxes]
        kinds = {span[0] for span in spans if span is not None}
        if len(kinds) == 1 and None not in spans:
            least, greatest = min(span[1] for span in spans if span), max(span[2] for span in spans if span)
            hull.append((name, kinds.pop(), least, greatest))
    return tuple(sorted(hull))


def _span(values: Values) -> tuple[str, int, int] | None:
    """The kind and the ends of a set that holds only numbers, or only times; else None."""
    ints, floats, bools, times = values.keys
    if values.absent or values.strings or bools or (times and (ints or floats)):
        return None
    if times:
        return TIME, *_ends(times, Type.TIME)
    whole = [_float_ends(*_ends(ints, Type.INT))] if ints else []
    spans = whole + ([_ends(floats, Type.FLOAT)] if floats else [])
    return (NUMBER, min(span[0] for span in spans), max(span[1] for span in spans)) if spans else None


def _ends(keys: Sequence[tuple[int, int | None]], value_type: Type) -> tuple[int, int]:
    least, greatest = KEY_BOUNDS[value_type]
    low, end = keys[0][0], keys[-1][1]
    return LEAST if low <= least else low, GREATEST if end is None or end > greatest else end - 1


def _float_ends(low: int, high: int) -> tuple[int, int]:
    """Ints as keys of floats. Beyond EXACT_MAX they are rounded, but never to within it, and no shape has an end
    beyond it: so comparing with a span gives the right answer."""
    ends = [end if end in (LEAST, GREATEST) else float_key(float(end)) for end in (low, high)]
    return ends[0], ends[1]


def corners(boxes: Sequence[Box]) -> list[Attributes]:
    """Notifications that a filter matches, two for each of its first alternatives; [] where none is known."""
    notifications = []
    for box in boxes[:WITNESSED_ALTERNATIVES_MAX]:
        ends = {name: _corners(values) for name, values in box.sets.items()}
        if None in ends.values():
            return []
        for side in (0, 1):
            chosen = {name: pair[side] for name, pair in ends.items() if pair is not None}
            notifications.append({name: value for name, value in chosen.items() if value is not None})
    return notifications


def _corners(values: Values) -> tuple[Value | None, Value | None] | None:
    """Two members of a set that lie far apart; a member None stands for absence. None if no member is known."""
    members: list[Value | None] = [None] if values.absent else []
    for value_type, keys in zip(INTEGER_KEYED, values.keys, strict=True):
        if keys:
            end = keys[-1][1]
            greatest = KEY_BOUNDS[value_type][1] if end is None else end - 1
            members += [from_key(value_type, keys[0][0]), from_key(value_type, greatest)]
    if values.strings:
        inside = values.strings.member
        if inside is not None:
            longer = inside + JUNK[-1]
            members += [inside, longer if longer in values.strings else inside]
    return (members[0], members[-1]) if members else None
