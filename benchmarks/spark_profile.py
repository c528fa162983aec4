"""Where the time of `match` on Spark goes, in core time: for machines that have other work as well.

    python benchmarks/spark_profile.py W3 --rows 40000 --rounds 4
    python benchmarks/spark_profile.py W3 --map --java=-XX:+UseG1GC

`--map` holds attributes in a map instead of a column each, `--java` gives Java other options.

Core time is that of Java and of its Python workers, from /proc. All ways run in one session, one after another, and
every other round backwards: what warms up or loads the machine meanwhile, meets them all alike.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spark import (
    CHUNK,
    compiled,
    drained,
    first_files,
    java_pid,
    write_notifications,
    write_subscriptions,
)
from benchmarks.spark_peers import ROW
from catchment.pipeline import match, spark_session
from catchment.pipeline.schema import ATTRIBUTES, col
from catchment.pipeline.session import ARROW_UNCHECKED

READER, FIELDS = "spark.sql.parquet.columnarReaderBatchSize", "spark.sql.codegen.maxFields"
TICKS = os.sysconf("SC_CLK_TCK")
Times = dict[int, tuple[int, int]]


def processes() -> Times:
    """Of each process its parent and its ticks, with those of the children that it has waited for."""
    times = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            times[int(place.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return times


def core_seconds(java: int) -> tuple[float, float]:
    """Of Java, and of all that it started."""
    times = processes()
    below, python = {java}, 0
    while more := {pid for pid, (parent, _) in times.items() if parent in below} - below:
        python += sum(times[pid][1] for pid in more)
        below |= more
    own = (Path("/proc") / str(java) / "stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, own[11:13])) / TICKS, python / TICKS


def swallowed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows])], ["rows"])


def unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def ways(frame: DataFrame, index: Path) -> dict[str, tuple[DataFrame, dict[str, str]]]:
    names = [name for name in frame.columns if name != ROW]
    if ATTRIBUTES in names:
        return {
            "scan": (frame, {}),
            "to Python": (frame.mapInArrow(swallowed, "rows long"), {}),
            "to Python and back": (frame.mapInArrow(unchanged, frame.schema), {}),
            "match": (match(frame, index, names), {}),
        }
    every = F.struct(*map(col, names))
    present = F.concat_ws(",", *(F.concat(F.lit(f"{name}:"), col(name).cast("string")) for name in names))
    small = {READER: "1024"}
    return {
        "scan, reader 4096": (frame, {READER: "4096"}),
        "scan, reader 1024": (frame, small),
        "scan, maxFields past the columns": (frame, small | {FIELDS: "10000"}),
        "scan, to_json of all": (frame.select(ROW, F.to_json(every).alias("text")), small),
        "scan, concat_ws of all": (frame.select(ROW, present.alias("text")), small),
        "to Python": (frame.mapInArrow(swallowed, "rows long"), small),
        "to Python and back": (frame.mapInArrow(unchanged, frame.schema), small),
        "match, reader 4096": (match(frame, index, names), {READER: "4096"}),
        "match, reader 1024": (match(frame, index, names), small),
    }


def profile(given: argparse.Namespace, place: Path, say: Callable[[str], None]) -> None:
    settings = {"spark.local.dir": str(place)}
    if given.java:
        settings["spark.driver.extraJavaOptions"] = f"{ARROW_UNCHECKED} {given.java}"
    spark = spark_session("local[2]", settings=settings)
    write_subscriptions(given.workload, given.size, place / "s.parquet")
    write_notifications(given.workload, given.rows, place / "n", given.map)
    compiled(spark, place / "s.parquet", place / "index", graph=False)
    java = java_pid(spark)
    usual = {name: str(spark.conf.get(name)) for name in (READER, FIELDS)}
    chosen = ways(first_files(spark, place / "n", given.rows), place / "index")
    times_by_way: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    for number in range(given.rounds + 1):
        for name in list(chosen)[:: -1 if number % 2 else 1]:
            frame, settings = chosen[name]
            for key, value in (usual | settings).items():
                spark.conf.set(key, value)
            before = core_seconds(java)
            drained(frame)
            took = [(b - a) / given.rows * 1e6 for a, b in zip(before, core_seconds(java), strict=True)]
            if number:  # the first round warms up
                times_by_way[name].append((took[0], took[1]))
    for name, times in times_by_way.items():
        java_us, python_us = (sorted(pair[i] for pair in times) for i in (0, 1))
        say(
            f"{given.workload} {name:34} Java {median(java_us):6.1f} ({java_us[0]:.1f}–{java_us[-1]:.1f}) "
            f"Python {median(python_us):6.1f} ({python_us[0]:.1f}–{python_us[-1]:.1f}) µs a row"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=("W1", "W2", "W3"))
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=2 * CHUNK)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--map", action="store_true")
    parser.add_argument("--java", default="")
    with tempfile.TemporaryDirectory(prefix="catchment-profile-") as directory:
        profile(parser.parse_args(), Path(directory), lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
