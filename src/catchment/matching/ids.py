"""The ids that users give their subscriptions, kept as bytes that sort like the ids, found by hash.

An id is a string or an int; ints sort before strings. Python objects are made only of the ids that somebody
asks for, and kept then: a matcher that is only asked for numbers holds no object for a subscription. Once ids
are listed, it takes 13 bytes for each subscription (its place in sorted order, and a reference), and the objects
of those that ever matched, some 55 bytes for a short string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from sys import getsizeof
from typing import Any, Final

import numpy as np

from catchment.errors import BadIdError, shown
from catchment.matching.index import slots_for
from catchment.matching.kernels import ids as kids
from catchment.matching.kernels import rank as kr
from catchment.model.values import INT_MAX, INT_MIN

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
Id = str | int

# An id is repeated in every delivery.
ID_CODEPOINTS_MAX: Final = 1_024
_INT, _STRING = b"\0", b"\1"
_BIAS: Final = 1 << 63
# For so few ids the places of all are not worth finding.
_FEW: Final = 48


def id_bytes(found: Id) -> bytes:
    """Bytes that sort like the ids; BadIdError for what is none."""
    if type(found) is str:
        if len(found) > ID_CODEPOINTS_MAX:
            raise BadIdError(f"an id of {len(found):,} characters: {ID_CODEPOINTS_MAX:,} is the most")
        try:
            return _STRING + found.encode()
        except UnicodeEncodeError:
            raise BadIdError(f"the id {shown(found)} holds a lone surrogate: not Unicode text") from None
    if type(found) is int and INT_MIN <= found <= INT_MAX:
        return _INT + (found + _BIAS).to_bytes(8, "big")
    raise BadIdError(f"{shown(found)} is no id: use a string or a 64-bit int")


def id_of(found: bytes) -> Id:
    return found[1:].decode() if found[:1] == _STRING else int.from_bytes(found[1:], "big") - _BIAS


class Ids:
    """Ids by number."""

    def __init__(self, blob: Array, starts: Array, slots: Array) -> None:
        self.blob, self.starts, self.slots = blob, starts, slots
        self.ready: Array = np.empty(len(self), object)  # by number, the id, or None until somebody asks
        self.made = np.zeros(len(self), np.uint8)  # by number, 1 where it stands ready
        self._made_bytes = 0

    @classmethod
    def of(cls, ids: Sequence[Id]) -> Ids:
        """BadIdError for an id that stands twice."""
        parts = [id_bytes(one) for one in ids]
        starts = np.zeros(len(parts) + 1, I64)
        np.cumsum(np.fromiter(map(len, parts), I64, len(parts)), out=starts[1:])
        return cls._indexed(np.frombuffer(bytearray(b"".join(parts)), np.uint8), starts)

    @classmethod
    def _indexed(cls, blob: Array, starts: Array) -> Ids:
        slots = slots_for(len(starts) - 1)
        found = cls(blob, starts, slots)
        twice = kids.fill_id_slots(blob, starts, slots)
        if twice >= 0:
            raise BadIdError(f"the id {shown(found[twice])} stands twice")
        return found

    @classmethod
    def gathered(cls, parts: Sequence[tuple[Ids, Array]]) -> Ids:
        """The chosen ids of several lists, one after another."""
        blobs, ends, size = [], [np.zeros(1, I64)], 0
        for ids, chosen in parts:
            length = int(np.diff(ids.starts)[chosen].sum())
            blob, starts = np.empty(length, np.uint8), np.zeros(len(chosen) + 1, I64)
            kids.gather_bytes(ids.blob, ids.starts, chosen, blob, starts)
            blobs.append(blob)
            ends.append(starts[1:] + size)
            size += length
        return cls._indexed(np.concatenate(blobs), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> Id:
        return id_of(self.blob[self.starts[number] : self.starts[number + 1]].tobytes())

    def find(self, wanted: bytes) -> int:
        """The number of an id, or -1."""
        return kids.find_id(np.frombuffer(wanted, np.uint8), self.blob, self.starts, self.slots)

    def objects(self, numbers: Array) -> Array:
        """The ids of some numbers, as an array of objects."""
        missing = numbers[self.made[numbers] == 0]
        if len(missing):
            self._make(missing)
        found: Array = self.ready[numbers]
        return found

    def _make(self, numbers: Array) -> None:
        text, each = self.blob.data, np.unique(numbers)
        starts, ends = self.starts[each].tolist(), self.starts[each + 1].tolist()
        made = [id_of(bytes(text[start:end])) for start, end in zip(starts, ends, strict=True)]
        self.ready[each] = made
        self.made[each] = 1  # only now: a reader in another thread trusts it
        self._made_bytes += sum(map(getsizeof, made))

    @property
    def bytes_used(self) -> int:
        """With the objects made so far, and what is kept to make and sort them."""
        found = self.blob.nbytes + self.starts.nbytes + self.slots.nbytes + self._made_bytes
        if self._made_bytes:
            found += self.ready.nbytes + self.made.nbytes
        return found + (self.places.nbytes if self.has_places else 0)

    @property
    def has_places(self) -> bool:
        """Whether somebody asked for sorted ids yet."""
        return "places" in self.__dict__

    @cached_property
    def places(self) -> Array:
        """By number, the place among all ids in sorted order: ids are sorted by sorting these."""
        count = len(self)
        places = np.column_stack((self.starts[:-1], np.diff(self.starts)))
        keys, dimension, spare = np.empty(count, I64), np.zeros(count, I32), np.empty(count, I64)
        kr.string_keys(places, self.blob, keys)
        order = np.argsort(keys, kind="stable")
        found = np.empty(count, I64)
        kr.sort_strings(order, spare, dimension, keys, places, self.blob, found)
        return found.astype(I32)

    def sorted(self, numbers: Array) -> list[Id]:
        """The ids of some numbers in sorted order."""
        if len(numbers) <= _FEW and not self.has_places:
            return sorted_ids(self.objects(numbers).tolist())
        count, room = len(numbers), np.empty((2, len(numbers)), I64)
        counts = np.empty(kids.DIGIT_COUNTS, I64)
        numbers = numbers.astype(I32, copy=False)
        if not kids.sort_numbers(numbers, count, self.places, self.made, room[0], room[1], counts):
            return self.objects(room[0]).tolist()  # type: ignore[no-any-return]
        return self.ready[room[0]].tolist()  # type: ignore[no-any-return]


def sorted_ids(ids: Iterable[Id]) -> list[Id]:
    """Ints first, then strings by code point."""
    found = list(ids)
    try:
        found.sort()
    except TypeError:
        found.sort(key=lambda one: (type(one) is str, one))
    return found
