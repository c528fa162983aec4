"""Kernels over bytes: hashing, comparing, patterns, and reading msgpack. Positions and lengths are in bytes.

No kernel relies on integer wraparound: hashes keep 31 bits and string keys 7 bytes. So compiled and interpreted runs
(NUMBA_DISABLE_JIT=1) compute the same numbers.

A hash table here is an array `slots` whose length is a power of two: -1 marks an empty slot, any other value is the
number of an entry. A lookup starts at the hash and goes on slot by slot until it meets the entry or an empty slot.
Callers make the array at least twice as long as the number of entries, so there is always an empty slot.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# ruff: noqa: PLR1714 -- plain comparisons compile to the plainest code

from __future__ import annotations

import numpy as np

from catchment.matching.kernels.jit import Bytes, Ints, kernel

# The *tag* of a msgpack object says what it holds. The first five tags are the model's types.
BOOL, INT, FLOAT, TIME, STRING, NIL, ARRAY, MAP = 0, 1, 2, 3, 4, 5, 6, 7
BAD = -1
HASH_MASK = 0x7FFFFFFF
HASH_FACTOR = 1000003
KEY_BYTES = 7
_FLOAT_INFINITE = 0x7FF0000000000000


@kernel
def hash_bytes(buffer: Bytes, start: int, end: int) -> int:
    mixed = np.int64(end - start + 17)
    for i in range(start, end):
        mixed = (mixed * HASH_FACTOR + np.int64(buffer[i])) & HASH_MASK
    return mixed ^ (mixed >> 15)  # tables look at the low bits: let the high ones take part


@kernel
def equal_bytes(a: Bytes, a_start: int, b: Bytes, b_start: int, count: int) -> bool:
    for i in range(count):  # noqa: SIM110 -- numba compiles loops, not generators
        if a[a_start + i] != b[b_start + i]:
            return False
    return True


@kernel
def name_number(buffer: Bytes, start: int, length: int, slots: Ints, names: Ints, count: int) -> int:
    """The number of a name. A new name gets the number `count` and is entered; `names` has each (start, length)."""
    mask = len(slots) - 1
    at = hash_bytes(buffer, start, start + length) & mask
    while slots[at] >= 0:
        known = slots[at]
        if names[known, 1] == length and equal_bytes(buffer, names[known, 0], buffer, start, length):
            return known
        at = (at + 1) & mask
    slots[at] = count
    names[count, 0] = start
    names[count, 1] = length
    return count


@kernel
def compare_bytes(a: Bytes, a_start: int, a_end: int, b: Bytes, b_start: int, b_end: int) -> int:
    """Below, at or above 0 as a is below, equal to or above b. The bytes of UTF-8 order like the code points."""
    common = min(a_end - a_start, b_end - b_start)
    for i in range(common):
        difference = np.int64(a[a_start + i]) - np.int64(b[b_start + i])
        if difference != 0:
            return difference
    return (a_end - a_start) - (b_end - b_start)


@kernel
def key_of_bytes(buffer: Bytes, start: int, end: int) -> int:
    """The first seven bytes as an integer that orders like the bytes; bytes past the end count as 0."""
    key = np.int64(0)
    for i in range(start, start + KEY_BYTES):
        key = (key << 8) | (np.int64(buffer[i]) if i < end else 0)
    return key


@kernel
def holds_substring(text: Bytes, start: int, end: int, part: Bytes, part_start: int, part_end: int) -> bool:
    length = part_end - part_start
    if length == 0:
        return True
    first = part[part_start]
    for i in range(start, end - length + 1):
        if text[i] == first and equal_bytes(text, i, part, part_start, length):
            return True
    return False


@kernel
def next_character(text: Bytes, at: int) -> int:
    """The position behind the UTF-8 character at `at`, whose first byte says how long it is."""
    lead = np.int64(text[at])
    if lead < 0xC0:
        return at + 1
    if lead < 0xE0:
        return at + 2
    return at + 3 if lead < 0xF0 else at + 4


@kernel
def matches_glob(text: Bytes, start: int, end: int, glob: Bytes, glob_start: int, glob_end: int) -> bool:
    """Whether a text matches a glob: `*` is any run, `?` any character, a backslash escapes.

    On a mismatch it goes back to the last `*` only and lets that take one more byte. An earlier `*` need not be tried:
    what it matched so far leaves the longest rest of the text for the later one.
    """
    at, want = start, glob_start
    star, star_at = -1, start  # the glob behind the last `*`, and where the text goes on after what the `*` took
    while True:
        if want < glob_end and glob[want] == 42:  # *
            star, star_at = want + 1, at
            want += 1
            continue
        if at == end:
            return want == glob_end
        literal = want < glob_end and glob[want] == 92  # backslash
        wanted = want + 1 if literal else want
        if wanted < glob_end and not literal and glob[wanted] == 63:  # ?
            at, want = next_character(text, at), wanted + 1
        elif wanted < glob_end and glob[wanted] == text[at]:
            at, want = at + 1, wanted + 1
        elif star >= 0:
            star_at += 1
            at, want = star_at, star
        else:
            return False


# --- msgpack ------------------------------------------------------------------------------------


@kernel
def unsigned(buffer: Bytes, at: int, count: int) -> int:
    number = np.int64(0)
    for i in range(at, at + count):
        number = (number << 8) | np.int64(buffer[i])
    return number


@kernel
def signed(buffer: Bytes, at: int, count: int) -> int:
    number = np.int64(buffer[at])
    if number >= 128:
        number -= 256
    for i in range(at + 1, at + count):
        number = (number << 8) | np.int64(buffer[i])
    return number


@kernel
def float_key(buffer: Bytes, at: int) -> int:
    """The key of a big-endian double (see `float_key` in `model/values.py`); both zeros have key 0."""
    magnitude = np.int64(buffer[at]) & 0x7F
    for i in range(at + 1, at + 8):
        magnitude = (magnitude << 8) | np.int64(buffer[i])
    return -magnitude if buffer[at] >= 128 else magnitude


@kernel
def time_key(buffer: Bytes, at: int, length: int) -> int:
    """Microseconds since 1970 of a msgpack timestamp of 4, 8 or 12 bytes."""
    if length == 4:
        return unsigned(buffer, at, 4) * 1_000_000
    if length == 8:
        nanoseconds = unsigned(buffer, at, 4) >> 2
        seconds = ((np.int64(buffer[at + 3]) & 3) << 32) | unsigned(buffer, at + 4, 4)
        return seconds * 1_000_000 + nanoseconds // 1000
    return signed(buffer, at + 4, 8) * 1_000_000 + unsigned(buffer, at, 4) // 1000


@kernel
def read_object(buffer: Bytes, at: int) -> tuple[int, int, int, int, int]:
    """(tag, key or count, start, length, next position) of the object at `at`.

    A bool, int, float or time has a key, as in `model/values.py`; a string has start and length. An array or map has
    its number of elements, and the next position is that of its first element.
    """
    head = np.int64(buffer[at])
    if head < 0x80:
        return INT, head, at, 0, at + 1
    if head >= 0xE0:
        return INT, head - 256, at, 0, at + 1
    if head >= 0xA0 and head < 0xC0:
        length = head & 31
        return STRING, 0, at + 1, length, at + 1 + length
    if head < 0x90:
        return MAP, head & 15, at, 0, at + 1
    if head < 0xA0:
        return ARRAY, head & 15, at, 0, at + 1
    return _read_long(buffer, at, head)


@kernel
def _read_long(buffer: Bytes, at: int, head: int) -> tuple[int, int, int, int, int]:
    """Floats, booleans, longer ints and strings, nil."""
    if head == 0xCB:
        key = float_key(buffer, at + 1)
        good = key > -_FLOAT_INFINITE and key < _FLOAT_INFINITE
        return (FLOAT if good else BAD), key, at, 0, at + 9
    if head == 0xC2 or head == 0xC3:
        return BOOL, head - 0xC2, at, 0, at + 1
    if head >= 0xCC and head <= 0xCF:
        size = 1 << (head - 0xCC)
        key = unsigned(buffer, at + 1, size)
        return (INT if key >= 0 else BAD), key, at, 0, at + 1 + size  # below 0: past the range of int64
    if head >= 0xD0 and head <= 0xD3:
        size = 1 << (head - 0xD0)
        return INT, signed(buffer, at + 1, size), at, 0, at + 1 + size
    if head >= 0xD9 and head <= 0xDB:
        size = 1 << (head - 0xD9)
        length = unsigned(buffer, at + 1, size)
        return STRING, 0, at + 1 + size, length, at + 1 + size + length
    if head == 0xC0:
        return NIL, 0, at, 0, at + 1
    return _read_rare(buffer, at, head)


@kernel
def _read_rare(buffer: Bytes, at: int, head: int) -> tuple[int, int, int, int, int]:
    """Times (msgpack's extension -1, whose type byte is 255), and longer arrays and maps."""
    if (head == 0xD6 or head == 0xD7) and buffer[at + 1] == 255:
        size = 4 if head == 0xD6 else 8
        return TIME, time_key(buffer, at + 2, size), at, 0, at + 2 + size
    if head == 0xC7 and buffer[at + 1] == 12 and buffer[at + 2] == 255:
        return TIME, time_key(buffer, at + 3, 12), at, 0, at + 15
    if head == 0xDC or head == 0xDD:
        size = 2 if head == 0xDC else 4
        return ARRAY, unsigned(buffer, at + 1, size), at, 0, at + 1 + size
    if head == 0xDE or head == 0xDF:
        size = 2 if head == 0xDE else 4
        return MAP, unsigned(buffer, at + 1, size), at, 0, at + 1 + size
    return BAD, 0, at, 0, at + 1


@kernel
def skip_object(buffer: Bytes, at: int) -> int:
    """The position behind the object at `at`, with everything inside it."""
    open_objects = 1  # how many objects are still to be read
    while open_objects > 0:
        tag, count, _, _, at = read_object(buffer, at)
        open_objects -= 1
        if tag == ARRAY:
            open_objects += count
        elif tag == MAP:
            open_objects += 2 * count
    return at
