"""Kernels over bytes: hashing, comparing, msgpack, patterns. Positions and lengths are in bytes.

No kernel relies on integer wraparound: hashes keep 31 bits and string keys 7 bytes, so that compiled and
interpreted runs (NUMBA_DISABLE_JIT=1) compute the same numbers.
"""

# mypy: disable-error-code="return-value, no-any-return, arg-type"
# Numpy's integers are the ints of a kernel.
# ruff: noqa: PLR1714 -- plain comparisons compile to the plainest code

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache

P = ParamSpec("P")
R = TypeVar("R")
Ints = np.ndarray[Any, Any]  # of int32 or int64
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def _sources_stamp() -> str:
    found = blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("kernels_*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


SOURCES_STAMP = _sources_stamp()


@contextmanager
def _locked(directory: str, kind: int) -> Iterator[None]:
    """Holds a lock on a directory: shared with other readers (LOCK_SH) or alone (LOCK_EX)."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:  # then there is nothing to read
        yield
        return
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)  # ends the lock


class StampedCache(FunctionCache):
    """Numba's cache, with two mistakes less.

    Numba looks for changes only in a kernel's own file; our kernels call each other across files. So the key holds a
    stamp of all their sources.

    Numba takes no lock. Two processes that compile one kernel for two signatures at the same time choose the same file
    for both, and the next process runs the code of one signature with the arguments of the other.
    """

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(signature, codegen), SOURCES_STAMP)  # type: ignore[no-untyped-call]

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        with _locked(self.cache_path, fcntl.LOCK_SH):
            return super().load_overload(signature, target_context)  # type: ignore[no-untyped-call]

    def save_overload(self, signature: Any, data: Any) -> None:
        os.makedirs(self.cache_path, exist_ok=True)
        with _locked(self.cache_path, fcntl.LOCK_EX):
            super().save_overload(signature, data)  # type: ignore[no-untyped-call]


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compiled, cached on disk, run without the interpreter's lock, and free of allocation.

    `_nrt=False` leaves out numba's reference counting, which costs about 20 ns for each call that passes an
    array: five to eight times the work of a small helper. So kernels never make arrays; wrappers hand them in.
    """
    return _compiled(function, False)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel that becomes part of its callers: for those that take tuples of arrays, which a call would copy."""
    return _compiled(function, True)


def _compiled(function: Callable[P, R], inline: bool) -> Callable[P, R]:
    found: Any = njit(nogil=True, _nrt=False, forceinline=inline)(function)  # type: ignore[call-overload]
    if found is not function:  # else NUMBA_DISABLE_JIT is set
        found._cache = StampedCache(function)  # type: ignore[no-untyped-call]
    return cast("Callable[P, R]", found)


# What a msgpack object holds. The first five are the model's types, in the order of their sections of ranks.
BOOL, INT, FLOAT, TIME, STRING, NIL, ARRAY, MAP = 0, 1, 2, 3, 4, 5, 6, 7
BAD = -1
HASH_MASK = 0x7FFFFFFF
HASH_FACTOR = 1000003
KEY_BYTES = 7
_FLOAT_INFINITE = 0x7FF0000000000000


@kernel
def hash_bytes(buffer: Bytes, start: int, end: int) -> int:
    found = np.int64(end - start + 17)
    for i in range(start, end):
        found = (found * HASH_FACTOR + np.int64(buffer[i])) & HASH_MASK
    return found ^ (found >> 15)


@kernel
def equal_bytes(a: Bytes, a_start: int, b: Bytes, b_start: int, count: int) -> bool:
    for i in range(count):  # noqa: SIM110 -- numba compiles loops, not generators
        if a[a_start + i] != b[b_start + i]:
            return False
    return True


@kernel
def name_number(buffer: Bytes, start: int, length: int, slots: Ints, names: Ints, count: int) -> int:
    """The number of a name, `count` when it is new; (start, length) of each name are in `names`."""
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
    """Below, at or above 0 as a is below, equal to or above b, by code point (the order of UTF-8)."""
    common = min(a_end - a_start, b_end - b_start)
    for i in range(common):
        difference = np.int64(a[a_start + i]) - np.int64(b[b_start + i])
        if difference != 0:
            return difference
    return (a_end - a_start) - (b_end - b_start)


@kernel
def key_of_bytes(buffer: Bytes, start: int, end: int) -> int:
    """The first seven bytes as an integer that orders like the bytes."""
    found = np.int64(0)
    for i in range(start, start + KEY_BYTES):
        found = (found << 8) | (np.int64(buffer[i]) if i < end else 0)
    return found


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
    lead = np.int64(text[at])
    if lead < 0xC0:
        return at + 1
    if lead < 0xE0:
        return at + 2
    return at + 3 if lead < 0xF0 else at + 4


@kernel
def matches_glob(text: Bytes, start: int, end: int, glob: Bytes, glob_start: int, glob_end: int) -> bool:
    """`*` any run, `?` one character, a backslash escapes. Goes back to the last `*` only."""
    at, want = start, glob_start
    star, star_at = -1, start
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
    found = np.int64(0)
    for i in range(at, at + count):
        found = (found << 8) | np.int64(buffer[i])
    return found


@kernel
def signed(buffer: Bytes, at: int, count: int) -> int:
    found = np.int64(buffer[at])
    if found >= 128:
        found -= 256
    for i in range(at + 1, at + count):
        found = (found << 8) | np.int64(buffer[i])
    return found


@kernel
def float_key(buffer: Bytes, at: int) -> int:
    """The key of a big-endian double: sign and magnitude as an integer, so both zeros are 0."""
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
    """(what, key or count, start, length, position behind the head of a container or behind a scalar)."""
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
    if head == 0xCB:
        key = float_key(buffer, at + 1)
        good = key > -_FLOAT_INFINITE and key < _FLOAT_INFINITE
        return (FLOAT if good else BAD), key, at, 0, at + 9
    if head == 0xC2 or head == 0xC3:
        return BOOL, head - 0xC2, at, 0, at + 1
    if head >= 0xCC and head <= 0xCF:
        size = 1 << (head - 0xCC)
        key = unsigned(buffer, at + 1, size)
        return (INT if key >= 0 else BAD), key, at, 0, at + 1 + size
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
    """The position behind the object at `at`."""
    open_objects = 1
    while open_objects > 0:
        what, count, _, _, at = read_object(buffer, at)
        open_objects -= 1
        if what == ARRAY:
            open_objects += count
        elif what == MAP:
            open_objects += 2 * count
    return at
