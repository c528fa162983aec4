"""Passing arrays to kernels by their addresses. Numba's dispatcher takes 8 µs for a call with fifty arrays, and 0.3 µs
for a call with their addresses.

*Handles* are an int64 array with a line for each array of one or more named tuples: address, rows, columns. In the
kernel an unpacker makes the tuple again, which compiles to a few loads. A handle keeps nothing alive: whoever makes
handles must keep the arrays (`ArrayHandles` in `workspace.py` does both).
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator, arg-type, misc, no-any-return"
# Numba's interface for extensions has no types.

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

import numpy as np
from numba import config, from_dtype, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from catchment.matching.kernels.jit import Bytes, Ints

HANDLE_PLACES = 3  # address, rows, columns
_INTERPRETED: bool = config.DISABLE_JIT  # type: ignore[attr-defined]
Tuple = TypeVar("Tuple", bound=tuple[Any, ...])


class ArraySpec(NamedTuple):
    """What an array of a tuple must be, written as its annotation: `Annotated[Ints, ArraySpec("i4", 2)]`."""

    dtype: str
    dimensions: int = 1
    writable: bool = True


@cache
def specs_of(tuple_class: type[tuple[Any, ...]]) -> list[ArraySpec]:
    """The specifications of the arrays of a named tuple, in the order of its fields."""
    hints = get_type_hints(tuple_class, include_extras=True)
    return [hints[name].__metadata__[0] for name in tuple_class._fields]  # type: ignore[attr-defined]


def unpacker(tuple_class: type[Tuple]) -> Callable[[Ints, int], Tuple]:
    """A function for kernels: it makes the tuple whose handles begin at a given line."""
    specs = specs_of(tuple_class)
    return _interpreted(tuple_class, specs) if _INTERPRETED else _compiled(tuple_class, specs)


def _interpreted(tuple_class: type[Tuple], specs: list[ArraySpec]) -> Callable[[Ints, int], Tuple]:
    def unpacked(handles: Ints, first: int) -> Tuple:
        lines = handles[first : first + len(specs)].tolist()
        return tuple_class(*(_array_at(line, spec) for line, spec in zip(lines, specs, strict=True)))

    return unpacked


def _array_at(handle: list[int], spec: ArraySpec) -> Ints:
    shape = handle[1 : 1 + spec.dimensions]
    size = int(np.prod(shape)) * np.dtype(spec.dtype).itemsize
    if not size:
        return np.empty(shape, spec.dtype)
    memory: Any = (ctypes.c_char * size).from_address(handle[0])
    return np.frombuffer(memory, spec.dtype).reshape(shape)


def _compiled(tuple_class: type[Tuple], specs: list[ArraySpec]) -> Callable[[Ints, int], Tuple]:
    # This emits machine code that fills in the array structures. numba.carray would do the same, but without reference
    # counting (see `kernel` in `jit.py`) a function may only return arrays that it was given.
    made = types.NamedTuple([_array_type(spec) for spec in specs], tuple_class)

    @intrinsic
    def unpacked(typing_context, handles, first):
        def generated(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            at = builder.mul(arguments[1], arguments[1].type(HANDLE_PLACES))
            arrays = []
            for i, array_type in enumerate(made.types):
                line = [builder.add(at, at.type(HANDLE_PLACES * i + place)) for place in range(HANDLE_PLACES)]
                handle = [builder.load(builder.gep(data, [place])) for place in line]
                arrays.append(_array_of(context, builder, array_type, *handle))
            return context.make_tuple(builder, made, arrays)

        return made(handles, types.int64), generated

    return cast("Callable[[Ints, int], Tuple]", unpacked)


def _array_type(spec: ArraySpec) -> Any:
    return types.Array(from_dtype(np.dtype(spec.dtype)), spec.dimensions, "C", readonly=not spec.writable)


def _array_of(context, builder, array_type, address, rows, columns):
    """Code that makes the array of this type that lies at an address."""
    array = context.make_array(array_type)(context, builder)
    item = rows.type(context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
    shape = [rows, columns][: array_type.ndim]
    strides = [item] if array_type.ndim == 1 else [builder.mul(columns, item), item]
    data = builder.inttoptr(address, array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
    return array._getvalue()


@intrinsic
def _bytes_as_array(typing_context, text):
    made = types.Array(types.uint8, 1, "C", readonly=True)

    def generated(context, builder, signature, arguments):
        given = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.ptrtoint(given.data, given.nitems.type)
        return _array_of(context, builder, made, address, given.nitems, given.nitems)

    return made(text), generated


def _bytes_interpreted(text: bytes) -> Bytes:
    return np.frombuffer(text, np.uint8)


# For kernels: the array of a bytes object. Making it outside the kernel takes as long as calling a kernel.
array_of_bytes = cast("Callable[[bytes], Bytes]", _bytes_interpreted if _INTERPRETED else _bytes_as_array)
