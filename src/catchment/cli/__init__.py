"""The command line. Thin: it parses arguments, calls the model, prints; nobody imports it.

Exit codes: 0 ok, 1 failed, 2 bad usage (arguments, a filter that does not parse, a file that is not
there), 130 interrupted, 141 the reader of our output went away (what the shell reports of other tools).
Answers go to standard output and everything else to standard error. Commands import what they need when
they run, so that `catchment --help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

from cyclopts import App, CycloptsError, Parameter

from catchment import __version__
from catchment.cli.terminal import EXIT_BAD_USAGE, EXIT_FAILED, BadUsage, complain, console, prepare_streams
from catchment.errors import CatchmentError

EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141

HELP: Final = """\
Content-based publish/subscribe: state a filter, receive every notification in its catchment, once.

Start with: catchment demo
Then try:   catchment check "symbol = 'DIS' and price > 100"
"""
EPILOGUE: Final = "Exit codes: 0 ok, 1 failed, 2 bad usage."

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

FILTER_HELP: Final = "The filter, in quotes: \"symbol = 'DIS' and price > 100\"."
COVERS_HELP: Final = "Another filter: say whether either covers the other, and whether they overlap."
AGAINST_HELP: Final = (
    "A file of notifications, one JSON object on each line, or - for standard input: say of each whether "
    "it matches and what failed. A bad line is reported and makes the exit code 1."
)
JSON_HELP: Final = "Print JSON: one document, or with --against a line for the report, each verdict and the summary."
JsonFlag = Annotated[bool, Parameter(name="--json", help=JSON_HELP, negative="", show_default=False)]


@app.command
def check(
    filter: Annotated[str, Parameter(help=FILTER_HELP)],
    /,
    *,
    covers: Annotated[str | None, Parameter(help=COVERS_HELP, metavar="OTHER")] = None,
    against: Annotated[str | None, Parameter(help=AGAINST_HELP, metavar="FILE", allow_leading_hyphen=True)] = None,
    dialect: Annotated[Literal["catchment", "cesql"], Parameter(help="The language of the filter.")] = "catchment",
    kind: Annotated[
        Literal["filter", "pattern", "advertisement"], Parameter(name="--as", help="What the text is.")
    ] = "filter",
    json: JsonFlag = False,
) -> int:
    """Check a filter: what it means, what it covers, what it matches.

    Prints its canonical text, whether it can match anything, the attributes it looks at, and its size.
    """
    from catchment.cli.check import run_check

    return run_check(filter, covers, against, dialect, kind, json)


@app.command
def demo(*, json: JsonFlag = False) -> int:
    """See it work: notifications, subscriptions, who gets what, and why someone does not."""
    from catchment.cli.demo import run_demo

    return run_demo(json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; no input makes it raise."""
    prepare_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _reported(lambda: app(given, console=console()) or 0)
    except BrokenPipeError:
        return _pipe_closed()
    except KeyboardInterrupt:
        return _interrupted()


def _reported(run: Callable[[], int]) -> int:
    """The exit code of a run, each of its failures turned into a message."""
    try:
        code = run()
        sys.stdout.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except CycloptsError as problem:
        return complain(_usage_advice(problem), EXIT_BAD_USAGE)
    except BadUsage as problem:
        return complain(str(problem), EXIT_BAD_USAGE)
    except OSError as problem:
        place = "" if problem.filename is None else f" {problem.filename}"
        return complain(f"cannot read or write{place}: {problem.strerror or problem}", EXIT_FAILED)
    except CatchmentError as problem:
        return complain(str(problem), EXIT_FAILED)
    except Exception as problem:  # a bug of ours: still a message, and the way to see more
        if os.environ.get("CATCHMENT_TRACEBACK"):
            raise
        kind = type(problem).__name__
        return complain(
            f"this is a bug in catchment: {kind}: {problem}\nset CATCHMENT_TRACEBACK=1 to see where", EXIT_FAILED
        )
    return code


def _usage_advice(problem: CycloptsError) -> str:
    from cyclopts import UnusedCliTokensError

    if isinstance(problem, UnusedCliTokensError):
        return f"{problem}\nput a filter in quotes: catchment check \"symbol = 'DIS'\""
    return f"{problem}\ncatchment --help lists what there is"


def _pipe_closed() -> int:
    # Python flushes standard output once more when it ends: let that go nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE_CLOSED


def _interrupted() -> int:
    complain("interrupted", EXIT_INTERRUPTED)
    return EXIT_INTERRUPTED
