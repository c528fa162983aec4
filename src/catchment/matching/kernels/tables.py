"""What the matching kernel works on: the index as flat arrays, a batch of notifications, and room to work in."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from catchment.matching.kernels.handles import Kind, unpacker
from catchment.matching.kernels.jit import Bytes, Ints

Bytes8 = Annotated[Bytes, Kind("u1")]
Ints8 = Annotated[Ints, Kind("i1")]
Ints32 = Annotated[Ints, Kind("i4")]
Ints64 = Annotated[Ints, Kind("i8")]
Table32 = Annotated[Ints, Kind("i4", 2)]
Table64 = Annotated[Ints, Kind("i8", 2)]

INT_EXACT, FLOAT_EXACT = 1, 2
# Columns of `attributes`.
A_NAME, A_NAME_LENGTH, A_NUMBERS, A_NUMBERS_INT_END, A_TIMES, A_REVERSED, A_PATTERNS, A_COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7
# Places in `control`: stamp of the current notification, dimensions present, depth of the stack, matches written,
# whether the output is full, groups still to be found, the version read, whether groups are asked for.
STAMP, PRESENT, DEPTH, WRITTEN, FULL, GROUPS_LEFT, VERSION, GROUPING = 0, 1, 2, 3, 4, 5, 6, 7
CONTROL_PLACES = 8
# Grams: the lengths of the pieces of patterns that are looked up at every position of a string.
GRAM_SIZES = (1, 2, 3, 4, 8)


class Tables(NamedTuple):
    """The index as flat arrays."""

    blob: Bytes8  # the distinct constraints, as msgpack
    attribute_slots: Ints32
    attributes: Table64  # (attributes + 1, A_COLUMNS)
    sections: Table64  # (dimensions, SECTION_COLUMNS)
    number_int: Ints64
    number_float: Ints64
    number_exact: Bytes8
    time_keys: Ints64
    string_starts: Ints64  # (dimensions + 1)
    string_keys: Ints64
    string_places: Table64
    string_blob: Bytes8
    node_low: Ints32
    node_high: Ints32
    node_row: Ints32
    node_own: Ints32
    node_group: Ints32
    groups: Table32
    row_tests: Ints32
    tests: Table32
    row_runs: Ints32
    row_shared: Ints32
    shared: Ints32
    set_pool: Ints32
    pattern_places: Table64  # by constraint, (start, length) in blob
    gram_slots: Ints32
    gram_hashes: Ints32
    gram_starts: Ints32
    gram_patterns: Table32  # (entries, 3): pattern, offset of the gram in its literal, node
    literal_places: Table64
    literal_blob: Bytes8


class Scratch(NamedTuple):
    """What one walk needs for itself; reused from walk to walk."""

    rank: Ints32
    entry_of: Ints64
    present: Ints64
    stack: Ints32
    shared_stamp: Ints64
    pattern_stamp: Ints64
    group_stamp: Ints64
    control: Ints64


class Living(NamedTuple):
    """Who the numbers stand for, as far as one walk asks: it may change, or be chosen, from walk to walk."""

    died: Ints64  # by number, the version that removed it; empty when nobody was
    group_of: Ints32  # by number
    row_group: Ints32  # the group of all its subscriptions, or -1
    id_place: Ints32  # by number, the place of its id in sorted order; only for lists of ids
    id_made: Bytes8  # by number, 1 where the id stands ready as an object; only for lists of ids


class Entries(NamedTuple):
    """A batch of notifications."""

    starts: Ints
    name_of: Ints
    type_of: Ints
    key_of: Ints
    place_of: Ints
    names: Ints
    buffer: Bytes
    attribute_of: Ints  # scratch: by name
    text: Bytes  # scratch: a string turned round


class One(NamedTuple):
    """Room for one notification and what it matches; reused from one to the next. First, entries as above."""

    starts: Ints64
    name_of: Ints32
    type_of: Ints8
    key_of: Ints64
    place_of: Ints64
    names: Table64
    attribute_of: Ints32
    text: Bytes8
    slots: Ints32  # hash table of names
    offsets: Ints64
    out: Ints32
    sorted: Ints64  # the numbers of `out` in the order of their ids
    spare: Ints64  # for sorting
    counts: Ints64  # for sorting


# A reader's room has handles of its Scratch, and behind them those of its One.
ONE_FIRST = len(Scratch._fields)
tables_at, scratch_at, living_at, one_at = unpacker(Tables), unpacker(Scratch), unpacker(Living), unpacker(One)
