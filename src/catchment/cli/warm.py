"""`catchment warm`: what would take long at every start is done once."""

from __future__ import annotations

import json as json_text
import sys
from time import perf_counter

from catchment.cli.jobs import note, status


def run_warm(json: bool) -> int:
    start = perf_counter()
    with status("compiling the matching kernels"):
        from catchment.matching.warm import warm

        warm()
    with status("archiving Java's classes for Spark"):
        from catchment.pipeline.class_archive import make_archive

        path = make_archive()
    megabytes, seconds = path.stat().st_size / 1e6, perf_counter() - start
    if json:
        found = {"archive": str(path), "megabytes": round(megabytes), "seconds": round(seconds)}
        sys.stdout.write(json_text.dumps(found) + "\n")
    else:
        note(f"Spark starts sooner from now on, with an archive of {megabytes:.0f} MB ({seconds:.0f} s): {path}")
    return 0
