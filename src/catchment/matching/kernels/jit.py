"""What a kernel is: how numba compiles it, and how the compiled code is cached on disk."""

from __future__ import annotations

from collections.abc import Callable
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


class StampedCache(FunctionCache):
    """Numba's cache notices changes only in the file of the kernel itself. Our kernels call kernels of other files, so
    the key of a cached kernel also holds a digest of all kernel sources."""

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(signature, codegen), SOURCES_STAMP)  # type: ignore[no-untyped-call]


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
