"""The kernel that matches one notification: parsing, walking and sorting in a single call."""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import typeof

from catchment.matching.kernels_bytes import kernel
from catchment.matching.kernels_handles import array_of_bytes
from catchment.matching.kernels_ids import sort_numbers
from catchment.matching.kernels_match import Handles, match_entries
from catchment.matching.kernels_parse import MANY_NAMES, PARSED, parse_rows
from catchment.matching.kernels_tables import ONE_FIRST, Entries, living_at, one_at

# What match_one says instead of a count.
REFUSED, NO_ROOM, UNLISTED = -1, -2, -3


@kernel
def match_one(tables: Handles, living: Handles, room: Handles, packed: bytes, version: int) -> int:
    """How many match one notification; their numbers stand in `sorted`, in the order of their ids.

    REFUSED: a name or value is none of the model. NO_ROOM: too many attributes, bytes or matches for the arrays.
    UNLISTED: `offsets[1]` numbers stand in `out`, but not all of their ids are ready to be listed.
    """
    one, buffer = one_at(room, ONE_FIRST), array_of_bytes(packed)
    if len(buffer) > len(one.text):
        return NO_ROOM
    status, names, _ = parse_rows(
        buffer, one.slots, one.starts, one.name_of, one.type_of, one.key_of, one.place_of, one.names
    )
    if status != PARSED:
        return NO_ROOM if status == MANY_NAMES else REFUSED
    b = Entries(
        one.starts, one.name_of, one.type_of, one.key_of, one.place_of, one.names, buffer, one.attribute_of, one.text
    )
    if match_entries(tables, living, room, b, names, version, 0, 0, 1, one.out, one.offsets) == 0:
        return NO_ROOM
    count, v = one.offsets[1], living_at(living, 0)
    ready = sort_numbers(one.out, count, v.id_place, v.id_made, one.sorted, one.spare, one.counts)
    return count if ready else UNLISTED


# --- warming ------------------------------------------------------------------------------------

# What a segment calls match_one with: handles of its tables, of the living and of its room, msgpack, a version.
_HANDLES: Final = np.empty((0, 3), np.int64)
MATCH_ONE_TYPES: Final = tuple(
    typeof(value)  # type: ignore[no-untyped-call]
    for value in (_HANDLES, _HANDLES, _HANDLES, b"", 0)
)


def warm() -> None:
    """Compiles match_one from the types of its arguments alone: there need be no index yet."""
    compiled: Any = match_one
    if hasattr(compiled, "compile"):  # it has not where NUMBA_DISABLE_JIT is set
        compiled.compile(MATCH_ONE_TYPES)
