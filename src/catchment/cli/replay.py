"""`catchment replay`: an archive as JSON Lines, in publication order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final, TextIO

from catchment.cli.on import filter_for, opened_archive
from catchment.cli.subjects import subject_of
from catchment.cli.terminal import BadUsage, console
from catchment.errors import InputError
from catchment.model.values import parse_time

# The bar is drawn ten times a second at most; it need not hear of each line.
PROGRESS_LINES: Final = 1_000


def run_replay(
    archive: str,
    filter: str | None,
    start: str | None,
    end: str | None,
    output: str | None,
    dialect: str,
    master: str | None,
) -> int:
    wanted = None if filter is None else filter_for(subject_of("--filter", filter, dialect, "filter"))
    first, until = time_of("--from", start), time_of("--to", end)
    place = opened_archive("ARCHIVE", archive)
    from catchment.cli.jobs import session
    from catchment.pipeline import lines, replay

    found = lines(replay(session(master), place, wanted, first, until))
    with _opened(output) as stream:
        count = _written(found, stream)
    print(f"{count:,} notifications replayed", file=sys.stderr)
    return 0


def time_of(where: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_time(text)
    except InputError as problem:
        raise BadUsage(f"{where}: {problem}") from None


@contextmanager
def _opened(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is complete."""
    if path is None:
        yield sys.stdout
        return
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _written(found: Iterator[str], stream: TextIO) -> int:
    count = 0
    with _progress(stream) as advance:
        for count, line in enumerate(found, 1):
            stream.write(line + "\n")
            if count % PROGRESS_LINES == 0:
                advance(count)
    return count


@contextmanager
def _progress(stream: TextIO) -> Iterator[Callable[[int], None]]:
    """Rows and rate on standard error, where someone sees it and the rows go elsewhere."""
    shown = console(stderr=True)
    if not shown.is_terminal or stream.isatty():
        yield lambda count: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,} notifications, {task.speed:,.0f}/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=shown, transient=True) as progress:
        task = progress.add_task("")
        yield lambda count: progress.update(task, completed=count)
