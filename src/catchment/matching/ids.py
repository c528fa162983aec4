"""The ids that users give their subscriptions, stored as bytes that sort like the ids, with a hash table to find them.

An id is a string or an int; ints sort before strings. The Python object of an id is made when the id is first listed,
and kept then: a matcher that is only asked for numbers has no object for a subscription. Once ids are listed, this
takes 13 bytes for each subscription (its place in sorted order, and a reference), and the objects of those that ever
matched, some 55 bytes for a short string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from sys import getsizeof
from typing import Any, Final

import numpy as np

from catchment.errors import BadIdError, shown
from catchment.matching.kernels import ids as kids
from catchment.matching.kernels import rank as kr
from catchment.matching.source import slots_for
from catchment.model.values import INT_MAX, INT_MIN

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
Id = str | int

# Every delivery repeats the ids of the subscriptions that match.
ID_CODEPOINTS_MAX: Final = 1_024
_INT, _STRING = b"\0", b"\1"
_BIAS: Final = 1 << 63
# To sort so few ids, the places of all ids are not worth computing.
_FEW: Final = 48


def id_bytes(id: Id) -> bytes:
    """An id as bytes that sort like the ids; BadIdError if it is no id."""
    if type(id) is str:
        if len(id) > ID_CODEPOINTS_MAX:
            raise BadIdError(f"an id of {len(id):,} characters: {ID_CODEPOINTS_MAX:,} is the most")
        try:
            return _STRING + id.encode()
        except UnicodeEncodeError:
            raise BadIdError(f"the id {shown(id)} holds a lone surrogate: not Unicode text") from None
    if type(id) is int and INT_MIN <= id <= INT_MAX:
        return _INT + (id + _BIAS).to_bytes(8, "big")
    raise BadIdError(f"{shown(id)} is no id: use a string or a 64-bit int")


def id_of(stored: bytes) -> Id:
    """The id that was stored as these bytes."""
    return stored[1:].decode() if stored[:1] == _STRING else int.from_bytes(stored[1:], "big") - _BIAS


class Ids:
    """Ids by number."""

    def __init__(self, blob: Array, starts: Array, slots: Array) -> None:
        self.blob, self.starts, self.slots = blob, starts, slots
        self.ready: Array = np.empty(len(self), object)  # by number, the object of the id, or None until it is made
        self.made = np.zeros(len(self), np.uint8)  # by number, 1 if the object is made
        self._made_bytes = 0

    @classmethod
    def of(cls, ids: Sequence[Id]) -> Ids:
        """These ids, numbered in order; BadIdError if an id appears twice."""
        parts = [id_bytes(id) for id in ids]
        starts = np.zeros(len(parts) + 1, I64)
        np.cumsum(np.fromiter(map(len, parts), I64, len(parts)), out=starts[1:])
        return cls.of_bytes(np.frombuffer(bytearray(b"".join(parts)), np.uint8), starts)

    @classmethod
    def of_bytes(cls, blob: Array, starts: Array) -> Ids:
        """Ids that are given as bytes, one after another; BadIdError if an id appears twice."""
        slots = slots_for(len(starts) - 1)
        ids = cls(blob, starts, slots)
        repeated = kids.fill_id_slots(blob, starts, slots)
        if repeated >= 0:
            raise BadIdError(f"the id {shown(ids[repeated])} appears twice")
        return ids

    @classmethod
    def gathered(cls, parts: Sequence[tuple[Ids, Array]]) -> Ids:
        """The chosen ids of several tables, one table after another."""
        blobs, ends, size = [], [np.zeros(1, I64)], 0
        for ids, chosen in parts:
            length = int(np.diff(ids.starts)[chosen].sum())
            blob, starts = np.empty(length, np.uint8), np.zeros(len(chosen) + 1, I64)
            kids.gather_bytes(ids.blob, ids.starts, chosen, blob, starts)
            blobs.append(blob)
            ends.append(starts[1:] + size)
            size += length
        return cls.of_bytes(np.concatenate(blobs), np.concatenate(ends))

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
        ids: Array = self.ready[numbers]
        return ids

    def _make(self, numbers: Array) -> None:
        text, each = self.blob.data, np.unique(numbers)
        starts, ends = self.starts[each].tolist(), self.starts[each + 1].tolist()
        made = [id_of(bytes(text[start:end])) for start, end in zip(starts, ends, strict=True)]
        self.ready[each] = made
        self.made[each] = 1  # after `ready`: a reader in another thread takes the object as soon as it sees this
        self._made_bytes += sum(map(getsizeof, made))

    @property
    def bytes_used(self) -> int:
        """The bytes of all arrays, and of the objects made so far."""
        total = self.blob.nbytes + self.starts.nbytes + self.slots.nbytes + self._made_bytes
        if self._made_bytes:
            total += self.ready.nbytes + self.made.nbytes
        return total + (self.places.nbytes if self.has_places else 0)

    @property
    def has_places(self) -> bool:
        """Whether `places` is computed: it is, once sorted ids were asked for."""
        return "places" in self.__dict__

    @cached_property
    def places(self) -> Array:
        """By number, the place of its id among all ids in sorted order. Sorting places sorts the ids."""
        count = len(self)
        spans = np.column_stack((self.starts[:-1], np.diff(self.starts)))  # (start, length) of each
        keys, dimension, spare = np.empty(count, I64), np.zeros(count, I32), np.empty(count, I64)
        kr.string_keys(spans, self.blob, keys)
        order = np.argsort(keys, kind="stable")
        places = np.empty(count, I64)
        kr.sort_strings(order, spare, dimension, keys, spans, self.blob, places)
        return places.astype(I32)

    def sorted(self, numbers: Array) -> list[Id]:
        """The ids of some numbers in sorted order."""
        if len(numbers) <= _FEW and not self.has_places:
            return sorted_ids(self.objects(numbers).tolist())
        count, (ordered, spare) = len(numbers), np.empty((2, len(numbers)), I64)
        counts = np.empty(kids.DIGIT_COUNTS, I64)
        numbers = numbers.astype(I32, copy=False)
        if not kids.sort_numbers(numbers, count, self.places, self.made, ordered, spare, counts):
            return self.objects(ordered).tolist()  # type: ignore[no-any-return]
        return self.ready[ordered].tolist()  # type: ignore[no-any-return]


def sorted_ids(ids: Iterable[Id]) -> list[Id]:
    """The ids in sorted order: ints first, then strings by code point."""
    ordered = list(ids)
    try:
        ordered.sort()
    except TypeError:  # Python does not compare ints with strings
        ordered.sort(key=lambda id: (type(id) is str, id))
    return ordered
