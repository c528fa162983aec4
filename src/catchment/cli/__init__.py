"""The command line. Each command is a file, its options beside what it does. Nobody imports this package.

This file has the order of the commands in `catchment --help`, and turns each failure into a message and an exit code.
Files that are not commands: `options` that several commands have, their `arguments` as values, the `terminal`, the
`client` of a broker, its `http` side, and `spark/`.

Exit codes: 0 ok, 1 failed, 2 bad usage (arguments, a filter that does not parse, a file that does not exist),
130 interrupted, 141 the reader of our output went away. Answers go to standard output, all else to standard error.

To start quickly, `catchment pub` imports the file of `pub` and of no other command. `catchment --help` imports all of
them for their docstrings. So these files import what is heavy (asyncio, numba, Spark, brokers) inside functions, when
the command runs. A test checks that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from cyclopts import App, CycloptsError, Group, UnusedCliTokensError

from catchment import __version__
from catchment.cli.terminal import (
    EXIT_BAD_USAGE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PIPE_CLOSED,
    TRACEBACK_VARIABLE,
    BadUsage,
    complain,
    console,
    prepare_streams,
)
from catchment.errors import CatchmentError

HELP: Final = """\
Content-based publish/subscribe: state a filter, receive every notification in its catchment, once.

Start with: catchment tour
Then try:   catchment check "symbol = 'DIS' and price > 100"
"""
EPILOGUE: Final = "Exit codes: 0 ok, 1 failed, 2 bad usage."

# The commands as `catchment --help` lists them. The command `check` is the function `check` in the file `check`, and
# `import-sigma` is `import_sigma` in `import_sigma`.
COMMANDS_BY_GROUP: Final = {
    "Start here": ("tour", "demo", "check"),
    "A live network": ("serve", "pub", "sub", "advertise", "webhook", "explain", "top", "store"),
    "Files and archives, on Spark": ("compile", "match", "stream", "detect", "archive", "compact", "replay"),
    "More": ("import-sigma", "simulate", "warm"),
}


def _app(arguments: Sequence[str]) -> App:
    """The command line with all commands; or, if the first argument names a command, with that one alone."""
    app = App(
        name="catchment",
        help=HELP,
        help_epilogue=EPILOGUE,
        help_format="plaintext",
        version=__version__,
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    all_names = [name for names in COMMANDS_BY_GROUP.values() for name in names]
    needed = arguments[:1] if arguments and arguments[0] in all_names else all_names
    for title, names in COMMANDS_BY_GROUP.items():
        # Without an order cyclopts sorts groups and commands by name.
        group = Group.create_ordered(title)
        for position, name in enumerate(names):
            if name in needed:
                identifier = name.replace("-", "_")
                command = getattr(import_module(f"catchment.cli.{identifier}"), identifier)
                if isinstance(command, App):
                    # A command with commands of its own.
                    command.group, command.sort_key = group, position
                    app.command(command)
                else:
                    app.command(command, name=name, group=group, sort_key=position)
    app["--help"].group = app["--version"].group = group
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code. No input makes it raise an exception."""
    prepare_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _reported(lambda: _app(given)(given, console=console()) or 0)
    except BrokenPipeError:
        # Python flushes standard output once more when it ends. That must not fail again: it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        return complain("interrupted", EXIT_INTERRUPTED)


def _reported(run: Callable[[], int]) -> int:
    """The exit code of a command. Each failure becomes a message; a closed pipe and an interrupt stay exceptions."""
    try:
        code = run()
        sys.stdout.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except CycloptsError as problem:
        return complain(_with_advice(problem), EXIT_BAD_USAGE)
    except BadUsage as problem:
        return complain(str(problem), EXIT_BAD_USAGE)
    except OSError as problem:
        place = "" if problem.filename is None else f" {problem.filename}"
        return complain(f"cannot read or write{place}: {problem.strerror or problem}", EXIT_FAILED)
    except CatchmentError as problem:
        return complain(str(problem), EXIT_FAILED)
    except Exception as problem:  # a bug of ours: still a message, and how to see more
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        name = type(problem).__name__
        return complain(
            f"this is a bug in catchment: {name}: {problem}\nset {TRACEBACK_VARIABLE}=1 to see where", EXIT_FAILED
        )
    return code


def _with_advice(problem: CycloptsError) -> str:
    if isinstance(problem, UnusedCliTokensError):
        return f"{problem}\nput an argument with spaces in quotes, as in: catchment check \"symbol = 'DIS'\""
    return f"{problem}\ncatchment --help lists the commands, catchment COMMAND --help the options of a command"
