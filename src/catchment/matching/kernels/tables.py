"""What the matching kernel works on: the index as flat arrays, a batch of notifications, and arrays to work in.

Words: a *dimension* is an attribute, or an attribute with its strings reversed; a *rank* is a small integer that stands
for a value in a dimension (`rank.py`). A *row* is a conjunction as the index holds it, a list of tests over ranks
(`compile.py`). The rows are arranged in a tree (`tree.py`). A subscription has a *number*.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from catchment.matching.kernels.handles import ArraySpec, unpacker
from catchment.matching.kernels.jit import Bytes, Ints

Bytes8 = Annotated[Bytes, ArraySpec("u1")]
Ints8 = Annotated[Ints, ArraySpec("i1")]
Ints32 = Annotated[Ints, ArraySpec("i4")]
Ints64 = Annotated[Ints, ArraySpec("i8")]
Table32 = Annotated[Ints, ArraySpec("i4", 2)]
Table64 = Annotated[Ints, ArraySpec("i8", 2)]

# Bits of `number_exact`: whether a cut is itself an int, and whether it is itself a float.
INT_EXACT, FLOAT_EXACT = 1, 2
# Columns of `attributes`.
A_NAME, A_NAME_LENGTH, A_NUMBERS, A_NUMBERS_INT_END, A_TIMES, A_REVERSED, A_PATTERNS, A_COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7
# Places in `control`: the stamp of the current notification, how many dimensions it has, the depth of the stack, how
# many matches are written, whether the output is full, how many groups may still match, the version that is read,
# whether groups are asked for instead of numbers.
STAMP, PRESENT, DEPTH, WRITTEN, FULL, GROUPS_LEFT, VERSION, GROUPING = 0, 1, 2, 3, 4, 5, 6, 7
CONTROL_PLACES = 8
# How deep expressions nest, at most: twice FILTER_DEPTH_MAX of the model.
OPEN_NODES_MAX = 128
# Grams are the pieces of patterns that are looked up at every position of a string. These are their lengths.
GRAM_SIZES = (1, 2, 3, 4, 8)


class Tables(NamedTuple):
    """The index as flat arrays."""

    blob: Bytes8  # the distinct constraints, as msgpack
    attribute_slots: Ints32
    attributes: Table64  # (attributes + 1, A_COLUMNS)
    sections: Table64  # (dimensions, SECTION_COLUMNS)
    number_int: Ints64  # by number cut, the least int at or above it
    number_float: Ints64  # by number cut, the key of the least float at or above it
    number_exact: Bytes8  # by number cut, INT_EXACT and FLOAT_EXACT
    time_keys: Ints64  # by time cut
    string_starts: Ints64  # (dimensions + 1): the string cuts of each dimension
    string_keys: Ints64  # by string cut, its first bytes
    string_places: Table64  # by string cut, (start, length) in string_blob
    string_blob: Bytes8
    node_low: Ints32  # by node: the interval of the edge that leads to it; of a pattern, the constraint
    node_high: Ints32
    node_row: Ints32  # by node: its first row
    node_own: Ints32  # by node: the end of the rows that it verifies itself
    node_group: Ints32  # by node, (nodes + 1): its first group of edges
    groups: Table32  # (groups + 1, G_COLUMNS), see tree.py
    row_tests: Ints32  # by row, (rows + 1): its first test
    tests: Table32  # (tests, 3), see compile.py
    row_runs: Ints32  # by row, (rows + 1): the first number of the subscriptions that have only this row
    row_shared: Ints32  # by row, (rows + 1): the first of its entries in `shared`
    shared: Ints32  # numbers of subscriptions that have several rows
    set_pool: Ints32  # the ranks of every `in`
    pattern_places: Table64  # by constraint, (start, length) in blob
    gram_bits: Bytes8  # a bit set of the hashes of all grams
    gram_slots: Ints32
    gram_hashes: Ints32
    gram_starts: Ints32
    gram_patterns: Table32  # (entries, 3): pattern, offset of the gram in its literal, node (-1: none to visit)
    literal_places: Table64
    literal_blob: Bytes8
    pattern_of: Ints32  # by constraint: its place among the literals, -1 if it has none there
    shared_root: Ints32  # by shared subscription: the root of its expression, -1 if it is a list of rows
    expression_kind: Ints32  # by node of the expressions: LEAF, AND or OR, see nodes.py
    expression_starts: Ints64  # (nodes + 1)
    expression_children: Ints32  # of a leaf its constraint
    leaf_starts: Ints32  # by node, (nodes + 1): the tests of a leaf
    leaf_tests: Table32


class Scratch(NamedTuple):
    """What a walk needs for itself; reused from walk to walk.

    A stamp array tells whether something was already done for the current notification: it was, if the entry equals
    the stamp in `control`, which grows with each notification. So nothing has to be cleared.
    """

    rank: Ints32  # by dimension, the rank of the notification's value; -1 where it is absent
    entry_of: Ints64  # by dimension, the entry that has its value
    present: Ints64  # the dimensions that have a rank
    stack: Ints32  # nodes still to be visited
    shared_stamp: Ints64  # by shared subscription: it is written
    pattern_stamp: Ints64  # by pattern: its literal piece occurs in the notification
    group_stamp: Ints64  # by group: it is written
    node_state: Ints64  # by node of the expressions: twice the stamp, and 1 more if it is true
    open_nodes: Table64  # (OPEN_NODES_MAX, 2): nodes that are being evaluated, and how far
    control: Ints64


class SubscriptionColumns(NamedTuple):
    """What is known of each subscription, by number. These arrays change with removals, and a walk gets only those
    that it needs; the others are empty."""

    died: Ints64  # the version that removed it; empty if none was removed
    group_of: Ints32
    row_group: Ints32  # by row: the group of all its subscriptions, -1 if they have several
    id_place: Ints32  # the place of its id in sorted order; only for lists of ids
    id_made: Bytes8  # 1 where the Python object of the id exists; only for lists of ids


class Entries(NamedTuple):
    """A batch of notifications as entries, see `parse.py`."""

    starts: Ints  # by notification, (notifications + 1): its first entry
    name_of: Ints  # by entry, the number of its name
    type_of: Ints  # by entry, the tag of its value
    key_of: Ints  # by entry, the key of its value; of a string, the length
    place_of: Ints  # by entry, where its string starts in `buffer`
    names: Ints  # by name, (start, length) in `buffer`
    buffer: Bytes
    attribute_of: Ints  # scratch: by name, the attribute of the index; -1 where it has none
    text: Bytes  # scratch: a reversed string


class Single(NamedTuple):
    """Arrays for a single notification and what it matches; reused from one to the next. First, entries as above."""

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


# A workspace has the handles of its Scratch, and behind them those of its Single.
SINGLE_FIRST = len(Scratch._fields)
tables_at, scratch_at = unpacker(Tables), unpacker(Scratch)
columns_at, single_at = unpacker(SubscriptionColumns), unpacker(Single)
