"""The kernel that matches one notification: parsing, walking and sorting in a single call."""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off

from __future__ import annotations

from catchment.matching.kernels.handles import array_of_bytes
from catchment.matching.kernels.ids import sort_numbers
from catchment.matching.kernels.jit import kernel
from catchment.matching.kernels.match import Handles, match_entries
from catchment.matching.kernels.parse import MANY_NAMES, PARSED, parse_rows
from catchment.matching.kernels.tables import ONE_FIRST, Entries, living_at, one_at

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
