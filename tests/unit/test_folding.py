"""Simple case folding, looked at for every character of Unicode."""

import sys
import unicodedata

import pytest

from catchment.model.filter import Filter
from catchment.model.folding import fold_character, fold_table, folded, unfolded
from tests import oracle

CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


def test_the_table_has_every_character_that_folds() -> None:
    by_rule = {ord(each): ord(fold_character(each)) for each in CHARACTERS if fold_character(each) != each}
    assert fold_table() == by_rule


def test_it_is_the_folding_of_the_oracle() -> None:
    assert [folded(each) for each in CHARACTERS] == [oracle.without_case(each) for each in CHARACTERS]


def test_unicode_rules_as_far_as_python_shows_them() -> None:
    """Status C: the full folding, where that is one character. Status S: for characters that fold fully to several, the
    lower-case letter. Nothing else folds."""
    for each in CHARACTERS:
        full = each.casefold()
        if len(full) == 1:
            assert folded(each) == full
        else:
            assert folded(each) == (each.lower() if unicodedata.category(each) in ("Lu", "Lt") else each) or (
                len(each.lower()) > 1 and folded(each) == each
            )


def test_folding_is_done_in_one_step_and_keeps_the_length() -> None:
    for each in CHARACTERS:
        assert len(folded(each)) == 1
        assert folded(folded(each)) == folded(each)
    assert folded("STRASSE") != folded("straße"), "a text keeps its length"


def test_each_folded_character_knows_all_that_fold_to_it() -> None:
    for each in CHARACTERS:
        assert each in unfolded(folded(each))
    assert {each for to in set(map(folded, CHARACTERS)) for each in unfolded(to)} == set(CHARACTERS)


@pytest.mark.parametrize(
    ("written", "value", "is_equal"),
    [
        ("PowerShell", "POWERSHELL", True),
        ("straße", "STRAẞE", True),
        ("straße", "STRASSE", False),
        ("Kelvin", "\u212aelvin", True),
        ("ΣΊΣΥΦΟΣ", "σίσυφος", True),
        ("ſs", "SS", True),
        ("İ", "i", False),
        ("ı", "I", False),
        ("i", "I", True),
        ("ǅ", "Ǆ", True),
        ("Ω", "\u2126", True),
        ("e\u0301", "é", False),
    ],
)
def test_texts_of_people(written: str, value: str, is_equal: bool) -> None:
    for operator in ("= nocase", "prefix nocase", "suffix nocase", "substring nocase", "glob nocase"):
        assert Filter.of(("x", operator, written)).matches({"x": value}) is is_equal
    assert Filter.of(("x", "!= nocase", written)).matches({"x": value}) is not is_equal
    assert Filter.of(("x", "in nocase", ["other", written])).matches({"x": value}) is is_equal
