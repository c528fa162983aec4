"""`catchment detect`: sequences in an archive, in files, or in files as they arrive."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catchment.cli.jobs import Stages, format_of, note, session
from catchment.cli.match import types_of
from catchment.cli.replay import time_of
from catchment.cli.stream import duration, interrupts, waited
from catchment.cli.terminal import BadUsage, described
from catchment.errors import CatchmentError, InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from catchment.model.filter import Pattern
    from catchment.pipeline.inputs import Input


@dataclass(frozen=True, slots=True)
class Detecting:
    """What was asked for."""

    pattern: str | None
    file: str | None
    on: str
    output: str | None
    format: str | None
    types: str | None
    start: str | None
    end: str | None
    stream: bool
    once: bool
    late: str | None
    master: str | None
    as_json: bool


def run_detect(asked: Detecting) -> int:
    if (asked.pattern is None) == (asked.file is None):
        raise BadUsage("give a pattern in quotes, or --file with one on each line")
    patterns = {"pattern": _pattern(asked.pattern)} if asked.pattern is not None else _from_file(str(asked.file))
    if asked.stream:
        return _stream(asked, patterns)
    if asked.once or asked.late is not None:
        raise BadUsage("--once and --late are for --stream: what is there is read whole, in publication order")
    return _batch(asked, patterns)


# --- patterns -----------------------------------------------------------------------------------


def _pattern(text: str, where: str = "PATTERN") -> Pattern:
    from catchment.model.filter import Pattern

    try:
        return Pattern(text)
    except InputError as problem:
        raise BadUsage(described(problem, where, text)) from None


def _from_file(path: str) -> dict[str, Pattern]:
    """A pattern on each line, by its number; or JSON objects with `id` and `pattern`."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise BadUsage(f"--file {path}: {problem}") from None
    found: dict[str, Pattern] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            id, text = _entry(line, f"{path}, line {number}", str(number))
            if id in found:
                raise BadUsage(f"{path}, line {number}: the id {id} is there already")
            found[id] = _pattern(text, f"{path}, line {number}")
    if not found:
        raise BadUsage(f"--file {path}: it holds no pattern")
    return found


def _entry(line: str, where: str, number: str) -> tuple[str, str]:
    if not line.lstrip().startswith("{"):
        return number, line
    try:
        found = json.loads(line)
        return str(found["id"]), str(found["pattern"])
    except (ValueError, KeyError):
        raise BadUsage(f'{where}: write {{"id": …, "pattern": …}}, or a pattern alone') from None


# --- what is there ------------------------------------------------------------------------------


def _batch(asked: Detecting, patterns: Mapping[str, Pattern]) -> int:
    if asked.output is not None and Path(asked.output).exists():
        raise BadUsage(f"{asked.output} is there already: name a new directory")
    is_archive = (Path(asked.on) / "_schema.json").exists()
    start, end = time_of("--from", asked.start), time_of("--to", asked.end)
    if not is_archive and (start or end):
        raise BadUsage(f"--from and --to are for archives, and {asked.on} is none")
    format = None if is_archive else format_of(asked.on, asked.format)
    types = None if asked.types is None else types_of(asked.types)
    spark = session(asked.master)
    from catchment.pipeline import archived, detect, read_notifications

    with Stages(spark, asked.as_json) as stages:
        stages("reading")
        if is_archive:
            rows, given = archived(spark, asked.on, start, end), None
        else:
            given = read_notifications(spark, asked.on, format, types)  # type: ignore[arg-type]
            rows = given.rows
        stages("detecting")
        found = detect(rows, patterns).sort("last", "pattern", "key")
        if asked.output is None:
            return _printed(found, given, asked.as_json)
        counts = _written(found, given, Path(asked.output))
    print(json.dumps(counts) if asked.as_json else f"written to {Path(asked.output) / 'found'}")
    return 0


def _written(found: DataFrame, given: Input | None, output: Path) -> dict[str, Any]:
    """Sequences and, as every job does, the rows that are no notification: `found` and `rejects`, as of a stream."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    from catchment.pipeline.paths import address

    found.write.parquet(address(output.absolute() / "found"))
    rejected = 0
    # Where the reader does not know yet how many there are, writing them says so.
    if given is not None and given.rejected != 0:
        seen = Observation()
        observed = given.rejects.observe(seen, F.count(F.lit(1)).alias("rejected"))
        observed.write.parquet(address(output.absolute() / "rejects"))
        rejected = int(seen.get["rejected"])
    if rejected:
        note(f"{_rows(rejected)} no notification: see {output / 'rejects'}")
    return {"rejected": rejected, "output": str(output)}


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count:,} rows are"


def _printed(found: DataFrame, given: Input | None, as_json: bool) -> int:
    """One line for each sequence, as they come from Spark: one partition at a time is here."""
    if given is not None and given.rejected:
        note(f"{_rows(given.rejected)} no notification: -o DIRECTORY writes them too")
    count = 0
    for row in found.toLocalIterator():
        count += 1
        print(json.dumps(_as_json(row)) if as_json else _sentence(row))
    sys.stdout.flush()
    sys.stderr.write(f"{count:,} sequences\n")
    return 0


def _as_json(row: Any) -> dict[str, Any]:
    times = {name: row[name].isoformat() for name in ("first", "last")}
    notifications = [json.loads(text) for text in row["notifications"]]
    return {"pattern": row["pattern"], "key": json.loads(row["key"]), "notifications": notifications, **times}


def _sentence(row: Any) -> str:
    key = "" if row["key"] == "{}" else f" {row['key']}"
    return f"{row['pattern']}{key}: {' -> '.join(row['notifications'])}"


# --- what arrives -------------------------------------------------------------------------------


def _stream(asked: Detecting, patterns: Mapping[str, Pattern]) -> int:
    if asked.output is None:
        raise BadUsage("--stream writes files: say where with -o")
    if not Path(asked.on).is_dir():
        raise BadUsage(f"--on {asked.on} is no directory: a stream waits for files in one")
    late, format = duration("--late", asked.late), format_of(asked.on, asked.format)
    types = None if asked.types is None else types_of(asked.types)
    spark = session(asked.master)
    with interrupts() as interrupted:
        queries = _started(spark, asked, patterns, format, types, late)
        sys.stderr.write("waiting for files; Ctrl-C stops\n")
        for query in queries:
            waited(query, interrupted)
    place = Path(asked.output)
    print(json.dumps({"output": str(place)}) if asked.as_json else f"written to {place / 'found'}")
    return 0


def _started(
    spark: SparkSession,
    asked: Detecting,
    patterns: Mapping[str, Pattern],
    format: str,
    types: dict[str, str] | None,
    late: timedelta | None,
) -> list[Any]:
    """Two streams of the same files: sequences, and what is no notification."""
    from catchment.pipeline import detect
    from catchment.pipeline.paths import address
    from catchment.pipeline.patterns import LATE_MAX
    from catchment.pipeline.stream.dataframe import stream_notifications

    given = stream_notifications(spark, asked.on, format, types)  # type: ignore[arg-type]
    found = detect(given.rows, patterns, late=LATE_MAX if late is None else late)
    queries = []
    for name, table in (("found", found), ("rejects", given.rejects)):
        place = f"{address(str(asked.output))}/{name}"
        writer = table.writeStream.format("parquet").option("checkpointLocation", f"{place}/_checkpoint")
        triggered = writer.trigger(availableNow=True) if asked.once else writer.trigger(processingTime="1 second")
        try:
            queries.append(triggered.outputMode("append").start(place))
        except CatchmentError:
            for query in queries:
                query.stop()
            raise
    return queries
