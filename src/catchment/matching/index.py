"""The index: filters compiled to the flat arrays that the matching kernel walks.

    filters ─ msgpack ─► distinct constraints ─► cuts and ranks ─► rows of tests ─► tree
                         distinct conjunctions                     (edges, groups, leaves)

`ingested` makes a Source from filters, `merged` makes one from several. `built` makes the Tables of a Source and says
how it numbered the filters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from catchment.matching.access import expressions_of
from catchment.matching.cuts import Cuts, cuts_of, distinct, starts_of
from catchment.matching.kernels import compile as kc
from catchment.matching.kernels import grams as kg
from catchment.matching.kernels import ingest as ki
from catchment.matching.kernels import nodes as kn
from catchment.matching.kernels import rank as kr
from catchment.matching.kernels import tree as kt
from catchment.matching.kernels.tables import (
    A_COLUMNS,
    A_NUMBERS,
    A_NUMBERS_INT_END,
    A_PATTERNS,
    A_REVERSED,
    A_TIMES,
    Tables,
)
from catchment.matching.source import Source, slots_for

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# To verify so few rows one by one is faster than to split their node further.
LEAF_ROWS = 16
# Up to so many intervals of a dimension are compared one by one.
SCAN_EDGES = 12
# An interval that so many rows share comes before intervals that fewer rows share in the order of tests.
SHARED_ROWS_MIN = 8


class Rows(NamedTuple):
    """Conjunctions compiled to tests, see `kernels/compile.py`."""

    conjunction: Array  # by row: the conjunction it was made from
    starts: Array  # by row: its first test
    tests: Array

    @property
    def size(self) -> int:
        return len(self.conjunction)


class Edges(NamedTuple):
    """The distinct intervals of all rows, sorted as they are in groups, see `kernels/tree.py`."""

    of_test: Array  # by test: its edge, -1 where it is no interval
    table: Array  # by edge: dimension, low, high, class
    score: Array  # by edge: the tests of a row are ordered by this, the least first
    estimate: Array  # by edge: about how many rows a notification that follows it meets

    @property
    def size(self) -> int:
        return len(self.table)


class Tree(NamedTuple):
    """The tree, by node, group or row, see `node_…` in `kernels/tables.py`."""

    low: Array
    high: Array
    row: Array
    own: Array
    group: Array
    groups: Array
    row_order: Array  # the rows in the order of the tree
    row_depth: Array  # by row in that order: how many of its tests the path to it has settled


class Grams(NamedTuple):
    """The grams of the patterns, see `gram_…` and `literal_…` in `kernels/tables.py`."""

    bits: Array
    slots: Array
    hashes: Array
    starts: Array
    patterns: Array
    literal_places: Array
    literal_blob: Array
    sizes: Array
    pattern_of: Array


# --- building -----------------------------------------------------------------------------------


def built(source: Source) -> tuple[Tables, Array]:
    """The tables of a deduplicated source, and its filters in the order in which they are numbered."""
    constraints = len(source.starts) - 1
    names, parsed = np.empty((constraints, 2), I64), np.zeros((constraints, ki.C_COLUMNS), I64)
    attributes = ki.parse_constraints(source.blob, source.starts, slots_for(constraints), names, parsed)
    names = names[:attributes].copy()
    attribute_slots = slots_for(attributes)
    ki.fill_name_slots(source.blob, names, attribute_slots)
    expressions = expressions_of(source, parsed)
    source = expressions.with_access(source)
    cuts = cuts_of(source.blob, parsed, attributes)
    set_starts, set_pool = _sets(source.blob, parsed, cuts)
    rows = _rows(source, parsed, cuts, set_starts, set_pool)
    edges = _edges(rows.tests, cuts.sections)
    kind = rows.tests[:, 0] & kc.TEST_KIND_MASK
    pattern_rows = _pattern_rows(source.blob, parsed, rows.tests, kind)
    kt.order_tests(rows.starts, rows.tests, edges.of_test, edges.score, edges.estimate, pattern_rows, edges.size)
    tree = _tree(rows, edges, LEAF_ROWS, SCAN_EDGES)
    row_tests, tests = _remaining_tests(rows, edges, tree)
    kt.mark_flat(tree.groups, tree.row, tree.own, tree.group, row_tests)
    leaf_starts, leaf_tests = _leaf_tests(source, parsed, cuts, set_starts, set_pool)
    grams = _grams(source.blob, parsed, tree, _pattern_leaves(source.blob, parsed, leaf_tests))
    numbered, row_runs, row_shared, shared, others = _numbering(source, rows, tree.row_order)
    return (
        Tables(
            blob=source.blob,
            attribute_slots=attribute_slots,
            attributes=_attribute_table(names, cuts, grams),
            sections=cuts.sections,
            number_int=cuts.number_int,
            number_float=cuts.number_float,
            number_exact=cuts.number_exact,
            time_keys=cuts.time_keys,
            string_starts=cuts.string_starts,
            string_keys=cuts.string_keys,
            string_places=cuts.string_places,
            string_blob=cuts.string_blob,
            node_low=tree.low,
            node_high=tree.high,
            node_row=tree.row,
            node_own=tree.own,
            node_group=tree.group,
            groups=tree.groups,
            row_tests=row_tests,
            tests=tests,
            row_runs=row_runs,
            row_shared=row_shared,
            shared=shared,
            set_pool=set_pool,
            pattern_places=_pattern_places(parsed, grams, kind, leaf_tests[:, 0] & kc.TEST_KIND_MASK),
            **_gram_tables(grams),
            shared_root=source.roots[others],
            expression_kind=source.node_kind,
            expression_starts=source.node_starts,
            expression_children=expressions.children,
            leaf_starts=leaf_starts,
            leaf_tests=leaf_tests,
        ),
        numbered,
    )


_PATTERN_KINDS = (kc.T_SUBSTRING, kc.T_GLOB, kc.T_NOT_SUBSTRING, kc.T_NOT_GLOB)


def _pattern_places(parsed: Array, grams: Grams, *kinds: Array) -> Array:
    """Where the text of each constraint stands, if any test of these kinds reads it."""
    if len(grams.literal_places) or any(np.isin(some, _PATTERN_KINDS).any() for some in kinds):
        return parsed[:, [ki.C_START, ki.C_COUNT]].copy()
    return np.zeros((0, 2), I64)


def _gram_tables(grams: Grams) -> dict[str, Array]:
    return {
        "gram_bits": grams.bits,
        "gram_slots": grams.slots,
        "gram_hashes": grams.hashes,
        "gram_starts": grams.starts,
        "gram_patterns": grams.patterns,
        "literal_places": grams.literal_places,
        "literal_blob": grams.literal_blob,
        "pattern_of": grams.pattern_of,
    }


def _attribute_table(names: Array, cuts: Cuts, grams: Grams) -> Array:
    count = len(names)
    table = np.zeros((count + 1, A_COLUMNS), I64)
    table[:count, :2] = names
    table[:, A_NUMBERS] = cuts.number_starts
    table[:count, A_NUMBERS_INT_END] = cuts.number_int_ends
    table[:, A_TIMES] = cuts.time_starts
    table[:, A_REVERSED] = cuts.reversed_of
    # Bit n is set if a pattern of the attribute has a gram of n bytes.
    np.bitwise_or.at(table[:, A_PATTERNS], grams.literal_places[:, 2], np.left_shift(1, grams.sizes))
    return table


def _sets(blob: Array, parsed: Array, cuts: Cuts) -> tuple[Array, Array]:
    """The ranks of every `in`: where those of each constraint start, and the ranks."""
    starts = np.zeros(len(parsed) + 1, I64)
    is_in = parsed[:, ki.C_OPERATOR] & (ki.NOT - 1) == ki.IN
    pool = np.empty(int(parsed[is_in, ki.C_COUNT].sum()), I32)
    if len(pool):
        cut = (cuts.number_cut, cuts.time_cut, cuts.string_cut)
        kc.list_sets(blob, parsed, cuts.first_cut, cuts.sections, *cut, starts, pool)
    return starts, pool


def _rows(source: Source, parsed: Array, cuts: Cuts, set_starts: Array, set_pool: Array) -> Rows:
    most = int(np.diff(source.conjunction_starts).max(initial=0))
    dimensions = len(cuts.sections)
    scratch = (
        np.full(dimensions, -1, I64),
        np.full(dimensions, -1, I64),
        np.empty(2 * most + 1, I64),
        np.empty((3 * most + 1, 3), I64),
    )
    given = (source.members, source.conjunction_starts, source.blob, parsed, cuts.first_cut, cuts.sections)
    fixed = (*given, cuts.reversed_of, cuts.number_cut, cuts.time_cut, cuts.string_cut, set_starts, set_pool, *scratch)
    used = np.zeros(2, I64)
    # The first call counts rows and tests, the second writes them.
    kc.compile_rows(*fixed, False, np.empty(0, I32), np.empty(0, I64), np.empty((0, 3), I32), used)
    rows, tests = int(used[kc.ROWS]), int(used[kc.TESTS])
    compiled = Rows(np.empty(rows, I32), np.zeros(rows + 1, I64), np.empty((tests, 3), I32))
    used[:] = 0
    kc.compile_rows(*fixed, True, *compiled, used)
    return compiled


def _leaf_tests(source: Source, parsed: Array, cuts: Cuts, set_starts: Array, set_pool: Array) -> tuple[Array, Array]:
    """The tests of the leaves of all expressions, by node."""
    leaves = np.flatnonzero(source.node_kind == kn.LEAF)
    constraints = source.node_children[source.node_starts[leaves]].astype(I64)
    dimensions = len(cuts.sections)
    room = (np.full(dimensions, -1, I64), np.full(dimensions, -1, I64), np.empty(4, I64), np.empty((8, 3), I64))
    given = (constraints, source.blob, parsed, cuts.first_cut, cuts.sections, cuts.reversed_of)
    fixed = (*given, cuts.number_cut, cuts.time_cut, cuts.string_cut, set_starts, set_pool, *room)
    used = np.zeros(2, I64)
    kc.compile_leaves(*fixed, False, np.empty(0, I64), np.empty((0, 3), I32), used)
    starts, tests = np.zeros(len(leaves) + 1, I64), np.empty((int(used[kc.TESTS]), 3), I32)
    used[:] = 0
    kc.compile_leaves(*fixed, True, starts, tests, used)
    sizes = np.zeros(len(source.node_kind), I64)
    sizes[leaves] = np.diff(starts)
    by_node = np.zeros(len(source.node_kind) + 1, I32)
    np.cumsum(sizes, out=by_node[1:])
    return by_node, tests


def _pattern_leaves(blob: Array, parsed: Array, leaf_tests: Array) -> Array:
    """The constraints of leaves that are patterns with a literal piece, negated or not."""
    is_pattern = np.isin(leaf_tests[:, 0] & kc.TEST_KIND_MASK, _PATTERN_KINDS)
    patterns = np.unique(leaf_tests[is_pattern, 1]).astype(I64)
    has_literal = np.empty(len(patterns), I64)
    if len(patterns):
        kg.has_literal(blob, parsed, patterns, has_literal)
    with_literal: Array = patterns[has_literal != 0]
    return with_literal


# --- edges --------------------------------------------------------------------------------------


def _edges(tests: Array, sections: Array) -> Edges:
    of_test, intervals = np.empty(len(tests), I64), np.empty((len(tests), 3), I32)
    count = kt.intern_intervals(tests, slots_for(len(tests)), intervals, of_test)
    intervals = intervals[:count].astype(I64)
    classes = _classes(intervals, sections)
    # Sorted by dimension, then class, then the end that differs within the class: high for UPTO, low for the others.
    is_upto = (classes >= kt.UPTO_FIRST) & (classes < kt.RANGE)
    primary = np.where(is_upto, intervals[:, 2], intervals[:, 1])
    order = np.lexsort((intervals[:, 2], primary, classes, intervals[:, 0]))
    place = np.full(count + 1, -1, I64)  # the last entry is for tests that are no interval, number -1
    place[order] = np.arange(count)
    of_test = place[of_test]
    table = np.column_stack((intervals[:, 0] >> kc.TEST_KIND_BITS, intervals[:, 1], intervals[:, 2], classes))[order]
    estimate = _estimates(of_test, table, sections)
    shared = np.bincount(of_test[of_test >= 0], minlength=count) >= SHARED_ROWS_MIN
    is_late = (table[:, 3] != kt.POINT) & ~shared
    bucket = np.log2(estimate + 1).astype(I64)
    # Shared intervals and points come first, then the rarer ones; the last bits make scores distinct.
    score = (is_late.astype(I64) << 56) | (bucket << 48) | np.arange(count)
    return Edges(of_test, table, score, estimate.astype(I64))


def _classes(intervals: Array, sections: Array) -> Array:
    """The class of each interval, see `kernels/tree.py`: a point; from some rank to the end of a section; from the
    beginning of a section up to some rank; or a range, by its width."""
    low, high = intervals[:, 1], intervals[:, 2]
    mine = sections[intervals[:, 0] >> kc.TEST_KIND_BITS]
    is_reversed = mine[:, kc.STRING_BASE] == 0
    times, strings = mine[:, kc.TIME_BASE], mine[:, kc.STRING_BASE]
    first = (np.where(is_reversed, -1, kr.BOOLEAN_RANKS), np.where(is_reversed, -1, times), strings)
    last = (np.where(is_reversed, -1, times - 1), np.where(is_reversed, -1, strings - 1), mine[:, kc.RANK_LAST])
    classes = kt.RANGE + np.log2(high - low + 1.0).astype(I64)
    for section in range(3):
        classes[low == first[section]] = kt.UPTO_FIRST + section
    for section in range(3):
        classes[high == last[section]] = kt.FROM_FIRST + section
    classes[low == high] = kt.POINT
    return classes


def _estimates(of_test: Array, table: Array, sections: Array) -> Array:
    """By edge, about how many rows a notification meets that follows it. Notifications are assumed to be like
    subscriptions: often the same people are interested in what they publish."""
    popular = np.bincount(of_test[of_test >= 0], minlength=len(table))
    in_dimension = np.bincount(table[:, 0], weights=popular, minlength=len(sections))
    share = (table[:, 2] - table[:, 1] + 1) / (sections[table[:, 0], kc.RANK_LAST] + 1)
    return np.where(table[:, 3] == kt.POINT, popular, in_dimension[table[:, 0]] * share)


def _pattern_rows(blob: Array, parsed: Array, tests: Array, kind: Array) -> Array:
    """By constraint, in how many rows it is a pattern with a literal piece; 0 for other constraints."""
    is_pattern = (kind == kc.T_SUBSTRING) | (kind == kc.T_GLOB)
    counts = np.bincount(tests[is_pattern, 1], minlength=len(parsed))
    patterns = np.flatnonzero(counts)
    if len(patterns):
        has_literal = np.empty(len(patterns), I64)
        kg.has_literal(blob, parsed, patterns, has_literal)
        counts[patterns[has_literal == 0]] = 0
    return counts


# --- tree ---------------------------------------------------------------------------------------


def _tree(rows: Rows, edges: Edges, leaf_rows: int, scan_edges: int) -> Tree:
    """Builds the tree level by level: the rows of the nodes that are too large for a leaf are sorted by their next
    edge, and those with the same edge become a child."""
    depth_max = int(np.diff(rows.starts).max(initial=0))
    nodes_max = rows.size + (depth_max + 1) * (rows.size // (leaf_rows + 1) + 1) + 2
    low, high, row, own, end, group = (np.zeros(nodes_max, I32) for _ in range(6))
    groups, row_order = np.zeros((nodes_max, kt.G_COLUMNS), I32), np.arange(rows.size)
    row_depth, level_rows, keys = np.zeros(rows.size, I32), np.empty(rows.size, I64), np.empty(rows.size, I64)
    end[0] = rows.size
    used = np.array([1, 0], I64)
    first, last, depth = 0, 1, 0
    while first < last:
        count = kt.gather_level(
            first, last, row, end, leaf_rows, row_order, rows.starts, edges.of_test, depth, level_rows, keys
        )
        by_key = np.argsort(keys[:count], kind="stable")
        kt.scatter_level(first, last, row, end, leaf_rows, level_rows[:count][by_key], row_order)
        level = (first, last, leaf_rows, scan_edges, depth, keys[:count][by_key], edges.table, edges.size)
        kt.split_level(*level, low, high, row, own, end, group, groups, row_depth, used)
        first, last, depth = last, int(used[kt.NODES]), depth + 1
    count, group_count = int(used[kt.NODES]), int(used[kt.GROUPS])
    group[count] = group_count
    groups[group_count, kt.G_NODE] = count
    kept = (low[:count].copy(), high[:count].copy(), row[:count].copy(), own[:count].copy(), group[: count + 1].copy())
    return Tree(*kept, groups[: group_count + 1].copy(), row_order, row_depth)


def _remaining_tests(rows: Rows, edges: Edges, tree: Tree) -> tuple[Array, Array]:
    """The tests of each row that are left to verify, in the order of the tree."""
    starts = np.zeros(rows.size + 1, I32)
    fixed = (tree.row_order, tree.row_depth, rows.starts, rows.tests, edges.of_test, edges.size)
    tests = np.empty((kt.write_rows(*fixed, False, starts, rows.tests[:0]), 3), I32)
    kt.write_rows(*fixed, True, starts, tests)
    return starts, tests


def _grams(blob: Array, parsed: Array, tree: Tree, leaves: Array) -> Grams:
    """The grams of the patterns that lead out of the root, and of those that are leaves of expressions."""
    nodes = np.arange(0)
    last = int(tree.group[1]) - 1 if len(tree.low) > 1 else -1
    if last >= 0 and tree.groups[last, kt.G_CLASS] == kt.PATTERN:
        nodes = np.arange(tree.groups[last, kt.G_NODE], tree.groups[last + 1, kt.G_NODE])
    leading = tree.low[nodes].astype(I64)
    others = np.setdiff1d(leaves, leading)
    constraints, nodes = np.concatenate((leading, others)), np.concatenate((nodes, np.full(len(others), -1)))
    count = len(nodes)
    places, blob_size = np.empty((count, 3), I64), int(parsed[constraints, ki.C_COUNT].sum())
    literals = np.empty(blob_size, np.uint8)
    size = kg.list_literals(blob, parsed, constraints, places, literals)
    hashes, offsets, sizes = np.empty(count, I64), np.empty(count, I64), np.empty(count, I64)
    counts = np.zeros(1 << max(3, (2 * size).bit_length()), I32)
    kg.choose_grams(places, literals, counts, hashes, offsets, sizes)
    order = np.argsort(hashes, kind="stable")
    fresh, _ = distinct(order, hashes)
    unique = hashes[order][fresh]
    slots, bits = slots_for(len(unique)), np.zeros(max(8, len(slots_for(len(unique)))), np.uint8)
    kg.fill_slots(unique, slots, bits)
    starts = np.append(np.flatnonzero(fresh), count).astype(I32)
    patterns = np.column_stack((order, offsets[order], nodes[order])).astype(I32)
    pattern_of = np.full(len(parsed) if len(leaves) else 0, -1, I32)
    if len(leaves):
        pattern_of[constraints] = np.arange(count)
    return Grams(bits, slots, unique.astype(I32), starts, patterns, places, literals[:size].copy(), sizes, pattern_of)


# --- numbering ----------------------------------------------------------------------------------


def _numbering(source: Source, rows: Rows, row_order: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Numbers the filters: first those with a single row, in the order of rows, then the others, which are shared by
    rows. Returns the filters by number; by row, where the numbers of its own filters start; by row, where its shared
    filters start; and the numbers of the shared filters."""
    conjunctions = len(source.conjunction_starts) - 1
    place = np.empty(rows.size, I64)
    place[row_order] = np.arange(rows.size)
    row_of = np.zeros(conjunctions, I64)
    row_of[rows.conjunction] = place
    has_one_row = np.bincount(rows.conjunction, minlength=conjunctions) == 1
    first = source.filter_starts[:-1]
    # A filter that is an expression is looked at when one of its rows matches, however many it has.
    is_sole = (np.diff(source.filter_starts) == 1) & (source.roots < 0)
    is_sole[is_sole] = has_one_row[source.conjunctions[first[is_sole]]]
    sole, others = np.flatnonzero(is_sole), np.flatnonzero(~is_sole)
    their_row = row_of[source.conjunctions[first[sole]]]
    numbered = np.concatenate((sole[np.argsort(their_row, kind="stable")], others))
    runs = starts_of(their_row, rows.size).astype(I32)
    row_shared, shared = _shared(source, rows, place, others, len(sole))
    return numbered, runs, row_shared, shared, others


def _shared(source: Source, rows: Rows, place: Array, others: Array, base: int) -> tuple[Array, Array]:
    """The numbers of the filters that have several rows: where those of each row start, and the numbers."""
    if not len(others):
        return np.zeros(0, I32), np.zeros(0, I32)
    number, conjunction = _expanded(np.arange(base, base + len(others)), source.filter_starts, others)
    conjunction = source.conjunctions[conjunction]
    by_conjunction = np.argsort(rows.conjunction, kind="stable")
    row_starts = starts_of(rows.conjunction, len(source.conjunction_starts) - 1)
    number, row = _expanded(number, row_starts, conjunction)
    row = place[by_conjunction[row]]
    return starts_of(row, rows.size).astype(I32), number[np.lexsort((number, row))].astype(I32)


def _expanded(labels: Array, starts: Array, chosen_lists: Array) -> tuple[Array, Array]:
    """All places within the chosen lists, each with the label of its list."""
    sizes = np.diff(starts)[chosen_lists]
    offset = np.repeat(starts[:-1][chosen_lists] - (np.cumsum(sizes) - sizes), sizes)
    return np.repeat(labels, sizes), offset + np.arange(len(offset))
