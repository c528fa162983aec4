"""`catchment archive` and `catchment compact`."""

from __future__ import annotations

import json
from pathlib import Path

from catchment.cli.jobs import Stages, format_of, note, session
from catchment.cli.match import types_of
from catchment.cli.on import opened_archive


def run_archive(
    notifications: str, output: str, format: str | None, types: str | None, master: str | None, as_json: bool
) -> int:
    declared, chosen = None if types is None else types_of(types), format_of(notifications, format)
    spark = session(master)
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    from catchment.pipeline import archive, read_notifications
    from catchment.pipeline.paths import address

    archived, rejected = Observation(), Observation()
    counts = {"archived": 0, "rejected": 0}
    with Stages(spark, as_json) as stages:
        stages("reading")
        given = read_notifications(spark, notifications, chosen, declared)  # type: ignore[arg-type]
        stages("archiving")
        one = F.count(F.lit(1))
        archive(given.rows.observe(archived, one.alias("archived")), output)
        counts |= {name: int(value or 0) for name, value in archived.get.items()}
        if given.rejected != 0:
            # Beside the notifications, by a name that no reader takes for a day of them.
            bad = given.rejects.observe(rejected, one.alias("rejected")).write.mode("append")
            bad.parquet(address(output) + "/_rejects")
            counts |= {name: int(value or 0) for name, value in rejected.get.items()}
    if counts["rejected"]:
        rows = "1 row is" if counts["rejected"] == 1 else f"{counts['rejected']:,} rows are"
        note(f"{rows} no notification: see {Path(output) / '_rejects'}")
    if as_json:
        print(json.dumps({**counts, "archive": output}))
    else:
        print(f"{counts['archived']:,} notifications archived in {output}")
    return 0


def run_compact(archive: str, master: str | None, as_json: bool) -> int:
    place = opened_archive("ARCHIVE", archive)
    spark = session(master)
    from catchment.pipeline import compact

    with Stages(spark, as_json) as stages:
        stages("compacting")
        days = compact(spark, place)
    if as_json:
        print(json.dumps({"archive": archive, "days": days}))
    else:
        print(f"{len(days):,} days compacted" + (f": {', '.join(days)}" if days else ", all are compact"))
    return 0
