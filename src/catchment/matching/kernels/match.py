"""The kernel that matches: it computes the ranks of a notification's values, then walks down the tree.

Subscriptions are numbered in the order of their rows. So the matches of a row, or of a run of rows, are consecutive
numbers, and nothing is looked up to write them. A subscription whose filter has several rows is written by its number
(`shared`), and a stamp keeps it from being written twice.

In all functions below `x` is the index (Tables), `s` the scratch arrays (Scratch), `v` the columns of the subscriptions
(SubscriptionColumns) and `b` the batch of notifications (Entries); see `tables.py`.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off
# ruff: noqa: SIM102 -- plain comparisons compile to the plainest code

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.bytes import (
    BOOL,
    INT,
    STRING,
    TIME,
    equal_bytes,
    hash_bytes,
)
from catchment.matching.kernels.compile import (
    STRING_BASE,
    T_IN,
    TEST_KIND_BITS,
    TEST_KIND_MASK,
    TIME_BASE,
)
from catchment.matching.kernels.evaluation import holds_other, is_true
from catchment.matching.kernels.grams import gram_seed, hash_of_gram
from catchment.matching.kernels.jit import Bytes, Ints, inlined, kernel
from catchment.matching.kernels.rank import BOOLEAN_RANKS, rank_in_keys, rank_of_number, rank_of_string
from catchment.matching.kernels.tables import (
    A_NAME,
    A_NAME_LENGTH,
    A_NUMBERS,
    A_NUMBERS_INT_END,
    A_PATTERNS,
    A_REVERSED,
    A_TIMES,
    DEPTH,
    FLOAT_EXACT,
    FULL,
    GRAM_SIZES,
    GROUPING,
    GROUPS_LEFT,
    INT_EXACT,
    PRESENT,
    STAMP,
    VERSION,
    WRITTEN,
    Entries,
    Scratch,
    SubscriptionColumns,
    Tables,
    columns_at,
    scratch_at,
    tables_at,
)
from catchment.matching.kernels.tree import (
    FROM,
    G_CLASS,
    G_DIMENSION,
    G_FLAT,
    G_NODE,
    PATTERN,
    POINT,
    RANGE,
    SCAN,
    UPTO,
)

Handles = Ints  # see handles.py


@kernel
def find_attribute(buffer: Bytes, start: int, length: int, slots: Ints, attributes: Ints, blob: Bytes) -> int:
    """The attribute of the index with a name, or -1."""
    mask = len(slots) - 1
    at = hash_bytes(buffer, start, start + length) & mask
    while slots[at] >= 0:
        known = slots[at]
        if attributes[known, A_NAME_LENGTH] == length:
            if equal_bytes(blob, attributes[known, A_NAME], buffer, start, length):
                return known
        at = (at + 1) & mask
    return -1


@inlined
def _rank_entries(x: Tables, s: Scratch, b: Entries, first: int, last: int) -> None:
    """Writes the ranks of the values of a notification, whose entries are first to last, to `s.rank`."""
    count = 0
    for i in range(first, last):
        attribute = b.attribute_of[b.name_of[i]]
        if attribute < 0:
            continue
        tag, key = b.type_of[i], b.key_of[i]
        if tag == STRING:
            rank = x.sections[attribute, STRING_BASE]
            low, high = x.string_starts[attribute], x.string_starts[attribute + 1]
            start = b.place_of[i]
            if high > low:
                rank += rank_of_string(
                    x.string_keys, x.string_places, x.string_blob, low, high, b.buffer, start, start + key
                )
            reversed_dimension = x.attributes[attribute, A_REVERSED]
            if reversed_dimension >= 0:
                for j in range(key):
                    b.text[j] = b.buffer[start + key - 1 - j]
                low, high = x.string_starts[reversed_dimension], x.string_starts[reversed_dimension + 1]
                s.rank[reversed_dimension] = rank_of_string(
                    x.string_keys, x.string_places, x.string_blob, low, high, b.text, 0, key
                )
                s.present[count] = reversed_dimension
                count += 1
        elif tag == BOOL:
            rank = key
        elif tag == TIME:
            rank = x.sections[attribute, TIME_BASE] + rank_in_keys(
                x.time_keys, x.attributes[attribute, A_TIMES], x.attributes[attribute + 1, A_TIMES], key
            )
        else:
            low, high = x.attributes[attribute, A_NUMBERS], x.attributes[attribute + 1, A_NUMBERS]
            if tag == INT:
                high = x.attributes[attribute, A_NUMBERS_INT_END]  # the cuts beyond all ints are left out
                rank = BOOLEAN_RANKS + rank_of_number(x.number_int, x.number_exact, INT_EXACT, low, high, key)
            else:
                rank = BOOLEAN_RANKS + rank_of_number(x.number_float, x.number_exact, FLOAT_EXACT, low, high, key)
        s.rank[attribute] = rank
        s.entry_of[attribute] = i
        s.present[count] = attribute
        count += 1
    s.control[PRESENT] = count


@inlined
def _find_patterns(x: Tables, s: Scratch, b: Entries, stamp: int) -> None:
    """Stamps all patterns whose literal piece occurs in a string of the notification, in one pass over each string, and
    puts their nodes on the stack."""
    mask, bit_mask = len(x.gram_slots) - 1, 8 * len(x.gram_bits) - 1
    for p in range(s.control[PRESENT]):
        attribute = s.present[p]
        if attribute >= len(x.attributes) - 1 or x.attributes[attribute, A_PATTERNS] == 0:
            continue  # a reversed dimension, or an attribute without patterns
        entry = s.entry_of[attribute]
        if b.type_of[entry] != STRING:
            continue
        start, end = b.place_of[entry], b.place_of[entry] + b.key_of[entry]
        for size in GRAM_SIZES:
            if (x.attributes[attribute, A_PATTERNS] >> size) & 1 == 0:
                continue  # no pattern of this attribute has a gram of this size
            seed, gram = gram_seed(attribute, size), np.int64(0)
            kept = np.int64(-1) if size == 8 else (np.int64(1) << (8 * size)) - 1
            for at in range(start, end):
                # The last `size` bytes as an integer: this is the innermost loop.
                gram = ((gram << 8) | np.int64(b.buffer[at])) & kept
                hashed = hash_of_gram(gram, seed)
                bit = hashed & bit_mask
                if (x.gram_bits[bit >> 3] >> (bit & 7)) & 1 == 0 or at - start < size - 1:
                    continue
                slot = hashed & mask
                while x.gram_slots[slot] >= 0:
                    known = x.gram_slots[slot]
                    if x.gram_hashes[known] == hashed:
                        _push_patterns(x, s, b, known, attribute, at - size + 1, start, end, stamp)
                    slot = (slot + 1) & mask


@inlined
def _push_patterns(
    x: Tables, s: Scratch, b: Entries, gram: int, attribute: int, at: int, start: int, end: int, stamp: int
) -> None:
    """Puts the nodes of the patterns with a gram on the stack, if their whole literal piece is there. `at` is where the
    gram was seen; start and end are those of the string."""
    for i in range(x.gram_starts[gram], x.gram_starts[gram + 1]):
        pattern = x.gram_patterns[i, 0]
        if s.pattern_stamp[pattern] == stamp or x.literal_places[pattern, 2] != attribute:
            continue
        first, length = at - x.gram_patterns[i, 1], x.literal_places[pattern, 1]
        if first < start or first + length > end:
            continue
        if equal_bytes(b.buffer, first, x.literal_blob, x.literal_places[pattern, 0], length):
            s.pattern_stamp[pattern] = stamp
            if x.gram_patterns[i, 2] >= 0:  # else it is only a leaf of expressions
                s.stack[s.control[DEPTH]] = x.gram_patterns[i, 2]
                s.control[DEPTH] += 1


@inlined
def _fails(x: Tables, s: Scratch, b: Entries, shared: int, stamp: int) -> bool:
    """Whether a shared subscription is an expression that is not true."""
    root = x.shared_root[shared]
    return root >= 0 and not is_true(
        root, stamp, x.expression_kind, x.expression_starts, x.expression_children, s.node_state, s.open_nodes,
        x.leaf_starts, x.leaf_tests, x.pattern_of, s.rank, s.entry_of, s.pattern_stamp, b.type_of, b.place_of,
        b.key_of, b.buffer, x.set_pool, x.pattern_places, x.blob
    )


@inlined
def _emit(
    x: Tables, s: Scratch, v: SubscriptionColumns, b: Entries, out: Ints, first_row: int, last_row: int, stamp: int
) -> None:
    """Writes the numbers of the subscriptions of matching rows; sets FULL if `out` is too short."""
    written = s.control[WRITTEN]
    first, last = x.row_runs[first_row], x.row_runs[last_row]
    if s.control[GROUPING]:
        _emit_groups(x, s, v, b, out, first_row, last_row, stamp)
        return
    if written + last - first > len(out):
        s.control[FULL] = 1
        return
    for i in range(last - first):
        out[written + i] = first + i
    written += last - first
    if len(x.shared) > 0:
        for i in range(x.row_shared[first_row], x.row_shared[last_row]):
            number = x.shared[i]
            which = number - x.row_runs[len(x.row_runs) - 1]
            if s.shared_stamp[which] != stamp:
                if written >= len(out):
                    s.control[FULL] = 1
                    return
                s.shared_stamp[which] = stamp
                if _fails(x, s, b, which, stamp):
                    continue
                out[written] = number
                written += 1
    s.control[WRITTEN] = written


@inlined
def _emit_group(s: Scratch, v: SubscriptionColumns, out: Ints, number: int, stamp: int) -> None:
    """Writes the group of a subscription, unless it is written or the subscription is removed."""
    group = v.group_of[number]
    if s.group_stamp[group] == stamp or (len(v.died) > 0 and v.died[number] <= s.control[VERSION]):
        return
    if s.control[WRITTEN] >= len(out):
        s.control[FULL] = 1
        return
    s.group_stamp[group] = stamp
    out[s.control[WRITTEN]] = group
    s.control[WRITTEN] += 1
    s.control[GROUPS_LEFT] -= 1


@inlined
def _emit_groups(
    x: Tables, s: Scratch, v: SubscriptionColumns, b: Entries, out: Ints, first_row: int, last_row: int, stamp: int
) -> None:
    """Writes the groups of the subscriptions of matching rows."""
    for number in range(x.row_runs[first_row], x.row_runs[last_row]):
        _emit_group(s, v, out, number, stamp)
    if len(x.shared) > 0:
        sole = x.row_runs[len(x.row_runs) - 1]
        for i in range(x.row_shared[first_row], x.row_shared[last_row]):
            number = x.shared[i]
            # The group first: it may be written already, and then the expression need not be looked at.
            if s.group_stamp[v.group_of[number]] != stamp and not _fails(x, s, b, number - sole, stamp):
                _emit_group(s, v, out, number, stamp)


@inlined
def _window(x: Tables, group: int, rank: int) -> tuple[int, int]:
    """The edges of a group that may hold a rank, as first and end. In POINT, FROM and UPTO groups all of these hold it;
    in SCAN and RANGE groups each must still be compared."""
    first, last = np.int64(x.groups[group, G_NODE]), np.int64(x.groups[group + 1, G_NODE])
    group_class = x.groups[group, G_CLASS]
    if group_class == SCAN:
        return first, last
    if group_class == UPTO:  # sorted by high; all have the same low
        if rank < x.node_low[first]:
            return first, first
        low, high = first, last
        while low < high:
            middle = (low + high) >> 1
            if x.node_high[middle] < rank:
                low = middle + 1
            else:
                high = middle
        return low, last
    if group_class == FROM and rank > x.node_high[first]:  # all have the same high
        return first, first
    # All other classes are sorted by low: `end` is behind the last edge whose low is at or below the rank.
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if x.node_low[middle] <= rank:
            low = middle + 1
        else:
            high = middle
    end = low
    if group_class == FROM:
        return first, end
    if group_class == POINT:
        return (end - 1, end) if end > first and x.node_low[end - 1] == rank else (end, end)
    # A RANGE group has intervals under 2**(k+1) ranks wide: one that begins before `least` ends before the rank.
    least = rank - (np.int64(2) << (group_class - RANGE)) + 1
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if x.node_low[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low, end


@inlined
def _enter_group(
    x: Tables, s: Scratch, v: SubscriptionColumns, b: Entries, group: int, rank: int, out: Ints, stamp: int
) -> None:
    """Puts the children of a group whose edge holds the rank on the stack. In a flat group they are all matches, and
    their rows are consecutive."""
    first, last = _window(x, group, rank)
    if first >= last:
        return
    if x.groups[group, G_FLAT]:
        _emit(x, s, v, b, out, x.node_row[first], x.node_own[last - 1], stamp)
        return
    depth = s.control[DEPTH]
    if x.groups[group, G_CLASS] <= UPTO:
        for node in range(first, last):
            s.stack[depth] = node
            depth += 1
    else:
        for node in range(first, last):
            if x.node_low[node] <= rank <= x.node_high[node]:
                s.stack[depth] = node
                depth += 1
    s.control[DEPTH] = depth


@inlined
def _enter_groups(
    x: Tables, s: Scratch, v: SubscriptionColumns, b: Entries, first: int, last: int, out: Ints, stamp: int
) -> None:
    """Enters the groups of a node whose dimension the notification has. Few groups are tried one by one; of many, those
    of each present dimension are found by binary search."""
    present = s.control[PRESENT]
    if last - first <= 6 * present:
        for group in range(first, last):
            rank = s.rank[x.groups[group, G_DIMENSION]]
            if rank >= 0 and x.groups[group, G_CLASS] != PATTERN:
                _enter_group(x, s, v, b, group, rank, out, stamp)
        return
    for p in range(present):
        dimension = s.present[p]
        low, high = first, last
        while low < high:
            middle = (low + high) >> 1
            if x.groups[middle, G_DIMENSION] < dimension:
                low = middle + 1
            else:
                high = middle
        while low < last and x.groups[low, G_DIMENSION] == dimension:
            if x.groups[low, G_CLASS] != PATTERN:
                _enter_group(x, s, v, b, low, s.rank[dimension], out, stamp)
            low += 1


@inlined
def _verify(
    x: Tables, s: Scratch, v: SubscriptionColumns, b: Entries, first: int, last: int, out: Ints, stamp: int
) -> None:
    """Tries the rows of a node one by one. If groups are asked for, rows whose only group is already written are
    skipped."""
    grouping = s.control[GROUPING] != 0
    for row in range(first, last):
        if grouping and v.row_group[row] >= 0 and s.group_stamp[v.row_group[row]] == stamp:
            continue
        holds = True
        for t in range(x.row_tests[row], x.row_tests[row + 1]):
            code = x.tests[t, 0]
            rank = s.rank[code >> TEST_KIND_BITS]
            if code & TEST_KIND_MASK == T_IN:
                if rank < x.tests[t, 1] or rank > x.tests[t, 2]:
                    holds = False
                    break
            elif not holds_other(
                code & TEST_KIND_MASK, rank, x.tests[t, 1], x.tests[t, 2], s.entry_of[code >> TEST_KIND_BITS],
                b.type_of, b.place_of, b.key_of, b.buffer, x.set_pool, x.pattern_places, x.blob
            ):
                holds = False
                break
        if holds:
            _emit(x, s, v, b, out, row, row + 1, stamp)


@inlined
def _walk(x: Tables, s: Scratch, v: SubscriptionColumns, b: Entries, first: int, last: int, out: Ints) -> None:
    """Matches a notification, whose entries are first to last. When all groups are written, the walk ends early."""
    stamp = s.control[STAMP] + 1
    s.control[STAMP] = stamp
    _rank_entries(x, s, b, first, last)
    s.stack[0] = 0
    s.control[DEPTH] = 1
    if len(x.literal_places) > 0:
        _find_patterns(x, s, b, stamp)
    while s.control[DEPTH] > 0 and s.control[GROUPS_LEFT] > 0:
        s.control[DEPTH] -= 1
        node = s.stack[s.control[DEPTH]]
        if x.node_own[node] > x.node_row[node]:
            _verify(x, s, v, b, x.node_row[node], x.node_own[node], out, stamp)
        if x.node_group[node + 1] > x.node_group[node]:
            _enter_groups(x, s, v, b, x.node_group[node], x.node_group[node + 1], out, stamp)
    for p in range(s.control[PRESENT]):
        s.rank[s.present[p]] = -1  # as the next walk expects it


@inlined
def _leave_out_dead(s: Scratch, v: SubscriptionColumns, out: Ints, first: int) -> None:
    """Removes the numbers from `first` on that were removed at or before the version that is read."""
    kept, version = first, s.control[VERSION]
    for i in range(first, s.control[WRITTEN]):
        if v.died[out[i]] > version:
            out[kept] = out[i]
            kept += 1
    s.control[WRITTEN] = kept


@inlined
def _match_all(
    x: Tables, s: Scratch, v: SubscriptionColumns, b: Entries, version: int, groups: int, first: int, last: int,
    out: Ints, offsets: Ints
) -> int:
    """Matches notifications first to last. `groups` is 0, or how many groups there are if they are asked for. Returns
    the first notification whose matches did not fit into `out`, else `last`."""
    s.control[WRITTEN] = offsets[first]
    s.control[FULL] = 0
    s.control[VERSION] = version
    s.control[GROUPING] = 1 if groups > 0 else 0
    for i in range(first, last):
        s.control[GROUPS_LEFT] = max(groups, 1)
        _walk(x, s, v, b, b.starts[i], b.starts[i + 1], out)
        if s.control[FULL]:
            return i
        if len(v.died) > 0 and groups == 0:
            _leave_out_dead(s, v, out, offsets[i])
        offsets[i + 1] = s.control[WRITTEN]
    return last


@kernel
def match_entries(
    tables: Handles, columns: Handles, workspace: Handles, b: Entries, names: int, version: int, groups: int,
    first: int, last: int, out: Ints, offsets: Ints
) -> int:
    """Looks up the names of the batch in the index, then matches as `_match_all`."""
    x, s, v = tables_at(tables, 0), scratch_at(workspace, 0), columns_at(columns, 0)
    for name in range(names):
        b.attribute_of[name] = find_attribute(
            b.buffer, b.names[name, 0], b.names[name, 1], x.attribute_slots, x.attributes, x.blob
        )
    return _match_all(x, s, v, b, version, groups, first, last, out, offsets)


@kernel
def match_batch(
    tables: Handles, columns: Handles, workspace: Handles, starts: Ints, name_of: Ints, type_of: Ints, key_of: Ints,
    place_of: Ints, names: Ints, buffer: Bytes, attribute_of: Ints, text: Bytes, version: int, groups: int,
    first: int, last: int, out: Ints, offsets: Ints
) -> int:
    """Writes the numbers (or the groups, if asked for) that match notifications first to last. Returns the first
    notification whose matches did not fit into `out`, else `last`.

    The arrays of the batch are single arguments: numba takes three times as long to unpack a tuple of arrays.
    """
    b = Entries(starts, name_of, type_of, key_of, place_of, names, buffer, attribute_of, text)
    return match_entries(tables, columns, workspace, b, len(names), version, groups, first, last, out, offsets)
