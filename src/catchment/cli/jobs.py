"""What commands that run on Spark share: the session, formats, and progress while a job runs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.terminal import BadUsage, console
from catchment.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

FORMATS: Final = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
TRACEBACK: Final = "CATCHMENT_TRACEBACK"
# Running tasks say how far they are with each heartbeat, of which Spark has one in ten seconds.
_SETTINGS: Final = {"spark.executor.heartbeatInterval": "1s"}
_DRAWN_SECONDS: Final = 0.2
_LOG_LINES_SHOWN: Final = 5


def session(master: str | None) -> SparkSession:
    """The session; UnavailableError says what is missing."""
    with status("starting Spark"):
        from catchment.pipeline.session import spark_session

        log = _java_log()
        try:
            return spark_session(master, settings=_SETTINGS, log=log)
        except UnavailableError:
            raise
        except Exception as problem:  # py4j's, Spark's and grpc's errors have no common ancestor
            first = (str(problem).splitlines() or [type(problem).__name__])[0]
            said = "" if log is None else _tail(log)
            raise UnavailableError(f"Spark does not start with master {master or 'local[*]'}: {first}{said}") from None
        finally:
            if log is not None:
                log.unlink(missing_ok=True)  # Java goes on writing to what has no name any more


def _java_log() -> Path | None:
    """A file for what Java says, which is for whoever hunts a bug; they set CATCHMENT_TRACEBACK and see it all."""
    if os.environ.get(TRACEBACK):
        return None
    handle, path = tempfile.mkstemp(prefix="catchment-java-", suffix=".log")
    os.close(handle)
    return Path(path)


def _tail(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES_SHOWN:]
    return "".join(f"\n  {line}" for line in lines)


def format_of(path: str, given: str | None) -> str:
    """The format of a file, by its name or, of a directory, by the names in it."""
    if given is not None:
        return given
    place = Path(path)
    names = [place, *(place.iterdir() if place.is_dir() else ())]
    for name in names:
        if name.suffix in FORMATS:
            return FORMATS[name.suffix]
    raise BadUsage(f"{path}: what is in it does not show from its name\nsay so with --format")


def note(message: str) -> None:
    """A word on standard error that is no error."""
    console(stderr=True).print(message, soft_wrap=True)


@contextmanager
def status(message: str) -> Iterator[None]:
    """A spinner, where there is somebody to see it."""
    shown = console(stderr=True)
    if not shown.is_terminal:
        yield
        return
    with shown.status(message):
        yield


class Stages:
    """Says what is being done, how many of its tasks are, rows and rate: a bar on a terminal, a line elsewhere."""

    def __init__(self, spark: SparkSession, quiet: bool) -> None:
        self._spark, self._quiet = spark, quiet
        self._progress: Progress | None = None
        self._done = Event()
        self._thread = Thread(target=self._draw, daemon=True)
        self._rows = RowsRead()

    def __enter__(self) -> Stages:
        shown = console(stderr=True)
        if shown.is_terminal and not self._quiet:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rows]}"),
                TimeElapsedColumn(),
            )
            self._progress = Progress(*columns, console=shown, transient=True)
            self._progress.start()
            self._progress.add_task("", total=None, rows="")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._progress is not None:
            self._thread.join()
            self._progress.stop()

    def __call__(self, stage: str) -> None:
        if self._progress is not None:
            self._rows = RowsRead()
            self._progress.reset(self._progress.task_ids[0], description=stage, total=None, rows="")
        elif not self._quiet:
            sys.stderr.write(f"{stage}\n")

    def _draw(self) -> None:
        while not self._done.wait(_DRAWN_SECONDS):
            with suppress(Exception):  # a Connect session has no status; a bar is not worth a failure
                found = running(self._spark)
                if found and self._progress is not None:
                    done, total = sum(one.tasks_done for one in found), sum(one.tasks for one in found)
                    self._rows.note(found, monotonic())
                    task = self._progress.task_ids[0]
                    self._progress.update(task, completed=done, total=total, rows=str(self._rows))


@dataclass(frozen=True, slots=True)
class Running:
    """A stage of Spark that runs, as its own status page would show it."""

    stage: int
    tasks: int
    tasks_done: int
    rows: int


def running(spark: SparkSession) -> list[Running]:
    """The stages that run. The store is there whether or not a page shows it."""
    stages = spark.sparkContext._jsc.sc().statusStore().activeStages()
    return [_running(stages.apply(i)) for i in range(stages.size())]


def _running(stage: Any) -> Running:
    rows = stage.inputRecords() or stage.shuffleReadRecords()
    return Running(stage.stageId(), stage.numTasks(), stage.numCompleteTasks(), rows)


class RowsRead:
    """Rows done and how fast, of the stage that has done most."""

    def __init__(self) -> None:
        self._stage, self._began, self._count, self._rate = -1, 0.0, 0, 0.0

    def note(self, found: list[Running], now: float) -> None:
        most = max(found, key=lambda one: one.rows)
        if most.stage != self._stage:
            self._stage, self._began = most.stage, now - _DRAWN_SECONDS
        self._count = most.rows
        self._rate = most.rows / (now - self._began)

    def __str__(self) -> str:
        return f"{self._count:,} rows, {self._rate:,.0f}/s" if self._count else ""
