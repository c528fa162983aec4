"""What commands that run on Spark share: the session, formats, and progress while a job runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
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
_DRAWN_SECONDS: Final = 0.2


def session(master: str | None) -> SparkSession:
    """The session; UnavailableError says what is missing."""
    with status("starting Spark"):
        from catchment.pipeline.session import spark_session

        try:
            return spark_session(master)
        except UnavailableError:
            raise
        except Exception as problem:  # py4j's, Spark's and grpc's errors have no common ancestor
            first = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise UnavailableError(f"Spark does not start with master {master or 'local[*]'}: {first}") from None


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
    """Says what is being done, and how many of its tasks are: a bar on a terminal, a line each elsewhere."""

    def __init__(self, spark: SparkSession, quiet: bool) -> None:
        self._spark, self._quiet = spark, quiet
        self._progress: Progress | None = None
        self._done = Event()
        self._thread = Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Stages:
        shown = console(stderr=True)
        if shown.is_terminal and not self._quiet:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=shown, transient=True)
            self._progress.start()
            self._progress.add_task("", total=None)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._progress is not None:
            self._thread.join()
            self._progress.stop()

    def __call__(self, stage: str) -> None:
        if self._progress is not None:
            self._progress.reset(self._progress.task_ids[0], description=stage, total=None)
        elif not self._quiet:
            sys.stderr.write(f"{stage}\n")

    def _draw(self) -> None:
        while not self._done.wait(_DRAWN_SECONDS):
            with suppress(Exception):  # a Connect session has no tracker; a bar is not worth a failure
                done, total = _tasks(self._spark.sparkContext.statusTracker())
                if total and self._progress is not None:
                    self._progress.update(self._progress.task_ids[0], completed=done, total=total)


def _tasks(tracker: Any) -> tuple[int, int]:
    """Tasks done and in all, of the stages that run."""
    found = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
    known = [one for one in found if one is not None]
    return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)
