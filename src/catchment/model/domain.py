"""What a single attribute may be: absent, or a value of some type.

A `Values` is a set over that whole domain: it says whether absence is in, and which values of each type are in.
A filter is a union of products of such sets, one set for each attribute. So `covers`, `overlaps` and
emptiness come down to the set operations here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from catchment.model import ranges as rng
from catchment.model.budget import charge
from catchment.model.ranges import Ranges
from catchment.model.strings import EVERY_STRING, NO_STRING, Strings
from catchment.model.strings import all_of as strings_in_all
from catchment.model.strings import any_of as strings_in_any
from catchment.model.strings import collected as strings_collected
from catchment.model.values import KEY_BOUNDS, Type, Value, from_key, key_of, type_of

# The types whose keys are integers, in the order in which a Values holds them.
INTEGER_KEYED: Final = (Type.INT, Type.FLOAT, Type.BOOL, Type.TIME)

Keys = Ranges[int]
_SLOT: Final = {value_type: i for i, value_type in enumerate(INTEGER_KEYED)}
_LEAST: Final = tuple(KEY_BOUNDS[value_type][0] for value_type in INTEGER_KEYED)
ALL_KEYS: Final[tuple[Keys, ...]] = tuple(((least, None),) for least in _LEAST)
NO_KEYS: Final[tuple[Keys, ...]] = ((), (), (), ())


def keys_between(value_type: Type, low: int | None, high: int | None) -> Keys:
    """The keys of a type from `low` up to and not including `high`, clipped to the type."""
    least, greatest = KEY_BOUNDS[value_type]
    start = least if low is None else max(low, least)
    end = None if high is None or high > greatest else high
    if start > greatest or (end is not None and end <= start):
        return ()
    return ((start, end),)


@dataclass(frozen=True, slots=True)
class Values:
    """An immutable set of what an attribute may be."""

    absent: bool
    keys: tuple[Keys, ...]  # one for each type of INTEGER_KEYED, in that order
    strings: Strings

    def __contains__(self, value: Value | None) -> bool:
        """Whether `value` is in; None stands for an absent attribute."""
        if value is None:
            return self.absent
        if isinstance(value, str):
            return value in self.strings
        key = key_of(value)
        assert isinstance(key, int)
        return rng.contains(self.keys[_SLOT[type_of(value)]], key)

    def __bool__(self) -> bool:
        return self.absent or any(self.keys) or bool(self.strings)

    def __and__(self, other: Values) -> Values:
        if self is EVERYTHING or self._is_written_as(other):
            return other
        keys = tuple(map(rng.intersection, self.keys, other.keys))
        return Values(self.absent and other.absent, keys, self.strings & other.strings)

    def __or__(self, other: Values) -> Values:
        return any_of((self, other))

    def __sub__(self, other: Values) -> Values:
        return self & other.inverse

    @property
    def inverse(self) -> Values:
        keys = tuple(map(rng.complement, self.keys, _LEAST))
        return Values(not self.absent, keys, self.strings.inverse)

    def is_subset(self, other: Values) -> bool:
        if self is other or other is EVERYTHING:
            return True
        return (
            (other.absent or not self.absent)
            and all(map(rng.is_subset, self.keys, other.keys))
            and self.strings.is_subset(other.strings)
        )

    def overlaps(self, other: Values) -> bool:
        return (
            (self.absent and other.absent)
            or any(map(rng.overlap, self.keys, other.keys))
            or (bool(self.strings) and self.strings.pieces == other.strings.pieces)
            or self.strings.overlaps(other.strings)
        )

    def _is_written_as(self, other: Values) -> bool:
        """Whether they are the same without a question to an automaton. What a question costs must not depend on which
        objects are shared."""
        return self is other or (
            self.absent == other.absent and self.keys == other.keys and self.strings.pieces == other.strings.pieces
        )

    @property
    def is_ranges(self) -> bool:
        """Whether its strings are a union of ranges, as the keys of the other types always are."""
        return self.strings.is_ranges

    @property
    def is_easy(self) -> bool:
        """Whether most questions about it need no automaton."""
        return self.strings.is_ranges or self.strings.is_loose

    @property
    def types(self) -> Iterator[Type]:
        """The types of which it holds at least one value."""
        if self.strings:
            yield Type.STRING
        yield from (value_type for value_type, keys in zip(INTEGER_KEYED, self.keys, strict=True) if keys)

    @property
    def plain_member(self) -> Value | None:
        """Some value of the set; None if there is none, or if it takes an automaton to find one."""
        for value_type, keys in zip(INTEGER_KEYED, self.keys, strict=True):
            if keys:
                return from_key(value_type, keys[0][0])
        ranges = self.strings.ranges
        return ranges[0][0] if ranges else None

    def keys_of(self, value_type: Type) -> Keys:
        return self.keys[_SLOT[value_type]]

    @property
    def parts(self) -> int:
        """An upper bound on the number of conjunctions that it takes to write this set as constraints."""
        strings = sum(len(piece.ranges) for piece in self.strings.pieces)
        return self.absent + sum(map(len, self.keys)) + strings

    @property
    def size(self) -> int:
        """How long the set is to write: 1 for each bound, and the characters of strings."""
        return 1 + 2 * sum(map(len, self.keys)) + self.strings.size


def of_keys(keys_by_type: Mapping[Type, Keys]) -> Values:
    """The values with these keys, and nothing else."""
    slots = list(NO_KEYS)
    for value_type, keys in keys_by_type.items():
        slots[_SLOT[value_type]] = keys
    return Values(False, tuple(slots), NO_STRING)


def all_of(sets: Sequence[Values]) -> Values:
    """The intersection of some sets."""
    if len(sets) == 1:
        return sets[0]
    charge(len(sets) + sum(values.parts for values in sets) // 8)
    keys = tuple(rng.intersections(slots) for slots in zip(*(values.keys for values in sets), strict=True))
    return Values(all(values.absent for values in sets), keys, strings_in_all([values.strings for values in sets]))


def any_of(sets: Sequence[Values]) -> Values:
    """The union of some sets."""
    charge(len(sets) + sum(values.parts for values in sets) // 8)
    return _united(sets, strings_in_any)


def collected(sets: Sequence[Values]) -> Values:
    """The union of some sets, found without a question to an automaton. It may be longer to write than need be."""
    return _united(sets, strings_collected)


def _united(sets: Sequence[Values], united: Callable[[Sequence[Strings]], Strings]) -> Values:
    keys = tuple(rng.union(chain(*slots)) for slots in zip(*(values.keys for values in sets), strict=True))
    return Values(any(values.absent for values in sets), keys, united([values.strings for values in sets]))


def of_strings(strings: Strings) -> Values:
    return Values(False, NO_KEYS, strings)


EVERYTHING: Final = Values(True, ALL_KEYS, EVERY_STRING)
NOTHING: Final = Values(False, NO_KEYS, NO_STRING)
PRESENT: Final = Values(False, ALL_KEYS, EVERY_STRING)
ABSENT: Final = Values(True, NO_KEYS, NO_STRING)
OF_TYPE: Final[dict[Type, Values]] = {
    Type.STRING: of_strings(EVERY_STRING),
    **{
        value_type: of_keys({value_type: ((least, None),)})
        for value_type, least in zip(INTEGER_KEYED, _LEAST, strict=True)
    },
}
