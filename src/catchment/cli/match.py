"""`catchment match`: matches notifications against an index and writes the result as Parquet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from catchment.cli.arguments import format_by_name, new_directory, parsed_types
from catchment.cli.options import (
    OUTPUT_NAMES,
    IndexOption,
    JsonFlag,
    MasterOption,
    NotificationFormatOption,
    TypesOption,
    flag,
)
from catchment.cli.spark.progress import StepProgress
from catchment.cli.spark.rejects import note_rejects, observed, write_rejects
from catchment.cli.spark.session import session
from catchment.cli.terminal import BadUsage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

    from catchment.pipeline.index import Index
    from catchment.pipeline.inputs import Input

# What a result has a row for. Those but the first are options.
NOTIFICATIONS, PAIRS, UNMATCHED, COUNTS, EXPLAIN = "notifications", "pairs", "unmatched", "counts", "explain"
# Explanations that are printed. The result has all of them.
PRINTED_EXPLANATIONS_MAX: Final = 20

MAP_HELP: Final = "Read the attributes into one column, a map. This is faster if there are thousands of names."
PAIRS_HELP: Final = "Write a row for each notification and subscription that match."
EXPLAIN_HELP: Final = "Say why this subscription matches each notification or does not. You can repeat the option."


def match(
    notifications: Annotated[str, Parameter(help="A file or directory of notifications.")],
    /,
    *,
    index: IndexOption,
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help="A new directory for the result.", metavar="OUT")],
    format: NotificationFormatOption = None,
    types: TypesOption = None,
    as_map: Annotated[bool, flag(MAP_HELP, "--map")] = False,
    pairs: Annotated[bool, flag(PAIRS_HELP)] = False,
    unmatched: Annotated[bool, flag("Write only the notifications that match no subscription.")] = False,
    counts: Annotated[bool, flag("Write how many notifications each subscription matches.")] = False,
    explain: Annotated[list[str] | None, Parameter(help=EXPLAIN_HELP, metavar="ID", negative="")] = None,
    master: MasterOption = None,
    as_json: JsonFlag = False,
) -> int:
    """Match notifications against an index. Writes each notification with the ids of the subscriptions it matches."""
    wanted = _wanted_result(pairs, unmatched, counts, explain or [])
    place = new_directory(output)
    declared_types, chosen_format = parsed_types(types), format or format_by_name(notifications)
    spark = session(master)
    from catchment.pipeline import open_index, read_notifications

    opened = open_index(index)
    with StepProgress(spark, as_json) as progress:
        progress("reading")
        given = read_notifications(spark, notifications, chosen_format, declared_types, as_map=as_map)
        progress("matching")
        totals = _write(given, opened, place.absolute(), wanted)
    if wanted.rows_of == EXPLAIN and not as_json:
        _print_explanations(spark, place)
    note_rejects(totals["rejected"], "a notification", f"see {place / 'rejects'}")
    _print_summary(totals, opened, output, as_json)
    return 0


@dataclass(frozen=True, slots=True)
class Result:
    """What to write: rows of one sort, and for EXPLAIN the subscriptions to explain."""

    rows_of: str
    explained: list[str]


def _wanted_result(pairs: bool, unmatched: bool, counts: bool, explained: list[str]) -> Result:
    options = ((PAIRS, pairs), (UNMATCHED, unmatched), (COUNTS, counts), (EXPLAIN, bool(explained)))
    chosen = [name for name, is_chosen in options if is_chosen]
    if len(chosen) > 1:
        raise BadUsage(f"--{chosen[0]} and --{chosen[1]} exclude each other: each writes another result; choose one")
    return Result(chosen[0] if chosen else NOTIFICATIONS, explained)


def _write(given: Input, index: Index, place: Path, wanted: Result) -> dict[str, int]:
    """Writes the result and the rejects. Spark counts rows while it writes them, without another pass."""
    from pyspark.sql import Observation

    from catchment.pipeline import write_matches
    from catchment.pipeline.paths import address

    if wanted.rows_of == NOTIFICATIONS:
        written = write_matches(given.rows, index, place / "matched")
        totals = {"notifications": written.notifications, "matched": written.matched, "matches": written.matches}
    else:
        counted = Observation()
        _result_rows(given.rows, index, wanted, counted).write.parquet(address(place / "matched"))
        totals = observed(counted)
    return totals | {"rejected": write_rejects(given, address(place / "rejects"))}


def _result_rows(rows: DataFrame, index: Index, wanted: Result, counted: Observation) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    from catchment.pipeline import match as match_rows
    from catchment.pipeline import match_counts, match_explained
    from catchment.pipeline.schema import col

    notifications = F.count(F.lit(1)).alias("notifications")
    if wanted.rows_of == COUNTS:
        return match_counts(rows.observe(counted, notifications), index)
    if wanted.rows_of == EXPLAIN:
        return match_explained(rows.observe(counted, notifications), index, wanted.explained)
    size = F.size("subscriptions")
    matched, matches = F.count_if(size > 0).alias("matched"), F.sum(size).alias("matches")
    matched_rows = match_rows(rows, index).observe(counted, notifications, matched, matches)
    if wanted.rows_of == UNMATCHED:
        return matched_rows.where(size == 0).drop("subscriptions")
    return matched_rows.select(*map(col, rows.columns), F.explode("subscriptions").alias("subscription"))


def _print_explanations(spark: SparkSession, place: Path) -> None:
    from catchment.pipeline.paths import readable

    explanations = spark.read.parquet(readable(place / "matched"))
    # One more than is printed, to know whether there are more.
    columns = explanations.select("`$id`", "subscription", "matched", "reason")
    rows = columns.limit(PRINTED_EXPLANATIONS_MAX + 1).collect()
    for row in rows[:PRINTED_EXPLANATIONS_MAX]:
        verdict = {True: "match", False: "no match", None: "bad"}[row["matched"]]
        notification = "" if row["$id"] is None else f"{row['$id']} "
        print(f"{notification}{row['subscription']}: {verdict}: {row['reason']}")
    if len(rows) > PRINTED_EXPLANATIONS_MAX:
        print("… and more")


def _print_summary(totals: dict[str, int], index: Index, output: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**totals, "index": index.path, "version": index.version, "output": output}))
        return
    print(f"{totals['notifications']:,} notifications against version {index.version} of {index.path}")
    if "matched" in totals:
        print(f"{totals['matched']:,} matched, {totals['matches']:,} matches")
    print(f"written to {Path(output) / 'matched'}")
