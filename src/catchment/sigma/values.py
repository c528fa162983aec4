"""One field of a Sigma selection and its values, as comparisons: `CommandLine|contains|all: [' -enc', 'http']`.

Modifiers are applied in the order in which they stand. Each value becomes one or more *variants*, of which one must
match: `windash` and `base64offset` make several. A variant is a number, true or false, null, or a text. A text is a
tuple of pieces: plain strings, and the wildcards `*` and `?`.

The backslash escapes `*`, `?` and itself. Before any other character it stands for itself, as the Sigma specification
has it: `\\cmd.exe` and `\\\\cmd.exe` are the same value.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from enum import Enum
from itertools import product
from typing import Final

from catchment.errors import CatchmentError, shown
from catchment.model.constraint import constraint
from catchment.sigma.expressions import (
    COMPARISONS_MAX,
    Comparison,
    Expression,
    Inexpressible,
    Scalar,
    all_of,
    any_of,
    exists,
    negation_of,
)


class Wildcard(Enum):
    RUN = "*"
    """Any run of characters, also none."""
    ONE = "?"
    """One character."""


Pieces = tuple[str | Wildcard, ...]
# `bytes` is a text in another encoding, on its way to base64.
Variant = Pieces | bytes | int | float | bool | None

# --- texts --------------------------------------------------------------------------------------

_PIECE: Final = re.compile(r"\\([\\*?])|([*?])|(\\|[^\\*?]+)", re.DOTALL)


def pieces(text: str) -> Pieces:
    """A value of Sigma, taken apart into plain strings and wildcards."""
    return _tidy(Wildcard(wild) if wild else escaped or plain for escaped, wild, plain in _PIECE.findall(text))


def _tidy(parts: Iterable[str | Wildcard]) -> Pieces:
    """The same pieces: neighboring strings joined, a run of `*` made one, empty strings left out."""
    made: list[str | Wildcard] = []
    for part in parts:
        last = made[-1] if made else None
        if isinstance(part, str) and isinstance(last, str):
            made[-1] = last + part
        elif part and not (part is last is Wildcard.RUN):
            made.append(part)
    return tuple(made)


def _plain(variant: Variant, modifier: str) -> str:
    """The text of a variant without wildcards."""
    if not isinstance(variant, tuple) or any(isinstance(piece, Wildcard) for piece in variant):
        raise Inexpressible(modifier, f"it needs a text without wildcards, not {_described(variant)}")
    return "".join(map(str, variant))


def _described(variant: Variant) -> str:
    if isinstance(variant, tuple):
        return shown("".join(piece if isinstance(piece, str) else piece.value for piece in variant))
    return "null" if variant is None else shown(variant)


def _text(variant: Variant, modifier: str) -> Pieces:
    """A variant as a text. A number counts as its digits: rules write `contains: 4444` without quotes."""
    if isinstance(variant, int | float) and not isinstance(variant, bool):
        return (str(variant),)
    if not isinstance(variant, tuple):
        raise Inexpressible(modifier, f"it needs a text, not {_described(variant)}")
    return variant


# --- modifiers that change values ---------------------------------------------------------------


def _contains(variant: Variant) -> list[Variant]:
    return [_tidy((Wildcard.RUN, *_text(variant, "contains"), Wildcard.RUN))]


def _startswith(variant: Variant) -> list[Variant]:
    return [_tidy((*_text(variant, "startswith"), Wildcard.RUN))]


def _endswith(variant: Variant) -> list[Variant]:
    return [_tidy((Wildcard.RUN, *_text(variant, "endswith")))]


# A dash or slash that begins a word: not between two words, as in `a-b`, and not at the end, as in `a/`.
_DASH: Final = re.compile(r"\B([-/–—―])\b")
_DASHES: Final = "-/–—―"


def _windash(variant: Variant) -> list[Variant]:
    """Every way to write the switches of the text: Windows takes several characters for the dash before a switch."""
    # Splitting puts the dashes at odd places, and what is between them at even places.
    cut = [_DASH.split(piece) if isinstance(piece, str) else [piece] for piece in _text(variant, "windash")]
    choices = [tuple(_DASHES) if place % 2 else (part,) for parts in cut for place, part in enumerate(parts)]
    count = len(_DASHES) ** sum(len(choice) > 1 for choice in choices)
    if count > COMPARISONS_MAX:
        raise Inexpressible("size", f"windash makes {count:,} variants of {_described(variant)}")
    return [_tidy(chosen) for chosen in product(*choices)]


def _base64(variant: Variant) -> list[Variant]:
    return [(b64encode(_bytes(variant, "base64")).decode(),)]


# Of the text of base64, what depends on the bytes before and after the value is cut off. How much that is at the start
# depends on how many bytes before it share a group of three with it; at the end, on how many of its own are left over.
_CUT_BEFORE: Final = (0, 2, 3)
_CUT_AFTER: Final = (0, 3, 2)


def _base64offset(variant: Variant) -> list[Variant]:
    """The three texts one of which is in any base64 that has the value in it."""
    value = _bytes(variant, "base64offset")
    texts = []
    for before in range(3):
        encoded = b64encode(b"\0" * before + value).decode()
        texts.append(encoded[_CUT_BEFORE[before] : len(encoded) - _CUT_AFTER[(len(value) + before) % 3]])
    return [(text,) for text in texts]


def _bytes(variant: Variant, modifier: str) -> bytes:
    return variant if isinstance(variant, bytes) else _plain(variant, modifier).encode()


def _encoded(encoding: str, mark: bytes = b"") -> Callable[[Variant], list[Variant]]:
    return lambda variant: [mark + _plain(variant, encoding).encode(encoding)]


CHANGES: Final[dict[str, Callable[[Variant], list[Variant]]]] = {
    "contains": _contains,
    "startswith": _startswith,
    "endswith": _endswith,
    "windash": _windash,
    "base64": _base64,
    "base64offset": _base64offset,
    "wide": _encoded("utf-16-le"),
    "utf16le": _encoded("utf-16-le"),
    "utf16be": _encoded("utf-16-be"),
    "utf16": _encoded("utf-16-le", b"\xff\xfe"),
}

# --- modifiers that say how to compare ----------------------------------------------------------

ORDER: Final = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
HOW: Final = ("all", "cased", "exists", "neq", "re", "cidr")
# Flags of a regular expression; they stand after `re`.
FLAGS: Final = ("i", "m", "s")
# What our language does not have, and why the rule cannot be imported.
REFUSED: Final = {
    "fieldref": ("field reference", "a filter compares attributes with values, not with each other"),
    "expand": ("placeholder", "its values are not in the rule"),
    **dict.fromkeys(
        ("minute", "hour", "day", "week", "month", "year"),
        ("part of a time", "a filter compares times, not their hours or days"),
    ),
}


def field_expression(key: str, given: object) -> Expression:
    """What one entry of a selection says: the field with its modifiers, and a value or a list of values."""
    name, *modifiers = key.split("|")
    for modifier in modifiers:
        _check_modifier(key, modifier)
    if not name:
        raise Inexpressible("keywords", f"{shown(given)} is to be anywhere in the event; a filter names attributes")
    values = given if isinstance(given, list) else [given]
    if not values:
        raise Inexpressible("bad rule", f"{key} has an empty list of values")
    parts = [_value_expression(name, modifiers, key, value) for value in values]
    return all_of(parts) if "all" in modifiers else any_of(_equals_joined(parts))


def _check_modifier(key: str, modifier: str) -> None:
    if modifier in REFUSED:
        kind, why = REFUSED[modifier]
        raise Inexpressible(kind, f"{key}: {why}")
    if modifier not in CHANGES and modifier not in ORDER and modifier not in HOW and modifier not in FLAGS:
        raise Inexpressible("unknown modifier", f"{modifier} in {key}")


def _value_expression(name: str, modifiers: Sequence[str], key: str, value: object) -> Expression:
    if "exists" in modifiers:
        return _existence(name, key, value)
    if "re" in modifiers or "cidr" in modifiers:
        looked_at = _looked_at(name, modifiers, key, value)
        return negation_of(looked_at) if "neq" in modifiers else looked_at
    variants: list[Variant] = [_variant(key, value)]
    for modifier in modifiers:
        if modifier in CHANGES:
            variants = [changed for variant in variants for changed in CHANGES[modifier](variant)]
    orders = [ORDER[modifier] for modifier in modifiers if modifier in ORDER]
    if orders:
        return _ordered(name, key, orders, variants)
    compared = any_of([_compared(name, key, variant, "cased" in modifiers) for variant in variants])
    return negation_of(compared) if "neq" in modifiers else compared


def _looked_at(name: str, modifiers: Sequence[str], key: str, value: object) -> Expression:
    """A regular expression or a block of addresses. Neither has wildcards, and regular expressions heed case unless
    they have the flag `i`."""
    if not isinstance(value, str) or any(modifier in CHANGES or modifier in ORDER for modifier in modifiers):
        raise Inexpressible("bad rule", f"{key} takes a text and no other modifiers, found {shown(value)}")
    flags = "".join(modifier for modifier in modifiers if modifier in FLAGS)
    operator = "matches" if "re" in modifiers else "cidr"
    text = f"(?{flags}){value}" if flags and operator == "matches" else value
    try:
        constraint(name, operator, text)
    except CatchmentError as problem:
        kind = "regular expression" if operator == "matches" else "address range"
        raise Inexpressible(kind, f"{key}: {problem}") from None
    return Comparison(name, operator, (text,), is_cased="i" not in flags)


def _variant(key: str, value: object) -> Variant:
    if isinstance(value, str):
        return pieces(value)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, date):
        raise Inexpressible("bad rule", f"{key}: the time {value} has no quotes; Sigma has texts and numbers only")
    raise Inexpressible("bad rule", f"{key} has {shown(value)}, which is neither a text nor a number")


def _existence(name: str, key: str, value: object) -> Expression:
    if not isinstance(value, bool):
        raise Inexpressible("bad rule", f"{key} is true or false, not {shown(value)}")
    return exists(name) if value else negation_of(exists(name))


def _ordered(name: str, key: str, orders: Sequence[str], variants: Sequence[Variant]) -> Expression:
    parts: list[Expression] = []
    for variant in variants:
        if isinstance(variant, bool) or not isinstance(variant, int | float):
            raise Inexpressible("bad rule", f"{key} compares with a number, not with {_described(variant)}")
        parts += [Comparison(name, order, (variant,)) for order in orders]
    return all_of(parts)


def _compared(name: str, key: str, variant: Variant, is_cased: bool) -> Expression:
    match variant:
        case None:
            return negation_of(exists(name))
        case bytes():
            raise Inexpressible("encoding", f"{key}: only base64 makes a text of these bytes")
        case bool() | int() | float():
            return Comparison(name, "=", (variant,))
        case ():
            return Comparison(name, "=", ("",), is_cased)
        case (Wildcard.RUN,):
            return exists(name)
        case (str(text),):
            return Comparison(name, "=", (text,), is_cased)
        case (str(text), Wildcard.RUN):
            return Comparison(name, "prefix", (text,), is_cased)
        case (Wildcard.RUN, str(text)):
            return Comparison(name, "suffix", (text,), is_cased)
        case (Wildcard.RUN, str(text), Wildcard.RUN):
            return Comparison(name, "contains", (text,), is_cased)
        case _:
            return Comparison(name, "glob", (_glob(variant),), is_cased)


def _glob(text: Pieces) -> str:
    return "".join(
        piece.value if isinstance(piece, Wildcard) else re.sub(r"([\\*?])", r"\\\1", piece) for piece in text
    )


def _equals_joined(parts: Sequence[Expression]) -> list[Expression]:
    """The same alternatives, with values of one kind in one `in`, which stands where the first of them stood."""
    joined: list[Expression] = []
    place_by_kind: dict[object, int] = {}
    for part in parts:
        if not isinstance(part, Comparison) or part.operator != "=":
            joined.append(part)
            continue
        kind = _kind(part.operands[0])
        if kind not in place_by_kind:
            place_by_kind[kind] = len(joined)
            joined.append(part)
            continue
        place = place_by_kind[kind]
        before = joined[place]
        assert isinstance(before, Comparison)
        operands = tuple(dict.fromkeys(before.operands + part.operands))
        joined[place] = Comparison(part.name, "in" if len(operands) > 1 else "=", operands, part.is_cased)
    return joined


def _kind(operand: Scalar) -> object:
    """Texts, numbers and booleans: an `in` holds values of one of these kinds."""
    return str if isinstance(operand, str) else bool if isinstance(operand, bool) else float
