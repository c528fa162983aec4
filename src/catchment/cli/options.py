"""Options that several commands have: name, type and help of each, declared once.

An option that only one command has is declared in the file of that command.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import Parameter

from catchment.cli.arguments import NotificationFormat, SubscriptionFormat


def flag(help: str, *names: str) -> Parameter:
    """An option without a value. It is off by default and has no `--no-` form."""
    return Parameter(name=names or None, help=help, negative="", show_default=False)


JsonFlag = Annotated[bool, flag("Print JSON instead of text.", "--json")]
DialectOption = Annotated[Literal["catchment", "cesql"], Parameter(help="The language of the filter.")]

# --- commands that talk to a broker -------------------------------------------------------------

UrlOption = Annotated[
    str,
    Parameter(
        name="--url",
        help="The address of the broker, or several with commas between: if one is gone, the next is tried. "
        "Default: port 7400 on this machine.",
        metavar="HOST:PORT",
        show_default=False,
    ),
]
IdentityOption = Annotated[
    str | None,
    Parameter(
        name=["--as", "--identity"],
        help="The name under which the broker knows you. Default: a new name each time.",
        metavar="NAME",
    ),
]

# --- commands that run on Spark -----------------------------------------------------------------

OUTPUT_NAMES: Final = ("--output", "-o")
FORMAT_HELP: Final = "The format of the files. Default: taken from the ending of their names."

FromOption = Annotated[
    str | None, Parameter(name="--from", help="Start at this time or day of the archive.", metavar="TIME")
]
ToOption = Annotated[
    str | None, Parameter(name="--to", help="Stop before this time or day of the archive.", metavar="TIME")
]
SubscriptionFormatOption = Annotated[SubscriptionFormat | None, Parameter(help=FORMAT_HELP)]
NotificationFormatOption = Annotated[NotificationFormat | None, Parameter(help=FORMAT_HELP)]
TypesOption = Annotated[
    str | None,
    Parameter(
        help="The attributes and their types: symbol:string,price:float. CSV files and detect --stream need them.",
        metavar="NAME:TYPE,…",
    ),
]
IndexOption = Annotated[str, Parameter(help="The directory of an index that catchment compile made.", metavar="INDEX")]
OnceFlag = Annotated[bool, flag("Process the files that are there now, then end.", "--once", "--available-now")]
MasterOption = Annotated[
    str | None, Parameter(help="The Spark master. Default: local[*], all cores of this machine.", metavar="URL")
]
