"""`catchment match`: notifications against an index, into Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catchment.cli.jobs import Stages, format_of, note, session
from catchment.cli.terminal import BadUsage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from catchment.pipeline.index import Index
    from catchment.pipeline.inputs import Input

ROWS, PAIRS, UNMATCHED, COUNTS, EXPLAIN = "rows", "pairs", "unmatched", "counts", "explain"
# Explanations shown; all are in the result.
SHOWN_MAX = 20


def run_match(
    notifications: str,
    index: str,
    output: str,
    format: str | None,
    types: str | None,
    as_map: bool,
    kind: str,
    explained: list[str],
    master: str | None,
    as_json: bool,
) -> int:
    if Path(output).exists():
        raise BadUsage(f"{output} is there already: name a new directory")
    declared = None if types is None else types_of(types)
    chosen = format_of(notifications, format)
    spark = session(master)
    from catchment.pipeline import open_index, read_notifications

    opened = open_index(index)
    with Stages(spark, as_json) as stages:
        stages("reading")
        given = read_notifications(spark, notifications, chosen, declared, as_map=as_map)  # type: ignore[arg-type]
        stages("matching")
        counts = _write(given, opened, output, kind, explained)
    if kind == EXPLAIN and not as_json:
        _show_explained(spark, output)
    return _summary(counts, opened, output, as_json)


def _show_explained(spark: SparkSession, output: str) -> None:
    from catchment.pipeline.paths import readable

    found = spark.read.parquet(readable(Path(output) / "matched"))
    rows = found.select("`$id`", "subscription", "matched", "reason").limit(SHOWN_MAX + 1).collect()
    for row in rows[:SHOWN_MAX]:
        verdict = {True: "match", False: "no match", None: "bad"}[row["matched"]]
        name = "" if row["$id"] is None else f"{row['$id']} "
        print(f"{name}{row['subscription']}: {verdict}: {row['reason']}")
    if len(rows) > SHOWN_MAX:
        print("… and more")


def chosen_kind(pairs: bool, unmatched: bool, counts: bool, explain: bool) -> str:
    """What is to be written, of options that exclude each other."""
    kinds = ((PAIRS, pairs), (UNMATCHED, unmatched), (COUNTS, counts), (EXPLAIN, explain))
    chosen = [kind for kind, wanted in kinds if wanted]
    if len(chosen) > 1:
        raise BadUsage(f"--{chosen[0]} and --{chosen[1]} are different results: ask for one")
    return chosen[0] if chosen else ROWS


def types_of(text: str) -> dict[str, str]:
    """`price:float,symbol:string` as a mapping; a name may hold colons."""
    found = {}
    for part in text.split(","):
        name, _, kind = part.strip().rpartition(":")
        if not name:
            raise BadUsage(f"--types {text}: write name:type, with commas between: price:float,symbol:string")
        found[name] = kind
    return found


def _write(given: Input, index: Index, output: str, kind: str, explained: list[str]) -> dict[str, int]:
    """Writes what was asked for and the rejects; the counts come with it, without another pass."""
    from pyspark.sql import Observation

    from catchment.pipeline.paths import address

    place = Path(output).absolute()
    if kind == ROWS:
        counts = _write_rows(given.rows, index, place / "matched")
    else:
        seen = Observation()
        _chosen(given.rows, index, kind, explained, seen).write.parquet(address(place / "matched"))
        counts = {name: int(value or 0) for name, value in seen.get.items()}
    if given.rejected != 0:
        rejected = Observation()
        given.rejects.observe(rejected, _count()).write.parquet(address(place / "rejects"))
        counts["rejected"] = int(rejected.get["rejected"])
    return {"rejected": 0, **counts}


def _write_rows(rows: DataFrame, index: Index, place: Path) -> dict[str, int]:
    from catchment.pipeline import write_matches

    written = write_matches(rows, index, place)
    return {"notifications": written.notifications, "matched": written.matched, "matches": written.matches}


def _count() -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.count(F.lit(1)).alias("rejected")


def _chosen(rows: DataFrame, index: Index, kind: str, explained: list[str], seen: Any) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    from catchment.pipeline import match, match_counts, match_explained
    from catchment.pipeline.schema import col

    one = F.count(F.lit(1)).alias("notifications")
    if kind == COUNTS:
        return match_counts(rows.observe(seen, one), index)
    if kind == EXPLAIN:
        return match_explained(rows.observe(seen, one), index, explained)
    size = F.size("subscriptions")
    matched, matches = F.count_if(size > 0).alias("matched"), F.sum(size).alias("matches")
    found = match(rows, index).observe(seen, one, matched, matches)
    if kind == UNMATCHED:
        return found.where(size == 0).drop("subscriptions")
    return found.select(*map(col, rows.columns), F.explode("subscriptions").alias("subscription"))


def _summary(counts: dict[str, int], index: Index, output: str, as_json: bool) -> int:
    if counts["rejected"]:
        rows = "1 row is" if counts["rejected"] == 1 else f"{counts['rejected']:,} rows are"
        note(f"{rows} no notification: see {Path(output) / 'rejects'}")
    if as_json:
        print(json.dumps({**counts, "index": index.path, "version": index.version, "output": output}))
        return 0
    print(f"{counts['notifications']:,} notifications against version {index.version} of {index.path}")
    if "matched" in counts:
        print(f"{counts['matched']:,} matched, {counts['matches']:,} matches")
    print(f"written to {Path(output) / 'matched'}")
    return 0
