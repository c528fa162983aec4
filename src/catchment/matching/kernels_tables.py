"""What the matching kernel works on: the index as flat arrays, a batch of notifications, and room to work in."""

from __future__ import annotations

from typing import NamedTuple

from catchment.matching.kernels_bytes import Bytes, Ints

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

    blob: Bytes  # the distinct constraints, as msgpack
    attribute_slots: Ints
    attributes: Ints  # (attributes + 1, A_COLUMNS)
    sections: Ints  # (dimensions, SECTION_COLUMNS)
    number_int: Ints
    number_float: Ints
    number_exact: Bytes
    time_keys: Ints
    string_starts: Ints  # (dimensions + 1)
    string_keys: Ints
    string_places: Ints
    string_blob: Bytes
    node_low: Ints
    node_high: Ints
    node_row: Ints
    node_own: Ints
    node_group: Ints
    groups: Ints
    row_tests: Ints
    tests: Ints
    row_runs: Ints
    row_shared: Ints
    shared: Ints
    set_pool: Ints
    pattern_places: Ints  # by constraint, (start, length) in blob
    gram_slots: Ints
    gram_hashes: Ints
    gram_starts: Ints
    gram_patterns: Ints  # (entries, 3): pattern, offset of the gram in its literal, node
    literal_places: Ints
    literal_blob: Bytes


class Scratch(NamedTuple):
    """What one walk needs for itself; reused from walk to walk."""

    rank: Ints
    entry_of: Ints
    present: Ints
    stack: Ints
    shared_stamp: Ints
    pattern_stamp: Ints
    group_stamp: Ints
    control: Ints


class Living(NamedTuple):
    """What may change or is chosen for one walk: who has died when, and who belongs to which group."""

    died: Ints  # by number, the version that removed it; empty when nobody was
    group_of: Ints  # by number
    row_group: Ints  # the group of all its subscriptions, or -1


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
