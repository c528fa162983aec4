"""Cuts: the values that occur in constraints, sorted within each attribute. Ranks are made from them.

`kernels/rank.py` says what a rank is. This module lists the cuts of all constraints, sorts them, drops equal ones and
lays out the sections of ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from catchment.matching.kernels import compile as kc
from catchment.matching.kernels import rank as kr
from catchment.matching.kernels.bytes import FLOAT
from catchment.matching.kernels.tables import FLOAT_EXACT, INT_EXACT

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF


class Listed(NamedTuple):
    """The cuts of all constraints, in the order of the constraints."""

    reversed_of: Array
    first_cut: Array
    number_attribute: Array
    number_type: Array
    number_key: Array
    time_attribute: Array
    time_key: Array
    string_dimension: Array
    string_place: Array
    string_blob: Array
    dimensions: int


class Section(NamedTuple):
    """The distinct cuts of a section, attribute by attribute (strings: dimension by dimension)."""

    starts: Array  # by attribute: its first distinct cut
    kept: Array  # by distinct cut: its place in the list of cuts
    cut: Array  # by listed cut: the number of its distinct cut within the attribute


class Cuts(NamedTuple):
    """What is needed to turn constraints and values into ranks. `…_cut` has, by listed cut, its number within the
    attribute; the other arrays are those of `Tables` in `kernels/tables.py`."""

    sections: Array
    reversed_of: Array
    first_cut: Array
    number_cut: Array
    time_cut: Array
    string_cut: Array
    number_starts: Array
    number_int_ends: Array
    number_int: Array
    number_float: Array
    number_exact: Array
    time_starts: Array
    time_keys: Array
    string_starts: Array
    string_keys: Array
    string_places: Array
    string_blob: Array


def cuts_of(blob: Array, parsed: Array, attributes: int) -> Cuts:
    """The cuts of parsed constraints."""
    listed = _listed(blob, parsed, attributes)
    whole, floats, exact, beyond = thresholds(listed.number_type, listed.number_key)
    numbers = _section(attributes, listed.number_attribute, floats, whole, beyond)
    times = _section(attributes, listed.time_attribute, listed.time_key)
    strings, string_keys = _string_section(listed)
    beyond_ints = np.bincount(listed.number_attribute[numbers.kept], weights=beyond[numbers.kept], minlength=attributes)
    return Cuts(
        sections=_layout(attributes, numbers.starts, times.starts, strings.starts),
        reversed_of=listed.reversed_of,
        first_cut=listed.first_cut,
        number_cut=numbers.cut,
        time_cut=times.cut,
        string_cut=strings.cut,
        number_starts=numbers.starts,
        number_int_ends=numbers.starts[1:] - beyond_ints.astype(I64),
        number_int=whole[numbers.kept],
        number_float=floats[numbers.kept],
        number_exact=exact[numbers.kept],
        time_starts=times.starts,
        time_keys=listed.time_key[times.kept],
        string_starts=strings.starts,
        string_keys=string_keys[strings.kept],
        string_places=listed.string_place[strings.kept],
        string_blob=listed.string_blob,
    )


def _listed(blob: Array, parsed: Array, attributes: int) -> Listed:
    totals = np.zeros(8, I64)
    totals[kr.DIMENSIONS] = attributes
    # The first call counts, and gives the reversed dimensions their numbers; the second writes.
    counted = _empty_lists(len(parsed), attributes, totals)
    kr.list_cuts(blob, parsed, False, totals, *counted[:-1])
    filled = _empty_lists(len(parsed), attributes, totals)._replace(reversed_of=counted.reversed_of)
    totals[: kr.DIMENSIONS] = 0
    kr.list_cuts(blob, parsed, True, totals, *filled[:-1])
    return filled


def _empty_lists(constraints: int, attributes: int, totals: Array) -> Listed:
    numbers, times, strings, size, dimensions = (int(total) for total in totals[:5])
    return Listed(
        reversed_of=np.full(attributes + 1, -1, I32),
        first_cut=np.zeros((constraints, 2), I64),
        number_attribute=np.empty(numbers, I32),
        number_type=np.empty(numbers, I32),
        number_key=np.empty(numbers, I64),
        time_attribute=np.empty(times, I32),
        time_key=np.empty(times, I64),
        string_dimension=np.empty(strings, I32),
        string_place=np.empty((strings, 2), I64),
        string_blob=np.empty(size, np.uint8),
        dimensions=dimensions,
    )


def starts_of(groups: Array, count: int) -> Array:
    """Where each group begins in a list sorted by group, and at last where the list ends."""
    starts = np.zeros(count + 1, I64)
    np.cumsum(np.bincount(groups, minlength=count)[:count], out=starts[1:])
    return starts


def distinct(order: Array, *columns: Array) -> tuple[Array, Array]:
    """For a sorted order: whether each element differs from the one before, and how many before it do."""
    fresh = np.zeros(len(order), bool)
    fresh[:1] = True
    for column in columns:
        sorted_column = column[order]
        fresh[1:] |= sorted_column[1:] != sorted_column[:-1]
    return fresh, np.cumsum(fresh) - 1


def _section(attributes: int, attribute: Array, *keys: Array) -> Section:
    order = np.lexsort((*reversed(keys), attribute))
    fresh, numbers = distinct(order, attribute, *keys)
    kept = order[fresh]
    starts = starts_of(attribute[kept], attributes)
    cut = np.empty(len(order), I64)
    cut[order] = numbers
    return Section(starts, kept, cut - starts[attribute])


def _string_section(listed: Listed) -> tuple[Section, Array]:
    dimension, places, blob = listed.string_dimension, listed.string_place, listed.string_blob
    count = len(dimension)
    keys, cut, spare = np.empty(count, I64), np.empty(count, I64), np.empty(count, I64)
    kr.string_keys(places, blob, keys)
    order = np.lexsort((keys, dimension))
    # numpy sorts by dimension and the first bytes; the kernel finishes the order by all bytes.
    differing = kr.sort_strings(order, spare, dimension, keys, places, blob, cut)
    kept = np.empty(differing, I64)
    kept[cut[order]] = order
    starts = starts_of(dimension[kept], listed.dimensions)
    return Section(starts, kept, cut - starts[dimension]), keys


def _layout(attributes: int, number_starts: Array, time_starts: Array, string_starts: Array) -> Array:
    """Where the sections of each dimension begin and end. The dimension of reversed strings has only strings."""
    sections = np.zeros((len(string_starts) - 1, kc.SECTION_COLUMNS), I64)
    sections[:attributes, kc.TIME_BASE] = kr.BOOLEAN_RANKS + 2 * np.diff(number_starts) + 1
    sections[:attributes, kc.STRING_BASE] = sections[:attributes, kc.TIME_BASE] + 2 * np.diff(time_starts) + 1
    sections[:, kc.RANK_LAST] = sections[:, kc.STRING_BASE] + 2 * np.diff(string_starts)
    return sections


# --- numbers ------------------------------------------------------------------------------------


def thresholds(tag: Array, key: Array) -> tuple[Array, Array, Array, Array]:
    """For each number: the least int at or above it, the least float at or above it (as key), the bits INT_EXACT and
    FLOAT_EXACT if these equal it, and whether it lies above all ints. The tuples (float, int, above all ints) sort like
    the numbers."""
    is_float = tag == FLOAT
    whole, int_exact, beyond = _ints_at_or_above(floats_of_keys(np.where(is_float, key, 0)))
    floats, float_exact = _floats_at_or_above(np.where(is_float, 0, key))
    exact = np.where(is_float, int_exact * INT_EXACT + FLOAT_EXACT, INT_EXACT + float_exact * FLOAT_EXACT)
    return (
        np.where(is_float, whole, key),
        np.where(is_float, key, floats),
        exact.astype(np.uint8),
        is_float & beyond,
    )


def _ints_at_or_above(values: Array) -> tuple[Array, Array, Array]:
    ceiling = np.ceil(values)
    beyond, below = ceiling >= 2.0**63, ceiling < -(2.0**63)
    inside = np.where(beyond | below, 0.0, ceiling).astype(I64)
    whole = np.where(beyond, I64(2**63 - 1), np.where(below, I64(-(2**63)), inside))
    return whole, ~beyond & ~below & (ceiling == values), beyond


def _floats_at_or_above(values: Array) -> tuple[Array, Array]:
    near = values.astype(np.float64)
    above = near >= 2.0**63  # the greatest ints round up to this, which no int64 holds
    back = np.where(above, 0.0, near).astype(I64)
    # Where rounding went down, the next float is the least at or above: its key is one more.
    return keys_of_floats(near) + (~above & (back < values)), ~above & (back == values)


def keys_of_floats(values: Array) -> Array:
    """As `float_key` in `model/values.py`, for arrays."""
    bits = values.view(I64)
    return np.where(bits >= 0, bits, -(bits & _MAGNITUDE))


def floats_of_keys(keys: Array) -> Array:
    floats: Array = np.where(keys >= 0, keys, (-keys) | I64(-(2**63))).view(np.float64)
    return floats
