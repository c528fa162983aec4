"""The pipeline on Spark: `match` and `compile` beside one process and beside what one would write in Spark SQL.

    ./dev bench spark                                      everything: takes most of an hour
    ./dev bench spark --part compiling                     one part; what the others found last stays in the report
    ./dev bench spark --sizes 10000 --workloads W1 --notifications 100000 --no-write

All on `local[2]`, wall time, session start-up aside. Rows go into a sink that keeps nothing, where one process is
`match_batch` on the same files, read by one thread, once as it is (numbers) and once with the lists of ids that Spark
gives too. And they go into Parquet: by `write_matches`, by Spark's own writer, and by one process that reads, matches
and writes as a worker of `write_matches` does. SQL is given as many notifications as take it some seconds; its pairs
must be as many as ours.

Notifications lie in Parquet: those of W1 and W2 as columns; those of W3, ten of a thousand names each, as a map. SQL
gets these as an array. W3 as a thousand columns is measured too, once, to say what that costs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spark_peers import PEERS, ROW, VALUES
from benchmarks.spark_report import CORES, LARGER_OF, PARTS, SEED, Results
from catchment.matching import Encoded, Matcher
from catchment.pipeline import Index, compile_subscriptions, detect, match, match_counts, spark_session, write_matches
from catchment.pipeline.match.parquet_scan import WORKERS_READ_PARQUET
from catchment.pipeline.match.shards import open_shards
from catchment.pipeline.match.worker import match_task
from catchment.pipeline.match.write import PartitionWriter
from catchment.pipeline.paths import file_system
from catchment.pipeline.schema import ATTRIBUTES
from catchment.sim.benchmark_data import notifications, subscriptions

SIZES = (10_000, 100_000, 1_000_000)
WORKLOADS = ("W1", "W2", "W3")
NOTIFICATIONS = 1_000_000
# Lists of ids come to this many ids at most: where a notification has thousands, fewer notifications are taken.
IDS_MAX = 400_000_000
# Spark's own writer is slower by far: it gets so many.
SPARK_WRITER_IDS_MAX = 20_000_000
PEER_SIZE_MAX = 100_000
# Compiled once more without graph and summaries.
BARE_SIZE_MAX = 100_000
PEER_SECONDS = 6.0
WARM_SECONDS = 10.0
# SQL gets no further than this in its seconds where attributes are many.
ARRAYS_MAX = 50_000
PATTERN_NOTIFICATIONS = 1_000_000
CHUNK = 20_000
# As many are enough for one process: it has nothing to start.
PROCESS_ROWS_MAX = 200_000

# Held as a map; and as columns too, so many of them at this size alone.
AS_MAP = ("W3",)
AS_COLUMNS_SIZE, AS_COLUMNS_ROWS = 100_000, 100_000
ARROW_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}

SPELLED = {"prefix": ">*", "suffix": "*<", "substring": "*"}


# --- data ---------------------------------------------------------------------------------------


def made_apart(make: Callable[..., None], *given: Any) -> None:
    """In a process of its own: what it takes to make the data is not the driver's memory."""
    process = multiprocessing.get_context("spawn").Process(target=make, args=given)
    process.start()
    process.join()
    assert process.exitcode == 0, f"{make.__name__} failed"


def spelled(triples: Sequence[tuple[str, str, Any]]) -> str:
    return " and ".join(
        f"{name} {SPELLED.get(operator, operator)} {json.dumps(operand)}" for name, operator, operand in triples
    )


def write_subscriptions(workload: str, size: int, path: Path) -> None:
    """Four to a subscriber, a hundred subscribers to a broker."""
    texts = [spelled(triples) for triples in subscriptions(workload, size, SEED)]
    numbers = range(size)
    table = pa.table(
        {
            "id": [f"s{i}" for i in numbers],
            "subscriber": [f"u{i // 4}" for i in numbers],
            "filter": texts,
            "broker": [f"b{i // 400 % 16}" for i in numbers],
        }
    )
    pq.write_table(table, path, row_group_size=50_000)


def columns_of(rows: Sequence[dict[str, Any]], start: int, types: dict[str, pa.DataType]) -> pa.Table:
    places: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in types}
    for i, row in enumerate(rows):
        for name, value in row.items():
            at, values = places[name]
            at.append(i)
            values.append(value)
    columns = {ROW: pa.array(np.arange(start, start + len(rows)))}
    for name, (at, values) in places.items():
        where = np.full(len(rows), -1)
        where[at] = np.arange(len(at))
        columns[name] = pa.array(values, types[name]).take(pa.array(where, mask=where < 0))
    return pa.table(columns)


def map_of(rows: Sequence[dict[str, Any]], start: int) -> pa.Table:
    """The same with a map of all attributes, whose values have a field for each type."""
    ends = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    values = [value for row in rows for value in row.values()]
    fields = [
        pa.array([value if type(value) is kind else None for value in values], ARROW_TYPES[kind]) for kind in (str, int)
    ]
    held = pa.StructArray.from_arrays(fields, ["string", "int"])
    names = pa.array([name for row in rows for name in row])
    attributes = pa.MapArray.from_arrays(pa.array(ends), names, held)
    return pa.table({ROW: pa.array(np.arange(start, start + len(rows))), ATTRIBUTES: attributes})


def write_notifications(workload: str, count: int, path: Path, as_map: bool = False) -> None:
    made = notifications(workload, count, SEED)
    types: dict[str, pa.DataType] = {}
    for row in made:
        for name, value in row.items():
            types.setdefault(name, ARROW_TYPES[type(value)])
    types = dict(sorted(types.items()))
    path.mkdir()
    # A file for each core and more, so that no core waits for the last.
    for start in range(0, count, CHUNK):
        rows = made[start : start + CHUNK]
        table = map_of(rows, start) if as_map else columns_of(rows, start, types)
        pq.write_table(table, path / f"{start:09}.parquet")


def whole_batches(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """The first rows of the notifications, as many at once as Spark's workers get."""
    left = rows
    for file in sorted(path.iterdir()):
        for batch in pq.ParquetFile(file).iter_batches(batch_size=10_000):
            if left <= 0:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows


def record_batches(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """The same without their number."""
    return (batch.drop_columns([ROW]) for batch in whole_batches(path, rows))


def first_files(spark: SparkSession, path: Path, rows: int) -> DataFrame:
    files = [str(file) for file in sorted(path.iterdir())][: -(-rows // CHUNK)]
    frame = spark.read.parquet(*files)
    return frame if rows % CHUNK == 0 else frame.where(F.col(ROW) < rows)


# --- timing -------------------------------------------------------------------------------------


def seconds(work: Callable[[], Any]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def driver_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def java_pid(spark: SparkSession) -> int:
    """The process id of the driver's Java."""
    java = spark.sparkContext._jvm
    assert java is not None
    return int(java.java.lang.ProcessHandle.current().pid())


def jvm_bytes(spark: SparkSession) -> int:
    """The most that the driver's Java has had resident; in local mode that includes the executor."""
    for line in Path(f"/proc/{java_pid(spark)}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def one_process(index: Index, path: Path, rows: int) -> dict[str, Callable[[], None]]:
    """What one process does with match_batch: by itself, with ids as strings, and with ids as Arrow's views."""
    (shard, *more) = index.shard_paths
    assert not more, "one process holds one matcher"
    matcher, shards = Matcher.open(shard), open_shards(index.shard_paths)

    def pieces() -> Iterator[Encoded]:
        for batch in record_batches(path, rows):
            ready = Encoded.of_columns(list(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)
            yield from (ready.slice(start, 1_000) for start in range(0, len(ready), 1_000))

    def numbers() -> None:
        for batch in record_batches(path, rows):
            matcher.match_batch(batch)

    def lists() -> None:
        for piece in pieces():
            matcher.match_batch(piece).to_arrow(sorted=True)

    def views() -> None:
        for piece in pieces():
            for matches in shards.matches(piece):
                list(shards.lists(matches))

    works = {"lists": lists, "numbers": numbers, "views": views}
    for work in works.values():
        work()  # opens what it reads
    return works


def files_to_files(
    frame: DataFrame, index: Index, path: Path, rows: int, matches: float, runs: int
) -> dict[str, list[float]]:
    """Rates from Parquet into Parquet: by workers, by Spark's own writer on fewer rows, and by one process."""
    names, out = [name for name in frame.columns if name != ROW], path.parent / "written"
    few = min(rows, max(CHUNK, int(SPARK_WRITER_IDS_MAX / matches) // CHUNK * CHUNK))
    writer = worker_of(frame, index, names, out)

    def fresh(work: Callable[[], Any]) -> float:
        shutil.rmtree(out, ignore_errors=True)
        return seconds(work)

    def by_one_process(count: int) -> None:
        (out / "_temporary").mkdir(parents=True)
        columns = [f"c{i}" for i in range(len(frame.columns))]
        (_,) = list(writer(batch.rename_columns(columns) for batch in whole_batches(path, count)))

    by_spark = match(first_files(frame.sparkSession, path, few), index, names)
    count = min(rows, PROCESS_ROWS_MAX)
    rates = {
        "workers": [rows / fresh(lambda: write_matches(frame, index, out, names)) for _ in range(runs)],
        "spark": [few / fresh(lambda: by_spark.write.parquet(str(out)))],
        "process": [count / fresh(lambda: by_one_process(count)) for _ in range(runs)],
    }
    shutil.rmtree(out)
    return rates


def worker_of(frame: DataFrame, index: Index, names: Sequence[str], out: Path) -> PartitionWriter:
    """What `write_matches` sends to its workers."""
    schema = match(frame, index, names).schema
    return PartitionWriter(match_task(frame, index, names), tuple(schema.names), schema.json(), *file_system(out))


def peer_rate(peer: Any, given: DataFrame, rows_max: int) -> tuple[float, int]:
    """The rate of a formulation in SQL, on as many notifications as take it PEER_SECONDS."""
    rows = min(rows_max, 250)
    while True:
        pairs = peer.pairs(given.where(F.col(ROW) < rows))
        took = seconds(partial(drained, pairs))
        if took >= PEER_SECONDS or rows == rows_max:
            return rows / took, rows
        rows = min(rows_max, rows * max(2, min(16, int(PEER_SECONDS / took))))


# --- one cell -----------------------------------------------------------------------------------


def compiled(spark: SparkSession, source: Path, index_path: Path, **options: Any) -> tuple[Index, float]:
    shutil.rmtree(index_path, ignore_errors=True)
    start = perf_counter()
    index = compile_subscriptions(spark.read.parquet(str(source)), index_path, **options)
    return index, perf_counter() - start


def source_of(workload: str, size: int, place: Path) -> Path:
    source = place / f"{workload}-{size}.parquet"
    if not source.exists():
        made_apart(write_subscriptions, workload, size, source)
    return source


def compile_cell(spark: SparkSession, workload: str, size: int, place: Path) -> dict[str, Any]:
    source = source_of(workload, size, place)
    index, took = compiled(spark, source, place / "index")
    return {
        "workload": workload,
        "size": size,
        "counts": dict(index.counts),
        "compile_seconds": took,
        "bare_seconds": compiled(spark, source, place / "bare", graph=False)[1] if size <= BARE_SIZE_MAX else None,
        "driver_bytes": driver_bytes(),
        "jvm_bytes": jvm_bytes(spark),
    }


def match_cell(spark: SparkSession, workload: str, size: int, place: Path, given: argparse.Namespace) -> dict[str, Any]:
    rows_path = place / f"{workload}-notifications"
    if not rows_path.exists():
        made_apart(write_notifications, workload, given.notifications, rows_path, workload in AS_MAP)
    index, _ = compiled(spark, source_of(workload, size, place), place / "index", graph=False)
    cell = {
        "workload": workload,
        "size": size,
        **matched(spark, index, rows_path, given.notifications, given.runs),
        "peers": {},
    }
    if size <= PEER_SIZE_MAX and not given.no_peers:
        cell["peers"] = peers(spark, workload, size, rows_path, cell["rows"], index)
    if workload in AS_MAP and size == AS_COLUMNS_SIZE:
        columns_path = place / f"{workload}-columns"
        made_apart(write_notifications, workload, AS_COLUMNS_ROWS, columns_path)
        cell["as_columns"] = matched(spark, index, columns_path, AS_COLUMNS_ROWS, given.runs)
    return cell


def matched(spark: SparkSession, index: Index, path: Path, rows_max: int, runs: int) -> dict[str, Any]:
    """Rates of `match`, of `match_counts`, and of one process, on the same files."""
    sample = list(record_batches(path, 2_000))
    matcher = Matcher.open(index.shard_paths[0])
    matches = sum(len(matcher.match_batch(batch).ids) for batch in sample) / sum(batch.num_rows for batch in sample)
    rows = min(rows_max, max(CHUNK, int(IDS_MAX / matches) // CHUNK * CHUNK))
    frame = first_files(spark, path, rows)
    names = [name for name in frame.columns if name != ROW]
    read_by_workers = match(frame, index, names)
    spark.conf.set(WORKERS_READ_PARQUET, "false")
    read_by_spark = match(frame, index, names)
    spark.conf.unset(WORKERS_READ_PARQUET)
    few = min(rows, PROCESS_ROWS_MAX)
    for matched_rows in (read_by_workers, read_by_spark):
        warm_up(partial(drained, matched_rows))
    rates = taking_turns(
        {"spark": (rows, partial(drained, read_by_workers)), "usual": (rows, partial(drained, read_by_spark))}
        | {name: (few, work) for name, work in one_process(index, path, few).items()},
        runs,
    )
    return {
        "rows": rows,
        "matches": matches,
        "spark": rates.pop("spark"),
        "usual": rates.pop("usual"),
        "process": rates,
        "counting": [rows / seconds(lambda: drained(match_counts(frame.drop(ROW), index)))],
        "files": files_to_files(frame, index, path, rows, matches, runs),
    }


def warm_up(work: Callable[[], None]) -> None:
    """Part of a session's start: workers open the index, and Java compiles what it runs for some seconds."""
    start = perf_counter()
    while perf_counter() - start < WARM_SECONDS:
        work()


def taking_turns(works: dict[str, tuple[int, Callable[[], None]]], runs: int) -> dict[str, list[float]]:
    """Rates of each, run by run, so that neighbors in time can be compared."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, (rows, work) in works.items():
            rates[name].append(rows / seconds(work))
    return rates


def peers(
    spark: SparkSession, workload: str, size: int, rows_path: Path, rows: int, index: Index
) -> dict[str, dict[str, float]]:
    triples = subscriptions(workload, size, SEED)
    wide = first_files(spark, rows_path, rows)
    matched = match(wide.where(F.col(ROW) < 100), index, [name for name in wide.columns if name != ROW])
    ((ours,),) = matched.agg(F.sum(F.size("subscriptions"))).collect()
    frame = (as_arrays(spark, workload, rows) if workload in AS_MAP else wide).cache()
    sample = frame.where(F.col(ROW) < 100)
    rates = {}
    for name, make in PEERS.items():
        try:
            peer = make(spark, triples)
        except ValueError as reason:
            print(f"{workload} {size:,}: {name} does not apply: {reason}", file=sys.stderr)
            continue
        theirs = peer.pairs(sample).count()
        assert theirs == ours, f"{name} finds {theirs}, match {ours}"
        rate, count = peer_rate(peer, frame, min(rows, ARRAYS_MAX) if VALUES in frame.columns else rows)
        rates[name] = {"rate": rate, "rows": count}
    spark.catalog.clearCache()
    return rates


def as_arrays(spark: SparkSession, workload: str, count: int) -> DataFrame:
    """Notifications as arrays of (name, number, text)."""
    made = [
        [
            {"name": name, "number": None, "text": value}
            if isinstance(value, str)
            else {"name": name, "number": float(value), "text": None}
            for name, value in row.items()
        ]
        for row in notifications(workload, min(count, ARRAYS_MAX), SEED)
    ]
    item = pa.struct([("name", pa.string()), ("number", pa.float64()), ("text", pa.string())])
    table = pa.table({ROW: np.arange(len(made)), VALUES: pa.array(made, pa.list_(item))})
    return spark.createDataFrame(table)


def patterns(spark: SparkSession, count: int, runs: int) -> dict[str, Any]:
    """A sequence of three by host over `count` notifications, every one of which matches some step."""
    step = F.col("id") % 3
    frame = spark.range(0, count, 1, 8).select(
        F.timestamp_micros(F.col("id") * 1_000).alias("$time"),
        F.concat(F.lit("h"), F.pmod(F.xxhash64((F.col("id") / 3).cast("bigint")), F.lit(5_000))).alias("host"),
        F.when(step == 2, "/etc/passwd").alias("file"),
        F.when(step < 2, "failed-login").alias("alarm"),
        F.when(step < 2, step + 1).alias("attempts"),
    )
    given = {
        "break-in": "[alarm = 'failed-login', attempts = 1] -> [alarm = 'failed-login', attempts = 2] "
        "-> [file = '/etc/passwd'] within 5m by host"
    }
    sequences = detect(frame, given)
    drained(sequences.limit(1))
    return {
        "rows": count,
        "found": sequences.count(),
        "rates": [count / seconds(lambda: drained(sequences)) for _ in range(runs)],
    }


def compile_cells(given: argparse.Namespace) -> list[tuple[str, int]]:
    wanted = [(workload, size) for size in given.sizes for workload in given.workloads]
    if given.larger and LARGER_OF in wanted:
        wanted.append((LARGER_OF[0], given.larger))
    return wanted


def measure(
    spark: SparkSession, place: Path, given: argparse.Namespace, say: Callable[[str, dict[str, Any]], None]
) -> None:
    """Says of each part what it has found so far: nothing is lost if the rest is not measured."""
    if given.part in (None, "patterns"):
        say("patterns", patterns(spark, PATTERN_NOTIFICATIONS, given.runs))
    if given.part in (None, "compiling"):
        cells = []
        for workload, size in compile_cells(given):
            cells.append(compile_cell(spark, workload, size, place))
            say("compiling", {"cells": cells})
    if given.part in (None, "matching"):
        cells = []
        for size in given.sizes:
            for workload in given.workloads:
                cells.append(match_cell(spark, workload, size, place, given))
                say("matching", {"cells": cells, "runs": given.runs})


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS)
    parser.add_argument("--notifications", type=int, default=NOTIFICATIONS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--larger", type=int, default=4_000_000, help="compile so many of W2 as well; 0 for none")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-write", action="store_true", help="leave the files in results as they are")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PYTHONHASHSEED", "0")
    results = Results(" ".join(["./dev bench spark", *arguments]), is_kept=not given.no_write)
    with tempfile.TemporaryDirectory(prefix="catchment-bench-") as directory:
        spark = spark_session(f"local[{CORES}]", settings={"spark.local.dir": directory})
        measure(spark, Path(directory), given, results.say)
        spark.stop()
    lines = results.verdicts()
    print("\n".join(lines))
    return 1 if any("Missed" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
