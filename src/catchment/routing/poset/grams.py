"""Grams: which short texts every string of a filter has, as bits, so that most filters with globs need no comparing.

A *gram* is one character, or two that follow each other, of the value of an attribute; case is ignored. Each gram is a
bit, shared with other grams. A filter *needs* the grams that are in every value that it allows. A sample of a filter
(values that it accepts) *has* the grams of its strings. If a filter covers another, it accepts the other's sample, so
the sample has all grams that the wider filter needs. The index compares bits for thousands of rows at once; only
filters that pass are asked, which may take automata.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import and_, or_
from typing import Final
from zlib import crc32

from catchment.model.automaton import Piece
from catchment.model.box import Box
from catchment.model.domain import Values
from catchment.model.folding import folded
from catchment.model.globs import Glob

# Two words of 63 bits.
GRAM_BITS: Final = 126
ALL_GRAMS: Final = (1 << GRAM_BITS) - 1
# Grams of one text that a filter needs; any choice of them is sound.
NEEDED_GRAMS_MAX: Final = 32
# A sample with a longer string has all grams: it is not worth reading.
SAMPLE_CODEPOINTS_MAX: Final = 512


def needed_by(boxes: Sequence[Box]) -> int:
    """The grams that are in every notification which a union of boxes has."""
    return reduce(and_, map(_needed_by_box, boxes)) if boxes else 0


def had_by(box: Box) -> int:
    """The grams of a notification that a box has; all grams if none is known."""
    bits = 0
    for name, values in box.sets.items():
        if values.strings:
            text = values.strings.member
            if text is None or len(text) > SAMPLE_CODEPOINTS_MAX:
                return ALL_GRAMS
            bits |= _bits(name, _grams(text))
    return bits


def _needed_by_box(box: Box) -> int:
    return reduce(or_, (_needed_by_values(name, values) for name, values in box.sets.items()), 0)


def _needed_by_values(name: str, values: Values) -> int:
    # Ranges are compared by their spans. A set that has other values than strings has values without grams.
    if values.is_ranges or values.absent or any(values.keys):
        return 0
    return reduce(and_, (_needed_by_piece(name, piece) for piece in values.strings.pieces))


def _needed_by_piece(name: str, piece: Piece) -> int:
    return reduce(or_, (_bits(name, _grams_of_glob(glob)) for glob in piece.wanted), 0)


def _grams_of_glob(glob: Glob) -> list[str]:
    grams: list[str] = []
    before: str | None = None
    for at, character in enumerate(glob.wanted):
        if len(grams) >= NEEDED_GRAMS_MAX:
            break
        # Two characters follow each other unless something may come between them.
        follows = before is not None and not glob.waiting >> at & 1
        before = None if character is None else folded(character)
        if before is not None:
            grams.append(before)
            if follows:
                grams.append(folded(glob.wanted[at - 1] or "") + before)
    return grams


def _grams(text: str) -> Iterator[str]:
    letters = [folded(character) for character in text]
    yield from letters
    yield from map("".join, pairwise(letters))


def _bits(name: str, grams: Iterator[str] | list[str]) -> int:
    start = crc32(name.encode())
    bits = 0
    for gram in grams:
        bits |= 1 << crc32(gram.encode("utf-8", "surrogatepass"), start) % GRAM_BITS
    return bits
