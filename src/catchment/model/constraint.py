"""A constraint: attribute name, operator, operand. Its meaning is a set of values (`domain.py`).

`kind` says which types of value fit the constraint: a single named type, `number` for int and float alike (the kind of
an untyped numeric literal), or `any`. If the attribute is absent, or its type does not fit, the constraint is
unknown. So a constraint has two sets: the values that satisfy it and those that fail it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from catchment.errors import BadFilterError, CatchmentError, LimitError, shown
from catchment.model import domain, globs, opaque
from catchment.model import ranges as rng
from catchment.model.budget import uncounted
from catchment.model.domain import Keys, Values, keys_between
from catchment.model.opaque import OPAQUE
from catchment.model.strings import (
    Strings,
    after_prefix,
    none_of_globs,
    not_glob,
    of_glob,
    of_ranges,
    one_of_globs,
    successor,
)
from catchment.model.values import (
    Json,
    Type,
    Value,
    checked,
    checked_name,
    float_key,
    format_time,
    time_key,
    value_from_json,
    value_to_json,
)

# A longer list of values should be several subscriptions.
IN_VALUES_MAX: Final = 1_024
ENVELOPE_NAMES: Final = ("$id", "$source", "$time", "$seq")
_SETS_KEPT_MAX: Final = 131_072
_NAMES_KEPT_MAX: Final = 16_384


class Kind(StrEnum):
    """The types of value a constraint fits."""

    STRING = "string"
    NUMBER = "number"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIME = "time"
    ANY = "any"


TYPES_OF_KIND: Final[dict[Kind, tuple[Type, ...]]] = {
    Kind.STRING: (Type.STRING,),
    Kind.NUMBER: (Type.INT, Type.FLOAT),
    Kind.INT: (Type.INT,),
    Kind.FLOAT: (Type.FLOAT,),
    Kind.BOOL: (Type.BOOL,),
    Kind.TIME: (Type.TIME,),
    Kind.ANY: tuple(Type),
}
NUMERIC: Final = (Kind.NUMBER, Kind.INT, Kind.FLOAT)
KIND_OF_LITERAL: Final[dict[type, Kind]] = {
    str: Kind.STRING,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    bool: Kind.BOOL,
    datetime: Kind.TIME,
}

EQUALITY: Final = ("=", "!=", "in", "not in")
ORDER: Final = ("<", "<=", ">", ">=")
# Those that ignore case are written `name contains nocase "x"`. `in nocase` is several of `= nocase`.
NOCASE: Final = (
    "= nocase",
    "!= nocase",
    "in nocase",
    "prefix nocase",
    "suffix nocase",
    "substring nocase",
    "glob nocase",
)
NOT_NOCASE: Final = (
    *("not in nocase", "not prefix nocase", "not suffix nocase"),
    *("not substring nocase", "not glob nocase"),
)
STRING_ONLY: Final = (
    *("prefix", "suffix", "substring", "glob", "not prefix", "not suffix", "not substring", "not glob"),
    *NOCASE,
    *NOT_NOCASE,
    *OPAQUE,
)
OPERATORS: Final = (*EQUALITY, *ORDER, *STRING_ONLY, "any", "absent")
_SPELLINGS: Final = {">*": "prefix", "*<": "suffix", "*": "substring", "contains": "substring", "==": "=", "<>": "!="}
_SYMBOLS: Final = {"prefix": ">*", "suffix": "*<", "substring": "*"}


# `gc=False`: a constraint holds no objects that could refer back to it. The garbage collector would take a third of the
# time in which many filters are read.
class Constraint(Struct, frozen=True, gc=False, cache_hash=True):
    """An immutable constraint. The function `constraint()` checks its arguments and builds one."""

    name: str
    operator: str
    value: Value | tuple[Value, ...] | None
    kind: Kind

    @property
    def is_opaque(self) -> bool:
        """Whether only a look at a value decides it (`opaque.py`): no set says what satisfies it."""
        return self.operator in OPAQUE

    @property
    def satisfied_by(self) -> Values:
        """The values that make it true; of an opaque constraint, a set around them."""
        return _satisfying(self.kind, self.operator, self.value)

    @property
    def failed_by(self) -> Values:
        """The values that make it false; of an opaque constraint, a set around them. Values in neither set, absence
        among them, leave it unknown."""
        if self.operator == "absent":
            return domain.PRESENT
        if self.is_opaque:
            return fitting(self.kind)
        return fitting(self.kind) - self.satisfied_by

    def matches(self, value: Value | None) -> bool:
        """Whether a value (None: absent) satisfies it."""
        if self.is_opaque:
            return isinstance(value, str) and opaque.holds(self.operator, str(self.value), value)
        return value in self.satisfied_by

    @property
    def around(self) -> Constraint:
        """A constraint that is not opaque and holds wherever this one does."""
        if not self.is_opaque:
            return self
        return Constraint(self.name, *opaque.implied(self.operator, str(self.value)), self.kind)

    @property
    def comparisons(self) -> int:
        """How many values it compares with. Approximation counts these."""
        return max(1, len(self.value)) if isinstance(self.value, tuple) else 1

    def __str__(self) -> str:
        name = quoted_name(self.name)
        if self.operator == "absent":
            return f"not exists({name})"
        negation, operator = ("not ", self.operator[4:]) if self.operator.startswith("not ") else ("", self.operator)
        typed = f"{self.kind} " if self.kind is not _literal_kind(self.value) else ""
        operand = "" if self.value is None else " " + _operand_text(self.value)
        base, nocase = (operator.removesuffix(" nocase"), " nocase") if operator.endswith(" nocase") else (operator, "")
        return f"{negation}{typed}{name} {_SYMBOLS.get(base, base)}{nocase}{operand}"

    def to_json(self) -> dict[str, Json]:
        json: dict[str, Json] = {"name": self.name, "operator": self.operator}
        if self.kind is not _literal_kind(self.value):
            json["type"] = self.kind.value
        if isinstance(self.value, tuple):
            json["value"] = [value_to_json(value) for value in self.value]
        elif self.value is not None:
            json["value"] = value_to_json(self.value)
        return json

    @classmethod
    def from_json(cls, data: object) -> Constraint:
        if not isinstance(data, Mapping) or not {"name", "operator"} <= set(data) <= _JSON_FIELDS:
            raise BadFilterError(f"{shown(data)} is not a constraint: it has name, operator, and value and type if any")
        value = data.get("value")
        operand = [value_from_json(member) for member in value] if isinstance(value, list) else value
        if operand is not None and not isinstance(operand, list):
            operand = value_from_json(operand)
        return constraint(data["name"], data["operator"], operand, data.get("type"))


_JSON_FIELDS: Final = {"name", "operator", "value", "type"}


def constraint(name: object, operator: object, value: object = None, kind: object = None) -> Constraint:
    """A checked constraint. BadFilterError says which of the arguments do not go together."""
    attribute = _checked_attribute(name)
    canonical = _canonical_operator(operator) if isinstance(operator, str) else operator
    if canonical == "matches nocase":
        raise BadFilterError(f"matches nocase on {shown(name)}: write (?i) where the regular expression begins")
    if canonical not in OPERATORS:
        raise BadFilterError(f"unknown operator {shown(operator)} on {shown(name)}: use one of {', '.join(OPERATORS)}")
    assert isinstance(canonical, str)
    try:
        operand = _checked_operand(canonical, value)
        checked_kind = _checked_kind(canonical, operand, kind)
        _check_pattern(canonical, operand)
    except CatchmentError as problem:
        raise _located(problem, f"{shown(attribute)} {canonical}") from None
    return Constraint(attribute, canonical, operand, checked_kind)


def _canonical_operator(operator: str) -> str:
    if operator.endswith(" nocase"):
        base = operator.removesuffix(" nocase")
        return f"{_SPELLINGS.get(base, base)} nocase"
    return _SPELLINGS.get(operator, operator)


def as_constraint(given: Constraint | Sequence[object]) -> Constraint:
    """A constraint, or (name, operator[, value[, type]])."""
    if isinstance(given, Constraint):
        return given
    if isinstance(given, str) or not 2 <= len(given) <= 4:
        raise BadFilterError(f"{shown(given)} is not a constraint: write (name, operator, value) or add a type")
    return constraint(*given)


def _located(problem: CatchmentError, where: str) -> CatchmentError:
    """The same error with the place in front; a LimitError names its limit and stays as it is."""
    return problem if isinstance(problem, LimitError) else type(problem)(f"{where}: {problem}")


def _checked_attribute(name: object) -> str:
    checked = checked_name(name)
    if checked.startswith("$") and checked not in ENVELOPE_NAMES:
        raise BadFilterError(f"unknown envelope field {shown(checked)}: there are {', '.join(ENVELOPE_NAMES)}")
    return checked


def _checked_operand(operator: str, value: object) -> Value | tuple[Value, ...] | None:
    if operator in ("any", "absent"):
        if value is not None:
            raise BadFilterError(f"takes no value, found {shown(value)}")
        return None
    if value is None:
        raise BadFilterError("needs a value")
    if operator.removeprefix("not ") not in ("in", "in nocase"):
        return checked(value)
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise BadFilterError(f"needs a list of values, found {shown(value)}")
    members = [checked(member) for member in value]
    if not members:
        raise BadFilterError("needs at least one value")
    if len(members) > IN_VALUES_MAX:
        raise LimitError("IN_VALUES_MAX", IN_VALUES_MAX, f"{len(members):,} values", "split the subscription")
    return tuple(members)


def _checked_kind(operator: str, operand: Value | tuple[Value, ...] | None, kind: object) -> Kind:
    if kind is not None and kind not in tuple(Kind):
        raise BadFilterError(f"unknown type {shown(kind)}: use one of {', '.join(Kind)}")
    literal = _common_kind(operand)
    chosen = literal if kind is None else Kind(str(kind))
    if operand is not None and chosen is not literal and not (literal is Kind.NUMBER and chosen in NUMERIC):
        raise BadFilterError(f"type {chosen} does not go with the {literal} {shown(operand)}")
    if operator in STRING_ONLY and chosen is not Kind.STRING:
        raise BadFilterError(f"{operator} is for strings, not for the {chosen} {shown(operand)}")
    if operator in ORDER and chosen is Kind.BOOL:
        raise BadFilterError("booleans have no order: use = or !=")
    if operator == "absent" and chosen is not Kind.ANY:
        raise BadFilterError("absence has no type")
    return chosen


def _common_kind(operand: Value | tuple[Value, ...] | None) -> Kind:
    """The kind of the literal; of the values of an `in`, the kind that all have."""
    if not isinstance(operand, tuple):
        return _literal_kind(operand)
    kinds = {KIND_OF_LITERAL[type(value)] for value in operand}
    if len(kinds) > 1:
        raise BadFilterError(f"mixes {' and '.join(sorted(kinds))}: write one `in` for each and join them with `or`")
    return kinds.pop()


def _literal_kind(operand: Value | tuple[Value, ...] | None) -> Kind:
    if operand is None:
        return Kind.ANY
    return KIND_OF_LITERAL[type(operand[0] if isinstance(operand, tuple) else operand)]


def _check_pattern(operator: str, operand: object) -> None:
    """Refuses patterns that are too long, and globs that are none. What they match is compiled when it is needed."""
    if operator not in STRING_ONLY:
        return
    for text in operand if isinstance(operand, tuple) else (operand,):
        assert isinstance(text, str)
        if len(text) > globs.GLOB_CODEPOINTS_MAX and operator not in ("prefix", "not prefix", *OPAQUE):
            raise LimitError("GLOB_CODEPOINTS_MAX", globs.GLOB_CODEPOINTS_MAX, f"an operand of {len(text):,}")
        if "glob" in operator:
            globs.glob(text)
        elif operator in OPAQUE:
            opaque.check(operator, text)


# --- meaning ------------------------------------------------------------------------------------


def fitting(kind: Kind) -> Values:
    """All values of the types that fit a kind."""
    if kind is Kind.ANY:
        return domain.PRESENT
    values = domain.NOTHING
    for value_type in TYPES_OF_KIND[kind]:
        values |= domain.OF_TYPE[value_type]
    return values


@lru_cache(_SETS_KEPT_MAX)
@uncounted
def _satisfying(kind: Kind, operator: str, value: Value | tuple[Value, ...] | None) -> Values:
    if operator == "absent":
        return domain.ABSENT
    if operator == "any":
        return fitting(kind)
    if operator in OPAQUE:
        return _satisfying(kind, *opaque.implied(operator, str(value)))
    if operator == "in":
        assert isinstance(value, tuple)
        return _union_of_equals(kind, value)
    if operator.endswith(" nocase"):
        return domain.of_strings(_strings_nocase(operator, value if isinstance(value, tuple) else (value,)))
    if operator in ("!=", "not in", "not prefix"):
        opposite = "=" if operator == "!=" else operator.removeprefix("not ")
        return fitting(kind) - _satisfying(kind, opposite, value)
    assert value is not None
    assert not isinstance(value, tuple)
    if isinstance(value, str):
        return domain.of_strings(_strings_satisfying(operator, value))
    return domain.of_keys(
        {value_type: _keys_satisfying(value_type, operator, value) for value_type in TYPES_OF_KIND[kind]}
    )


def _union_of_equals(kind: Kind, members: tuple[Value, ...]) -> Values:
    if kind is Kind.STRING:
        texts = [str(member) for member in members]
        return domain.of_strings(of_ranges(rng.union((text, successor(text)) for text in texts)))
    return domain.of_keys(
        {
            value_type: rng.union(part for member in members for part in _keys_satisfying(value_type, "=", member))
            for value_type in TYPES_OF_KIND[kind]
        }
    )


def edges(value_type: Type, value: Value) -> tuple[int, int]:
    """The least key of the type at or above `value`, and the least key above it. They differ by 1 where the type has
    the value itself, and are equal where it has not."""
    if value_type is Type.INT:
        assert isinstance(value, int | float)
        return math.ceil(value), math.floor(value) + 1
    if value_type is Type.FLOAT:
        assert isinstance(value, int | float)
        near = float(value)  # rounds an int that no float equals; Python compares the two exactly
        key = float_key(near)
        return key + (near < value), key + (near <= value)
    key = int(value) if isinstance(value, bool) else time_key(value)  # type: ignore[arg-type]
    return key, key + 1


def _keys_satisfying(value_type: Type, operator: str, value: Value) -> Keys:
    at_or_above, above = edges(value_type, value)
    match operator:
        case "=":
            return keys_between(value_type, at_or_above, above)
        case "<":
            return keys_between(value_type, None, at_or_above)
        case "<=":
            return keys_between(value_type, None, above)
        case ">":
            return keys_between(value_type, above, None)
        case _:
            return keys_between(value_type, at_or_above, None)


_STRING_RANGES: Final[dict[str, Callable[[str], tuple[str, str | None]]]] = {
    "=": lambda text: (text, successor(text)),
    "<": lambda text: ("", text),
    "<=": lambda text: ("", successor(text)),
    ">": lambda text: (successor(text), None),
    ">=": lambda text: (text, None),
    "prefix": lambda text: (text, after_prefix(text)),
}
_GLOB_OF: Final[dict[str, Callable[[str], globs.Glob]]] = {
    "suffix": globs.suffix_glob,
    "substring": globs.substring_glob,
    "glob": globs.glob,
}


def _strings_satisfying(operator: str, text: str) -> Strings:
    if (range_of := _STRING_RANGES.get(operator)) is not None:
        low, high = range_of(text)
        return of_ranges(((low, high),) if high is None or low < high else ())
    if operator.startswith("not "):
        return not_glob(_GLOB_OF[operator[4:]](text))
    return of_glob(_GLOB_OF[operator](text))


_NOCASE_GLOB_OF: Final[dict[str, Callable[[str, bool], globs.Glob]]] = {
    "=": globs.equal_glob,
    "!=": globs.equal_glob,
    "in": globs.equal_glob,
    "prefix": globs.prefix_glob,
    "suffix": globs.suffix_glob,
    "substring": globs.substring_glob,
    "glob": globs.glob,
}


def _nocase_glob(operator: str, text: str) -> globs.Glob:
    return _NOCASE_GLOB_OF[operator.removeprefix("not ").removesuffix(" nocase")](text, True)


def _strings_nocase(operator: str, texts: tuple[object, ...]) -> Strings:
    patterns = [_nocase_glob(operator, str(text)) for text in texts]
    if operator.startswith("not ") or operator == "!= nocase":
        return not_glob(patterns[0]) if len(patterns) == 1 else none_of_globs(patterns)
    return of_glob(patterns[0]) if len(patterns) == 1 else one_of_globs(patterns)


# --- text ---------------------------------------------------------------------------------------

# Words that cannot be names without quotes: they have a meaning where a name may stand or follow.
RESERVED_WORDS: Final = frozenset(
    (
        *("and", "or", "not", "in", "any", "exists", "within", "by", "true", "false"),
        *("prefix", "suffix", "contains", "glob", "matches", "cidr"),
    )
)
NAME_PATTERN: Final = r"\$?[^\W\d]\w*(?:\.\w+)*"
_BARE_NAME: Final = re.compile(NAME_PATTERN)
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@lru_cache(_NAMES_KEPT_MAX)
def quoted_name(name: str) -> str:
    """A name as the filter language writes it: in backquotes unless it is a word that is not reserved."""
    if _BARE_NAME.fullmatch(name) and name.lower() not in RESERVED_WORDS:
        return name
    return _quoted(name, "`")


def _quoted(text: str, quote: str) -> str:
    if text.isprintable():
        return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
    return quote + "".join(_escaped(character, quote) for character in text) + quote


def _escaped(character: str, quote: str) -> str:
    if character == quote:
        return "\\" + quote
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def literal(value: Value) -> str:
    """A value as the filter language writes it."""
    if isinstance(value, str):
        return _quoted(value, '"')
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_time(value) if isinstance(value, datetime) else repr(value)


def _operand_text(value: Value | tuple[Value, ...]) -> str:
    return f"({', '.join(map(literal, value))})" if isinstance(value, tuple) else literal(value)
