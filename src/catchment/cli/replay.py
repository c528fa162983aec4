"""`catchment replay`: prints the notifications of an archive as JSON Lines, in publication order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Annotated, Final, TextIO

from cyclopts import Parameter

from catchment.cli.arguments import existing_archive, parsed_filter, parsed_time
from catchment.cli.options import OUTPUT_NAMES, DialectOption, FromOption, MasterOption, ToOption
from catchment.cli.spark.session import session
from catchment.cli.terminal import console

# The progress display is drawn ten times a second at most: it need not hear of each line.
LINES_PER_UPDATE: Final = 1_000


def replay(
    archive: Annotated[str, Parameter(help="The directory of the archive.")],
    /,
    *,
    filter: Annotated[
        str | None, Parameter(help="Print only notifications that match this filter.", metavar="FILTER")
    ] = None,
    start: FromOption = None,
    end: ToOption = None,
    output: Annotated[
        str | None,
        Parameter(name=OUTPUT_NAMES, help="The file to write. Default: standard output.", metavar="FILE"),
    ] = None,
    dialect: DialectOption = "catchment",
    master: MasterOption = None,
) -> int:
    """Print the notifications of an archive in publication order, one JSON object on each line."""
    wanted = None if filter is None else parsed_filter("--filter", filter, dialect)
    first, until = parsed_time("--from", start), parsed_time("--to", end)
    place = existing_archive("ARCHIVE", archive)
    spark = session(master)
    from catchment.pipeline import lines
    from catchment.pipeline import replay as replayed

    notification_lines = lines(replayed(spark, place, wanted, first, until))
    with _opened(output) as stream:
        count = write_lines(notification_lines, stream)
    print(f"{count:,} notifications replayed", file=sys.stderr)
    return 0


@contextmanager
def _opened(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that gets its name only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
        os.replace(unfinished, path)
    except BaseException:  # an interrupt too must not leave half a file behind
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def write_lines(lines: Iterable[str], stream: TextIO) -> int:
    """Writes the lines and returns how many there were."""
    count = 0
    with _progress(stream) as update:
        for count, line in enumerate(lines, 1):
            stream.write(line + "\n")
            if count % LINES_PER_UPDATE == 0:
                update(count)
    return count


@contextmanager
def _progress(stream: TextIO) -> Iterator[Callable[[int], None]]:
    """Shows count and rate on standard error, if that is a terminal and the lines go elsewhere."""
    errors = console(stderr=True)
    if not errors.is_terminal or stream.isatty():
        yield lambda count: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,} notifications{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    start_s = monotonic()
    with Progress(*columns, console=errors, transient=True) as progress:
        # Rich has no rate before the first update, and cannot format None: the rate is our own.
        task = progress.add_task("", rate="")
        yield lambda count: progress.update(
            task, completed=count, rate=f", {count / max(monotonic() - start_s, 1e-3):,.0f}/s"
        )
