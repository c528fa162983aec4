"""What one attribute may be: absent, or a value of some type.

A `Values` is a set over that whole domain: it says of absence and of each type which values are in.
A filter is a union of products of such sets, one for each attribute, so `covers`, `overlaps` and
emptiness come down to the set operations here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Final

from catchment.model import ranges as rng
from catchment.model.ranges import Ranges
from catchment.model.strings import EVERY_STRING, NO_STRING, Strings
from catchment.model.strings import all_of as strings_in_all
from catchment.model.strings import any_of as strings_in_any
from catchment.model.values import KEY_BOUNDS, Type, Value, key_of, type_of

# The types whose keys are integers, in the order in which a Values holds them.
INTEGER_KEYED: Final = (Type.INT, Type.FLOAT, Type.BOOL, Type.TIME)

Keys = Ranges[int]
_SLOT: Final = {kind: i for i, kind in enumerate(INTEGER_KEYED)}
_LEAST: Final = tuple(KEY_BOUNDS[kind][0] for kind in INTEGER_KEYED)
ALL_KEYS: Final[tuple[Keys, ...]] = tuple(((least, None),) for least in _LEAST)
NO_KEYS: Final[tuple[Keys, ...]] = ((), (), (), ())


def keys_between(kind: Type, low: int | None, high: int | None) -> Keys:
    """The keys of a type from `low` up to and not including `high`, clipped to the type."""
    least, greatest = KEY_BOUNDS[kind]
    start = least if low is None else max(low, least)
    end = None if high is None or high > greatest else high
    if start > greatest or (end is not None and end <= start):
        return ()
    return ((start, end),)


@dataclass(frozen=True, slots=True)
class Values:
    """An immutable set of what an attribute may be."""

    absent: bool
    keys: tuple[Keys, ...]  # by INTEGER_KEYED
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
        if self is EVERYTHING or self is other:
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
            self is other
            or (self.absent and other.absent)
            or any(map(rng.overlap, self.keys, other.keys))
            or self.strings.overlaps(other.strings)
        )

    @property
    def is_plain(self) -> bool:
        return self.strings.is_plain

    @property
    def types(self) -> Iterator[Type]:
        """The types of which it holds some value."""
        if self.strings:
            yield Type.STRING
        yield from (kind for kind, keys in zip(INTEGER_KEYED, self.keys, strict=True) if keys)

    def keys_of(self, kind: Type) -> Keys:
        return self.keys[_SLOT[kind]]

    @property
    def parts(self) -> int:
        """In how many conjunctions of constraints it could be said at the most."""
        strings = sum(len(piece.ranges) for piece in self.strings.pieces)
        return self.absent + sum(map(len, self.keys)) + strings

    @property
    def size(self) -> int:
        """One for each bound, and the characters of strings: how long it is to say."""
        return 1 + 2 * sum(map(len, self.keys)) + self.strings.size


def of_keys(keys_by_type: Mapping[Type, Keys]) -> Values:
    """Just those values of some types."""
    slots = list(NO_KEYS)
    for kind, keys in keys_by_type.items():
        slots[_SLOT[kind]] = keys
    return Values(False, tuple(slots), NO_STRING)


def all_of(sets: Sequence[Values]) -> Values:
    """What is in every one of them."""
    if len(sets) == 1:
        return sets[0]
    keys = tuple(reduce(rng.intersection, slots) for slots in zip(*(found.keys for found in sets), strict=True))
    return Values(all(found.absent for found in sets), keys, strings_in_all([found.strings for found in sets]))


def any_of(sets: Sequence[Values]) -> Values:
    """What is in some of them."""
    keys = tuple(rng.union(chain(*slots)) for slots in zip(*(found.keys for found in sets), strict=True))
    return Values(any(found.absent for found in sets), keys, strings_in_any([found.strings for found in sets]))


def of_strings(strings: Strings) -> Values:
    return Values(False, NO_KEYS, strings)


EVERYTHING: Final = Values(True, ALL_KEYS, EVERY_STRING)
NOTHING: Final = Values(False, NO_KEYS, NO_STRING)
PRESENT: Final = Values(False, ALL_KEYS, EVERY_STRING)
ABSENT: Final = Values(True, NO_KEYS, NO_STRING)
OF_TYPE: Final[dict[Type, Values]] = {
    Type.STRING: of_strings(EVERY_STRING),
    **{kind: of_keys({kind: ((least, None),)}) for kind, least in zip(INTEGER_KEYED, _LEAST, strict=True)},
}
