r"""Glob patterns: `*` any run of characters, `?` one character, `\` escapes, nothing else is special.

A pattern becomes a chain of positions. A character leads from each position to the next; at a position that *waits*
(where the pattern has a `*`) any run of characters may come first. The positions reached are the bits of an integer, so
a match takes one step for each character of the text, whatever the pattern: there is no backtracking. Prefix, suffix
and substring are globs too.

A glob may ignore case: then its characters are folded (`folding.py`), and each stands for all characters that fold to
it. Folding maps one character to one, so such a glob is an automaton like any other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from catchment.errors import BadFilterError, LimitError, shown
from catchment.model.folding import folded, unfolded

# A position is a bit: this bounds the work of a step.
GLOB_CODEPOINTS_MAX: Final = 4_096
# So many compiled globs are cached: many filters share a constraint. Each takes a few hundred bytes.
_COMPILED_MAX: Final = 65_536

_ANY_CHARACTER: Final = None  # stands for `?` among the characters that a pattern wants


class Glob:
    """A pattern in normal form: equal languages have equal `wanted` and `waiting`."""

    __slots__ = ("_bits", "_hash", "_pattern", "accepting", "ignores_case", "waiting", "wanted")

    def __init__(self, wanted: tuple[str | None, ...], waiting: int, ignores_case: bool = False) -> None:
        """`wanted[i]` is the character that leads from position i to i+1, None for any character.
        Bit i of `waiting` says that position i may take any run of characters first."""
        if ignores_case:
            wanted = tuple(None if character is None else folded(character) for character in wanted)
            # Where no character has case, ignoring it changes nothing: such a glob has one form.
            ignores_case = any(len(unfolded(character)) > 1 for character in wanted if character is not None)
        self.wanted = wanted
        self.waiting = waiting
        self.ignores_case = ignores_case
        self.accepting = 1 << len(wanted)
        any_character = sum(1 << i for i, character in enumerate(wanted) if character is _ANY_CHARACTER)
        # For each character, the positions that it leads on from. None stands for characters that do not occur.
        self._bits: dict[str | None, int] = {None: any_character}
        for i, character in enumerate(wanted):
            for each in () if character is None else unfolded(character) if ignores_case else (character,):
                self._bits[each] = self._bits.get(each, any_character) | 1 << i
        self._hash = hash((wanted, waiting, ignores_case))
        self._pattern: str | None = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Glob)
            and self.wanted == other.wanted
            and self.waiting == other.waiting
            and self.ignores_case == other.ignores_case
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Glob, (self.wanted, self.waiting, self.ignores_case)

    def __repr__(self) -> str:
        return f"Glob({self.pattern!r}{', ignores case' if self.ignores_case else ''})"

    # --- as an automaton ---

    @property
    def start(self) -> int:
        return 1

    def step(self, reached: int, character: str) -> int:
        passed = (reached & self._bits.get(character, self._bits[None])) << 1
        reached = (reached & self.waiting) | passed
        # Whatever an earlier position would accept, the last waiting position accepts too. Dropping the earlier
        # positions gives equal states equal numbers, and keeps their number small.
        waits = reached & self.waiting
        return reached & -(1 << (waits.bit_length() - 1)) if waits else reached

    def accepts(self, reached: int) -> bool:
        return bool(reached & self.accepting)

    def matches(self, text: str) -> bool:
        reached, step = 1, self.step
        for character in text:
            reached = step(reached, character)
            if not reached:
                return False
        return bool(reached & self.accepting)

    # --- what it matches ---

    @property
    def characters(self) -> set[str]:
        """The characters that it tells apart from others."""
        return {character for character in self._bits if character is not None}

    @property
    def literal(self) -> str | None:
        """The string it matches, if it matches only that one, or ignores the case of that one; else None."""
        return "".join(c or "" for c in self.wanted) if not self.waiting and _ANY_CHARACTER not in self.wanted else None

    @property
    def least(self) -> str:
        """The least in code point order of the shortest strings it matches."""
        least = [
            "\0" if character is None else min(unfolded(character)) if self.ignores_case else character
            for character in self.wanted
        ]
        return "".join(least)

    @property
    def simplest_operator(self) -> tuple[str, str]:
        """The simplest operator that matches the same strings, and its operand."""
        operator, operand = self._simplest
        return (f"{operator} nocase" if self.ignores_case else operator), operand

    @property
    def _simplest(self) -> tuple[str, str]:
        if (literal := self.literal) is not None:
            return "=", literal
        ends = self.waiting & (1 | self.accepting)
        if _ANY_CHARACTER not in self.wanted and self.wanted and self.waiting == ends:
            text = "".join(character or "" for character in self.wanted)
            name = {1 | self.accepting: "substring", self.accepting: "prefix", 1: "suffix"}[ends]
            return name, text
        return "glob", self.pattern

    @property
    def pattern(self) -> str:
        if self._pattern is None:
            self._pattern = self._spelled()
        return self._pattern

    def _spelled(self) -> str:
        parts: list[str] = []
        for i, character in enumerate(self.wanted):
            parts.append("*" if self.waiting >> i & 1 else "")
            parts.append("?" if character is None else _escaped(character))
        parts.append("*" if self.waiting & self.accepting else "")
        return "".join(parts)


def glob_order(glob: Glob) -> tuple[str, bool]:
    return glob.pattern, glob.ignores_case


def _escaped(text: str) -> str:
    return "".join("\\" + c if c in "*?\\" else c for c in text)


def _normal(wanted: list[str | None], waits: set[int], ignores_case: bool) -> Glob:
    """Moves each `*` behind the `?`s next to it: `*?` and `?*` match the same, and each language gets a single form."""
    waiting, at = 0, 0
    while at <= len(wanted):
        end = at
        while end < len(wanted) and wanted[end] is _ANY_CHARACTER:
            end += 1
        if any(position in waits for position in range(at, end + 1)):
            waiting |= 1 << end
        at = end + 1
    return Glob(tuple(wanted), waiting, ignores_case)


@lru_cache(_COMPILED_MAX)
def glob(pattern: str, ignores_case: bool = False) -> Glob:
    """The glob a pattern writes."""
    if len(pattern) > GLOB_CODEPOINTS_MAX:
        raise LimitError("GLOB_CODEPOINTS_MAX", GLOB_CODEPOINTS_MAX, f"a pattern of {len(pattern):,}")
    wanted: list[str | None] = []
    waits: set[int] = set()
    characters = iter(pattern)
    for character in characters:
        if character == "*":
            waits.add(len(wanted))
        elif character == "\\":
            if (escaped := next(characters, None)) is None:
                raise BadFilterError(f"glob {shown(pattern)} ends in a lone backslash: write \\\\ for a backslash")
            wanted.append(escaped)
        else:
            wanted.append(_ANY_CHARACTER if character == "?" else character)
    return _normal(wanted, waits, ignores_case)


@lru_cache(_COMPILED_MAX)
def equal_glob(text: str, ignores_case: bool = False) -> Glob:
    return _literal_glob(text, 0, ignores_case)


@lru_cache(_COMPILED_MAX)
def prefix_glob(text: str, ignores_case: bool = False) -> Glob:
    return _literal_glob(text, 1 << len(text), ignores_case)


@lru_cache(_COMPILED_MAX)
def suffix_glob(text: str, ignores_case: bool = False) -> Glob:
    return _literal_glob(text, 1, ignores_case)


@lru_cache(_COMPILED_MAX)
def substring_glob(text: str, ignores_case: bool = False) -> Glob:
    return _literal_glob(text, 1 | 1 << len(text), ignores_case)


def _literal_glob(text: str, waiting: int, ignores_case: bool) -> Glob:
    if len(text) > GLOB_CODEPOINTS_MAX:
        raise LimitError("GLOB_CODEPOINTS_MAX", GLOB_CODEPOINTS_MAX, f"an operand of {len(text):,}")
    return Glob(tuple(text), waiting, ignores_case)
