"""`catchment check`: what a filter means, how it relates to another, what it matches in a file or an archive."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import Parameter

from catchment.cli.options import DialectOption, FromOption, ToOption, flag
from catchment.cli.terminal import BadUsage

FILTER_HELP: Final = "The filter, in quotes: \"symbol = 'DIS' and price > 100\"."
COVERS_HELP: Final = "Another filter: say whether either covers the other, and whether they overlap."
AGAINST_HELP: Final = (
    "A file of notifications, one JSON object on each line, or - for standard input. Say for each line whether it "
    "matches, and if not, what failed. The exit code is 1 if there is a bad line."
)
ON_HELP: Final = (
    "An archive of notifications. Say for each day how many would have matched, and show the first. Needs Spark."
)
JSON_HELP: Final = (
    "Print JSON instead of text: one document; with --against or --on one line for the report, one for each verdict "
    "or day, and one for the summary."
)


def check(
    filter: Annotated[str, Parameter(help=FILTER_HELP)],
    /,
    *,
    covers: Annotated[str | None, Parameter(help=COVERS_HELP, metavar="OTHER")] = None,
    against: Annotated[str | None, Parameter(help=AGAINST_HELP, metavar="FILE", allow_leading_hyphen=True)] = None,
    on: Annotated[str | None, Parameter(help=ON_HELP, metavar="ARCHIVE")] = None,
    start: FromOption = None,
    end: ToOption = None,
    dialect: DialectOption = "catchment",
    kind: Annotated[
        Literal["filter", "pattern", "advertisement"], Parameter(name="--as", help="What the text is.")
    ] = "filter",
    as_json: Annotated[bool, flag(JSON_HELP, "--json")] = False,
) -> int:
    """Check a filter: what it means, what it covers, what it matches.

    Prints its canonical text, whether it can match anything, the attributes it looks at, and its size.
    """
    from catchment.cli.check.checked import CheckedPattern, checked_text
    from catchment.cli.check.report import print_report

    if on is None and (start is not None or end is not None):
        raise BadUsage("--from and --to choose days of an archive: name the archive with --on")
    if on is not None and against is not None:
        raise BadUsage("--against and --on exclude each other: choose one")
    checked = checked_text("FILTER", filter, dialect, kind)
    relation = None if covers is None else checked.relation(checked_text("--covers", covers, dialect, kind))
    if on is not None:
        from catchment.cli.check.on_archive import check_on_archive

        return check_on_archive(checked, relation, on, start, end, as_json)
    if against is not None:
        from catchment.cli.check.against_file import check_against_file

        if isinstance(checked, CheckedPattern):
            raise BadUsage("--against is for filters: a pattern matches sequences, not single notifications")
        return check_against_file(checked, relation, against, as_json)
    print_report(checked, relation, as_json)
    return 0
