"""Copies and digests of cores, fast enough for exploring hundreds of thousands of states.

A core is made of plain Python objects, containers, and frozen values. A copy shares what never changes: frozen structs,
strings, numbers, tuples, and matchers. It has copies of the rest; what was one object in the original is one object in
the copy. Bound methods and closures are bound to the copies.

A digest is a hashable value: two cores with equal digests behave alike from then on. `Folding` says which attributes
make no difference: caches, and times that nobody compares; and which are numbers that only matter relative to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import Any, Final

from msgspec import Struct

from catchment.model.notification import Notification
from catchment.routing.parts.recall import RecallingMatcher

# What most values are.
_PLAIN: Final[frozenset[type]] = frozenset((int, str, bool, type(None), bytes, float))
# Memory of what was copied, by the id of the original.
_Memo = dict[int, Any]
_ATOMS: Final = (
    int, float, str, bytes, bool, type(None), tuple, frozenset, Struct, Enum, type, Notification, RecallingMatcher,
    BuiltinFunctionType,
)  # fmt: skip


def copied(original: Any) -> Any:
    """A copy that shares nothing that changes."""
    return _copy(original, {})


def _copy(original: Any, memo: _Memo) -> Any:
    kind = type(original)
    copier = _COPIERS.get(kind)
    if copier is None:
        copier = _COPIERS[kind] = _copier_of(kind)
    if copier is _same:
        return original
    known = memo.get(id(original))
    return copier(original, memo) if known is None else known


def _same(original: Any, memo: _Memo) -> Any:
    return original


def _copier_of(kind: type) -> Callable[[Any, _Memo], Any]:
    if issubclass(kind, _ATOMS):
        return _same
    for container, copier in ((dict, _copy_dict), (list, _copy_list), (set, _copy_set), (deque, _copy_deque)):
        if issubclass(kind, container):
            return copier
    if kind is MethodType:
        return _copy_method
    if kind is FunctionType:
        return _copy_function
    names = attributes_of(kind)
    return _copy_with_slots(kind, names) if names else _copy_object


def attributes_of(kind: type) -> tuple[str, ...]:
    """The slots of a class; nothing if its objects have a dictionary."""
    slots = [getattr(each, "__slots__", None) for each in kind.__mro__ if each is not object]
    if not slots or any(each is None for each in slots):
        return ()
    return tuple(name for each in slots for name in ((each,) if isinstance(each, str) else each or ()))


def _copy_dict(original: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    copy = memo[id(original)] = type(original)()
    for key, value in original.items():
        copy[key] = value if type(value) in _PLAIN else _copy(value, memo)
    return copy


def _copy_list(original: list[Any], memo: _Memo) -> list[Any]:
    copy = memo[id(original)] = type(original)()
    copy.extend([_copy(value, memo) for value in original])
    return copy


def _copy_set(original: set[Any], memo: _Memo) -> set[Any]:
    # What is in a set is hashable, so it does not change.
    memo[id(original)] = copy = type(original)(original)
    return copy


def _copy_deque(original: deque[Any], memo: _Memo) -> deque[Any]:
    copy: deque[Any] = deque(maxlen=original.maxlen)
    memo[id(original)] = copy
    copy.extend([_copy(value, memo) for value in original])
    return copy


def _copy_object(original: Any, memo: _Memo) -> Any:
    copy = memo[id(original)] = object.__new__(type(original))
    attributes = copy.__dict__
    for name, value in original.__dict__.items():
        attributes[name] = value if type(value) in _PLAIN else _copy(value, memo)
    return copy


def _copy_with_slots(kind: type, names: tuple[str, ...]) -> Callable[[Any, _Memo], Any]:
    def copier(original: Any, memo: _Memo) -> Any:
        copy: Any = object.__new__(kind)
        memo[id(original)] = copy
        for name in names:
            # A slot may be empty.
            if (value := getattr(original, name, memo)) is not memo:
                object.__setattr__(copy, name, value if type(value) in _PLAIN else _copy(value, memo))
        return copy

    return copier


def _copy_method(original: MethodType, memo: _Memo) -> MethodType:
    # Methods are made anew each time that somebody asks for one: nobody has two references to one.
    return MethodType(original.__func__, _copy(original.__self__, memo))


def _copy_function(original: FunctionType, memo: _Memo) -> FunctionType:
    if original.__closure__ is None:
        return original
    cells = tuple(CellType(_copy(cell.cell_contents, memo)) for cell in original.__closure__)
    copy = FunctionType(original.__code__, original.__globals__, original.__name__, original.__defaults__, cells)
    copy.__kwdefaults__ = original.__kwdefaults__
    return copy


_COPIERS: Final[dict[type, Callable[[Any, _Memo], Any]]] = {}


# --- digests ------------------------------------------------------------------------------------

_Walker = Callable[[Any, int, set[int]], Hashable]


class Folding:
    """What makes no difference. Attributes are named `Class.attribute`; those of `relative` are numbers, counted from
    the base that `digest` is given. All objects of a class have the same attributes."""

    def __init__(self, ignored: frozenset[str] = frozenset(), relative: frozenset[str] = frozenset()) -> None:
        self._ignored, self._relative = ignored, relative
        self._walkers: dict[Any, _Walker] = dict.fromkeys(_PLAIN, _itself)
        # Frozen values by number: their digests are short.
        self._numbers: dict[Hashable, int] = {}

    def digest(self, value: Any, base: int = 0) -> Hashable:
        return self._walk(value, base, set())

    def _walk(self, value: Any, base: int, seen: set[int]) -> Hashable:
        kind = type(value)
        walker = self._walkers.get(kind)
        if walker is None:
            walker = self._walkers[kind] = self._walker_of(value, kind)
        return walker(value, base, seen)

    def _walker_of(self, value: Any, kind: type) -> _Walker:
        for parents, walker in (
            ((Struct, Notification, tuple, frozenset), self._frozen),
            ((RecallingMatcher, MethodType, FunctionType, BuiltinFunctionType, type, Enum), _nothing),
            ((dict,), self._dict),
            ((set,), self._set),
            ((list, deque), self._list),
        ):
            if issubclass(kind, parents):
                return walker
        return self._object_walker(kind, attributes_of(kind) or tuple(value.__dict__))

    def _dict(self, value: dict[Any, Any], base: int, seen: set[int]) -> Hashable:
        if not value:
            return 0
        walk = self._walk
        return frozenset([(walk(key, base, seen), walk(each, base, seen)) for key, each in value.items()])

    def _set(self, value: set[Any], base: int, seen: set[int]) -> Hashable:
        return frozenset([self._walk(each, base, seen) for each in value])

    def _list(self, value: Any, base: int, seen: set[int]) -> Hashable:
        return tuple([self._walk(each, base, seen) for each in value]) if value else 0

    def _frozen(self, value: Any, base: int, seen: set[int]) -> Hashable:
        try:
            return self._numbers.setdefault(value, len(self._numbers))
        except TypeError:
            pass  # It has a mapping inside.
        if isinstance(value, Struct):
            fields = [getattr(value, name) for name in value.__struct_fields__]
            return (type(value).__name__, *(self._walk(field, base, seen) for field in fields))
        return tuple([self._walk(each, base, seen) for each in value])

    def _object_walker(self, kind: type, names: tuple[str, ...]) -> _Walker:
        full = [(name, f"{kind.__name__}.{name}") for name in names]
        plan = [(name, text in self._relative) for name, text in full if text not in self._ignored]

        def walker(value: Any, base: int, seen: set[int]) -> Hashable:
            # Objects refer to each other in circles: each is walked once.
            if id(value) in seen:
                return "again"
            seen.add(id(value))
            parts: list[Hashable] = []
            for name, is_relative in plan:
                each = self._walk(getattr(value, name), base, seen)
                parts.append(each - base if is_relative and isinstance(each, int) else each)
            return tuple(parts)

        return walker


def _itself(value: Any, base: int, seen: set[int]) -> Hashable:
    return value  # type: ignore[no-any-return]


def _nothing(value: Any, base: int, seen: set[int]) -> Hashable:
    return None
