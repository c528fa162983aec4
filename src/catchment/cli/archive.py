"""`catchment archive`: appends notifications to an archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from catchment.cli.arguments import format_by_name, parsed_types
from catchment.cli.options import OUTPUT_NAMES, JsonFlag, MasterOption, NotificationFormatOption, TypesOption
from catchment.cli.spark.progress import StepProgress
from catchment.cli.spark.rejects import note_rejects, observed, write_rejects
from catchment.cli.spark.session import session

if TYPE_CHECKING:
    from catchment.pipeline.inputs import Input

# A directory beside the days of an archive. Readers skip names that begin with `_`, so none takes it for a day.
REJECTS: Final = "_rejects"


def archive(
    notifications: Annotated[str, Parameter(help="A file or directory of notifications.")],
    /,
    *,
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help="The archive to append to.", metavar="ARCHIVE")],
    format: NotificationFormatOption = None,
    types: TypesOption = None,
    master: MasterOption = None,
    as_json: JsonFlag = False,
) -> int:
    """Append notifications to an archive: Parquet files, a directory for each day."""
    declared_types, chosen_format = parsed_types(types), format or format_by_name(notifications)
    spark = session(master)
    from catchment.pipeline import read_notifications

    with StepProgress(spark, as_json) as progress:
        progress("reading")
        given = read_notifications(spark, notifications, chosen_format, declared_types)
        progress("archiving")
        counts = _append(given, output)
    note_rejects(counts["rejected"], "a notification", f"see {Path(output) / REJECTS}")
    if as_json:
        print(json.dumps({**counts, "archive": output}))
    else:
        print(f"{counts['archived']:,} notifications archived in {output}")
    return 0


def _append(given: Input, output: str) -> dict[str, int]:
    """Appends the notifications and their rejects. Spark counts both while it writes, without another pass."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    from catchment.pipeline import archive as append
    from catchment.pipeline.paths import address

    counted = Observation()
    append(given.rows.observe(counted, F.count(F.lit(1)).alias("archived")), output)
    rejected = write_rejects(given, f"{address(output)}/{REJECTS}", "append")
    return {"archived": 0, **observed(counted), "rejected": rejected}
