"""What a kernel is: how numba compiles it, and how the compiled code is cached on disk."""

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
    digest = blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


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

    Numba notices changes only in the file of the kernel itself. Our kernels call kernels of other files, so the key of
    a cached kernel also holds a digest of all kernel sources.

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
    """Compiles a function: cached on disk, run without the interpreter's lock, and free of allocation.

    `_nrt=False` leaves out numba's reference counting, which costs about 20 ns for each call that passes an
    array: five to eight times the work of a small helper. So kernels never make arrays; their callers pass them in.
    """
    return _compiled(function, False)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel whose code becomes part of its callers. For kernels that take tuples of arrays, which a call would
    copy."""
    return _compiled(function, True)


def _compiled(function: Callable[P, R], inline: bool) -> Callable[P, R]:
    dispatcher: Any = njit(nogil=True, _nrt=False, forceinline=inline)(function)  # type: ignore[call-overload]
    if dispatcher is not function:  # they are the same where NUMBA_DISABLE_JIT is set
        dispatcher._cache = StampedCache(function)  # type: ignore[no-untyped-call]
    return cast("Callable[P, R]", dispatcher)
