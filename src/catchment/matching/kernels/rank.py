"""Kernels for cuts and ranks: how a value becomes a small integer that orders like it.

The values that occur in constraints on an attribute are its *cuts*, sorted. A value that equals cut i has *rank*
2i + 1; a value between cut i - 1 and cut i has rank 2i. So every order, equality and prefix constraint is a closed
interval of ranks, and the kernels compare only int32. The ranks of an attribute lie in sections: booleans (2 ranks),
numbers, times, strings. Ints and floats share a section in exact order. A suffix is a prefix of the reversed string, in
a dimension of its own.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# A call that passes a dozen arrays reads better packed than with one argument to a line.
# fmt: off
# ruff: noqa: PLR1714, SIM109 -- plain comparisons compile to the plainest code

from __future__ import annotations

from catchment.matching.kernels.bytes import FLOAT, INT, STRING, TIME, compare_bytes, key_of_bytes, read_object
from catchment.matching.kernels.ingest import (
    C_ATTRIBUTE,
    C_COUNT,
    C_KEY,
    C_OPERATOR,
    C_START,
    C_TYPE,
    GLOB,
    IN,
    NOT,
    PREFIX,
    SUFFIX,
)
from catchment.matching.kernels.jit import Bytes, Ints, kernel

# Places in `totals`: how many cuts of each section there are, the bytes of string cuts, how many dimensions.
NUMBERS, TIMES, STRINGS, STRING_BYTES, DIMENSIONS = 0, 1, 2, 3, 4
# Forms of a string cut, which may be added up: its text has escapes, it is stored reversed, it is the least string
# behind all strings that begin with the text.
ESCAPED, REVERSED, BEHIND = 1, 2, 4
BOOLEAN_RANKS = 2


@kernel
def literal_ends(blob: Bytes, start: int, end: int) -> tuple[int, int]:
    """Where the literal beginning of a glob ends, and where its literal end begins."""
    front = start
    while front < end and blob[front] != 42 and blob[front] != 63:  # * and ?
        front += 2 if blob[front] == 92 else 1  # a backslash takes the next byte along
    at, back = start, start
    while at < end:
        if blob[at] == 92:
            at += 2
        else:
            at += 1
            if blob[at - 1] == 42 or blob[at - 1] == 63:
                back = at
    return front, back


@kernel
def copy_unescaped(blob: Bytes, start: int, end: int, target: Bytes, at: int) -> int:
    """Copies text without the backslashes that escape; returns the end of the copy."""
    i = start
    while i < end:
        if blob[i] == 92:
            i += 1
        target[at] = blob[i]
        at += 1
        i += 1
    return at


@kernel
def _reverse(target: Bytes, start: int, end: int) -> None:
    low, high = start, end - 1
    while low < high:
        kept = target[low]
        target[low] = target[high]
        target[high] = kept
        low += 1
        high -= 1


@kernel
def _add_string(
    blob: Bytes, start: int, end: int, form: int, dimension: int, writing: bool, totals: Ints, dimensions: Ints,
    places: Ints, target: Bytes
) -> None:
    """Adds a string cut. `form` is a sum of ESCAPED, REVERSED and BEHIND."""
    if writing:
        at = totals[STRING_BYTES]
        if form & ESCAPED:
            stop = copy_unescaped(blob, start, end, target, at)
        else:
            stop = at + end - start
            for i in range(start, end):
                target[at + i - start] = blob[i]
        if form & REVERSED:
            _reverse(target, at, stop)
        if form & BEHIND:
            # The text with its last byte raised is behind all that begin with the text, and before all others that
            # are. UTF-8 has no byte 255, so the byte does not wrap around.
            target[stop - 1] += 1
        dimensions[totals[STRINGS]] = dimension
        places[totals[STRINGS], 0] = at
        places[totals[STRINGS], 1] = stop - at
        totals[STRING_BYTES] = stop
    else:
        totals[STRING_BYTES] += end - start
    totals[STRINGS] += 1


@kernel
def _add_begin(
    blob: Bytes, start: int, end: int, form: int, dimension: int, writing: bool, totals: Ints, dimensions: Ints,
    places: Ints, target: Bytes
) -> None:
    """Adds the two cuts around all strings with a given beginning; none for the empty beginning."""
    if end > start:
        _add_string(blob, start, end, form, dimension, writing, totals, dimensions, places, target)
        _add_string(blob, start, end, form | BEHIND, dimension, writing, totals, dimensions, places, target)


@kernel
def _reversed_dimension(reversed_of: Ints, attribute: int, totals: Ints) -> int:
    """The dimension of the reversed strings of an attribute; made when it is first needed."""
    if reversed_of[attribute] < 0:
        reversed_of[attribute] = totals[DIMENSIONS]
        totals[DIMENSIONS] += 1
    return reversed_of[attribute]


@kernel
def list_cuts(
    blob: Bytes, parsed: Ints, writing: bool, totals: Ints, reversed_of: Ints, first_cut: Ints,
    number_attribute: Ints, number_type: Ints, number_key: Ints, time_attribute: Ints, time_keys: Ints,
    string_dimension: Ints, string_place: Ints, target: Bytes
) -> None:
    """Lists the cuts of all constraints: a first call counts them, a second writes them. `first_cut[i]` says where the
    cuts of constraint i begin: column 0 in the list of its section, column 1 in the list of strings for reversed
    ones."""
    for i in range(len(parsed)):
        attribute, operator = parsed[i, C_ATTRIBUTE], parsed[i, C_OPERATOR]
        positive = operator & (NOT - 1)  # the operator without its negation
        start, end = parsed[i, C_START], parsed[i, C_START] + parsed[i, C_COUNT]
        if positive == PREFIX:
            first_cut[i, 0] = totals[STRINGS]
            _add_begin(blob, start, end, 0, attribute, writing, totals, string_dimension, string_place, target)
        elif positive == SUFFIX:
            dimension = _reversed_dimension(reversed_of, attribute, totals)
            first_cut[i, 1] = totals[STRINGS]
            _add_begin(blob, start, end, REVERSED, dimension, writing, totals, string_dimension, string_place, target)
        elif positive == GLOB:
            front, back = literal_ends(blob, start, end)
            first_cut[i, 0] = totals[STRINGS]
            _add_begin(blob, start, front, ESCAPED, attribute, writing, totals, string_dimension, string_place, target)
            first_cut[i, 1] = totals[STRINGS]
            if back < end:
                dimension = _reversed_dimension(reversed_of, attribute, totals)
                form = ESCAPED | REVERSED
                _add_begin(blob, back, end, form, dimension, writing, totals, string_dimension, string_place, target)
        elif positive <= IN:  # = != < <= > >= in
            count = parsed[i, C_COUNT] if positive == IN else 1
            at = parsed[i, C_START]
            tag, key = parsed[i, C_TYPE], parsed[i, C_KEY]
            for member in range(count):
                if positive == IN:
                    tag, key, start, length, at = read_object(blob, at)
                    end = start + length
                if tag == STRING:
                    if member == 0:
                        first_cut[i, 0] = totals[STRINGS]
                    _add_string(blob, start, end, 0, attribute, writing, totals, string_dimension, string_place, target)
                elif tag == TIME:
                    if member == 0:
                        first_cut[i, 0] = totals[TIMES]
                    if writing:
                        time_attribute[totals[TIMES]] = attribute
                        time_keys[totals[TIMES]] = key
                    totals[TIMES] += 1
                elif tag == INT or tag == FLOAT:
                    if member == 0:
                        first_cut[i, 0] = totals[NUMBERS]
                    if writing:
                        number_attribute[totals[NUMBERS]] = attribute
                        number_type[totals[NUMBERS]] = tag
                        number_key[totals[NUMBERS]] = key
                    totals[NUMBERS] += 1


@kernel
def string_keys(places: Ints, blob: Bytes, keys: Ints) -> None:
    for i in range(len(keys)):
        keys[i] = key_of_bytes(blob, places[i, 0], places[i, 0] + places[i, 1])


@kernel
def _is_below(places: Ints, blob: Bytes, a: int, b: int) -> bool:
    a_start, b_start = places[a, 0], places[b, 0]
    return compare_bytes(blob, a_start, a_start + places[a, 1], blob, b_start, b_start + places[b, 1]) < 0


@kernel
def _merge_sort(order: Ints, spare: Ints, start: int, end: int, places: Ints, blob: Bytes) -> None:
    """Sorts a part of an order by all bytes of the strings, bottom up."""
    width = 1
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            a, b = low, middle
            for out in range(low, high):
                if a < middle and (b >= high or not _is_below(places, blob, order[b], order[a])):
                    spare[out] = order[a]
                    a += 1
                else:
                    spare[out] = order[b]
                    b += 1
        for i in range(start, end):
            order[i] = spare[i]
        width *= 2


@kernel
def sort_strings(
    order: Ints, spare: Ints, dimensions: Ints, keys: Ints, places: Ints, blob: Bytes, cut_of: Ints
) -> int:
    """Finishes an order by (dimension, key): strings with an equal key are sorted by all their bytes. Gives equal
    strings the same number, in `cut_of`; returns how many differ."""
    start, count = 0, 0
    while start < len(order):
        end = start + 1
        first = order[start]
        while end < len(order) and dimensions[order[end]] == dimensions[first] and keys[order[end]] == keys[first]:
            end += 1
        if end - start > 1:
            _merge_sort(order, spare, start, end, places, blob)
        for i in range(start, end):
            if i > start and _is_below(places, blob, order[i - 1], order[i]):
                count += 1
            cut_of[order[i]] = count
        count += 1
        start = end
    return count


# --- ranks of values ----------------------------------------------------------------------------


@kernel
def rank_in_keys(keys: Ints, start: int, end: int, key: int) -> int:
    """The rank of a key among distinct sorted keys."""
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return 2 * (low - start) + (1 if low < end and keys[low] == key else 0)


@kernel
def rank_of_number(thresholds: Ints, exact: Bytes, bit: int, start: int, end: int, key: int) -> int:
    """The rank of an int, or of a float. `thresholds` holds, for each cut, the least key of that type at or above it.
    `exact` has the bit where the cut itself is of the type: only then can the number equal the cut."""
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if thresholds[middle] <= key:
            low = middle + 1
        else:
            high = middle
    if low > start and thresholds[low - 1] == key and exact[low - 1] & bit:
        return 2 * (low - 1 - start) + 1
    return 2 * (low - start)


@kernel
def rank_of_string(
    keys: Ints, places: Ints, blob: Bytes, start: int, end: int, text: Bytes, text_start: int, text_end: int
) -> int:
    """The rank of a string: a binary search over keys, which compares all bytes only where the keys are equal."""
    key = key_of_bytes(text, text_start, text_end)
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        middle_key = keys[middle]
        if middle_key == key:
            at = places[middle, 0]
            order = compare_bytes(blob, at, at + places[middle, 1], text, text_start, text_end)
            if order == 0:
                return 2 * (middle - start) + 1
            below = order < 0
        else:
            below = middle_key < key
        if below:
            low = middle + 1
        else:
            high = middle
    return 2 * (low - start)
