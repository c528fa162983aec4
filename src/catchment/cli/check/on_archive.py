"""`catchment check --on`: how many notifications of an archive a filter would have matched, day by day."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.arguments import existing_archive, parsed_time
from catchment.cli.check.checked import Checked, CheckedCesql, CheckedFilter, Relation
from catchment.cli.check.report import print_report
from catchment.cli.spark.progress import StepProgress
from catchment.cli.spark.session import session
from catchment.cli.terminal import BadUsage, console

if TYPE_CHECKING:
    from rich.table import Table

    from catchment.model.cesql import Cesql
    from catchment.model.filter import Filter

BAR_CELLS_MAX: Final = 24
# Samples that people see, of all days together. Programs get the samples of each day.
PRINTED_SAMPLES_MAX: Final = 5


def check_on_archive(
    checked: Checked, relation: Relation | None, path: str, start: str | None, end: str | None, as_json: bool
) -> int:
    first, until = parsed_time("--from", start), parsed_time("--to", end)
    wanted, archive = _filter(checked), existing_archive("--on", path)
    print_report(checked, relation, as_json, more_follows=True)
    spark = session(None)
    from catchment.pipeline.archive.dry_run import dry_run

    with StepProgress(spark, as_json) as progress:
        progress("reading the archive")
        # A row for each day of the archive: few rows, whatever its size.
        days = [row.asDict() for row in dry_run(spark, archive, wanted, first, until).collect()]
    if as_json:
        _print_json(days)
    else:
        _print_days(days)
    sys.stdout.flush()
    return 0


def _filter(checked: Checked) -> Filter | Cesql:
    match checked:
        case CheckedFilter(filter):
            return filter
        case CheckedCesql(expression):
            return expression
        case _:
            raise BadUsage("--on is for filters: leave out --as")


def _totals(days: list[dict[str, Any]]) -> dict[str, int]:
    totals = {name: sum(day[name] for day in days) for name in ("notifications", "matched")}
    return {**totals, "days": len(days)}


def _print_json(days: list[dict[str, Any]]) -> None:
    for day in days:
        print(json.dumps(day | {"samples": [json.loads(text) for text in day["samples"]]}))
    print(json.dumps({"summary": _totals(days)}))


def _print_days(days: list[dict[str, Any]]) -> None:
    totals = _totals(days)
    console().print(_chart(days))
    print(f"{totals['matched']:,} of {totals['notifications']:,} would have matched, in {totals['days']:,} days")
    samples = [text for day in days for text in day["samples"]][:PRINTED_SAMPLES_MAX]
    if samples:
        print("\nthe first that match:" if len(samples) > 1 else "\nthe first that matches:")
    for text in samples:
        print(f"  {text}")


def _chart(days: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for style, justify in (("cyan", "left"), ("green", "left"), (None, "right"), ("dim", "left")):
        table.add_column(style=style, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    most = max((day["matched"] for day in days), default=0)
    for day in days:
        table.add_row(day["day"], _bar(day["matched"], most), f"{day['matched']:,}", f"of {day['notifications']:,}")
    return table


def _bar(count: int, most: int) -> str:
    """As long as its share of the largest count, rounded up: every count but 0 shows."""
    return "█" * (-(-count * BAR_CELLS_MAX // most) if most else 0)
