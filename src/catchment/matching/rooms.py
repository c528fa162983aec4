"""What a reader works in while it walks a segment: arrays that are used again, and the handles that kernels take.

A room serves one reader at a time; those given back wait in a list of the segment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from catchment.matching.kernels.handles import Kind, kinds_of
from catchment.matching.kernels.ids import DIGIT_COUNTS
from catchment.matching.kernels.tables import Living, One, Scratch

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
_ATTRIBUTES_FEW: Final = 32
_TEXT_BYTES_FEW: Final = 4_096
_OUTPUT_FEW: Final = 1_024


class Packed:
    """Tuples of arrays, kept, and their handles (see `kernels/handles.py`)."""

    __slots__ = ("_arrays", "handles")

    def __init__(self, *tuples: tuple[Array, ...]) -> None:
        self._arrays = tuples
        lines = [_handle(*one) for found in tuples for one in zip(found, kinds_of(type(found)), strict=True)]
        self.handles: Array = np.array(lines, I64)


def _handle(array: Array, kind: Kind) -> tuple[int, int, int]:
    # A kernel takes the memory for what the kind says.
    assert (array.dtype, array.ndim) == (kind.dtype, kind.dimensions)
    assert array.flags.carray  # contiguous, aligned and writable
    return array.ctypes.data, array.shape[0], array.shape[1] if array.ndim > 1 else 1


class PackedLiving(Packed):
    """Who the numbers stand for, as long as `died` is the same array: the first removal makes another."""

    __slots__ = ("died",)

    def __init__(self, living: Living) -> None:
        super().__init__(living)
        self.died = living.died


class Room:
    """Scratch for a walk, and room for one notification, which grows with what it is asked to hold."""

    __slots__ = ("_packed", "_scratch", "handles", "one", "sorted")

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._lay(_ATTRIBUTES_FEW, _TEXT_BYTES_FEW, _OUTPUT_FEW)

    def grow(self, attributes: int, text_bytes: int) -> None:
        """Fits a notification and, if it does already, twice the matches."""
        had = self.one
        fits = attributes < len(had.names) and text_bytes <= len(had.text)
        attributes, text_bytes = max(attributes + 1, len(had.names)), max(text_bytes, len(had.text))
        self._lay(attributes, text_bytes, (2 if fits else 1) * len(had.out))

    def _lay(self, attributes: int, text_bytes: int, output: int) -> None:
        self.one = One(
            starts=np.zeros(2, I64),
            name_of=np.empty(attributes, I32),
            type_of=np.empty(attributes, np.int8),
            key_of=np.empty(attributes, I64),
            place_of=np.empty(attributes, I64),
            names=np.empty((attributes, 2), I64),
            attribute_of=np.empty(attributes, I32),
            text=np.empty(text_bytes, np.uint8),
            slots=np.empty(1 << (2 * attributes - 1).bit_length(), I32),
            offsets=np.zeros(2, I64),
            out=np.empty(output, I32),
            sorted=np.empty(output, I64),
            spare=np.empty(output, I64),
            counts=np.empty(DIGIT_COUNTS, I64),
        )
        self.sorted = self.one.sorted
        self._packed = Packed(self._scratch, self.one)
        self.handles = self._packed.handles


Kept = TypeVar("Kept")


def taken(rooms: list[Kept], make: Callable[[], Kept]) -> Kept:
    """A room that no other reader is using: one given back, or a new one."""
    try:
        return rooms.pop()  # one step, so two readers never get the same
    except IndexError:
        return make()
