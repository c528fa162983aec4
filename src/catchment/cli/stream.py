"""`catchment stream`: notifications matched as files of them arrive."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.jobs import format_of, session
from catchment.cli.match import types_of
from catchment.cli.terminal import BadUsage, console
from catchment.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.status import Status

    from catchment.pipeline.stream.output import BatchRecord

_POLL_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class Streaming:
    """What was asked for."""

    directory: str
    index: str
    output: str
    format: str | None
    types: str | None
    glob: str | None
    files_max: int | None
    checkpoint: str | None
    once: bool
    every: str | None
    late: str | None
    time: str | None
    master: str | None
    as_json: bool


def run_stream(asked: Streaming) -> int:
    if not Path(asked.directory).is_dir():
        raise BadUsage(f"{asked.directory} is no directory: make one, into which files are renamed when they are whole")
    if asked.once and asked.every is not None:
        raise BadUsage("--once takes what is there and ends: leave out --every")
    if asked.time is not None and asked.late is None:
        raise BadUsage("--time says what --late goes by: give both")
    every, late = duration("--every", asked.every), duration("--late", asked.late)
    format = format_of(asked.directory, asked.format)
    types = None if asked.types is None else types_of(asked.types)
    spark = session(asked.master)
    from catchment.pipeline.stream.files import FILES_MAX, NotificationFiles
    from catchment.pipeline.stream.jobs import EVERY, match_stream

    files = NotificationFiles(
        asked.directory,
        format,  # type: ignore[arg-type]
        types,
        glob=asked.glob,
        files_max=asked.files_max or FILES_MAX,
    )
    with Progress(asked.as_json) as progress, interrupts() as interrupted:
        query = match_stream(
            files,
            asked.index,
            asked.output,
            checkpoint=asked.checkpoint,
            every=EVERY if every is None else every,
            once=asked.once,
            late=late,
            time=asked.time or "$time",
            report=progress,
            spark=spark,
        )
        progress.started()
        waited(query, interrupted, progress)
    return progress.summary(asked.output)


def duration(where: str, text: str | None) -> timedelta | None:
    from catchment.model.values import parse_duration

    try:
        return None if text is None else timedelta(0) if text in ("0", "0s") else parse_duration(text)
    except InputError as problem:
        raise BadUsage(f"{where}: {problem}") from None


# --- until it ends ------------------------------------------------------------------------------


@contextmanager
def interrupts() -> Iterator[Event]:
    """The first Ctrl-C asks to stop, the next one stops at once."""
    asked = Event()

    def on_interrupt(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def waited(query: StreamingQuery, interrupted: Event, progress: Progress | None = None) -> None:
    """Until the stream ends, or is asked to: then the batch at work is finished first. What Spark begins meanwhile
    is dropped, and is done when the stream is started again."""
    from pyspark.errors import StreamingQueryException

    done = None
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            if not interrupted.is_set():
                continue
            if done is None and progress is not None:
                progress.stopping()
            done = _batches_of(progress) if done is None else done
            if _batches_of(progress) > done or not query.status["isTriggerActive"]:
                query.stop()
                return
    except StreamingQueryException as problem:
        raise _cause(problem) from None


def _batches_of(progress: Progress | None) -> int:
    return 0 if progress is None else progress.batches


def _cause(problem: Exception) -> Exception:
    """Our own complaint, where Spark only carried it from the handler of a batch."""
    from catchment import errors

    for line in str(problem).splitlines():
        kind, _, message = line.strip().partition(": ")
        name = kind.removeprefix("catchment.errors.")
        if name != kind and issubclass(getattr(errors, name, Exception), errors.CatchmentError):
            return errors.UnavailableError(f"the stream stopped: {message}")
    return problem


# --- saying so ----------------------------------------------------------------------------------


class Progress:
    """Hears of each batch: a line that changes on a terminal, a line for each elsewhere, or JSON."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._status: Status | None = None
        self.batches = 0
        self._totals = dict.fromkeys(("notifications", "matched", "matches", "rejected", "late"), 0)
        self._version: int | None = None
        self._began = monotonic()

    def __enter__(self) -> Progress:
        shown = console(stderr=True)
        if shown.is_terminal and not self._as_json:
            self._status = shown.status("starting the stream")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, batch: BatchRecord) -> None:
        found = asdict(batch)
        self.batches += 1
        self._version = batch.version
        for name in self._totals:
            self._totals[name] += found[name]
        if self._as_json:
            print(json.dumps({"batch": found}), flush=True)
        self._say(self._line())

    def started(self) -> None:
        self._began = monotonic()
        self._say("waiting for files; Ctrl-C stops")

    def stopping(self) -> None:
        self._say("stopping after this batch")

    def _say(self, line: str) -> None:
        if self._status is not None:
            self._status.update(line)
        elif not self._as_json:
            sys.stderr.write(f"{line}\n")

    def _line(self) -> str:
        rate = self._totals["notifications"] / max(monotonic() - self._began, 1e-3)
        parts = [
            _counted(self.batches),
            f"{self._totals['notifications']:,} notifications, {rate:,.0f}/s",
            f"{self._totals['matched']:,} matched",
            *(f"{self._totals[name]:,} {name}" for name in ("rejected", "late") if self._totals[name]),
            f"index version {self._version}",
        ]
        return ", ".join(parts)

    def summary(self, output: str) -> int:
        totals: dict[str, Any] = {"batches": self.batches, **self._totals, "version": self._version, "output": output}
        if self._as_json:
            print(json.dumps({"summary": totals}))
            return 0
        print(f"{_counted(self.batches)}, {self._totals['notifications']:,} notifications")
        print(f"{self._totals['matched']:,} matched, {self._totals['matches']:,} matches")
        for name, table in (("rejected", "rejects"), ("late", "late")):
            if self._totals[name]:
                print(f"{self._totals[name]:,} {name}: see {Path(output) / table}")
        print(f"written to {Path(output) / 'matched'}")
        return 0


def _counted(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches:,} batches"
