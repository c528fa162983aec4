"""Kernels that compile conjunctions to *rows*: lists of tests over ranks (`rank.py`).

A test is three int32: `dimension * 16 + kind of test`, and two operands, a and b. An IN test holds if the rank is in
the closed interval [a, b]; the tree indexes these. The other tests are only verified on candidates:

    OUT            the rank is not in [a, b]
    SET            the rank is among `set_pool[a]` to `set_pool[b - 1]`
    TYPE           the value has type a, int or float
    SUBSTRING, GLOB, NOT_SUBSTRING, NOT_GLOB    the string matches the pattern of constraint a, or does not
    ABSENT         the notification has no value
    NOT_SET        the rank is not among those of a SET

A conjunction becomes a single row. Only where `x in (…)` is all that could index it, it becomes a row for each value.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off
# ruff: noqa: PLR1714, SIM109 -- plain comparisons compile to the plainest code

from __future__ import annotations

from catchment.matching.kernels.bytes import BOOL, FLOAT, INT, STRING, TIME, read_object
from catchment.matching.kernels.ingest import (
    ABSENT,
    ANY_KIND,
    C_ATTRIBUTE,
    C_COUNT,
    C_KEY,
    C_KIND,
    C_OPERATOR,
    C_START,
    C_TYPE,
    EQ,
    GE,
    GLOB,
    GT,
    IN,
    LE,
    LT,
    NE,
    NOT,
    PREFIX,
    SUBSTRING,
    SUFFIX,
)
from catchment.matching.kernels.jit import Bytes, Ints, kernel
from catchment.matching.kernels.rank import BOOLEAN_RANKS, literal_ends

T_IN, T_OUT, T_SET, T_TYPE, T_SUBSTRING, T_GLOB, T_NOT_SUBSTRING, T_NOT_GLOB, T_ABSENT = 0, 1, 2, 3, 4, 5, 6, 7, 8
T_NOT_SET = 9
TEST_KIND_BITS = 4
TEST_KIND_MASK = 15
# Columns of `sections`, which has a line for each dimension: the first rank of times, the first rank of strings, and
# the last rank. Booleans have the ranks 0 and 1, and numbers those from 2 up to the times.
TIME_BASE, STRING_BASE, RANK_LAST, SECTION_COLUMNS = 0, 1, 2, 3
# Places in `used`.
ROWS, TESTS = 0, 1


@kernel
def section_of(kind: int, sections: Ints, attribute: int) -> tuple[int, int]:
    """The first and the last rank of the values that fit a kind of constraint."""
    if kind == STRING:
        return sections[attribute, STRING_BASE], sections[attribute, RANK_LAST]
    if kind == ANY_KIND:
        return 0, sections[attribute, RANK_LAST]
    if kind == BOOL:
        return 0, BOOLEAN_RANKS - 1
    if kind == TIME:
        return sections[attribute, TIME_BASE], sections[attribute, STRING_BASE] - 1
    return BOOLEAN_RANKS, sections[attribute, TIME_BASE] - 1


@kernel
def rank_of_cut(
    tag: int, key: int, cut: int, attribute: int, sections: Ints, number_cut: Ints, time_cut: Ints, string_cut: Ints
) -> int:
    """The rank of the value that made a cut. The arrays say which cut of its dimension and section it is."""
    if tag == BOOL:
        return key
    if tag == STRING:
        return sections[attribute, STRING_BASE] + 2 * string_cut[cut] + 1
    if tag == TIME:
        return sections[attribute, TIME_BASE] + 2 * time_cut[cut] + 1
    return BOOLEAN_RANKS + 2 * number_cut[cut] + 1


@kernel
def list_sets(
    blob: Bytes, parsed: Ints, first_cut: Ints, sections: Ints, number_cut: Ints, time_cut: Ints, string_cut: Ints,
    starts: Ints, pool: Ints
) -> None:
    """Writes the ranks of every `in`, sorted: those of constraint i are from `starts[i]` to `starts[i + 1]`."""
    end = 0
    for i in range(len(parsed)):
        starts[i] = end
        if parsed[i, C_OPERATOR] & (NOT - 1) == IN:
            at = parsed[i, C_START]
            for member in range(parsed[i, C_COUNT]):
                tag, key, _, _, at = read_object(blob, at)
                cut, attribute = first_cut[i, 0] + member, parsed[i, C_ATTRIBUTE]
                rank = rank_of_cut(tag, key, cut, attribute, sections, number_cut, time_cut, string_cut)
                place = end  # insertion sort
                while place > starts[i] and pool[place - 1] > rank:
                    pool[place] = pool[place - 1]
                    place -= 1
                pool[place] = rank
                end += 1
    starts[len(parsed)] = end


@kernel
def _put(tests: Ints, used: Ints, writing: bool, dimension: int, kind: int, a: int, b: int) -> None:
    """Adds a test; if not `writing`, only counts it."""
    if writing:
        tests[used[TESTS], 0] = (dimension << TEST_KIND_BITS) | kind
        tests[used[TESTS], 1] = a
        tests[used[TESTS], 2] = b
    used[TESTS] += 1


@kernel
def _narrow(low: Ints, high: Ints, touched: Ints, count: int, dimension: int, first: int, last: int) -> int:
    """Narrows the interval of a dimension. A dimension that this row did not touch before (its `high` is -1) gets the
    interval. Returns how many dimensions the row touches now. An empty interval is stored as [1, 0]."""
    if high[dimension] == -1:
        low[dimension], high[dimension] = first, last
        touched[count] = dimension
        return count + 1
    low[dimension] = max(low[dimension], first)
    high[dimension] = min(high[dimension], last) if last >= 0 else 0
    if high[dimension] < low[dimension]:
        low[dimension], high[dimension] = 1, 0
    return count


@kernel
def _compile_constraint(
    i: int, blob: Bytes, parsed: Ints, first_cut: Ints, sections: Ints, reversed_of: Ints, number_cut: Ints,
    time_cut: Ints, string_cut: Ints, set_starts: Ints, set_pool: Ints, low: Ints, high: Ints, touched: Ints,
    opened: int, tests: Ints, used: Ints, writing: bool
) -> int:
    """Narrows intervals and adds the other tests of a constraint. Returns how many dimensions the row touches now."""
    attribute, operator, kind = parsed[i, C_ATTRIBUTE], parsed[i, C_OPERATOR], parsed[i, C_KIND]
    if operator == ABSENT:
        _put(tests, used, writing, attribute, T_ABSENT, 0, 0)
        return opened
    first, last = section_of(kind, sections, attribute)
    start, end = parsed[i, C_START], parsed[i, C_START] + parsed[i, C_COUNT]
    positive, cut = operator & (NOT - 1), first_cut[i, 0]  # the operator without its negation
    if positive < IN:  # = != < <= > >=
        key = parsed[i, C_KEY]
        rank = rank_of_cut(parsed[i, C_TYPE], key, cut, attribute, sections, number_cut, time_cut, string_cut)
        if operator == EQ or operator == GE:
            first = rank
        elif operator == GT:
            first = rank + 1
        if operator == EQ or operator == LE:
            last = rank
        elif operator == LT:
            last = rank - 1
        elif operator == NE:
            _put(tests, used, writing, attribute, T_OUT, rank, rank)
    elif operator == IN:
        first, last = set_pool[set_starts[i]], set_pool[set_starts[i + 1] - 1]
        _put(tests, used, writing, attribute, T_SET, set_starts[i], set_starts[i + 1])
    elif positive == IN:
        _put(tests, used, writing, attribute, T_NOT_SET, set_starts[i], set_starts[i + 1])
    elif positive == PREFIX and end > start:
        # Its cuts are the prefix and the least string behind all that begin with it, whose rank is `above` + 1.
        below = sections[attribute, STRING_BASE] + 2 * string_cut[cut] + 1
        above = sections[attribute, STRING_BASE] + 2 * string_cut[cut + 1]
        if operator == PREFIX:
            first, last = below, above
        else:
            _put(tests, used, writing, attribute, T_OUT, below, above)
    elif positive == SUBSTRING:
        _put(tests, used, writing, attribute, T_SUBSTRING if operator == positive else T_NOT_SUBSTRING, i, 0)
    elif positive == GLOB:
        _put(tests, used, writing, attribute, T_GLOB if operator == positive else T_NOT_GLOB, i, 0)
        front, back = literal_ends(blob, start, end)  # these narrow intervals, as a prefix and a suffix do
        if operator == GLOB and front > start:
            first = sections[attribute, STRING_BASE] + 2 * string_cut[cut] + 1
            last = sections[attribute, STRING_BASE] + 2 * string_cut[cut + 1]
        start = back
    if (positive == SUFFIX or operator == GLOB) and end > start:
        cut = first_cut[i, 1]  # a suffix is a prefix in the dimension of reversed strings
        below, above = 2 * string_cut[cut] + 1, 2 * string_cut[cut + 1]
        if operator & NOT:
            _put(tests, used, writing, reversed_of[attribute], T_OUT, below, above)
        else:
            opened = _narrow(low, high, touched, opened, reversed_of[attribute], below, above)
    if kind == INT or kind == FLOAT:
        _put(tests, used, writing, attribute, T_TYPE, kind, 0)
    if (operator == NOT + PREFIX or operator == NOT + SUFFIX) and parsed[i, C_COUNT] == 0:
        first, last = 1, 0  # nothing can match: every string begins and ends with the empty string
    return _narrow(low, high, touched, opened, attribute, first, last)


@kernel
def compile_leaves(
    constraints: Ints, blob: Bytes, parsed: Ints, first_cut: Ints, sections: Ints, reversed_of: Ints,
    number_cut: Ints, time_cut: Ints, string_cut: Ints, set_starts: Ints, set_pool: Ints, low: Ints, high: Ints,
    touched: Ints, scratch: Ints, writing: bool, starts: Ints, tests: Ints, used: Ints
) -> None:
    """The tests of single constraints, those of constraint i from `starts[i]` on. A constraint that nothing satisfies
    has a test that never holds. A first call counts, a second writes."""
    for i in range(len(constraints)):
        before = used[TESTS]
        used[TESTS] = 0
        opened = _compile_constraint(
            constraints[i], blob, parsed, first_cut, sections, reversed_of, number_cut, time_cut, string_cut,
            set_starts, set_pool, low, high, touched, 0, scratch, used, True
        )
        others = used[TESTS]
        used[TESTS] = before
        for t in range(opened):
            d = touched[t]
            _put(tests, used, writing, d, T_IN, low[d], high[d])
            high[d] = -1
        for t in range(others):
            code = scratch[t, 0]
            _put(tests, used, writing, code >> TEST_KIND_BITS, code & TEST_KIND_MASK, scratch[t, 1], scratch[t, 2])
        if writing:
            starts[i + 1] = used[TESTS]


@kernel
def _set_to_spread(tests: Ints, start: int, end: int) -> int:
    """The SET test with the fewest values, to be spread over a row for each value; -1 if there is none."""
    best, size = -1, 0
    for t in range(start, end):
        if tests[t, 0] & TEST_KIND_MASK == T_SET and (best < 0 or tests[t, 2] - tests[t, 1] < size):
            best, size = t, tests[t, 2] - tests[t, 1]
    return best


@kernel
def compile_rows(
    members: Ints, conjunction_starts: Ints, blob: Bytes, parsed: Ints, first_cut: Ints, sections: Ints,
    reversed_of: Ints, number_cut: Ints, time_cut: Ints, string_cut: Ints, set_starts: Ints, set_pool: Ints,
    low: Ints, high: Ints, touched: Ints, scratch: Ints, writing: bool, row_conjunction: Ints, row_starts: Ints,
    tests: Ints, used: Ints
) -> None:
    """The rows and tests of all conjunctions: a first call counts them (`writing` false), a second writes them. A
    contradiction has no row.

    `low` and `high` are the intervals of the current conjunction by dimension, `touched` the dimensions that it has,
    `scratch` its other tests.
    """
    for c in range(len(conjunction_starts) - 1):
        # The tests of the conjunction go to `scratch` from 0 on; then `used` is set back.
        used_before, opened = used[TESTS], 0
        used[TESTS] = 0
        for m in range(conjunction_starts[c], conjunction_starts[c + 1]):
            opened = _compile_constraint(
                members[m],
                blob,
                parsed,
                first_cut,
                sections,
                reversed_of,
                number_cut,
                time_cut,
                string_cut,
                set_starts,
                set_pool,
                low,
                high,
                touched,
                opened,
                scratch,
                used,
                True,
            )
        others = used[TESTS]
        used[TESTS] = used_before
        possible, has_point = True, False
        for t in range(opened):
            possible = possible and low[touched[t]] <= high[touched[t]]
            has_point = has_point or low[touched[t]] == high[touched[t]]
        # A point indexes the row well enough.
        spread = -1 if has_point or not possible else _set_to_spread(scratch, 0, others)
        if possible:
            _write_rows(
                c, spread, others, scratch, set_pool, low, high, touched, opened, writing, row_conjunction,
                row_starts, tests, used
            )
        for t in range(opened):
            high[touched[t]] = -1


@kernel
def _write_rows(
    conjunction: int, spread: int, others: int, scratch: Ints, set_pool: Ints, low: Ints, high: Ints, touched: Ints,
    opened: int, writing: bool, row_conjunction: Ints, row_starts: Ints, tests: Ints, used: Ints
) -> None:
    """Writes the row of a conjunction; with `spread`, a row for each distinct value of that SET test that the interval
    of its dimension allows."""
    dimension = scratch[spread, 0] >> TEST_KIND_BITS if spread >= 0 else -1
    first = scratch[spread, 1] if spread >= 0 else 0
    last = scratch[spread, 2] if spread >= 0 else 1
    for s in range(first, last):
        rank = set_pool[s] if spread >= 0 else -1
        if spread >= 0 and ((s > first and set_pool[s - 1] == rank) or rank < low[dimension] or rank > high[dimension]):
            continue  # the same value again, or one that another constraint rules out
        if writing:
            row_conjunction[used[ROWS]] = conjunction
        for t in range(opened):
            d = touched[t]
            if d == dimension:
                _put(tests, used, writing, d, T_IN, rank, rank)
            else:
                _put(tests, used, writing, d, T_IN, low[d], high[d])
        for t in range(others):
            if t != spread:
                code = scratch[t, 0]
                _put(tests, used, writing, code >> TEST_KIND_BITS, code & TEST_KIND_MASK, scratch[t, 1], scratch[t, 2])
        used[ROWS] += 1
        if writing:
            row_starts[used[ROWS]] = used[TESTS]
