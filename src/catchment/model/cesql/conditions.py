"""Conditions on one value, and the attribute values that meet or fail them.

A *condition* is what an expression asks of one operand when all else in it is constant: to compare so,
to be in a list, to match a pattern, to be true. `CesqlValues` says for each CESQL type which values meet
it, and `attribute_values` turns that into the values of an attribute, through the casts of §3.7. The
sets of those that meet it and of those that fail it may both hold too much, never too little; a value in
neither makes the expression go wrong. Integers, booleans, and strings taken as strings are exact. A
string taken as an integer is not: `+007` writes 7, and infinitely many strings do, so they are held as
the plainest few and a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

from catchment.model import ranges as rng
from catchment.model.cesql.like import glob_pattern, like_test
from catchment.model.cesql.texts import keys_with_text
from catchment.model.cesql.values import (
    INTEGER_MAX,
    INTEGER_MIN,
    CesqlType,
    CesqlValue,
    Faults,
    boolean_from_text,
    integer_from_text,
    to_integer,
    to_string,
)
from catchment.model.domain import Keys, Values
from catchment.model.globs import glob
from catchment.model.ranges import Ranges
from catchment.model.strings import EVERY_STRING, NO_STRING, Strings, not_glob, of_glob, of_ranges, prefix_ranges
from catchment.model.strings import successor as after
from catchment.model.values import Type

_INTEGERS: Final[Keys] = ((INTEGER_MIN, INTEGER_MAX + 1),)
_WIDE: Final[Keys] = rng.complement(_INTEGERS, -(2**63))
BOOLEANS: Final = frozenset({False, True})
_NOT_ZERO: Final[Keys] = ((INTEGER_MIN, 0), (1, INTEGER_MAX + 1))
# With more zeros in front than this an integer's text is only known by its start.
_LEADING_ZEROS_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class CesqlValues:
    """A set of values of the three types. `texts` are the strings among which the text of an attribute
    that is seen as a String must be: no float, time or wide integer writes an Integer or a Boolean."""

    integers: Keys = ()
    strings: Strings = NO_STRING
    booleans: frozenset[bool] = frozenset()
    texts: Strings = NO_STRING


class Condition(NamedTuple):
    """The values that meet it and those that fail it."""

    passing: CesqlValues
    failing: CesqlValues


# --- from CESQL values to attribute values ------------------------------------------------------


def attribute_values(found: CesqlValues, cast_to: CesqlType | None) -> Values:
    """The attribute values that an expression sees, after casting them if it does, as one of `found`."""
    match cast_to:
        case CesqlType.INTEGER:
            return _values(found.integers, integer_texts(found.integers), _booleans_among(found.integers))
        case CesqlType.BOOLEAN:
            return _values(_integers_as(found.booleans), _boolean_texts(found.booleans), found.booleans)
        case CesqlType.STRING:
            booleans = frozenset(truth for truth in (False, True) if to_string(truth) in found.strings)
            return _with_texts(_narrow(keys_with_text(Type.INT, found.strings)), found, booleans)
        case None:
            return _with_texts(found.integers, found, found.booleans)


def _values(integers: Keys, strings: Strings, booleans: Iterable[bool], floats: Keys = (), times: Keys = ()) -> Values:
    truths = rng.union((int(truth), None if truth else 1) for truth in booleans)
    return Values(False, (integers, floats, truths, times), strings)


def _with_texts(integers: Keys, found: CesqlValues, booleans: Iterable[bool]) -> Values:
    """With the floats, times and wide integers, which are seen as their text."""
    if not found.texts:
        return _values(integers, found.strings, booleans)
    wide, floats, times = (keys_with_text(kind, found.texts) for kind in (Type.INT, Type.FLOAT, Type.TIME))
    return _values(rng.union(integers + rng.intersection(wide, _WIDE)), found.strings, booleans, floats, times)


def _narrow(integers: Keys) -> Keys:
    return rng.intersection(integers, _INTEGERS)


def _booleans_among(integers: Keys) -> frozenset[bool]:
    return frozenset(truth for truth in (False, True) if rng.contains(integers, int(truth)))


def _integers_as(booleans: Iterable[bool]) -> Keys:
    return rng.union(part for truth in booleans for part in (_NOT_ZERO if truth else _points([0])))


def _points(numbers: Iterable[int]) -> Keys:
    return rng.union((number, number + 1) for number in numbers)


def texts(found: Iterable[str]) -> Strings:
    return of_ranges(rng.union((text, after(text)) for text in found))


def _boolean_texts(booleans: Iterable[bool]) -> Strings:
    """Every spelling of the words in upper and lower case."""
    return texts(
        "".join(letters)
        for truth in booleans
        for letters in product(*((letter, letter.upper()) for letter in to_string(truth)))
    )


def integer_texts(integers: Keys) -> Strings:
    """The strings that write one of these integers, and some that do not."""
    if not integers:
        return NO_STRING
    if integers[0][1] == integers[0][0] + 1 and len(integers) == 1:
        return of_ranges(_texts_of_one(integers[0][0]))
    holes = [low for low, high in rng.complement(integers, INTEGER_MIN) if high == low + 1]
    exact = rng.union(part for hole in holes for part in _plain_texts_of_one(hole))
    return of_ranges(rng.intersection(_texts_by_sign(integers), rng.complement(exact, "")))


def _texts_by_sign(integers: Keys) -> Ranges[str]:
    starts: set[str] = set()
    if rng.contains(integers, 0):
        starts |= {"0", "+0", "-0"}
    if integers[0][0] < 0:
        starts.add("-")
    if rng.intersection(integers, ((1, None),)):
        starts |= {"+", *"0123456789"}
    return rng.union(part for start in starts for part in prefix_ranges(start))


def _texts_of_one(number: int) -> Ranges[str]:
    zeros = "0" * (_LEADING_ZEROS_MAX + 1)
    starts = rng.union(part for sign in _signs(number) for part in prefix_ranges(sign + zeros))
    return rng.union(_plain_texts_of_one(number) + starts)


def _plain_texts_of_one(number: int) -> Ranges[str]:
    padded = ["0" * zeros + str(abs(number)) for zeros in range(_LEADING_ZEROS_MAX + 1)]
    return rng.union((sign + text, after(sign + text)) for sign in _signs(number) for text in padded)


def _signs(number: int) -> tuple[str, ...]:
    if number == 0:
        return "", "+", "-"
    return ("", "+") if number > 0 else ("-",)


# --- the conditions ----------------------------------------------------------------------------------


def truth_condition() -> Condition:
    """The value as a Boolean."""
    return Condition(*(_booleans_passing(frozenset([truth])) for truth in (True, False)))


def _booleans_passing(booleans: frozenset[bool]) -> CesqlValues:
    return CesqlValues(_integers_as(booleans), _boolean_texts(booleans), booleans)


def equality_condition(constant: CesqlValue) -> Condition:
    """`value = constant`: the value is cast to the type of the constant."""
    if isinstance(constant, bool):
        passing, failing = truth_condition()
        return Condition(passing, failing) if constant else Condition(failing, passing)
    if isinstance(constant, str):
        return string_condition(texts([constant]), constant.__eq__)
    return integer_condition(_points([constant]))


def integer_condition(passing: Keys) -> Condition:
    """The value as an Integer, among some."""
    failing = _narrow(rng.complement(passing, INTEGER_MIN))
    return Condition(*(CesqlValues(some, integer_texts(some), _booleans_among(some)) for some in (passing, failing)))


def order_condition(operator: str, constant: CesqlValue) -> Condition:
    """`value operator constant`: both are cast to Integer."""
    faults = Faults()
    bound = to_integer(constant, faults)
    if faults.found:
        return NO_CONDITION
    low, high = {
        "<": (INTEGER_MIN, bound),
        "<=": (INTEGER_MIN, bound + 1),
        ">": (bound + 1, INTEGER_MAX + 1),
        ">=": (bound, INTEGER_MAX + 1),
    }[operator]
    return integer_condition(((low, high),) if low < high else ())


def string_condition(strings: Strings, is_in: Callable[[str], bool]) -> Condition:
    """The value as a String, among some."""
    return Condition(
        _strings_passing(strings, is_in),
        _strings_passing(strings.inverse, lambda text: not is_in(text)),
    )


def _strings_passing(strings: Strings, is_in: Callable[[str], bool]) -> CesqlValues:
    booleans = frozenset(truth for truth in (False, True) if is_in(to_string(truth)))
    return CesqlValues(_narrow(keys_with_text(Type.INT, strings)), strings, booleans, strings)


def like_condition(pattern: str) -> Condition:
    """`value LIKE pattern`."""
    found, matches = glob(glob_pattern(pattern)), like_test(pattern)
    return Condition(
        _strings_passing(of_glob(found), matches),
        _strings_passing(not_glob(found), lambda text: not matches(text)),
    )


def is_plain(pattern: str) -> bool:
    """Whether the strings that match are a range, which sets of strings hold without an automaton."""
    return of_glob(glob(glob_pattern(pattern))).ranges is not None


def membership_condition(elements: Sequence[CesqlValue]) -> Condition:
    """`value IN (elements)`: each is cast to the type of the value, in order, up to the first equal one."""
    strings = texts(map(to_string, elements))
    integers, all_integers = _until_uncastable([_integer_or_none(element) for element in elements])
    booleans, all_booleans = _until_uncastable([_boolean_or_none(element) for element in elements])
    passing = CesqlValues(_points(integers), strings, frozenset(map(bool, booleans)), strings)
    failing = CesqlValues(
        _narrow(rng.complement(passing.integers, INTEGER_MIN)) if all_integers else (),
        strings.inverse,
        BOOLEANS - passing.booleans if all_booleans else frozenset(),
        strings.inverse,
    )
    return Condition(passing, failing)


def _until_uncastable(cast: Sequence[int | None]) -> tuple[list[int], bool]:
    """What comes before the first element that cannot be cast, and whether that is all."""
    end = cast.index(None) if None in cast else len(cast)
    return [number for number in cast[:end] if number is not None], end == len(cast)


def _integer_or_none(element: CesqlValue) -> int | None:
    return integer_from_text(element) if isinstance(element, str) else int(element)


def _boolean_or_none(element: CesqlValue) -> bool | None:
    return boolean_from_text(element) if isinstance(element, str) else bool(element)


def castability_condition(wanted: CesqlType) -> Condition:
    """Whether the value can be cast: only a string may fail, and one that is seen as an Integer may as well."""
    strings = _boolean_texts(BOOLEANS).inverse if wanted is CesqlType.BOOLEAN else EVERY_STRING
    return Condition(CASTABLE[wanted], CesqlValues(strings=strings, texts=EVERY_STRING))


NO_CONDITION: Final = Condition(CesqlValues(), CesqlValues())
_EVERY: Final = CesqlValues(_INTEGERS, EVERY_STRING, BOOLEANS, EVERY_STRING)
CASTABLE: Final[dict[CesqlType | None, CesqlValues]] = {
    CesqlType.INTEGER: CesqlValues(_INTEGERS, integer_texts(_INTEGERS), BOOLEANS),
    CesqlType.BOOLEAN: _booleans_passing(BOOLEANS),
    CesqlType.STRING: _EVERY,
    None: _EVERY,
}
