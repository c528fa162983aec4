"""Simple case folding (Unicode's CaseFolding, statuses C and S): one character to one character.

Python folds fully, "ß" to "ss"; simple folding leaves such characters alone or takes their one-character form, so that
texts keep their length and a position in one is a position in the other.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

# Where characters with case are. A test looks at all of Unicode.
_CASED_RANGES: Final = ((0, 0x2E00), (0xA640, 0xABC0), (0xFB00, 0xFB20), (0xFF20, 0xFF60), (0x10400, 0x1E960))


def fold_character(character: str) -> str:
    """By Unicode's rules, without a table."""
    full = character.casefold()
    if len(full) == 1:
        return full
    lower = character.lower()
    return lower if len(lower) == 1 else character


@cache
def fold_table() -> dict[int, int]:
    """The characters that fold to another one, as `str.translate` takes them."""
    table = {}
    for start, end in _CASED_RANGES:
        for code in range(start, end):
            to = ord(fold_character(chr(code)))
            if to != code:
                table[code] = to
    return table


@cache
def _sources() -> dict[str, tuple[str, ...]]:
    """For each character that others fold to: itself and those, in order."""
    sources: dict[str, list[str]] = {}
    for code, to in fold_table().items():
        sources.setdefault(chr(to), [chr(to)]).append(chr(code))
    return {to: tuple(sorted(some)) for to, some in sources.items()}


@lru_cache(16_384)
def folded(text: str) -> str:
    """A text with each character folded."""
    if text.isascii():
        return text.lower()
    return text.translate(fold_table())


def unfolded(character: str) -> tuple[str, ...]:
    """All characters that fold to this one, which is folded, itself among them."""
    return _sources().get(character, (character,))
