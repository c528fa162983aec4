"""`catchment warm`: does once what would otherwise make every start slow."""

from __future__ import annotations

import json
from time import perf_counter

from catchment.cli.options import JsonFlag
from catchment.cli.terminal import note, status


def warm(*, as_json: JsonFlag = False) -> int:
    """Make later starts faster: compile the matching kernels, and archive Java's classes for Spark. Run it once."""
    start_s = perf_counter()
    with status("compiling the matching kernels"):
        from catchment.matching.warm import warm as compile_kernels

        compile_kernels()
    with status("archiving Java's classes for Spark"):
        from catchment.pipeline.class_archive import make_archive

        path = make_archive()
    megabytes, seconds = path.stat().st_size / 1e6, perf_counter() - start_s
    if as_json:
        print(json.dumps({"archive": str(path), "megabytes": round(megabytes), "seconds": round(seconds)}))
    else:
        note(f"Spark will start faster. This took {seconds:.0f} s; the archive of {megabytes:.0f} MB is {path}")
    return 0
