"""SACS: what subscriptions ask of one string attribute (summaries text §3.1).

A *pattern* here is a constraint on one string, an operator and an operand; not a sequence of filters, as elsewhere. A
SACS is a set of rows. Each row is a pattern with the ids of the subscriptions that it stands for. As in the text, a
pattern that the pattern of a row covers adds its id to that row, and a more general pattern takes the place of the rows
that it covers. So an id may be in a row that is wider than what its subscription asked for: then `is_exact` is false.
If there would be more than `rows_max` rows, patterns become prefixes, which get shorter and shorter, until at last one
prefix, the empty one, stands for every string.

Which rows there are depends only on which patterns there are, not on the order in which they came: patterns are taken
in the order of `generality`. A pattern that an earlier row covers joins the first such row; any other is a row itself.
`maintained.py` keeps the same rows while patterns come and go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

from catchment.errors import BadFilterError, shown
from catchment.model import globs
from catchment.model.strings import Piece, Strings, after_prefix, of_glob, successor
from catchment.model.values import checked_string

Id = TypeVar("Id")
# Rows of one attribute: each is sent to other brokers with its ids.
SACS_ROWS_MAX: Final = 1_024
# Patterns that one subscription may have for an attribute: of more ranges of strings, the common prefix is taken.
LISTED_MAX: Final = 64
# Patterns whose sets of strings are kept.
_KEPT_MAX: Final = 65_536


class Pattern(NamedTuple):
    """An operator (`=`, `prefix`, `suffix`, `substring`, `glob`; each of them also with ` nocase`) and its operand. The
    prefix "" matches every string."""

    operator: str
    operand: str

    @classmethod
    def checked(cls, operator: str, operand: str) -> Pattern:
        """A pattern that another broker has sent. CatchmentError if there is no such pattern."""
        if operator not in _GLOBS:
            raise BadFilterError(f"there is no operator {shown(operator)} in a row: use one of {', '.join(_GLOBS)}")
        if operator in _LITERAL:
            checked_string(operand)
        else:
            # A glob that cannot be read says so here.
            _GLOBS[operator](operand)
        return cls(operator, operand)

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
    index: PatternIndex = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", PatternIndex(self.rows))

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
        return frozenset().union(*(self.rows[pattern] for pattern in self.index.matching(text)))

    def merged(self, other: Sacs[Id], rows_max: int = SACS_ROWS_MAX) -> Sacs[Id]:
        """What both SACS say together (§4.1)."""
        asked = [(id, (pattern,)) for sacs in (self, other) for pattern, ids in sacs.rows.items() for id in ids]
        together = Sacs.of(asked, rows_max)
        return Sacs(together.rows, together.is_exact and self.is_exact and other.is_exact)

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
    index = PatternIndex()
    is_exact = True
    # The general ones first: so a pattern that comes later is covered by a row, or is a row itself.
    for pattern in sorted(asked, key=generality):
        covering = index.first_covering(pattern)
        if covering is None:
            rows[pattern] = set(asked[pattern])
            index.add(pattern)
        else:
            # An id that is in the covering row already has asked for it too.
            is_exact &= asked[pattern] <= rows[covering]
            rows[covering] |= asked[pattern]
    return rows, is_exact


_KIND_ORDER: Final = {"substring": 1, "prefix": 2, "suffix": 3, "=": 5}


def generality(pattern: Pattern) -> tuple[int, int, Pattern]:
    """A sort key: a pattern comes before those that it covers, except for globs."""
    # Globs and patterns that ignore case come before single texts, after all others.
    kind = 0 if pattern == EVERY else _KIND_ORDER.get(pattern.operator, 4)
    return kind, len(pattern.operand), pattern


class PatternIndex:
    """The patterns of the rows of one attribute, to find those that cover another pattern, or match a text."""

    def __init__(self, patterns: Iterable[Pattern] = ()) -> None:
        # Operands of the patterns without a glob, by operator; and the patterns with one.
        self._operands: dict[str, set[str]] = {operator: set() for operator in _LITERAL}
        self._globs: dict[Pattern, None] = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Pattern) -> None:
        if pattern.is_glob:
            self._globs[pattern] = None
        else:
            self._operands[pattern.operator].add(pattern.operand)

    def discard(self, pattern: Pattern) -> None:
        if pattern.is_glob:
            self._globs.pop(pattern, None)
        else:
            self._operands[pattern.operator].discard(pattern.operand)

    def __bool__(self) -> bool:
        return bool(self._globs) or any(self._operands.values())

    def __iter__(self) -> Iterator[Pattern]:
        for operator, operands in self._operands.items():
            yield from (Pattern(operator, operand) for operand in operands)
        yield from self._globs

    def first_covering(self, pattern: Pattern) -> Pattern | None:
        """Of the patterns that cover this one, the first in the order of `generality`."""
        return min(self.covering(pattern), key=generality, default=None)

    def matching(self, text: str) -> Iterator[Pattern]:
        """The patterns that match a text."""
        return self.covering(Pattern("=", text))

    def covering(self, pattern: Pattern) -> Iterator[Pattern]:
        """The patterns that cover this one; perhaps the pattern itself among them."""
        if pattern.is_glob:
            yield from (row for row in self if row.covers(pattern))
            return
        for operator in _COVERERS[pattern.operator]:
            yield from (Pattern(operator, part) for part in self._parts_of(pattern.operand, operator))
        if pattern.operator not in ("=", "prefix") and "" in self._operands["prefix"]:
            yield EVERY
        yield from (row for row in self._globs if row.covers(pattern))

    def _parts_of(self, text: str, operator: str) -> Iterator[str]:
        """The operands of this operator whose patterns cover a pattern with this text: parts of the text."""
        operands = self._operands[operator]
        length = len(text)
        if not operands:
            return
        if operator == "=":
            yield from (text,) if text in operands else ()
        elif operator == "prefix":
            yield from _found(operands, (text[:end] for end in range(length + 1)), length, text.startswith)
        elif operator == "suffix":
            yield from _found(operands, (text[start:] for start in range(length + 1)), length, text.endswith)
        else:
            parts = (text[start:end] for start in range(length) for end in range(start + 1, length + 1))
            yield from _found(operands, chain(("",), parts), length * length // 2, text.__contains__)


# For the operator of a pattern without a glob: the operators of those that may cover it, besides globs and EVERY.
_COVERERS: Final = {
    "=": ("substring", "prefix", "suffix", "="),
    "prefix": ("substring", "prefix"),
    "suffix": ("substring", "suffix"),
    "substring": ("substring",),
}


def _found(operands: set[str], parts: Iterable[str], parts_count: int, is_part: Callable[[str], bool]) -> Iterator[str]:
    """The operands that are parts of a text. It is faster to look up all parts than to try all operands, or the other
    way round."""
    if len(operands) <= parts_count:
        return (operand for operand in operands if is_part(operand))
    # A text may have the same part twice.
    return (part for part in dict.fromkeys(parts) if part in operands)
