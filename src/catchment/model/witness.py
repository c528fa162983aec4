"""Witnesses: notifications that a filter matches, chosen so that what else they match shows what covers it.

If A covers B, A matches every notification that B matches. So whatever covers B is among the filters that match a
witness of B, and a matcher finds those without comparing B with all others. Here are the witnesses, and the class of
filters for which one of them decides.

*Shapes.* A conjunction has a shape if all it says of each attribute is one of: a string `=`, or any of prefix, suffix
and substring; a boolean `=`; an interval of untyped numbers, or one of times; `any`. The shape has two parts:

skeleton  what it says with each interval widened to all numbers, or to all times
spans     of each interval its two ends, as the keys of `values.py`, which are exact for numbers inside ±2^53;
          one with an end beyond has no shape

A with a shape covers B just if A's skeleton covers B and each span of A contains B's on that attribute: a conjunction
covers attribute by attribute, and an interval that contains the ends of a set contains its hull. So B may be any
filter at all; `hull_of` gives its spans. Where B says of that attribute something that is not all numbers (or not all
times), A's skeleton does not cover it.

*One witness decides between skeletons.* Let J be a character that is in no operand. The witness of a skeleton B has,
of each attribute: v for `= v`; p J t1 J … tk J s for prefix p, substrings t and suffix s (what there is of them);
the boolean; 0, or the epoch, for an interval. B matches it. If a skeleton A matches it, A covers B:

* A says nothing of an attribute that B does not name, since the witness lacks it.
* Of a string with `= v` in B, the witness is all there is. Else it has a J, so A has no `=` there. A's prefix has
  none, so it is a prefix of the witness before the first J: of p, which every string in B begins with. There is
  always a J before what is no prefix of B's, and after what is no suffix, so B has p if A has a prefix. The same for
  suffixes. A's substring lies between two J's, hence in p, some t, or s, which every string in B has.
* A's `any` covers whatever is present. Booleans, numbers, times: A names the same boolean or the same kind.

`any` in B stands as the string J, which no A matches but one that says `any` too. Where no character is free to be J,
nothing is decided and `covers` must be asked. `tests/property/test_witness.py` compares all this with `covers`.

*Corners.* Filters without a shape get witnesses from the ends of their sets, which decide nothing, only spare asking.
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
from catchment.model.strings import UNDECIDED
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
# Ends of a span past all keys.
LEAST: Final = -(2**63) + 1
GREATEST: Final = 2**63 - 1
# Inside, ints and floats have one order that the keys of floats keep; beyond, ints are finer.
EXACT_MAX: Final = 2**53
# Alternatives of a filter that give witnesses: more would find few wrong candidates that these let pass.
WITNESSED_ALTERNATIVES_MAX: Final = 4
# Where J is looked for: noncharacters, which no text for people has. One that no operand has is J.
JUNK: Final = tuple(map(chr, (*range(0xFDD0, 0xFDF0), *(plane * 0x10000 + 0xFFFE for plane in range(17)))))

# Parts come again and again in other skeletons: so many are made once.
_PARTS_KEPT_MAX: Final = 65_536
_JUNK: Final = re.compile("[" + "".join(JUNK) + "]")
_ORDERED: Final = ("=", "<", "<=", ">", ">=")
_PATTERNS: Final = ("prefix", "suffix", "substring")
_STATED: Final = {"string": ("=", *_PATTERNS), "bool": ("=",), "any": ("any",)}

Part = tuple[str, str, Value | None]
Span = tuple[str, str, int, int]
Attributes = dict[str, Value]


class Shape(NamedTuple):
    """A conjunction taken apart. A part of the skeleton is (name, operator, value), or (name, "number" or "time", None)
    for an interval; a span is (name, kind, least, greatest). Both are sorted: equal shapes are equal conjunctions."""

    skeleton: tuple[Part, ...]
    spans: tuple[Span, ...]


class Stated(Protocol):
    """A constraint, or something that says as much."""

    name: Any
    operator: Any
    value: Any
    kind: Any


def shape_of(constraints: Iterable[Stated]) -> Shape | None:
    """The shape of a conjunction; None if it has none."""
    parts: set[Part] = set()
    ends: dict[tuple[str, str], list[int]] = {}
    names = set()
    for one in constraints:
        name, operator, value, kind = one.name, one.operator, one.value, one.kind
        if kind in (NUMBER, TIME):
            if not _narrow(ends.setdefault((name, str(kind)), [LEAST, GREATEST]), operator, value):
                return None
        elif kind in _STATED and operator in _STATED[kind] and value != "":
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
    """Whether of each attribute that is named twice only patterns are said, with one prefix and one suffix at most."""
    said: dict[str, list[str]] = {}
    for name, operator, _ in parts:
        said.setdefault(name, []).append(operator)
    return all(
        len(found) == 1 or (set(found) <= set(_PATTERNS) and found.count("prefix") < 2 and found.count("suffix") < 2)
        for found in said.values()
    )


def _narrow(span: list[int], operator: str, value: object) -> bool:
    """Narrows a span by one constraint; False if that does not fit into one."""
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
    """Those of `JUNK` that are in its operands."""
    return {found for part in skeleton if isinstance(part[2], str) for found in _JUNK.findall(part[2])}


# --- witnesses of shapes ------------------------------------------------------------------------


def skeleton_witness(skeleton: Sequence[Part], junk: str) -> Attributes:
    """A notification that the skeleton matches, and of all skeletons without `junk` only those that cover it."""
    found: Attributes = {}
    patterns: dict[str, list[Part]] = {}
    for part in skeleton:
        name, operator, value = part
        if operator in _PATTERNS:
            patterns.setdefault(name, []).append(part)
        elif operator == "any":
            found[name] = junk
        else:
            found[name] = 0.0 if operator == NUMBER else EPOCH if operator == TIME else value  # type: ignore[assignment]
    for name, parts in patterns.items():
        found[name] = _pattern_witness(parts, junk)
    return found


def _pattern_witness(parts: Iterable[Part], junk: str) -> str:
    texts: dict[str, list[str]] = {operator: [] for operator in _PATTERNS}
    for _, operator, value in parts:
        texts[operator].append(str(value))
    middle = "".join(text + junk for text in texts["substring"])
    return "".join(texts["prefix"]) + junk + middle + "".join(texts["suffix"])


def shape_corners(shape: Shape, junk: str) -> tuple[Attributes, Attributes]:
    """Notifications that the conjunction matches: all spans at their low ends, and at their high ends."""
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
    """The spans of the attributes of which a filter allows numbers alone, or times alone: the least that hold them."""
    shared = set.intersection(*(set(box.sets) for box in boxes)) if boxes else set()
    found = []
    for name in shared:
        spans = [_span(box.sets[name]) for box in boxes]
        kinds = {one[0] for one in spans if one is not None}
        if len(kinds) == 1 and None not in spans:
            least, greatest = min(one[1] for one in spans if one), max(one[2] for one in spans if one)
            found.append((name, kinds.pop(), least, greatest))
    return tuple(sorted(found))


def _span(values: Values) -> tuple[str, int, int] | None:
    ints, floats, bools, times = values.keys
    if values.absent or values.strings or bools or (times and (ints or floats)):
        return None
    if times:
        return TIME, *_ends(times, Type.TIME)
    whole = [_float_ends(*_ends(ints, Type.INT))] if ints else []
    spans = whole + ([_ends(floats, Type.FLOAT)] if floats else [])
    return (NUMBER, min(one[0] for one in spans), max(one[1] for one in spans)) if spans else None


def _ends(keys: Sequence[tuple[int, int | None]], kind: Type) -> tuple[int, int]:
    least, greatest = KEY_BOUNDS[kind]
    low, end = keys[0][0], keys[-1][1]
    return LEAST if low <= least else low, GREATEST if end is None or end > greatest else end - 1


def _float_ends(low: int, high: int) -> tuple[int, int]:
    """Ints as keys of floats. Past EXACT_MAX they are rounded, but not across it: no shape has an end there."""
    ends = [one if one in (LEAST, GREATEST) else float_key(float(one)) for one in (low, high)]
    return ends[0], ends[1]


def corners(boxes: Sequence[Box]) -> list[Attributes]:
    """Notifications that a filter matches, two of each of its first alternatives; [] where none can be found."""
    found = []
    for box in boxes[:WITNESSED_ALTERNATIVES_MAX]:
        ends = {name: _corners(values) for name, values in box.sets.items()}
        if None in ends.values():
            return []
        for side in (0, 1):
            chosen = {name: pair[side] for name, pair in ends.items() if pair is not None}
            found.append({name: value for name, value in chosen.items() if value is not None})
    return found


def _corners(values: Values) -> tuple[Value | None, Value | None] | None:
    """Two members of a set, as far apart as they are easy to find; None stands for absence. None if none is found."""
    members: list[Value | None] = [None] if values.absent else []
    for kind, keys in zip(INTEGER_KEYED, values.keys, strict=True):
        if keys:
            end = keys[-1][1]
            members += [from_key(kind, keys[0][0]), from_key(kind, KEY_BOUNDS[kind][1] if end is None else end - 1)]
    if values.strings:
        ranges = values.strings.ranges
        inside = ranges[0][0] if ranges else values.strings.extremes[0]
        if inside is not None and inside != UNDECIDED:
            longer = inside + JUNK[-1]
            members += [inside, longer if longer in values.strings else inside]
    return (members[0], members[-1]) if members else None
