"""SACS: what subscriptions say of one string attribute (summaries text §3.1).

A row is a pattern and the ids of the subscriptions it stands for. As the text says, a constraint that a row covers
adds its id to that row, and a more general one takes the place of the rows it covers, so an id may stand with a pattern
wider than it asked for: `is_exact` tells. Past `rows_max` rows, patterns become prefixes, shorter and shorter, and at
last the one that holds every string.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

from catchment.model import globs
from catchment.model.strings import Piece, Strings, after_prefix, of_glob, successor

Id = TypeVar("Id")
# Rows of one attribute: each is sent to other brokers, with its ids.
SACS_ROWS_MAX: Final = 1_024
# Strings of an attribute that one subscription lists; of more the common beginning is taken.
LISTED_MAX: Final = 64
# In a longer text, rows are tried one by one rather than all its parts looked up.
_LOOKED_UP_MAX: Final = 64
_KEPT_MAX: Final = 65_536


class Pattern(NamedTuple):
    """An operator (`=`, `prefix`, `suffix`, `substring`, `glob`) and its operand; prefix of "" is every string."""

    operator: str
    operand: str

    def matches(self, text: str) -> bool:
        match self.operator:
            case "=":
                return text == self.operand
            case "prefix":
                return text.startswith(self.operand)
            case "suffix":
                return text.endswith(self.operand)
            case "substring":
                return self.operand in text
            case _:
                return globs.glob(self.operand).matches(text)

    def covers(self, other: Pattern) -> bool:
        if other.operator == "=":
            return self.matches(other.operand)
        if self.operator == other.operator == "prefix":
            return other.operand.startswith(self.operand)
        if self.operator == other.operator == "suffix":
            return other.operand.endswith(self.operand)
        if self.operator == "substring" and other.operator != "glob":
            return self.operand in other.operand
        if self == EVERY:
            return True
        return "glob" in (self.operator, other.operator) and _strings(other).is_subset(_strings(self))

    @property
    def size_bytes(self) -> int:
        """One byte a character, as the text counts."""
        return len(self.operand)


EVERY: Final = Pattern("prefix", "")
_GLOBS: Final[dict[str, Callable[[str], globs.Glob]]] = {
    "=": lambda text: globs.glob(_escaped(text)),
    "prefix": lambda text: globs.glob(_escaped(text) + "*"),
    "suffix": globs.suffix_glob,
    "substring": globs.substring_glob,
    "glob": globs.glob,
}


def _escaped(text: str) -> str:
    return "".join("\\" + one if one in "*?\\" else one for one in text)


@lru_cache(_KEPT_MAX)
def _strings(pattern: Pattern) -> Strings:
    return of_glob(_GLOBS[pattern.operator](pattern.operand))


# --- from sets of strings -----------------------------------------------------------------------


def patterns_of(strings: Strings) -> tuple[tuple[Pattern, ...], bool]:
    """Patterns that hold a set of strings, and whether they hold nothing else."""
    found: dict[Pattern, None] = {}
    is_exact = True
    for piece in strings.pieces:
        patterns, exact = _of_piece(piece)
        found |= dict.fromkeys(patterns)
        is_exact &= exact
    if len(found) > LISTED_MAX:
        return (EVERY,), False
    return tuple(found), is_exact


def _of_piece(piece: Piece) -> tuple[list[Pattern], bool]:
    if piece.wanted:
        # Of several conditions the one that says most: what meets all of them meets it.
        chosen = max(piece.wanted, key=lambda one: (len(one.characters), len(one.wanted), one.pattern))
        return [Pattern(*chosen.simplest_operator)], len(piece.parts) == 1
    if len(piece.ranges) > LISTED_MAX:
        return [Pattern("prefix", _common(piece.ranges[0][0], piece.ranges[-1][1]))], False
    found = [_of_range(low, high) for low, high in piece.ranges]
    return [pattern for pattern, _ in found], not piece.unwanted and all(exact for _, exact in found)


def _of_range(low: str, high: str | None) -> tuple[Pattern, bool]:
    if high == successor(low):
        return Pattern("=", low), True
    if high == after_prefix(low):
        return Pattern("prefix", low), True
    return Pattern("prefix", _common(low, high)), False


def _common(low: str, high: str | None) -> str:
    """What all strings from `low` up to `high` begin with."""
    count = 0
    if high is not None:
        while count < min(len(low), len(high)) and low[count] == high[count]:
            count += 1
    return low[:count]


# --- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sacs(Generic[Id]):
    """Rows by pattern, none of which covers another, unless by an automaton (a glob, say, a prefix)."""

    rows: dict[Pattern, frozenset[Id]]
    is_exact: bool = True

    @classmethod
    def of(cls, asked: Iterable[tuple[Id, Iterable[Pattern]]], rows_max: int = SACS_ROWS_MAX) -> Sacs[Id]:
        """Of what each subscription asks for: a string that one of its patterns holds."""
        ids: dict[Pattern, set[Id]] = defaultdict(set)
        for id, patterns in asked:
            for pattern in patterns:
                ids[pattern].add(id)
        rows, is_exact = _general(ids)
        length = max((len(one.operand) for one in rows), default=0)
        while len(rows) > rows_max:
            is_exact, length = False, length // 2
            shorter: dict[Pattern, set[Id]] = defaultdict(set)
            for pattern, found in rows.items():
                shorter[_shortened(pattern, length)] |= found
            rows, _ = _general(shorter)
        return cls({pattern: frozenset(found) for pattern, found in rows.items()}, is_exact)

    def match(self, text: str) -> frozenset[Id]:
        """Check_for_a_value_match (type string): the ids of the rows whose pattern holds a string."""
        return frozenset().union(*(self.rows[pattern] for pattern in _covering(Pattern("=", text), self.rows)))

    def merged(self, other: Sacs[Id], rows_max: int = SACS_ROWS_MAX) -> Sacs[Id]:
        """What both say (§4.1)."""
        asked = [(id, (pattern,)) for part in (self, other) for pattern, ids in part.rows.items() for id in ids]
        found = Sacs.of(asked, rows_max)
        return Sacs(found.rows, found.is_exact and self.is_exact and other.is_exact)

    def kept(self, wanted: Callable[[Id], bool]) -> Sacs[Id]:
        """Only some ids."""
        rows = {pattern: frozenset(filter(wanted, ids)) for pattern, ids in self.rows.items()}
        return Sacs({pattern: ids for pattern, ids in rows.items() if ids}, self.is_exact)

    def size_bytes(self, id_bytes: int) -> int:
        """Equation (2): the patterns, and the ids of all rows."""
        return sum(pattern.size_bytes + len(ids) * id_bytes for pattern, ids in self.rows.items())


def _shortened(pattern: Pattern, length: int) -> Pattern:
    return Pattern("prefix", pattern.operand[:length]) if pattern.operator in ("=", "prefix") and length else EVERY


def _general(asked: dict[Pattern, set[Id]]) -> tuple[dict[Pattern, set[Id]], bool]:
    """The most general patterns, each with the ids of all that it covers; and whether nobody got a wider one."""
    rows: dict[Pattern, set[Id]] = {}
    is_exact = True
    for pattern in sorted(asked, key=_generality):
        covering = next(_covering(pattern, rows), None)
        if covering is None:
            rows[pattern] = set(asked[pattern])
        else:
            is_exact &= asked[pattern] <= rows[covering]
            rows[covering] |= asked[pattern]
    return rows, is_exact


def _generality(pattern: Pattern) -> tuple[int, int, Pattern]:
    """An order in which what covers comes before what it covers, but for globs."""
    kinds = ("substring", "prefix", "suffix", "glob", "=")
    return (0 if pattern == EVERY else 1 + kinds.index(pattern.operator)), len(pattern.operand), pattern


def _covering(pattern: Pattern, rows: dict[Pattern, frozenset[Id]] | dict[Pattern, set[Id]]) -> Iterator[Pattern]:
    """Those of the rows that cover a pattern: looked up, as far as they can be."""
    text = pattern.operand
    if pattern.operator == "glob" or len(text) > _LOOKED_UP_MAX or len(rows) <= _LOOKED_UP_MAX:
        yield from (row for row in rows if row.covers(pattern))
        return
    asked = {EVERY: None, pattern: None}
    parts = range(len(text) + 1)
    if pattern.operator in ("=", "prefix"):
        asked |= {Pattern("prefix", text[:end]): None for end in parts}
    if pattern.operator in ("=", "suffix"):
        asked |= {Pattern("suffix", text[start:]): None for start in parts}
    asked |= {Pattern("substring", text[start:end]): None for start in parts for end in parts[start:]}
    yield from (one for one in asked if one in rows)
    yield from (row for row in rows if row.operator == "glob" and row != pattern and row.covers(pattern))
