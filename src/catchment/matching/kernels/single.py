"""The kernel that matches a single notification: it parses, walks and sorts in one call."""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import typeof

from catchment.matching.kernels.handles import array_of_bytes
from catchment.matching.kernels.ids import sort_numbers
from catchment.matching.kernels.jit import kernel
from catchment.matching.kernels.match import Handles, match_entries
from catchment.matching.kernels.parse import MANY_NAMES, PARSED, parse_rows
from catchment.matching.kernels.tables import SINGLE_FIRST, Entries, columns_at, single_at

# What match_single returns instead of a count.
REFUSED, NO_ROOM, UNLISTED = -1, -2, -3


@kernel
def match_single(tables: Handles, columns: Handles, workspace: Handles, packed: bytes, version: int) -> int:
    """How many subscriptions match the notification; `sorted` holds their numbers, in the order of their ids.

    REFUSED: a name or value is not valid. NO_ROOM: too many attributes, bytes or matches for the arrays.
    UNLISTED: `out` holds `offsets[1]` numbers, but the ids of some are not made yet.
    """
    n, buffer = single_at(workspace, SINGLE_FIRST), array_of_bytes(packed)
    if len(buffer) > len(n.text):
        return NO_ROOM
    status, names, _ = parse_rows(buffer, n.slots, n.starts, n.name_of, n.type_of, n.key_of, n.place_of, n.names)
    if status != PARSED:
        return NO_ROOM if status == MANY_NAMES else REFUSED
    b = Entries(n.starts, n.name_of, n.type_of, n.key_of, n.place_of, n.names, buffer, n.attribute_of, n.text)
    if match_entries(tables, columns, workspace, b, names, version, 0, 0, 1, n.out, n.offsets) == 0:
        return NO_ROOM
    count, v = n.offsets[1], columns_at(columns, 0)
    ready = sort_numbers(n.out, count, v.id_place, v.id_made, n.sorted, n.spare, n.counts)
    return count if ready else UNLISTED


# --- warming ------------------------------------------------------------------------------------

# What a segment calls match_single with: handles of its tables, columns and workspace, msgpack, a version.
_HANDLES: Final = np.empty((0, 3), np.int64)
MATCH_SINGLE_TYPES: Final = tuple(
    typeof(value)  # type: ignore[no-untyped-call]
    for value in (_HANDLES, _HANDLES, _HANDLES, b"", 0)
)


def warm() -> None:
    """Compiles match_single from the types of its arguments alone: there need be no index yet."""
    compiled: Any = match_single
    if hasattr(compiled, "compile"):  # it has not where NUMBA_DISABLE_JIT is set
        compiled.compile(MATCH_SINGLE_TYPES)
