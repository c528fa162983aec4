"""`catchment stream`: matches notifications as files of them arrive in a directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from catchment.cli.arguments import format_by_name, parsed_duration, parsed_types
from catchment.cli.options import (
    OUTPUT_NAMES,
    IndexOption,
    JsonFlag,
    MasterOption,
    NotificationFormatOption,
    OnceFlag,
    TypesOption,
)
from catchment.cli.spark.session import session
from catchment.cli.spark.streams import BatchProgress, stop_on_interrupt, wait_for
from catchment.cli.terminal import BadUsage

DIRECTORY_HELP: Final = (
    "The directory in which files of notifications arrive. Write a file elsewhere and move it in when it is complete."
)
OUTPUT_HELP: Final = "The directory of the result. If a stream has written to it before, that stream goes on."
CHECKPOINT_HELP: Final = "A directory for Spark's state. Default: _checkpoint in the output directory."
LATE_HELP: Final = (
    "Put notifications that are this much older than the newest one, such as 10m, into a table of their own. "
    "Default: no notification is late."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of `catchment stream`. Each field is one."""

    index: IndexOption
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help=OUTPUT_HELP, metavar="OUT")]
    format: NotificationFormatOption = None
    types: TypesOption = None
    glob: Annotated[str | None, Parameter(help="Read only files with such names: *.jsonl.", metavar="PATTERN")] = None
    files_max: Annotated[int | None, Parameter(help="The most files that make one batch. Default: 100.")] = None
    checkpoint: Annotated[str | None, Parameter(help=CHECKPOINT_HELP, metavar="DIRECTORY")] = None
    once: OnceFlag = False
    every: Annotated[
        str | None, Parameter(help="How often to look for new files. Default: 1s.", metavar="DURATION")
    ] = None
    late: Annotated[str | None, Parameter(help=LATE_HELP, metavar="DURATION")] = None
    time: Annotated[
        str | None, Parameter(help="The attribute that --late compares. Default: $time.", metavar="NAME")
    ] = None
    master: MasterOption = None
    as_json: JsonFlag = False


def stream(
    directory: Annotated[str, Parameter(help=DIRECTORY_HELP)],
    /,
    *,
    options: Annotated[StreamOptions, Parameter(name="*")],
) -> int:
    """Match notifications as files of them arrive. Each is matched exactly once, even if the stream is killed.

    When the index has a new version, the next batch uses it.
    """
    _check(directory, options)
    every, late = parsed_duration("--every", options.every), parsed_duration("--late", options.late)
    format, types = options.format or format_by_name(directory), parsed_types(options.types)
    spark = session(options.master)
    from catchment.pipeline.stream.files import FILES_MAX, NotificationFiles
    from catchment.pipeline.stream.jobs import EVERY, match_stream

    files = NotificationFiles(
        directory,
        format,
        types,
        glob=options.glob,
        files_max=options.files_max or FILES_MAX,
    )
    with BatchProgress(options.as_json) as progress, stop_on_interrupt() as is_interrupted:
        query = match_stream(
            files,
            options.index,
            options.output,
            checkpoint=options.checkpoint,
            every=EVERY if every is None else every,
            once=options.once,
            late=late,
            time=options.time or "$time",
            report=progress,
            spark=spark,
        )
        progress.started()
        wait_for(query, is_interrupted, progress)
    progress.print_summary(options.output)
    return 0


def _check(directory: str, options: StreamOptions) -> None:
    if not Path(directory).is_dir():
        raise BadUsage(f"DIRECTORY: there is no directory {directory}; make it, and move complete files into it")
    if options.once and options.every is not None:
        raise BadUsage("--once looks for files only once: leave out --every")
    if options.time is not None and options.late is None:
        raise BadUsage("--time names the attribute that --late compares: give both")
