"""W5 on Spark: does compiling filters like detection rules use each core as well as one process does?

    ./dev bench spark_detections                      100,000 filters on two cores, beside one process
    ./dev bench spark_detections --size 20000 --runs 1 --no-write

Both read the same Parquet file, parse each filter, write it in canonical form, build the index and save it. Spark also
compares the filters of each subscriber, shuffles the rows twice and writes two tables: the catalogue, and what was
parsed. Spark and the process take turns. The share is what a core gives on Spark, of what the one process gives.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.matching import RESULTS
from catchment.matching import Matcher
from catchment.model.filter import Filter
from catchment.pipeline import compile_subscriptions, spark_session
from catchment.pipeline.compile.parse import parsed_filter
from catchment.sim.detection_data import detection_rules

SEED = 7
CORES = 2
# Rules of one subscriber are compared with each other: as many as a team has.
RULES_OF_SUBSCRIBER = 10


def write_rules(size: int, path: Path) -> None:
    texts = list(detection_rules(size, SEED))
    subscribers = [f"team-{i // RULES_OF_SUBSCRIBER}" for i in range(size)]
    columns = {"id": [f"r{i}" for i in range(size)], "subscriber": subscribers, "filter": texts}
    pq.write_table(pa.table(columns), path)


def by_one_process(source: Path, out: Path) -> float:
    """Seconds that this process takes for the same."""
    parsed_filter.cache_clear()
    start = perf_counter()
    rows = pq.read_table(source).to_pylist()
    parsed = [parsed_filter(row["filter"], "catchment") for row in rows]
    filters = [Filter(each.filter) for each in parsed if each.filter is not None]
    matcher = Matcher()
    matcher.add_many([row["id"] for row in rows], filters)
    matcher.save(out)
    return perf_counter() - start


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="leave the file in results as it is")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="catchment-bench-") as directory:
        place = Path(directory)
        source = place / "rules.parquet"
        write_rules(given.size, source)
        spark = spark_session(f"local[{CORES}]", settings={"spark.local.dir": directory})
        spark_rates, process_rates = [], []
        for run in range(given.runs + 1):
            shutil.rmtree(place / "index", ignore_errors=True)
            start = perf_counter()
            compile_subscriptions(spark.read.parquet(str(source)), place / "index", graph=False)
            on_spark = given.size / (perf_counter() - start) / CORES
            shutil.rmtree(place / "one", ignore_errors=True)
            in_process = given.size / by_one_process(source, place / "one")
            if run:  # the first one of each is not counted: workers start, Java compiles
                spark_rates.append(on_spark)
                process_rates.append(in_process)
        spark.stop()
    shares = [a / b for a, b in zip(spark_rates, process_rates, strict=True)]
    lines = [
        "# Compiling filters like detection rules (W5) on Spark",
        "",
        f"`{' '.join(['./dev bench spark_detections', *arguments])}`, seed {SEED}, median of {given.runs} runs "
        "(least–greatest), each way in turn, wall clock.",
        "",
        "| filters | Spark, filters/s a core | one process, filters/s | share |",
        "|--:|--:|--:|--:|",
        f"| {given.size:,} | {_spread(spark_rates, ',.0f')} | {_spread(process_rates, ',.0f')} "
        f"| {_spread(shares, '.2f')} |",
        "",
    ]
    print("\n".join(lines))
    if not given.no_write:
        (RESULTS / "spark_detections.md").write_text("\n".join(lines), "utf-8")
    return 0


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
