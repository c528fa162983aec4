"""Standard output and standard error: colours, notes, error messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

EXIT_FAILED: Final = 1
EXIT_BAD_USAGE: Final = 2
# What a shell reports of a program that SIGINT or SIGPIPE ended.
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
# Set this environment variable to see the traceback of a bug, and all that Java writes.
TRACEBACK_VARIABLE: Final = "CATCHMENT_TRACEBACK"
# Some terminals report a smaller width, even 0. Rich would then print nothing at all.
WIDTH_MIN: Final = 40


class BadUsage(Exception):  # noqa: N818  # the user made the mistake: this is not a Python error
    """The command line asks for something impossible. The message says what is wrong and what to write instead."""


def prepare_streams() -> None:
    """Makes every text printable in every locale. If a stream is closed, what is written to it vanishes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # stays open until we end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@cache
def _console_type() -> type[Console]:
    from rich.console import Console

    class PipeAwareConsole(Console):
        """Rich would end the process when a pipe is closed. This raises instead, and `main` handles all output."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipeAwareConsole


def console(*, stderr: bool = False) -> Console:
    """A console that uses colours only on a terminal, and not if NO_COLOR is set: Rich checks both."""
    made = _console_type()(stderr=stderr, markup=False, highlight=False, emoji=False)
    made.width = max(made.width, WIDTH_MIN)
    return made


def complain(message: str, code: int) -> int:
    """Prints an error message to standard error and returns the exit code."""
    from rich.text import Text

    text = Text.assemble(("error: ", "bold red"), message)
    with suppress(OSError):  # standard error is closed: there is nowhere to report that
        console(stderr=True).print(text, soft_wrap=True)
    return code


def note(message: str) -> None:
    """Prints a message to standard error that is not an error."""
    console(stderr=True).print(message, soft_wrap=True)


@contextmanager
def status(message: str) -> Iterator[None]:
    """Shows a spinner on standard error if that is a terminal."""
    errors = console(stderr=True)
    if not errors.is_terminal:
        yield
        return
    with errors.status(message):
        yield
