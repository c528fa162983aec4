"""Conditions on a single value, and the attribute values that meet or fail them.

A *condition* is what an expression asks of an operand when everything else in it is constant: to compare with a
constant, to be in a list, to match a pattern, to be true. `CesqlValues` says which values of each CESQL type meet it,
and `attribute_values` turns that into the values of an attribute, through the casts of §3.7.

A condition has two sets: the values that meet it and the values that fail it. Either may be too large, never too small.
A value in neither set makes the evaluation fault. Integers, booleans, and strings taken as strings are exact. A string
taken as an integer is not: infinitely many strings write 7, such as `+007`. Their set is approximated by the few
shortest of them and by prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

from catchment.model import ranges as rng
from catchment.model.cesql.keys_by_text import keys_with_text
from catchment.model.cesql.like import glob_pattern, like_test
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
# The text of an integer with more leading zeros than this is known by its prefix only.
_LEADING_ZEROS_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class CesqlValues:
    """A set of values of the three types. `texts` holds the texts of attributes that the expression sees as strings
    though they are none: floats, times and wide integers. It is apart from `strings`, because the text of such an
    attribute never writes an Integer or a Boolean."""

    integers: Keys = ()
    strings: Strings = NO_STRING
    booleans: frozenset[bool] = frozenset()
    texts: Strings = NO_STRING


class Condition(NamedTuple):
    """The values that meet the condition, and those that fail it."""

    passing: CesqlValues
    failing: CesqlValues


# --- from CESQL values to attribute values ------------------------------------------------------


def attribute_values(wanted: CesqlValues, cast_to: CesqlType | None) -> Values:
    """The attribute values that an expression sees as a value of `wanted`, after the cast if there is one."""
    match cast_to:
        case CesqlType.INTEGER:
            return _values(wanted.integers, integer_texts(wanted.integers), _booleans_among(wanted.integers))
        case CesqlType.BOOLEAN:
            return _values(_integers_as(wanted.booleans), _boolean_texts(wanted.booleans), wanted.booleans)
        case CesqlType.STRING:
            booleans = frozenset(truth for truth in (False, True) if to_string(truth) in wanted.strings)
            return _with_texts(_narrow(keys_with_text(Type.INT, wanted.strings)), wanted, booleans)
        case None:
            return _with_texts(wanted.integers, wanted, wanted.booleans)


def _values(integers: Keys, strings: Strings, booleans: Iterable[bool], floats: Keys = (), times: Keys = ()) -> Values:
    truths = rng.union((int(truth), None if truth else 1) for truth in booleans)
    return Values(False, (integers, floats, truths, times), strings)


def _with_texts(integers: Keys, wanted: CesqlValues, booleans: Iterable[bool]) -> Values:
    """These integers and booleans, the strings of `wanted`, and the floats, times and wide integers whose text is in
    `wanted.texts`."""
    if not wanted.texts:
        return _values(integers, wanted.strings, booleans)
    wide, floats, times = (keys_with_text(value_type, wanted.texts) for value_type in (Type.INT, Type.FLOAT, Type.TIME))
    return _values(rng.union(integers + rng.intersection(wide, _WIDE)), wanted.strings, booleans, floats, times)


def _narrow(integers: Keys) -> Keys:
    return rng.intersection(integers, _INTEGERS)


def _booleans_among(integers: Keys) -> frozenset[bool]:
    return frozenset(truth for truth in (False, True) if rng.contains(integers, int(truth)))


def _integers_as(booleans: Iterable[bool]) -> Keys:
    return rng.union(part for truth in booleans for part in (_NOT_ZERO if truth else _points([0])))


def _points(numbers: Iterable[int]) -> Keys:
    return rng.union((number, number + 1) for number in numbers)


def strings_of(texts: Iterable[str]) -> Strings:
    return of_ranges(rng.union((text, after(text)) for text in texts))


def _boolean_texts(booleans: Iterable[bool]) -> Strings:
    """Every spelling of the words in upper and lower case."""
    return strings_of(
        "".join(letters)
        for truth in booleans
        for letters in product(*((letter, letter.upper()) for letter in to_string(truth)))
    )


def integer_texts(integers: Keys) -> Strings:
    """The strings that write one of these integers, and some that do not."""
    if not integers:
        return NO_STRING
    if integers[0][1] == integers[0][0] + 1 and len(integers) == 1:
        return of_ranges(_texts_of_number(integers[0][0]))
    # Of a range only the possible beginnings are known; the texts of single integers that are missing are taken out.
    holes = [low for low, high in rng.complement(integers, INTEGER_MIN) if high == low + 1]
    exact = rng.union(part for hole in holes for part in _short_texts_of_number(hole))
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


def _texts_of_number(number: int) -> Ranges[str]:
    """The texts of an integer with few leading zeros, and all strings that begin with more zeros."""
    zeros = "0" * (_LEADING_ZEROS_MAX + 1)
    starts = rng.union(part for sign in _signs(number) for part in prefix_ranges(sign + zeros))
    return rng.union(_short_texts_of_number(number) + starts)


def _short_texts_of_number(number: int) -> Ranges[str]:
    padded = ["0" * zeros + str(abs(number)) for zeros in range(_LEADING_ZEROS_MAX + 1)]
    return rng.union((sign + text, after(sign + text)) for sign in _signs(number) for text in padded)


def _signs(number: int) -> tuple[str, ...]:
    if number == 0:
        return "", "+", "-"
    return ("", "+") if number > 0 else ("-",)


# --- the conditions ----------------------------------------------------------------------------------


def truth_condition() -> Condition:
    """The value, cast to Boolean, is true."""
    return Condition(*(_booleans_passing(frozenset([truth])) for truth in (True, False)))


def _booleans_passing(booleans: frozenset[bool]) -> CesqlValues:
    return CesqlValues(_integers_as(booleans), _boolean_texts(booleans), booleans)


def equality_condition(constant: CesqlValue) -> Condition:
    """`value = constant`: the value is cast to the type of the constant."""
    if isinstance(constant, bool):
        passing, failing = truth_condition()
        return Condition(passing, failing) if constant else Condition(failing, passing)
    if isinstance(constant, str):
        return string_condition(strings_of([constant]), constant.__eq__)
    return integer_condition(_points([constant]))


def integer_condition(passing: Keys) -> Condition:
    """The value, cast to Integer, is one of these."""
    failing = _narrow(rng.complement(passing, INTEGER_MIN))
    return Condition(*(CesqlValues(some, integer_texts(some), _booleans_among(some)) for some in (passing, failing)))


def order_condition(operator: str, constant: CesqlValue) -> Condition:
    """`value operator constant`: both are cast to Integer."""
    faults = Faults()
    bound = to_integer(constant, faults)
    if faults.reported:
        return NO_CONDITION
    low, high = {
        "<": (INTEGER_MIN, bound),
        "<=": (INTEGER_MIN, bound + 1),
        ">": (bound + 1, INTEGER_MAX + 1),
        ">=": (bound, INTEGER_MAX + 1),
    }[operator]
    return integer_condition(((low, high),) if low < high else ())


def string_condition(strings: Strings, is_in: Callable[[str], bool]) -> Condition:
    """The value, cast to String, is one of these. `is_in` decides the same for a single string."""
    return Condition(
        _strings_passing(strings, is_in),
        _strings_passing(strings.inverse, lambda text: not is_in(text)),
    )


def _strings_passing(strings: Strings, is_in: Callable[[str], bool]) -> CesqlValues:
    booleans = frozenset(truth for truth in (False, True) if is_in(to_string(truth)))
    return CesqlValues(_narrow(keys_with_text(Type.INT, strings)), strings, booleans, strings)


def like_condition(pattern: str) -> Condition:
    """`value LIKE pattern`."""
    compiled, matches = glob(glob_pattern(pattern)), like_test(pattern)
    return Condition(
        _strings_passing(of_glob(compiled), matches),
        _strings_passing(not_glob(compiled), lambda text: not matches(text)),
    )


def is_range(pattern: str) -> bool:
    """Whether the strings that match the LIKE pattern are a range, so that no automaton is needed."""
    return of_glob(glob(glob_pattern(pattern))).ranges is not None


def membership_condition(elements: Sequence[CesqlValue]) -> Condition:
    """`value IN (elements)`: the elements are cast to the type of the value, in order, up to the first equal one."""
    strings = strings_of(map(to_string, elements))
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
    """The elements before the first that cannot be cast, and whether these are all."""
    end = cast.index(None) if None in cast else len(cast)
    return [number for number in cast[:end] if number is not None], end == len(cast)


def _integer_or_none(element: CesqlValue) -> int | None:
    return integer_from_text(element) if isinstance(element, str) else int(element)


def _boolean_or_none(element: CesqlValue) -> bool | None:
    return boolean_from_text(element) if isinstance(element, str) else bool(element)


def castability_condition(wanted: CesqlType) -> Condition:
    """The value can be cast. Only strings may fail. Which strings write an integer is not known exactly, so for Integer
    every string counts as one that may fail."""
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
