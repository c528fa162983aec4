"""`catchment detect`: finds sequences that complete a pattern, in an archive, in files, or in files as they arrive."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from catchment.cli.arguments import (
    NotificationFormat,
    format_by_name,
    new_directory,
    parsed_duration,
    parsed_pattern,
    parsed_time,
    parsed_types,
)
from catchment.cli.options import (
    OUTPUT_NAMES,
    FromOption,
    JsonFlag,
    MasterOption,
    NotificationFormatOption,
    OnceFlag,
    ToOption,
    TypesOption,
    flag,
)
from catchment.cli.spark.progress import StepProgress
from catchment.cli.spark.rejects import note_rejects, write_rejects
from catchment.cli.spark.session import session
from catchment.cli.spark.streams import WAITING, stop_on_interrupt, wait_for
from catchment.cli.terminal import BadUsage
from catchment.errors import CatchmentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from catchment.model.pattern import Pattern
    from catchment.pipeline.inputs import Input

PATTERN_HELP: Final = 'The pattern, in quotes: "[a = 1] -> [a = 2] within 5m by host".'
FILE_HELP: Final = 'A file with a pattern on each line, or with {"id": …, "pattern": …} on each line.'
OUTPUT_HELP: Final = "A directory for the result. Default: print the sequences."
LATE_HELP: Final = "With --stream: how long to wait for notifications that arrive out of order. Default: 10m."
# The tables of a result, in its directory.
SEQUENCES, REJECTS = "found", "rejects"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectOptions:
    """The options of `catchment detect`. Each field is one."""

    on: Annotated[str, Parameter(help="An archive, or a file or directory of notifications.", metavar="NOTIFICATIONS")]
    file: Annotated[str | None, Parameter(help=FILE_HELP, metavar="FILE")] = None
    output: Annotated[str | None, Parameter(name=OUTPUT_NAMES, help=OUTPUT_HELP, metavar="OUT")] = None
    format: NotificationFormatOption = None
    types: TypesOption = None
    start: FromOption = None
    end: ToOption = None
    stream: Annotated[bool, flag("Read files as they arrive in the directory of --on.")] = False
    once: OnceFlag = False
    late: Annotated[str | None, Parameter(help=LATE_HELP, metavar="DURATION")] = None
    master: MasterOption = None
    as_json: JsonFlag = False


def detect(
    pattern: Annotated[str | None, Parameter(help=PATTERN_HELP)] = None,
    /,
    *,
    options: Annotated[DetectOptions, Parameter(name="*")],
) -> int:
    """Find sequences of notifications that complete a pattern, in an archive, in files, or in files as they arrive."""
    if pattern is not None and options.file is None:
        patterns = {"pattern": parsed_pattern("PATTERN", pattern)}
    elif pattern is None and options.file is not None:
        patterns = _patterns_in(options.file)
    else:
        raise BadUsage("give either a pattern in quotes, or --file with a pattern on each line")
    if options.stream:
        return _detect_in_stream(options, patterns)
    if options.once or options.late is not None:
        raise BadUsage("--once and --late are for --stream: without it, all files are read, in publication order")
    return _detect_in_batch(options, patterns)


# --- patterns from a file -----------------------------------------------------------------------


def _patterns_in(path: str) -> dict[str, Pattern]:
    """The patterns of a file by their ids. A pattern without an id has the number of its line."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise BadUsage(f"--file {path}: {problem}") from None
    patterns: dict[str, Pattern] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"--file {path}, line {number}"
            id, text = _id_and_text(line, where, str(number))
            if id in patterns:
                raise BadUsage(f"{where}: another pattern has the id {id} already; give each its own")
            patterns[id] = parsed_pattern(where, text)
    if not patterns:
        raise BadUsage(f"--file {path}: there is no pattern in it; write one on each line")
    return patterns


def _id_and_text(line: str, where: str, default_id: str) -> tuple[str, str]:
    if not line.lstrip().startswith("{"):
        return default_id, line
    try:
        entry = json.loads(line)
        return str(entry["id"]), str(entry["pattern"])
    except (ValueError, KeyError):
        raise BadUsage(f'{where}: write {{"id": …, "pattern": …}}, or only a pattern') from None


# --- what is there already ----------------------------------------------------------------------


def _detect_in_batch(options: DetectOptions, patterns: Mapping[str, Pattern]) -> int:
    output = None if options.output is None else new_directory(options.output)
    is_archive = (Path(options.on) / "_schema.json").exists()
    start, end = parsed_time("--from", options.start), parsed_time("--to", options.end)
    if not is_archive and (start or end):
        raise BadUsage(f"--from and --to are for archives, and {options.on} is not one: leave them out")
    # An archive is Parquet. Its own reader knows that, and needs no format.
    format = "parquet" if is_archive else options.format or format_by_name(options.on)
    types = parsed_types(options.types)
    spark = session(options.master)
    from catchment.pipeline import archived, read_notifications
    from catchment.pipeline import detect as detect_sequences

    with StepProgress(spark, options.as_json) as progress:
        progress("reading")
        if is_archive:
            rows, given = archived(spark, options.on, start, end), None
        else:
            given = read_notifications(spark, options.on, format, types)
            rows = given.rows
        progress("detecting")
        sequences = detect_sequences(rows, patterns).sort("last", "pattern", "key")
        if output is None:
            _print_sequences(sequences, given, options.as_json)
            return 0
        rejected = _write_tables(sequences, given, output)
    note_rejects(rejected, "a notification", f"see {output / REJECTS}")
    summary = {"rejected": rejected, "output": str(output)}
    print(json.dumps(summary) if options.as_json else f"written to {output / SEQUENCES}")
    return 0


def _write_tables(sequences: DataFrame, given: Input | None, output: Path) -> int:
    """Writes sequences and rejects. Returns the number of rejects; an archive, without an input, has none."""
    from catchment.pipeline.paths import address

    sequences.write.parquet(address(output.absolute() / SEQUENCES))
    return 0 if given is None else write_rejects(given, address(output.absolute() / REJECTS))


def _print_sequences(sequences: DataFrame, given: Input | None, as_json: bool) -> None:
    """Prints a line for each sequence. Only one partition of them is in memory at a time."""
    if given is not None:
        note_rejects(given.rejected or 0, "a notification", "-o DIRECTORY writes them too")
    count = 0
    for row in sequences.toLocalIterator():
        count += 1
        print(json.dumps(_to_json(row)) if as_json else _sentence(row))
    sys.stdout.flush()
    sys.stderr.write(f"{count:,} sequences\n")


def _to_json(row: Any) -> dict[str, Any]:
    times = {name: row[name].isoformat() for name in ("first", "last")}
    notifications = [json.loads(text) for text in row["notifications"]]
    return {"pattern": row["pattern"], "key": json.loads(row["key"]), "notifications": notifications, **times}


def _sentence(row: Any) -> str:
    key = "" if row["key"] == "{}" else f" {row['key']}"
    return f"{row['pattern']}{key}: {' -> '.join(row['notifications'])}"


# --- what arrives -------------------------------------------------------------------------------


def _detect_in_stream(options: DetectOptions, patterns: Mapping[str, Pattern]) -> int:
    if options.output is None:
        raise BadUsage("--stream writes files: say where with -o DIRECTORY")
    if not Path(options.on).is_dir():
        raise BadUsage(f"--on: there is no directory {options.on}; --stream waits for files in a directory")
    late, format = parsed_duration("--late", options.late), options.format or format_by_name(options.on)
    types = parsed_types(options.types)
    spark = session(options.master)
    with stop_on_interrupt() as is_interrupted:
        queries = _started(spark, options, patterns, format, types, late)
        sys.stderr.write(f"{WAITING}\n")
        for query in queries:
            wait_for(query, is_interrupted)
    output = Path(options.output)
    print(json.dumps({"output": str(output)}) if options.as_json else f"written to {output / SEQUENCES}")
    return 0


def _started(
    spark: SparkSession,
    options: DetectOptions,
    patterns: Mapping[str, Pattern],
    format: NotificationFormat,
    types: dict[str, str] | None,
    late: timedelta | None,
) -> list[StreamingQuery]:
    """Starts two queries over the same files: one writes sequences, the other rejects."""
    from catchment.pipeline import detect as detect_sequences
    from catchment.pipeline.paths import address
    from catchment.pipeline.patterns import LATE_MAX
    from catchment.pipeline.stream.dataframe import stream_notifications

    given = stream_notifications(spark, options.on, format, types)
    sequences = detect_sequences(given.rows, patterns, late=LATE_MAX if late is None else late)
    queries: list[StreamingQuery] = []
    for name, table in ((SEQUENCES, sequences), (REJECTS, given.rejects)):
        place = f"{address(str(options.output))}/{name}"
        writer = table.writeStream.format("parquet").option("checkpointLocation", f"{place}/_checkpoint")
        triggered = writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime="1 second")
        try:
            queries.append(triggered.outputMode("append").start(place))
        except CatchmentError:
            # Without the second query the first must not go on alone.
            for query in queries:
                query.stop()
            raise
    return queries
