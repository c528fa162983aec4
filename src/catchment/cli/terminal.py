"""Streams, colours and messages."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from catchment.errors import InputError, ParseError

if TYPE_CHECKING:
    from rich.console import Console

EXIT_FAILED: Final = 1
EXIT_BAD_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
# How much of a long line an error shows around the place it points at.
EXCERPT_CHARACTERS_MAX: Final = 72
# A terminal that says it is narrower (some say 0) would be shown nothing at all.
WIDTH_MIN: Final = 40


class BadUsage(Exception):  # noqa: N818  # it is what the user did, not a kind of Python error
    """The command line asks for what cannot be; the message says what to write instead."""


def prepare_streams() -> None:
    """Makes every text printable in every locale, and a closed stream a place where output vanishes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # lives as long as we do
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@cache
def _console_type() -> type[Console]:
    from rich.console import Console

    class PlainConsole(Console):
        """Lets a closed pipe reach `main`, which has one answer for all output."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PlainConsole


def console(*, stderr: bool = False) -> Console:
    """Colours only on a terminal and without NO_COLOR: rich sees to that."""
    found = _console_type()(stderr=stderr, markup=False, highlight=False, emoji=False)
    found.width = max(found.width, WIDTH_MIN)
    return found


def complain(message: str, code: int) -> int:
    """Says on standard error what went wrong; gives the exit code back."""
    from rich.text import Text

    text = Text.assemble(("error: ", "bold red"), message)
    with suppress(OSError):  # nobody is left to tell
        console(stderr=True).print(text, soft_wrap=True)
    return code


# --- input that does not parse ------------------------------------------------------------------


def described(problem: InputError, where: str, text: str) -> str:
    """What is wrong with a text given on the command line, with the line and a caret under the column."""
    if not isinstance(problem, ParseError):
        return f"{where}: {problem}"
    place = f"line {problem.line}, column {problem.column}" if "\n" in text else f"column {problem.column}"
    # Without alternatives to offer, what was "found" is a whole complaint.
    found = f"found {problem.found}" if problem.expected else problem.found
    parts = [f"{where}, {place}: {found}", *excerpt(text, problem.line, problem.column)]
    if problem.expected:
        parts.append(f"expected {', '.join(problem.expected)}")
    return "\n".join(parts)


def excerpt(text: str, line: int, column: int) -> tuple[str, str]:
    """One line of a text, cut around the column, and a caret that stands under it."""
    from rich.cells import cell_len

    whole = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    start = max(0, column - 1 - EXCERPT_CHARACTERS_MAX // 2)
    end = start + EXCERPT_CHARACTERS_MAX
    before = ("..." if start else "") + _visible(whole[start : column - 1])
    after = _visible(whole[column - 1 : end]) + ("..." if end < len(whole) else "")
    return f"  {before}{after}", f"  {' ' * cell_len(before)}^"


def _visible(text: str) -> str:
    """As it will stand on the screen: what does not print, or not in this locale, escaped."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    shown = (character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return "".join(shown).encode(encoding, "backslashreplace").decode(encoding)
