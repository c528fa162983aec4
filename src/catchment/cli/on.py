"""`catchment check --on`: what a filter would have matched, day by day."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.subjects import CesqlSubject, FilterSubject, Subject
from catchment.cli.terminal import BadUsage, console
from catchment.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from catchment.model.cesql import Cesql
    from catchment.model.filter import Filter

BAR_CELLS_MAX: Final = 24
# Samples of all days together that are shown to people; programs get those of each day.
SHOWN_SAMPLES_MAX: Final = 5


def filter_for(subject: Subject) -> Filter | Cesql:
    match subject:
        case FilterSubject(filter):
            return filter
        case CesqlSubject(expression):
            return expression
        case _:
            raise BadUsage("--on is for filters: leave out --as")


def opened_archive(where: str, path: str) -> str:
    """The path, if there is an archive; a wrong one is bad usage, and found before Spark starts."""
    from catchment.pipeline.archive.files import Archive

    try:
        Archive(path).required_schema_text()
    except (InputError, OSError, ValueError) as problem:
        raise BadUsage(f"{where}: {problem}") from None
    return path


def run_on(
    wanted: Filter | Cesql, archive: str, as_json: bool, start: datetime | None = None, end: datetime | None = None
) -> int:
    from catchment.cli.jobs import Stages, session
    from catchment.pipeline.archive.dry_run import dry_run

    spark = session(None)
    with Stages(spark, as_json) as stages:
        stages("reading the archive")
        # One row for each day of the archive: few, whatever its size.
        days = [row.asDict() for row in dry_run(spark, archive, wanted, start, end).collect()]
    if as_json:
        _print_json(days)
    else:
        _print_days(days)
    sys.stdout.flush()
    return 0


def _summary(days: list[dict[str, Any]]) -> dict[str, int]:
    totals = {name: sum(day[name] for day in days) for name in ("notifications", "matched")}
    return {**totals, "days": len(days)}


def _print_json(days: list[dict[str, Any]]) -> None:
    for day in days:
        print(json.dumps(day | {"samples": [json.loads(text) for text in day["samples"]]}))
    print(json.dumps({"summary": _summary(days)}))


def _print_days(days: list[dict[str, Any]]) -> None:
    out, summary = console(), _summary(days)
    out.print(_chart(days))
    print(f"{summary['matched']:,} of {summary['notifications']:,} would have matched, in {summary['days']:,} days")
    samples = [text for day in days for text in day["samples"]][:SHOWN_SAMPLES_MAX]
    if samples:
        print("\nthe first of them" if len(samples) > 1 else "\nit is")
    for text in samples:
        print(f"  {text}")


def _chart(days: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for style, justify in (("cyan", "left"), ("green", "left"), (None, "right"), ("dim", "left")):
        table.add_column(style=style, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    most = max((day["matched"] for day in days), default=0)
    for day in days:
        table.add_row(day["day"], bar(day["matched"], most), f"{day['matched']:,}", f"of {day['notifications']:,}")
    return table


def bar(count: int, most: int) -> str:
    """As long as its share of the greatest; whatever there is shows."""
    return "█" * (-(-count * BAR_CELLS_MAX // most) if most else 0)
