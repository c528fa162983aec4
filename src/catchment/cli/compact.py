"""`catchment compact`: joins the small files of an archive."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from catchment.cli.arguments import existing_archive
from catchment.cli.options import JsonFlag, MasterOption
from catchment.cli.spark.progress import StepProgress
from catchment.cli.spark.session import session


def compact(
    archive: Annotated[str, Parameter(help="The directory of the archive.")],
    /,
    *,
    master: MasterOption = None,
    as_json: JsonFlag = False,
) -> int:
    """Join the small files of an archive into few large ones, day by day."""
    place = existing_archive("ARCHIVE", archive)
    spark = session(master)
    from catchment.pipeline import compact as compact_days

    with StepProgress(spark, as_json) as progress:
        progress("compacting")
        days = compact_days(spark, place)
    if as_json:
        print(json.dumps({"archive": archive, "days": days}))
    else:
        print(f"{len(days):,} days compacted" + (f": {', '.join(days)}" if days else "; all were compact already"))
    return 0
