"""Workspaces: the arrays that a reader works in while it walks a segment, and the handles that kernels take.

A workspace serves one reader at a time. When the reader is done it gives the workspace back to a list of the segment,
and the next reader takes it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from catchment.matching.kernels.handles import ArraySpec, specs_of
from catchment.matching.kernels.ids import DIGIT_COUNTS
from catchment.matching.kernels.tables import Scratch, Single, SubscriptionColumns

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
_ATTRIBUTES_FEW: Final = 32
_TEXT_BYTES_FEW: Final = 4_096
_OUTPUT_FEW: Final = 1_024


class ArrayHandles:
    """The handles of tuples of arrays (see `kernels/handles.py`). It keeps the arrays, because handles do not."""

    __slots__ = ("_arrays", "handles")

    def __init__(self, *tuples: tuple[Array, ...]) -> None:
        self._arrays = tuples
        lines = [
            _handle(array, spec)
            for arrays in tuples
            for array, spec in zip(arrays, specs_of(type(arrays)), strict=True)
        ]
        self.handles: Array = np.array(lines, I64)


def _handle(array: Array, spec: ArraySpec) -> tuple[int, int, int]:
    # A kernel reads the memory as the specification says, without a check.
    assert (array.dtype, array.ndim) == (spec.dtype, spec.dimensions)
    assert array.flags.carray  # contiguous, aligned and writable
    return array.ctypes.data, array.shape[0], array.shape[1] if array.ndim > 1 else 1


class ColumnHandles(ArrayHandles):
    """The handles of the columns of a segment's subscriptions. They are valid as long as the segment has the same
    `died` array: the first removal makes a new one."""

    __slots__ = ("died",)

    def __init__(self, columns: SubscriptionColumns) -> None:
        super().__init__(columns)
        self.died = columns.died


class Workspace:
    """Scratch arrays for a walk, and arrays for a single notification and its matches. The latter grow as needed."""

    __slots__ = ("_kept", "_scratch", "handles", "single", "sorted")

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._allocate(_ATTRIBUTES_FEW, _TEXT_BYTES_FEW, _OUTPUT_FEW)

    def grow(self, attributes: int, text_bytes: int) -> None:
        """Makes the arrays large enough for a notification; if they were, doubles those for its matches."""
        old = self.single
        fits = attributes < len(old.names) and text_bytes <= len(old.text)
        attributes, text_bytes = max(attributes + 1, len(old.names)), max(text_bytes, len(old.text))
        self._allocate(attributes, text_bytes, (2 if fits else 1) * len(old.out))

    def _allocate(self, attributes: int, text_bytes: int, output: int) -> None:
        self.single = Single(
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
        self.sorted = self.single.sorted
        self._kept = ArrayHandles(self._scratch, self.single)
        self.handles = self._kept.handles


Taken = TypeVar("Taken")


def taken(workspaces: list[Taken], make: Callable[[], Taken]) -> Taken:
    """A workspace that no other reader uses: one that was given back, or a new one."""
    try:
        return workspaces.pop()  # atomic, so two readers never get the same one
    except IndexError:
        return make()
