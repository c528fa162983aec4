"""SACS: what subscriptions ask of one string attribute (summaries text §3.1).

A *pattern* here is a constraint on one string, an operator and an operand; not a sequence of filters, as elsewhere. A
SACS is a set of rows. Each row is a pattern with the ids of the subscriptions that it stands for. As in the text, a
pattern that the pattern of a row covers adds its id to that row, and a more general pattern takes the place of the rows
that it covers. So an id may be in a row that is wider than what its subscription asked for: then `is_exact` is false.
If there would be more than `rows_max` rows, patterns become prefixes, which get shorter and shorter, until at last one
prefix, the empty one, stands for every string.
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
# Rows of one attribute: each is sent to other brokers with its ids.
SACS_ROWS_MAX: Final = 1_024
# Patterns that one subscription may have for an attribute: of more ranges of strings, the common prefix is taken.
LISTED_MAX: Final = 64
# For a longer text, rows are tried one by one: it has too many substrings to look up each of them.
_LOOKED_UP_MAX: Final = 64
# Patterns whose sets of strings are kept.
_KEPT_MAX: Final = 65_536


class Pattern(NamedTuple):
    """An operator (`=`, `prefix`, `suffix`, `substring`, `glob`; each of them also with ` nocase`) and its operand. The
    prefix "" matches every string."""

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
                return _GLOBS[self.operator](self.operand).matches(text)

    @property
    def is_glob(self) -> bool:
        """Whether only its set of strings tells what it covers: a glob, or a pattern that ignores case."""
        return self.operator not in _LITERAL

    def covers(self, narrower: Pattern) -> bool:
        if narrower.operator == "=":
            return self.matches(narrower.operand)
        if self.operator == narrower.operator == "prefix":
            return narrower.operand.startswith(self.operand)
        if self.operator == narrower.operator == "suffix":
            return narrower.operand.endswith(self.operand)
        if self.operator == "substring" and not narrower.is_glob:
            return self.operand in narrower.operand
        if self == EVERY:
            return True
        # Other pairs without a glob are taken as not covering one another. For globs, sets of strings are compared.
        return (self.is_glob or narrower.is_glob) and _strings(narrower).is_subset(_strings(self))

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
    "= nocase": lambda text: globs.equal_glob(text, True),
    "prefix nocase": lambda text: globs.prefix_glob(text, True),
    "suffix nocase": lambda text: globs.suffix_glob(text, True),
    "substring nocase": lambda text: globs.substring_glob(text, True),
    "glob nocase": lambda text: globs.glob(text, True),
}
_LITERAL: Final = ("substring", "prefix", "suffix", "=")


def _escaped(text: str) -> str:
    """A glob that matches just this text."""
    return "".join("\\" + character if character in "*?\\" else character for character in text)


@lru_cache(_KEPT_MAX)
def _strings(pattern: Pattern) -> Strings:
    return of_glob(_GLOBS[pattern.operator](pattern.operand))


# --- from sets of strings -----------------------------------------------------------------------


def patterns_of(strings: Strings) -> tuple[tuple[Pattern, ...], bool]:
    """Patterns that together match all strings of a set, and whether they match no other strings."""
    patterns: dict[Pattern, None] = {}
    is_exact = True
    for piece in strings.pieces:
        piece_patterns, is_piece_exact = _of_piece(piece)
        patterns |= dict.fromkeys(piece_patterns)
        is_exact &= is_piece_exact
    if len(patterns) > LISTED_MAX:
        return (EVERY,), False
    return tuple(patterns), is_exact


def _of_piece(piece: Piece) -> tuple[list[Pattern], bool]:
    """Patterns for one piece of a set (`model/strings.py`), and whether they match nothing else."""
    if piece.wanted:
        # Of several globs that must all match, the one that says most: a string that meets all of them meets it.
        chosen = max(piece.wanted, key=lambda glob: (len(glob.characters), len(glob.wanted), glob.pattern))
        return [Pattern(*chosen.simplest_operator)], len(piece.parts) == 1
    if len(piece.ranges) > LISTED_MAX:
        return [Pattern("prefix", _common(piece.ranges[0][0], piece.ranges[-1][1]))], False
    by_range = [_of_range(low, high) for low, high in piece.ranges]
    return [pattern for pattern, _ in by_range], not piece.unwanted and all(is_exact for _, is_exact in by_range)


def _of_range(low: str, high: str | None) -> tuple[Pattern, bool]:
    """A pattern for the strings from `low` up to and not including `high`, and whether it matches nothing else."""
    if high == successor(low):
        return Pattern("=", low), True
    if high == after_prefix(low):
        return Pattern("prefix", low), True
    return Pattern("prefix", _common(low, high)), False


def _common(low: str, high: str | None) -> str:
    """The longest prefix that all strings from `low` up to `high` have."""
    count = 0
    if high is not None:
        while count < min(len(low), len(high)) and low[count] == high[count]:
            count += 1
    return low[:count]


# --- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sacs(Generic[Id]):
    """The ids of each row by its pattern. No pattern covers another, except where that takes an automaton to see, such
    as a glob that covers a prefix."""

    rows: dict[Pattern, frozenset[Id]]
    is_exact: bool = True

    @classmethod
    def of(cls, asked: Iterable[tuple[Id, Iterable[Pattern]]], rows_max: int = SACS_ROWS_MAX) -> Sacs[Id]:
        """Makes a SACS from the patterns of each subscription, which asks for a string that one of them matches."""
        ids_by_pattern: dict[Pattern, set[Id]] = defaultdict(set)
        for id, patterns in asked:
            for pattern in patterns:
                ids_by_pattern[pattern].add(id)
        rows, is_exact = _general(ids_by_pattern)
        length = max((len(pattern.operand) for pattern in rows), default=0)
        # Halving the length ends at 0, where all patterns are EVERY, which is one row.
        while len(rows) > rows_max:
            is_exact, length = False, length // 2
            shorter: dict[Pattern, set[Id]] = defaultdict(set)
            for pattern, ids in rows.items():
                shorter[_shortened(pattern, length)] |= ids
            rows, _ = _general(shorter)
        return cls({pattern: frozenset(ids) for pattern, ids in rows.items()}, is_exact)

    def match(self, text: str) -> frozenset[Id]:
        """The ids of the rows whose pattern matches a string: the text's Check_for_a_value_match (type string)."""
        return frozenset().union(*(self.rows[pattern] for pattern in _covering(Pattern("=", text), self.rows)))

    def merged(self, other: Sacs[Id], rows_max: int = SACS_ROWS_MAX) -> Sacs[Id]:
        """What both SACS say together (§4.1)."""
        asked = [(id, (pattern,)) for sacs in (self, other) for pattern, ids in sacs.rows.items() for id in ids]
        together = Sacs.of(asked, rows_max)
        return Sacs(together.rows, together.is_exact and self.is_exact and other.is_exact)

    def kept(self, wanted: Callable[[Id], bool]) -> Sacs[Id]:
        """The same with only the ids that are wanted."""
        rows = {pattern: frozenset(filter(wanted, ids)) for pattern, ids in self.rows.items()}
        return Sacs({pattern: ids for pattern, ids in rows.items() if ids}, self.is_exact)

    def size_bytes(self, id_bytes: int) -> int:
        """Equation (2): the patterns, and the ids of all rows."""
        return sum(pattern.size_bytes + len(ids) * id_bytes for pattern, ids in self.rows.items())


def _shortened(pattern: Pattern, length: int) -> Pattern:
    """A prefix of that length that covers a pattern. A pattern without a known beginning becomes EVERY."""
    return Pattern("prefix", pattern.operand[:length]) if pattern.operator in ("=", "prefix") and length else EVERY


def _general(asked: dict[Pattern, set[Id]]) -> tuple[dict[Pattern, set[Id]], bool]:
    """The most general patterns, each with the ids of all patterns that it covers; and whether no id got a pattern
    wider than it asked for."""
    rows: dict[Pattern, set[Id]] = {}
    is_exact = True
    # The general ones first: so a pattern that comes later is covered by a row, or is a row itself.
    for pattern in sorted(asked, key=_generality):
        covering = next(_covering(pattern, rows), None)
        if covering is None:
            rows[pattern] = set(asked[pattern])
        else:
            # An id that is in the covering row already has asked for it too.
            is_exact &= asked[pattern] <= rows[covering]
            rows[covering] |= asked[pattern]
    return rows, is_exact


def _generality(pattern: Pattern) -> tuple[int, int, Pattern]:
    """A sort key: a pattern comes before those that it covers, except for globs."""
    kinds = ("substring", "prefix", "suffix", "glob", "=")
    kind = "glob" if pattern.is_glob else pattern.operator
    return (0 if pattern == EVERY else 1 + kinds.index(kind)), len(pattern.operand), pattern


def _covering(pattern: Pattern, rows: dict[Pattern, frozenset[Id]] | dict[Pattern, set[Id]]) -> Iterator[Pattern]:
    """The patterns of the rows that cover a pattern."""
    text = pattern.operand
    if pattern.is_glob or len(text) > _LOOKED_UP_MAX or len(rows) <= _LOOKED_UP_MAX:
        yield from (row for row in rows if row.covers(pattern))
        return
    # With many rows it is faster to list all patterns, except globs, that cover this one, and to look each up.
    asked = {EVERY: None, pattern: None}
    parts = range(len(text) + 1)
    if pattern.operator in ("=", "prefix"):
        asked |= {Pattern("prefix", text[:end]): None for end in parts}
    if pattern.operator in ("=", "suffix"):
        asked |= {Pattern("suffix", text[start:]): None for start in parts}
    asked |= {Pattern("substring", text[start:end]): None for start in parts for end in parts[start:]}
    yield from (coverer for coverer in asked if coverer in rows)
    yield from (row for row in rows if row.is_glob and row != pattern and row.covers(pattern))
