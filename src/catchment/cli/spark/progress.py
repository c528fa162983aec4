"""Progress of a Spark job, on standard error: a bar on a terminal, otherwise a line for each step.

A *step* is a part of the command, such as reading or matching. Spark runs each step as several *stages*, and each
stage as *tasks*.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.terminal import console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

_REFRESH_SECONDS: Final = 0.2


class StepProgress:
    """Call it with the name of each step. Shows how many tasks of the step are done, its rows and their rate."""

    def __init__(self, spark: SparkSession, quiet: bool) -> None:
        self._spark, self._quiet = spark, quiet
        self._progress: Progress | None = None
        self._done = Event()
        self._thread = Thread(target=self._refresh, daemon=True)
        self._rows = RowRate()

    def __enter__(self) -> StepProgress:
        errors = console(stderr=True)
        if errors.is_terminal and not self._quiet:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rows]}"),
                TimeElapsedColumn(),
            )
            self._progress = Progress(*columns, console=errors, transient=True)
            self._progress.start()
            self._progress.add_task("", total=None, rows="")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._progress is not None:
            self._thread.join()
            self._progress.stop()

    def __call__(self, step: str) -> None:
        if self._progress is not None:
            self._rows = RowRate()
            self._progress.reset(self._progress.task_ids[0], description=step, total=None, rows="")
        elif not self._quiet:
            sys.stderr.write(f"{step}\n")

    def _refresh(self) -> None:
        while not self._done.wait(_REFRESH_SECONDS):
            # With Spark Connect there is no status to ask for. The command must not fail because of its bar.
            with suppress(Exception):
                stages = active_stages(self._spark)
                if stages and self._progress is not None:
                    self._rows.update(stages, monotonic())
                    self._progress.update(
                        self._progress.task_ids[0],
                        completed=sum(stage.tasks_done for stage in stages),
                        total=sum(stage.tasks for stage in stages),
                        rows=str(self._rows),
                    )


@dataclass(frozen=True, slots=True)
class ActiveStage:
    """A stage that Spark runs now, with the counts that Spark's own status page would show."""

    number: int
    tasks: int
    tasks_done: int
    rows: int


def active_stages(spark: SparkSession) -> list[ActiveStage]:
    """Asks Spark's status store, which exists even if the status page is switched off."""
    stages = spark.sparkContext._jsc.sc().statusStore().activeStages()
    return [_active_stage(stages.apply(i)) for i in range(stages.size())]


def _active_stage(stage: Any) -> ActiveStage:
    # The first stage of a job reads files, later ones read what another stage has shuffled.
    rows = stage.inputRecords() or stage.shuffleReadRecords()
    return ActiveStage(stage.stageId(), stage.numTasks(), stage.numCompleteTasks(), rows)


class RowRate:
    """Rows done and rows a second, of the stage that has done most rows."""

    def __init__(self) -> None:
        self._stage, self._start, self._rows, self._rate = -1, 0.0, 0, 0.0

    def update(self, stages: Sequence[ActiveStage], now: float) -> None:
        busiest = max(stages, key=lambda stage: stage.rows)
        if busiest.number != self._stage:
            # The stage began some time after the last refresh: take the longest time it can have run.
            self._stage, self._start = busiest.number, now - _REFRESH_SECONDS
        self._rows = busiest.rows
        self._rate = busiest.rows / (now - self._start)

    def __str__(self) -> str:
        return f"{self._rows:,} rows, {self._rate:,.0f}/s" if self._rows else ""
